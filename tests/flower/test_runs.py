"""Runs on Flower: resuming after a kill, data on nodes, the run configuration; all in one process."""

import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from flwr.app import Message

from e2fl.algorithms import ALGORITHMS
from e2fl.algorithms.local import Local
from e2fl.config.experiment import Experiment, from_dict
from e2fl.data import Client
from e2fl.errors import ConfigError, RunError
from e2fl.flower.client import client_app
from e2fl.flower.records import RequestMetadata, payload, request_content
from e2fl.flower.run_config import RunConfig, overrides
from e2fl.flower.server import run_on
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import Run
from e2fl.runs.watcher import Watcher
from e2fl.wire import Nothing
from tests.flower.grid import QUICK, LocalGrid, with_all_clients
from tests.flower.test_runtimes_agree import assert_equal, on_flower, plain


class KilledError(Exception):
    """Stands for a process that was killed."""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_killed_server_resumes_to_the_same_result(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    experiment = toy.variant(name)
    last = experiment.build_algorithm().rounds(
        experiment.rounds, experiment.build_data().population
    )
    config = RunConfig(out=str(tmp_path / "run"))

    class Kill(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == last - 1:
                raise KilledError

    with pytest.raises(KilledError):
        _run_at(tmp_path, experiment, config, Kill())
    # The newest checkpoint is of the round before: what clients stored in the killed round must not count.
    resumed = _run_at(tmp_path, experiment, replace(config, resume=True), Watcher())
    whole = on_flower(experiment, tmp_path / "whole", RunConfig(out=str(tmp_path / "whole-run")))
    assert_equal(resumed, whole)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {path.name for path in (tmp_path / "whole-run").iterdir()}
    assert (tmp_path / "run/clients.csv").read_bytes() == (
        tmp_path / "whole-run/clients.csv"
    ).read_bytes()


def test_a_server_that_was_killed_twice_can_resume_from_the_checkpoint_before(
    toy: Experiment, tmp_path: Path
) -> None:
    """Nodes keep what the older checkpoint needs until a third one is saved."""
    experiment = replace(
        toy, rounds=8, evaluate_every=8, algorithm={"name": "ditto", "clients_per_round": 8}
    )
    config = RunConfig(out=str(tmp_path / "run"))
    again = replace(config, resume=True)

    class Kill(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == 5:
                raise KilledError

    for attempt in (config, again):  # the second time in its first round, before it saves
        with pytest.raises(KilledError):
            _run_at(tmp_path, experiment, attempt, Kill())
    older, newer = sorted((tmp_path / "run/checkpoint").glob("round-*"))
    assert (older.stem, newer.stem) == ("round-0000003", "round-0000004")
    newer.write_bytes(b"damaged")
    resumed = _run_at(tmp_path, experiment, again, Watcher())
    whole = on_flower(experiment, tmp_path / "whole", RunConfig(out=str(tmp_path / "whole-run")))
    assert_equal(resumed, whole)


def _run_at(folder: Path, experiment: Experiment, config: RunConfig, watcher: Watcher) -> Run:
    path = folder / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(
        client_app(path),
        experiment.build_data().population.ids,
        node_config={"memory": str(folder / "memory")},
    )
    return run_on(grid, experiment, config, watcher=watcher)


def test_a_run_is_resumed_with_the_clients_it_started_with(toy: Experiment, tmp_path: Path) -> None:
    config = replace(QUICK, out=str(tmp_path / "run"))

    class Kill(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == 2:
                raise KilledError

    with pytest.raises(KilledError):
        _run_at(tmp_path, with_all_clients(toy), config, Kill())
    grid = LocalGrid(
        client_app(tmp_path / "experiment.toml"), range(7), node_config={"memory": str(tmp_path)}
    )
    run = run_on(grid, with_all_clients(toy), replace(config, resume=True))
    assert run.history[-1]["asked"] == 8
    assert run.history[-1]["faults"] == {
        "missing": 2
    }  # client 7: in training, and in the evaluation


def test_an_existing_folder_is_not_overwritten(toy: Experiment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="resume=true"):
        _run_at(tmp_path, toy, RunConfig(out=str(tmp_path)), Watcher())


def test_a_message_for_many_clients_is_encoded_once(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    run_on(grid, with_all_clients(toy), QUICK)
    trained = [m.content["payload-0"] for m in grid.sent if m.metadata.message_type == "train"]
    assert len(trained) == 24
    assert len({id(record) for record in trained}) == 3


def test_a_node_loads_its_own_data_and_declares_its_group(toy: Experiment, tmp_path: Path) -> None:
    source = toy.build_data()
    section = {
        "name": "e2fl.flower.on_nodes:OnNodes",
        "clients": 8,
        "classes": 3,
        "shape": [16],
        "groups": 2,
    }
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
    section = {
        "name": "e2fl.flower.on_nodes:OnNodes",
        "clients": 8,
        "classes": 3,
        "shape": [16],
        "groups": 2,
    }
    with pytest.raises(Exception, match="run the experiment with Flower"):
        run_experiment(replace(toy, data=section))


def test_a_node_with_another_experiment_is_rejected(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    with pytest.raises(RunError, match="the experiment of this node differs from the server's"):
        run_on(grid, replace(toy, seed=5), replace(QUICK, wait_seconds=0.2))


def test_overrides_and_settings_come_from_the_run_configuration() -> None:
    assert overrides({"set": "rounds=20; algorithm.absent=present_only;"}) == [
        "rounds=20",
        "algorithm.absent=present_only",
    ]
    assert RunConfig.parse({"round-seconds": 5, "other": "mine"}) == RunConfig(round_seconds=5.0)
    with pytest.raises(ConfigError, match="round-seconds must be above 0"):
        RunConfig.parse({"round-seconds": 0.0})
    with pytest.raises(ConfigError, match="resume needs out"):
        RunConfig.parse({"resume": True})


def test_loading_the_client_app_does_not_import_torch(tmp_path: Path) -> None:
    code = "import sys; from e2fl.flower.client import client_app; client_app('x'); print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert found.stdout.strip() == "False"


def test_what_a_client_stored_for_a_killed_server_is_discarded(tmp_path: Path) -> None:
    """Client 0 trains in rounds 1 and 2; the server resumes from round 1; what it stored in round 2 is discarded."""
    experiment = from_dict(
        {
            "rounds": 1,
            "data": {"name": "e2fl.testing.toy:Toy"},
            "model": {"name": "mlp", "hidden": [8]},
            "algorithm": {"name": "tests.flower.test_runs:Counting"},
        }
    )
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), [0], node_config={"memory": str(tmp_path / "memory")})
    raw = Nothing().to_bytes(experiment.build_model(experiment.build_data()).spec)
    seen = []
    for server_id, round_number, resumed_from in (
        ("a", 1, 0),
        ("a", 2, 0),
        ("b", 3, 1),
        ("b", 4, 1),
    ):
        metadata = RequestMetadata(
            round_number=round_number,
            run_id="0" * 32,
            server_id=server_id,
            resumed_from=resumed_from,
            oldest=0,
        )
        content = request_content({0: payload(raw)}, metadata)
        grid.send_and_receive([Message(content, dst_node_id=1000, message_type="train")])
        seen.append(COUNTED[-1])
    assert seen == [1, 2, 2, 3]


COUNTED: list[int] = []


class Counting(Local):
    """Counts in its memory how often a client trained."""

    def train(self, message: Any, client: Any, learner: Any) -> Any:
        before = client.memory.get("times", {"n": torch.zeros(1)})
        client.memory["times"] = {"n": before["n"] + 1}
        COUNTED.append(int(client.memory["times"]["n"]))
        return message


class Wrong(Local):
    """Forgets to return a reply."""

    def train(self, message: Any, client: Any, learner: Any) -> Any:
        return None


def test_a_node_names_the_method_that_returned_the_wrong_type(
    toy: Experiment, tmp_path: Path
) -> None:
    experiment = replace(toy, algorithm={"name": "tests.flower.test_runs:Wrong"})
    with pytest.raises(RunError, match=r"Wrong\.train returned nothing; it must return a Nothing"):
        on_flower(experiment, tmp_path, QUICK)


def test_replies_are_polled_as_often_as_configured(toy: Experiment, tmp_path: Path) -> None:
    """Every poll_seconds, not every three seconds as Flower does."""
    ready: dict[str, float] = {}
    asked: Counter[str] = Counter()

    class Slow(LocalGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:
            asked.update(message_ids)
            due = [
                name
                for name in message_ids
                if time.monotonic() >= ready.setdefault(name, time.monotonic() + 0.1)
            ]
            return super().pull_messages(due)

    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = Slow(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    run_on(grid, with_all_clients(toy), RunConfig(poll_seconds=0.02))
    assert len(ready) == 8 * 7  # the population, then three rounds of training and evaluation
    assert max(asked.values()) > 2  # polling at once and after three seconds would be twice
