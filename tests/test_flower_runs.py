"""Runs on Flower: going on after a kill, data on nodes, options, the strategy, the commands; all in one process."""

import os
import socket
import ssl
import stat
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from flwr.app import Message

from e2fl.algorithms import ALGORITHMS
from e2fl.cli import main
from e2fl.data import Client
from e2fl.errors import ConfigError, RunError
from e2fl.experiment import Experiment, from_dict
from e2fl.flower.client import client_app
from e2fl.flower.envelope import PAYLOAD
from e2fl.flower.export import export
from e2fl.flower.keys import make_keys
from e2fl.flower.options import Options, changes, from_run_config
from e2fl.flower.server import run_on
from e2fl.flower.strategy import AlgorithmStrategy
from e2fl.runner import Run, Watcher, run_experiment
from tests.flower_grid import QUICK, LocalGrid, everybody
from tests.test_runtimes_agree import assert_equal, on_flower, plain


class KilledError(Exception):
    """Stands for a process that is gone."""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_server_that_was_killed_goes_on_to_the_same_result(name: str, toy: Experiment, tmp_path: Path) -> None:
    experiment = toy.variant(name)
    last = experiment.build_algorithm().rounds(experiment.rounds, experiment.build_data().roll)
    options = Options(out=str(tmp_path / "run"))

    class Kill(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == last - 1:
                raise KilledError

    with pytest.raises(KilledError):
        _run_at(tmp_path, experiment, options, Kill())
    # The newest checkpoint is of the round before: what clients kept in the killed one must not count.
    resumed = _run_at(tmp_path, experiment, replace(options, resume=True), Watcher())
    whole = on_flower(experiment, tmp_path / "whole", Options(out=str(tmp_path / "whole-run")))
    assert_equal(resumed, whole)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {path.name for path in (tmp_path / "whole-run").iterdir()}
    assert (tmp_path / "run/clients.csv").read_bytes() == (tmp_path / "whole-run/clients.csv").read_bytes()


def test_a_server_that_was_killed_twice_can_go_on_from_the_checkpoint_before(toy: Experiment, tmp_path: Path) -> None:
    """Nodes keep what the older checkpoint needs, until a newer one than both is saved."""
    experiment = replace(toy, rounds=8, evaluate_every=8, algorithm={"name": "ditto", "clients_per_round": 8})
    options = Options(out=str(tmp_path / "run"))
    again = replace(options, resume=True)

    class Kill(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == 5:
                raise KilledError

    for attempt in (options, again):  # the second time in its first round, before it saves
        with pytest.raises(KilledError):
            _run_at(tmp_path, experiment, attempt, Kill())
    older, newer = sorted((tmp_path / "run/checkpoint").glob("round-*"))
    assert (older.name, newer.name) == ("round-0000003", "round-0000004")
    (newer / "state.safetensors").write_bytes(b"damaged")
    resumed = _run_at(tmp_path, experiment, again, Watcher())
    whole = on_flower(experiment, tmp_path / "whole", Options(out=str(tmp_path / "whole-run")))
    assert_equal(resumed, whole)


def _run_at(folder: Path, experiment: Experiment, options: Options, watcher: Watcher) -> Run:
    path = folder / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), experiment.build_data().roll.ids, node_config={"memory": str(folder / "memory")})
    return run_on(grid, experiment, options, watcher=watcher)


