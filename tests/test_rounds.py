"""The server's loop: mistakes in an algorithm are named, and no single reply spoils a run."""

from dataclasses import dataclass

import pytest

from e2fl.algorithms import types_of
from e2fl.algorithms.base import Algorithm
from e2fl.algorithms.fedavg import FedAvg, Shared, Update
from e2fl.errors import ConfigError, E2flError
from e2fl.participation import Ask
from e2fl.rounds import Server, run
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.testing import check_algorithm
from e2fl.wire import Nothing, Weights


def rounds(toy, algorithm, update_limit=7.0, count=2):
    data = toy.build_data()
    model = toy.build_model(data)
    federation = SimulatedFederation(data, algorithm, toy.build_learner(model), threads=1)
    server = Server(
        algorithm,
        model,
        federation.population,
        rounds=count,
        seed=0,
        evaluate_every=1,
        update_limit=update_limit,
    )
    return list(run(server, federation))


def mistake(**methods):
    """FedAvg with some methods replaced."""
    return dataclass(frozen=True)(type("Mine", (FedAvg,), methods))(clients_per_round=4)


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        (
            {"train": lambda self, m, c, learner: {"params": 1}},
            "Mine.train returned a dict; it must return an Update",
        ),
        (
            {"aggregate": lambda self, s, r: None},
            "Mine.aggregate returned nothing; it must return a Shared",
        ),
        (
            {"aggregate": lambda self, s, r: s.params},
            "Mine.aggregate returned a dict; it must return a Shared",
        ),
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
        (
            {"serve": lambda self, s, clients: {0: Weights(s.params)}},
            "Mine.serve returned nothing for client 1",
        ),
        (
            {"model_for": lambda self, m, c, learner: m.params},
            "Mine.model_for returned a dict; it must return",
        ),
        (
            {"ask": lambda self, s, p, r, last, draw: [0, 1]},
            "Mine.ask returned a list; it must return an Ask",
        ),
        (
            {"check": lambda self, s, c, reply: None},
            "Mine.check returned nothing; it must return an Update",
        ),
        ({"ask": lambda self, s, p, r, last, draw: Ask([0, 0])}, "Mine.ask asks client 0 twice"),
        (
            {"ask": lambda self, s, p, r, last, draw: Ask([0, 99])},
            "Mine.ask asks client 99, which is not in the pop",
        ),
        (
            {"train": lambda self, message, client: None},
            r"Mine.train\(message, client\) must take 3 arguments",
        ),
        (
            {"aggregate": lambda self, s, r, extra: s},
            r"Mine.aggregate\(s, r, extra\) must take 2 arguments",
        ),
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


def test_errors_of_an_algorithm_are_our_own_kind():
    assert issubclass(ConfigError, E2flError)
