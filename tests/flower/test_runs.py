"""Runs on Flower: resuming after a kill, data on nodes, the run configuration.

All in one process.
"""

import subprocess
import sys
from dataclasses import replace

import pytest

from e2fl.algorithms import ALGORITHMS
from e2fl.algorithms.local import Local
from e2fl.data import Client
from e2fl.errors import ConfigError, DataError, RunError
from e2fl.flower.run_config import RunConfig, overrides
from e2fl.flower.server import run_on
from e2fl.runs.chain import RECEIPTS, MismatchError, check_receipts
from e2fl.runs.recount import recount
from e2fl.runs.runner import run_experiment
from tests.flower.grid import (
    QUICK,
    KilledError,
    assert_equal,
    grid_of,
    killed_at,
    on_flower,
    plain,
    with_all_clients,
)

ON_NODES = {
    "name": "e2fl.flower.on_nodes:OnNodes",
    "clients": 8,
    "classes": 3,
    "shape": [16],
    "groups": 2,
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_killed_server_resumes_to_the_result_of_the_simulator(name, toy, tmp_path):
    """A run that is not interrupted: tests/flower/test_runtimes_agree.py."""
    experiment = toy.variant(name)
    population = experiment.build.data().population
    last = experiment.build.algorithm().rounds(experiment.rounds, population)
    config = RunConfig(out=str(tmp_path / "run"))
    with pytest.raises(KilledError):
        on_flower(experiment, tmp_path, config, watcher=killed_at(last - 1))
    # The newest checkpoint is of the round before: what clients stored since must not count.
    resumed = on_flower(experiment, tmp_path, replace(config, resume=True))
    assert_equal(resumed, run_experiment(experiment, out=tmp_path / "simulated"))
    files, expected = tmp_path / "run", tmp_path / "simulated"
    assert {path.name for path in files.iterdir()} == {path.name for path in expected.iterdir()}
    assert (files / "clients.csv").read_bytes() == (expected / "clients.csv").read_bytes()


@pytest.mark.parametrize("ballot", ["exact", "buckets"])
def test_clients_find_their_ballots_in_the_chain_of_a_resumed_run(toy, tmp_path, ballot):
    algorithm = {"name": "e2fl_steady", "clients_per_round": 3, "ballot": {"name": ballot}}
    experiment = replace(toy, algorithm=algorithm, keep_ballots=True)
    out = tmp_path / "run"
    config = RunConfig(out=str(out))
    with pytest.raises(KilledError):
        on_flower(experiment, tmp_path, config, watcher=killed_at(4))
    on_flower(experiment, tmp_path, replace(config, resume=True))
    assert "6 rounds, 18 ballots" in recount(out)
    receipts = sorted((tmp_path / "memory").rglob(RECEIPTS))
    assert sum(check_receipts(out, path) for path in receipts) == 18
    text = receipts[0].read_text()
    receipts[0].write_text(text.replace('["', '["0', 1))
    with pytest.raises(MismatchError, match="the receipt of client"):
        check_receipts(out, receipts[0])


def test_a_server_that_was_killed_twice_can_resume_from_the_checkpoint_before(toy, tmp_path):
    """Nodes keep what the older checkpoint needs until a third one is saved."""
    ditto = {"name": "ditto", "clients_per_round": 8}
    experiment = replace(toy, rounds=8, evaluate_every=8, algorithm=ditto)
    config = RunConfig(out=str(tmp_path / "run"))
    again = replace(config, resume=True)
    for attempt in (config, again):  # the second time in its first round, before it saves
        with pytest.raises(KilledError):
            on_flower(experiment, tmp_path, attempt, watcher=killed_at(5))
    older, newer = sorted((tmp_path / "run/checkpoint").glob("round-*"))
    assert (older.stem, newer.stem) == ("round-0000003", "round-0000004")
    newer.write_bytes(b"damaged")
    assert_equal(on_flower(experiment, tmp_path, again), run_experiment(experiment))


def test_a_run_is_resumed_with_the_clients_it_started_with(toy, tmp_path):
    experiment = with_all_clients(toy)
    config = replace(QUICK, out=str(tmp_path / "run"))
    with pytest.raises(KilledError):
        on_flower(experiment, tmp_path, config, watcher=killed_at(2))
    with pytest.raises(RunError, match="resume=true"):
        on_flower(experiment, tmp_path, config)
    again = replace(config, resume=True)
    run = on_flower(experiment, tmp_path, again, partitions=range(7))
    assert run.history[-1]["asked"] == 8
    assert run.history[-1]["faults"] == {"missing": 2}  # client 7: in training, in the evaluation
    (tmp_path / "run/checkpoint/population.json").write_text("{}")
    with pytest.raises(RunError, match="damaged"):
        on_flower(replace(experiment, rounds=4), tmp_path, again)


def test_a_message_for_many_clients_is_encoded_once(toy, tmp_path):
    grid = grid_of(with_all_clients(toy), tmp_path)
    run_on(grid, with_all_clients(toy), QUICK)
    trained = [m.content for m in grid.sent if m.metadata.message_type == "train"]
    assert len(trained) == 24
    # Round 1; then a round's message comes with what the round before it is evaluated with.
    assert len({id(content["payload-0"]) for content in trained}) == 3


def test_a_node_loads_its_own_data_and_declares_its_group(toy, tmp_path):
    source = toy.build.data()

    def load_client(context):
        known = source.client(int(context.node_config["partition-id"]))
        return Client(known.id, known.train, known.test)

    experiment = replace(toy, data=ON_NODES)
    grid = grid_of(experiment, tmp_path, load_client=load_client)
    for context in grid.contexts.values():
        context.node_config["group"] = context.node_config["partition-id"] % 2
    run = run_on(grid, experiment, QUICK)
    simulated = run_experiment(toy)
    assert plain(run.state) == plain(simulated.state)
    assert run.history[-1]["groups"] == simulated.history[-1]["groups"]
    with pytest.raises(DataError, match="run the experiment with Flower"):
        run_experiment(experiment)


def test_overrides_and_settings_come_from_the_run_configuration():
    values = {"set": "rounds=20; algorithm.absent=present_only;"}
    assert overrides(values) == ["rounds=20", "algorithm.absent=present_only"]
    assert RunConfig.parse({"round-seconds": 5, "other": "mine"}) == RunConfig(round_seconds=5.0)
    with pytest.raises(ConfigError, match="round-seconds must be above 0"):
        RunConfig.parse({"round-seconds": 0.0})
    with pytest.raises(ConfigError, match="resume needs out"):
        RunConfig.parse({"resume": True})


def test_loading_the_client_app_does_not_import_torch():
    code = "import sys; from e2fl.flower.client import client_app; client_app('x'); "
    code += "print('torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "False"


class Wrong(Local):
    """Forgets to return a reply."""

    def train(self, message, client, learner):
        return None


def test_a_node_names_the_method_that_returned_the_wrong_type(toy, tmp_path):
    experiment = replace(toy, algorithm={"name": "tests.flower.test_runs:Wrong"})
    with pytest.raises(RunError, match=r"Wrong\.train returned nothing; it must return a Nothing"):
        on_flower(experiment, tmp_path, QUICK)