def test_a_run_is_gone_on_with_by_those_who_began_it(toy: Experiment, tmp_path: Path) -> None:
    options = replace(QUICK, out=str(tmp_path / "run"))

    class Kill(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == 2:
                raise KilledError

    with pytest.raises(KilledError):
        _run_at(tmp_path, everybody(toy), options, Kill())
    grid = LocalGrid(client_app(tmp_path / "experiment.toml"), range(7), node_config={"memory": str(tmp_path)})
    run = run_on(grid, everybody(toy), replace(options, resume=True))
    assert run.history[-1]["asked"] == 8
    assert run.history[-1]["faults"] == {"missing": 2}  # client 7: in training, and in the evaluation


def test_a_folder_that_is_there_is_not_overwritten(toy: Experiment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="resume=true"):
        _run_at(tmp_path, toy, Options(out=str(tmp_path)), Watcher())


def test_a_message_for_many_is_encoded_once(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    run_on(grid, everybody(toy), QUICK)
    trained = [m.content[PAYLOAD] for m in grid.sent if m.metadata.message_type == "train"]
    assert len(trained) == 24
    assert len({id(record) for record in trained}) == 3


def test_a_node_brings_its_own_data_and_its_group(toy: Experiment, tmp_path: Path) -> None:
    source = toy.build_data()
    section = {"name": "e2fl.flower.data:OnNodes", "clients": 8, "classes": 3, "shape": [16], "groups": 2}
    experiment = replace(toy, data=section)
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())

    def load_client(context: Any) -> Client:
        known = source.client(int(context.node_config["partition-id"]))
        return Client(known.id, known.train, known.test)

    grid = LocalGrid(client_app(path, load_client), range(8), node_config={"memory": str(tmp_path)})
    for context in grid.contexts.values():
        context.node_config["group"] = context.node_config["partition-id"] % 2
    run = run_on(grid, experiment, QUICK)
    assert plain(run.state) == plain(run_experiment(toy).state)
    assert run.history[-1]["groups"] == run_experiment(toy).history[-1]["groups"]


def test_data_on_nodes_cannot_be_simulated(toy: Experiment) -> None:
    section = {"name": "e2fl.flower.data:OnNodes", "clients": 8, "classes": 3, "shape": [16], "groups": 2}
    with pytest.raises(Exception, match="run the experiment with Flower"):
        run_experiment(replace(toy, data=section))


def test_a_node_with_another_experiment_is_refused(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    with pytest.raises(RunError, match="another experiment than the server"):
        run_on(grid, replace(toy, seed=5), replace(QUICK, wait_seconds=0.2))


def test_changes_and_options_come_from_the_run_configuration() -> None:
    assert changes({"set": "rounds=20; algorithm.absent=present_only;"}) == [
        "rounds=20",
        "algorithm.absent=present_only",
    ]
    assert from_run_config({"round-seconds": 5, "other": "mine"}) == Options(round_seconds=5.0)
    with pytest.raises(ConfigError, match="round-seconds must be above 0"):
        from_run_config({"round-seconds": 0.0})
    with pytest.raises(ConfigError, match="resume needs out"):
        from_run_config({"resume": True})


def test_flower_looks_at_the_app_without_importing_torch(tmp_path: Path) -> None:
    code = "import sys; from e2fl.flower.client import client_app; client_app('x'); print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "False"


def test_memories_of_a_killed_life_are_forgotten(tmp_path: Path) -> None:
    """Client 0 trains in rounds 1 and 2; the server goes on from round 1; what it kept in round 2 never happened."""
    experiment = from_dict(
        {
            "rounds": 1,
            "data": {"name": "e2fl.testing.toy:Toy"},
            "model": {"name": "mlp", "hidden": [8]},
            "algorithm": {"name": "tests.test_flower_runs:Counting"},
        }
    )
    from e2fl.flower.envelope import Errand, outward
    from e2fl.flower.envelope import payload as wrap
    from e2fl.wire import Nothing

    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), [0], node_config={"memory": str(tmp_path / "memory")})
    raw = Nothing().to_bytes(experiment.build_model(experiment.build_data()).spec)
    seen = []
    for life, number, resumed in (("a", 1, 0), ("a", 2, 0), ("b", 3, 1), ("b", 4, 1)):
        errand = Errand(number, "0" * 32, life, resumed, 0)
        content = outward(wrap(raw), errand)
        grid.send_and_receive([Message(content, dst_node_id=1000, message_type="train")])
        seen.append(COUNTED[-1])
    assert seen == [1, 2, 2, 3]


COUNTED: list[int] = []


