"""Tasks of Ray: the same bits as one process, also when a process is lost; clear errors."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from e2fl.algorithms.ditto import Ditto
from e2fl.config.experiment import from_dict
from e2fl.errors import ConfigError, RunError
from e2fl.runs.runner import run_experiment
from e2fl.testing.toy import Toy
from tests.simulation.test_simulator import Unruly

FILES = ("history.jsonl", "clients.csv", "model.safetensors")
ACTORS = {"name": "ray", "actors": 2}


@dataclass(frozen=True)
class Crashing(Ditto):
    """Ditto in which client 1 ends its process: the first time, or always without a file."""

    crashed: str = ""

    def train(self, message, client, learner):
        if client.id == 1 and not (self.crashed and Path(self.crashed).exists()):
            if self.crashed:
                Path(self.crashed).touch()
            os._exit(1)
        return super().train(message, client, learner)


@pytest.fixture(scope="module")
def ray():
    """A local cluster with eight cores, for all tests; processes of a test stay for the next."""
    found = pytest.importorskip("ray", reason="needs Ray: pip install 'e2fl[ray]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_worker_niceness", "0")  # else a busy machine starves the processes
        found.init("local", num_cpus=8, include_dashboard=False, log_to_driver=False)
        yield found
        found.shutdown()


def files_of(experiment, folder):
    run_experiment(experiment, out=folder)
    return {name: (folder / name).read_bytes() for name in FILES}


def named(toy, name, **settings):
    return replace(toy, algorithm={"name": name, "clients_per_round": 5, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("actors", [1, 2, 4])
@pytest.mark.parametrize("name", ["e2fl", "ditto", "ifca"])
def test_tasks_give_the_bits_of_one_process(ray, toy, tmp_path, name, actors):
    """Rankings, what clients keep, and preparations before the first round."""
    plain = named(toy, name)
    here = files_of(plain, tmp_path / "here")
    there = replace(plain, runtime={"name": "ray", "actors": actors})
    assert files_of(there, tmp_path / "there") == here


@pytest.mark.slow
def test_several_cores_unseen_clients_and_data_made_in_python(ray, toy, tmp_path):
    data = Toy(held_out=2, inside=True, clients=9)
    plain = run_experiment(toy, data=data)
    runtime = ACTORS | {"cores": 2}
    actors = run_experiment(replace(toy, runtime=runtime), data=data)
    assert actors.history == plain.history
    assert actors.summary["unseen"] == plain.summary["unseen"]


@pytest.mark.slow
def test_a_run_resumes_on_ray(ray, toy, tmp_path):
    plain = named(toy, "ditto")
    here = files_of(plain, tmp_path / "here")
    run_experiment(replace(plain, rounds=3, keep_client_models=True), out=tmp_path / "there")
    run_experiment(replace(plain, runtime=ACTORS), out=tmp_path / "there", resume=True)
    assert {name: (tmp_path / "there" / name).read_bytes() for name in FILES} == here


@pytest.mark.slow
def test_clients_of_a_lost_process_train_again(ray, toy, tmp_path):
    marker = tmp_path / "crashed"
    own = "tests.simulation.test_cluster:Crashing"
    crashing = replace(named(toy, own, crashed=str(marker)), runtime=ACTORS)
    lost = files_of(crashing, tmp_path / "lost")
    assert marker.exists()
    assert files_of(replace(crashing, runtime={}), tmp_path / "here") == lost


@pytest.mark.slow
def test_a_client_that_ends_every_process_ends_the_run(ray, toy):
    own = "tests.simulation.test_cluster:Crashing"
    with pytest.raises(RunError, match="lost processes"):
        run_experiment(replace(named(toy, own), runtime=ACTORS))


@pytest.mark.slow
def test_a_client_that_fails_in_a_task_is_left_out(ray, toy):
    own = f"{Unruly.__module__}:Unruly"
    experiment = replace(toy, algorithm={"name": own, "clients_per_round": 8}, rounds=1)
    there, here = (run_experiment(replace(experiment, runtime=one)) for one in (ACTORS, {}))
    assert there.history == here.history
    everyone = experiment.changed([]).to_dict()
    everyone["algorithm"]["everyone"] = True
    with pytest.raises(RunError, match="boom"):
        run_experiment(replace(from_dict(everyone), runtime=ACTORS))


@pytest.mark.slow
def test_more_actors_than_cores_are_refused(ray, toy):
    with pytest.raises(ConfigError, match="do not fit into the 8 cores"):
        run_experiment(replace(toy, runtime={"name": "ray", "actors": 99}))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"runtime": {"actors": 2}}, "with a name"),
        ({"runtime": {"name": "rey"}}, "did you mean 'ray'"),
        ({"runtime": {"name": "ray", "actor": 2}}, "did you mean 'actors'"),
        ({"runtime": {"name": "ray", "actors": -1}}, "0 or more"),
        ({"runtime": {"name": "ray", "cores": 0}}, "at least 1"),
        ({"runtime": ACTORS, "device": "cuda"}, "processors"),
        ({"runtime": ACTORS, "attack": {"name": "none"}}, "attacks"),
    ],
)
def test_wrong_settings_are_refused(toy, change, word):
    with pytest.raises(ConfigError, match=word):
        run_experiment(from_dict(toy.to_dict() | change))


def test_the_runtime_is_for_simulations(toy):
    with pytest.raises(ConfigError, match="simulations only"):
        run_experiment(replace(toy, runtime=ACTORS), federate=lambda *parts: None)


def test_ray_may_be_missing(toy, monkeypatch):
    monkeypatch.setitem(sys.modules, "e2fl.simulation.cluster", None)
    with pytest.raises(ConfigError, match=r"e2fl\[ray\]"):
        run_experiment(replace(toy, runtime=ACTORS))
