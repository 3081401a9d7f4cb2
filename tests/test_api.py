"""The public API: five lines of Python."""

from dataclasses import replace

import pytest

import e2fl
from e2fl.testing.toy import Toy


def test_every_public_name_is_there():
    assert all(getattr(e2fl, name) is not None for name in e2fl.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        e2fl.nonsense  # noqa: B018


def test_run_takes_changes_another_algorithm_and_own_data(toy):
    run = e2fl.run(toy, algorithm="fedavg", data=Toy(clients=5), rounds=2, learner={"epochs": 1})
    assert run.summary["algorithm"] == "fedavg"
    assert run.summary["rounds"] == 2
    assert len(run.clients) == 5
    assert run.experiment.learner["epochs"] == 1
    assert run.experiment.learner["learning_rate"] == 0.1


def test_compare_gives_every_algorithm_the_same_clients(toy):
    one, other = e2fl.compare(toy, ["fedavg", "e2fl"], rounds=2)
    assert [row["client"] for row in one.clients] == [row["client"] for row in other.clients]
    assert (one.summary["label"], other.summary["label"]) == ("fedavg", "e2fl")


def test_changes_win_over_a_variant(toy):
    experiment = replace(toy, variants={"qffl": {"rounds": 600, "algorithm": {"q": 0.1}}})
    run = e2fl.run(experiment, algorithm={"name": "qffl", "q": 5.0}, rounds=2)
    assert (run.summary["rounds"], run.experiment.algorithm["q"]) == (2, 5.0)
    again = e2fl.run(experiment, algorithm={"clients_per_round": 3}, rounds=1).experiment.algorithm
    assert (again["name"], again["clients_per_round"]) == ("e2fl", 3)
    qffl, fedavg = e2fl.compare(experiment, ["qffl", "fedavg"], rounds=2, seed=3, algorithm={"q": 5.0})
    assert (qffl.summary["rounds"], qffl.experiment.algorithm["q"]) == (2, 5.0)
    assert "q" not in fedavg.experiment.algorithm
    assert {qffl.summary["seed"], fedavg.summary["seed"]} == {3}


def test_a_finished_run_can_be_read_again(toy, tmp_path):
    run = e2fl.run(toy, out=tmp_path / "run", rounds=2)
    again = e2fl.read_run(tmp_path / "run")
    assert again.summary == run.summary
    assert again.history == run.history
    assert again.experiment == run.experiment