def _counting() -> type:
    import torch

    from e2fl.algorithms.local import Local

    class Counting(Local):
        def train(self, message: Any, client: Any, learner: Any) -> Any:
            before = client.memory.get("times", {"n": torch.zeros(1)})
            client.memory["times"] = {"n": before["n"] + 1}
            COUNTED.append(int(client.memory["times"]["n"]))
            return message

    return Counting


Counting = _counting()


def test_polling_is_quick(toy: Experiment, tmp_path: Path) -> None:
    """An answer that is there after a tenth of a second is taken then, not after Flower's three."""
    start = time.monotonic()
    ready: dict[str, float] = {}

    class Slow(LocalGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:
            due = [name for name in message_ids if time.monotonic() >= ready.setdefault(name, time.monotonic() + 0.1)]
            return super().pull_messages(due)

    path = tmp_path / "experiment.toml"
    path.write_text(everybody(toy).to_toml())
    grid = Slow(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    run_on(grid, everybody(toy), Options(poll_seconds=0.02))
    assert time.monotonic() - start < 3
    assert len(ready) == 8 * 7  # roll, and three times training and evaluation


# The strategy.


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_a_strategy_with_the_same_result(name: str, toy: Experiment, tmp_path: Path) -> None:
    experiment = toy.variant(name)
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    strategy = AlgorithmStrategy(experiment, QUICK)
    simulated = run_experiment(experiment)
    result = strategy.start(grid)
    assert plain(strategy.state) == plain(simulated.state)
    last = result.evaluate_metrics_clientapp[max(result.evaluate_metrics_clientapp)]
    assert {name: last[f"user-{name}"] for name in simulated.summary["user"]} == simulated.summary["user"]
    assert {name.split("/")[0] for name in result.arrays} == set(strategy.algorithm.models(strategy.state))


LONGER = {
    "a last round of its own": {"name": "e2fl", "clients_per_round": 4, "final_full_vote": True},
    "trials before": {"name": "ifca", "clients_per_round": 2, "restarts": 2, "trial_rounds": 2},
    "a turn for each": {"name": "local", "clients_per_round": 2},
}


@pytest.mark.parametrize("name", LONGER)
def test_the_strategy_has_the_rounds_that_the_algorithm_has_use_for(name: str, toy: Experiment, tmp_path: Path) -> None:
    experiment = replace(toy, rounds=2, evaluate_every=2, algorithm=LONGER[name])
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    strategy = AlgorithmStrategy(experiment, QUICK)
    result = strategy.start(grid)
    simulated = run_experiment(experiment)
    assert simulated.summary["rounds"] > 2
    assert plain(strategy.state) == plain(simulated.state)
    assert list(result.evaluate_metrics_clientapp) == [line["round"] for line in simulated.history]
    last = result.evaluate_metrics_clientapp[simulated.summary["rounds"]]
    assert {name: last[f"user-{name}"] for name in simulated.summary["user"]} == simulated.summary["user"]


def test_the_strategy_ends_with_the_round_it_is_told_to_end_with(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    strategy = AlgorithmStrategy(toy, QUICK)
    result = strategy.start(grid, num_rounds=3)
    assert list(result.evaluate_metrics_clientapp) == [2, 3]
    assert plain(strategy.state) == plain(run_experiment(replace(toy, rounds=3)).state)


def test_the_strategy_fails_where_nothing_was_learnt(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(
        client_app(path),
        range(8),
        node_config={"memory": str(tmp_path)},
        trouble=lambda partition, message, honest: [] if message.metadata.message_type == "train" else [honest],
    )
    with pytest.raises(RunError, match="nothing was learnt"):
        AlgorithmStrategy(toy, QUICK).start(grid, timeout=0.05)


# The commands.


def test_export_writes_an_app_that_flower_accepts(tmp_path: Path) -> None:
    from flwr.common.config import validate_config

    assert main(["flower", "export", "three_nodes", "--set", "rounds=2", "--out", str(tmp_path / "app")]) == 0
    config = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert validate_config(config, check_module=True, project_dir=tmp_path / "app") == (True, [], [])
    assert config["tool"]["flwr"]["app"]["config"]["out"] == "runs/three-nodes"
    assert "rounds = 2" in (tmp_path / "app/federation/experiment.toml").read_text()
    for script in (tmp_path / "app/scripts").iterdir():
        subprocess.run(["bash", "-n", str(script)], check=True)
        assert "--insecure" not in script.read_text() or script.name == "simulate"
        assert "@name@" not in script.read_text()
    assert main(["flower", "export", "three_nodes", "--out", str(tmp_path / "app")]) == 2


def test_register_gives_up_where_there_is_no_server(toy: Experiment, tmp_path: Path) -> None:
    done = _script(toy, tmp_path, "register", WAIT="1")
    assert done.returncode == 1
    assert "after 1 seconds; is it running? What it says is in superlink.log" in done.stderr


def test_simulate_notices_that_its_server_is_gone(toy: Experiment, tmp_path: Path) -> None:
    done = _script(toy, tmp_path, "simulate", WAIT="30")
    assert done.returncode == 1
    assert done.stderr == "the server ended as soon as it was started; simulation.log says why\n"
    assert (tmp_path / "app/simulation.log").read_text() == "no room\n"


def test_simulate_does_not_take_anothers_server_for_its_own(toy: Experiment, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as another:
        done = _script(toy, tmp_path, "simulate", PORT=str(another.getsockname()[1]))
    assert done.returncode == 1
    assert "choose another" in done.stderr


def _script(experiment: Experiment, folder: Path, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shipped script where Flower's server ends at once."""
    export(experiment, folder / "app")
    commands = folder / "bin"
    commands.mkdir()
    for command, text in (("flower-superlink", "echo no room; exit 1"), ("flwr", "exit 1")):
        (commands / command).write_text(f"#!/bin/sh\n{text}\n")
        (commands / command).chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = str(probe.getsockname()[1])
    return subprocess.run(
        [str(folder / "app/scripts" / name)],
        env={"PATH": f"{commands}:{os.environ['PATH']}", "HOST": "127.0.0.1", "PORT": free, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_keys_are_secret_and_never_overwritten(tmp_path: Path) -> None:
    assert main(["flower", "keys", "--nodes", "2", "--host", "example.org", "--out", str(tmp_path / "keys")]) == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "keys").iterdir()}
    assert modes == {
        "ca.crt": 0o644,
        "server.crt": 0o644,
        "server.key": 0o600,
        "node-0": 0o600,
        "node-0.pub": 0o644,
        "node-1": 0o600,
        "node-1.pub": 0o644,
    }
    with pytest.raises(ConfigError, match="never overwritten"):
        make_keys(tmp_path / "keys", 1, ["localhost"])


@pytest.mark.parametrize("host", ["example.org", "10.0.0.7", "127.0.0.1", "localhost", "::1"])
def test_the_servers_certificate_is_good_for_its_hosts_and_on_the_server_itself(host: str, tmp_path: Path) -> None:
    """With LISTEN=0.0.0.0 Flower's own processes reach the server as 127.0.0.1, whatever its name is."""
    make_keys(tmp_path / "keys", 1, ["example.org", "10.0.0.7", "localhost"])
    _shake_hands(tmp_path / "keys", host)


def test_the_servers_certificate_is_good_for_no_other_host(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", 1, ["example.org"])
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(tmp_path / "keys", "example.net")


def _shake_hands(keys: Path, host: str) -> None:
    """Begin TLS as a node that knows the server as `host`."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(keys / "server.crt", keys / "server.key")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(up, down, server_side=True)
    node = ssl.create_default_context(cafile=str(keys / "ca.crt")).wrap_bio(down, up, server_hostname=host)
    unfinished = [node, server]
    while unfinished:
        for side in list(unfinished):
            try:
                side.do_handshake()
                unfinished.remove(side)
            except ssl.SSLWantReadError:
                continue
