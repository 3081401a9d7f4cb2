"""The in-process federation: faults stay with who makes them, and equal work is done once."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.fedavg import FedAvg, Update
from e2fl.codec import to_json
from e2fl.data.federated import Client, Lazy
from e2fl.learning import Learner
from e2fl.participation import Ask
from e2fl.rounds import RoundRequest
from e2fl.runs.measure import measure
from e2fl.runs.runner import run_experiment
from e2fl.simulation import simulator
from e2fl.testing.contract import Problem
from e2fl.testing.toy import Toy
from tests.toys import toy_with


@dataclass(frozen=True)
class Unruly(FedAvg):
    """FedAvg with clients that misbehave: 0 raises, 1 diverges, 2 claims impossible things."""

    everyone: bool = False

    def train(self, message, client, learner):
        if client.id == 0 or self.everyone:
            raise RuntimeError("boom")
        update = super().train(message, client, learner)
        if client.id == 1:
            return Update(
                {name: weight * np.nan for name, weight in update.params.items()}, update.examples
            )
        if client.id == 2:
            return replace(update, examples=-5)
        return update


def one_round(problem):
    """The first round of a problem, evaluated."""
    (done,) = problem.run(problem.federation(), 1)
    return done


def test_bad_clients_are_left_out_and_counted_and_the_others_go_on():
    done = one_round(Problem(Unruly(clients_per_round=8)))
    assert done.answered == (3, 4, 5, 6, 7)
    assert {client: fault.split(":")[0] for client, fault in done.faults.items()} == {
        0: "failed",
        1: "malformed",
        2: "refused",
    }
    assert "boom" in done.faults[0]


@pytest.mark.parametrize("round_number", [1, 2])
def test_one_client_that_fails_and_clients_that_fail_later_end_nothing(round_number):
    problem = Problem(Unruly(clients_per_round=4))
    federation = problem.federation()
    sent = problem.algorithm.broadcast(problem.server(federation, 1).state, [0])
    assert set(federation.train(RoundRequest(round_number, Ask([0]), sent)).faults) == {0}


def test_when_nobody_gets_through_the_error_is_shown():
    with pytest.raises(RuntimeError, match="boom"):
        one_round(Problem(Unruly(clients_per_round=4, everyone=True)))


class Careless(Toy):
    """One client has a label that is none, one has nothing to be tested on."""

    def client(self, number):
        found = super().client(number)
        if number == 0:
            return replace(found, train=replace(found.train, y=np.full(len(found.train), 99)))
        nothing = found.test.take(np.array([], dtype=np.int64))
        return replace(found, test=nothing) if number == 1 else found


def test_a_label_that_is_none_is_that_clients_fault_and_no_test_rows_are_nobodys():
    data = Careless()
    done = one_round(Problem(E2FL(clients_per_round=8), data))
    assert done.answered == (1, 2, 3, 4, 5, 6, 7)
    assert "labels must be 0 to 2" in done.faults[0]
    measured = to_json(measure(done.scores, data))
    assert measured["groups"]["G2"]["clients"] == 3
    assert np.isfinite(measured["clients"]["mean"])


class SharedTest(Toy):
    """Clients of a group share one test set."""

    def client(self, number):
        found = super().client(number)
        return Client(number, found.train, super().client(number % self.groups).test, found.group)


def test_one_test_set_shared_by_many_is_scored_once_per_distinct_model(monkeypatch):
    counted = []
    real = Learner.tallies

    def tallies(self, params, pieces):
        counted.extend(pieces)
        return real(self, params, pieces)

    monkeypatch.setattr(Learner, "tallies", tallies)
    done = one_round(Problem(E2FL(clients_per_round=20), SharedTest(clients=40)))
    assert len(done.scores) == 40
    assert len(counted) == 4  # two groups: each with its own model, and with the global one


def test_large_test_sets_are_cut_without_changing_what_is_counted():
    problem = Problem(FedAvg(clients_per_round=1), Toy(examples=4500, clients=2))
    done = one_round(problem)
    learner = problem.federation().learner
    whole = learner.tally(done.state.params, problem.data.client(0).test)
    found = done.scores[0].views["global"][0]
    assert (found.n, found.correct) == (whole.n, whole.correct) == (4500, whole.correct)
    assert found.loss == pytest.approx(whole.loss)


def test_rows_of_groups_inside_a_client_are_scored_apart():
    data = Toy(inside=True, clients=4)
    done = run_experiment(toy_with(data={"inside": True, "clients": 4}))
    rows = [row for row in done.clients if row["client"] == "0"]
    counts = np.bincount(data.client(0).test.group)
    assert [(row["group"], row["n"]) for row in rows] == [("G1", counts[0]), ("G2", counts[1])]
    assert done.summary["group"]["mean"] > 60
    assert done.summary["groups"]["G1"]["clients"] == 4


def test_replies_that_do_not_fit_into_memory_come_back_from_a_file(toy, monkeypatch):
    expected = run_experiment(toy).history
    monkeypatch.setattr(simulator, "IN_MEMORY", 1)
    assert run_experiment(toy).history == expected


def test_replies_that_were_not_accepted_cannot_be_read():
    accepted = Lazy([2], {1: "one", 2: "two"}.__getitem__)
    assert list(accepted) == [2]
    assert 1 not in accepted
    with pytest.raises(KeyError):
        accepted[1]


def test_threads_of_the_pool_use_one_core_whatever_others_set_meanwhile():
    simulated = Problem(FedAvg()).federation(threads=1)
    before = torch.get_num_threads()
    simulated.pool.submit(int).result()
    try:
        torch.set_num_threads(2)
        assert simulated.pool.submit(torch.get_num_threads).result() == 1
    finally:
        torch.set_num_threads(before)
