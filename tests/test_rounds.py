"""The server's loop: mistakes in an algorithm are named, and no single reply spoils a run."""

from dataclasses import dataclass

import pytest
import torch

from e2fl.algorithms import types_of
from e2fl.algorithms.base import Algorithm
from e2fl.algorithms.fedavg import FedAvg, Shared, Update
from e2fl.errors import ConfigError, E2flError
from e2fl.participation import Ask
from e2fl.rounds import Replies, Server, run
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.testing import check_algorithm
from e2fl.wire import Nothing, Weights


def rounds(toy, algorithm, norm_limit=1000.0, count=2):
    data = toy.build_data()
    model = toy.build_model(data)
    federation = SimulatedFederation(data, algorithm, toy.build_learner(model), threads=1)
    server = Server(algorithm, model, data.population, rounds=count, seed=0, evaluate_every=1, norm_limit=norm_limit)
    return list(run(server, federation))


def mistake(**methods):
    """FedAvg with some methods replaced."""
    return dataclass(frozen=True)(type("Mine", (FedAvg,), methods))(clients_per_round=4)


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"train": lambda self, m, c, learner: {"params": 1}}, "Mine.train returned a dict; it must return an Update"),
        ({"aggregate": lambda self, s, r: None}, "Mine.aggregate returned nothing; it must return a Shared"),
        ({"aggregate": lambda self, s, r: s.params}, "Mine.aggregate returned a dict; it must return a Shared"),
        ({"start": lambda self, m, p, s: m.initial_weights(s)}, "Mine.start returned a dict"),
        (
            {"broadcast": lambda self, s, clients: Weights(s.params)},
            "Mine.broadcast returned a Weights; it must",
        ),
        ({"broadcast": lambda self, s, clients: {}}, "Mine.broadcast returned nothing for client"),
        (
            {"broadcast": lambda self, s, c: dict.fromkeys(c, Nothing())},
            "returned a Nothing for a client; it must be",
        ),
        ({"serve": lambda self, s, clients: {0: Weights(s.params)}}, "Mine.serve returned nothing for client 1"),
        (
            {"model_for": lambda self, m, c, learner: m.params},
            "Mine.model_for returned a dict; it must return",
        ),
        ({"ask": lambda self, s, p, r, last, draw: [0, 1]}, "Mine.ask returned a list; it must return an Ask"),
        ({"ask": lambda self, s, p, r, last, draw: Ask([0, 0])}, "Mine.ask asks client 0 twice"),
        ({"ask": lambda self, s, p, r, last, draw: Ask([0, 99])}, "Mine.ask asks client 99, which is not in the pop"),
        ({"train": lambda self, message, client: None}, r"Mine.train\(message, client\) must take 3 arguments"),
        ({"aggregate": lambda self, s, r, extra: s}, r"Mine.aggregate\(s, r, extra\) must take 2 arguments"),
    ],
)
def test_a_mistake_in_an_algorithm_is_named_with_what_to_return(toy, methods, words):
    with pytest.raises(ConfigError, match=words):
        rounds(toy, mistake(**methods))


@pytest.mark.parametrize("clients", [[0, 0], [0, 99]])
def test_the_contract_finds_clients_that_are_repeated_or_unknown(clients):
    with pytest.raises(ConfigError, match=r"Mine\.ask asks client"):
        check_algorithm(mistake(ask=lambda self, s, p, r, last, draw: Ask(clients)))


def test_an_algorithm_must_name_its_types():
    class Untyped(Algorithm):
        pass

    with pytest.raises(ConfigError, match=r"derive it from Algorithm\[State, Down, Up, Served\]"):
        types_of(Untyped)
    found = types_of(FedAvg)
    assert (found.state, found.down, found.up, found.served) == (Shared, Weights, Update, Weights)


def huge(scale):
    """FedAvg with one client whose weights are finite and absurdly large."""

    def train(self, message, client, learner):
        update = FedAvg.train(self, message, client, learner)
        if client.id != 1:
            return update
        return Update({name: value * scale for name, value in update.params.items()}, update.examples)

    return dataclass(frozen=True)(type("Hostile", (FedAvg,), {"train": train}))(clients_per_round=8)


@pytest.mark.parametrize("scale", [1e5, 1e20, 1e37])
def test_one_reply_with_huge_weights_is_rejected_by_name_and_the_run_learns(toy, scale):
    done = rounds(toy, huge(scale), count=4)
    assert all("more than 1000 times the median" in round_.faults[1] for round_ in done)
    assert all(1 not in round_.answered for round_ in done)
    params = done[-1].state.params
    assert max(float(value.abs().max()) for value in params.values()) < 100


def test_without_a_limit_one_such_reply_spoils_the_model(toy):
    (done, *_) = rounds(toy, huge(1e20), norm_limit=0.0, count=1)
    assert max(float(value.abs().max()) for value in done.state.params.values()) > 1e15


def test_a_single_reply_is_compared_with_the_model_it_started_from(toy):
    data = toy.build_data()
    model = toy.build_model(data)
    algorithm = FedAvg(clients_per_round=1)
    server = Server(algorithm, model, data.population, rounds=1, seed=0, evaluate_every=1, norm_limit=1000.0)
    (client,) = server.ask().ask.clients
    large = {name: torch.full_like(value, 1e20) for name, value in server.state.params.items()}
    accepted, faults = server.accept(Replies({client: Update(large, 5)}))
    assert not accepted
    assert faults[client].startswith("refused: its weights have norm")


def test_errors_of_an_algorithm_are_our_own_kind():
    assert issubclass(ConfigError, E2flError)
