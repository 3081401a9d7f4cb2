"""The server's loop: what it asks of an algorithm's class, and of a run."""

import pytest

from e2fl.algorithms import types_of
from e2fl.algorithms.base import Algorithm, GlobalModel
from e2fl.algorithms.fedavg import FedAvg, Shared, Update
from e2fl.errors import ConfigError
from e2fl.rounds import Replies
from e2fl.testing.contract import Problem
from e2fl.wire import Weights


def test_an_algorithm_must_name_its_types():
    class Untyped(Algorithm):
        pass

    class Unsendable(GlobalModel[Shared, int]):
        pass

    with pytest.raises(ConfigError, match=r"derive it from Algorithm\[State, Down, Up, Served\]"):
        types_of(Untyped)
    with pytest.raises(ConfigError, match="the last three are messages"):
        types_of(Unsendable)
    types = types_of(FedAvg)
    assert (types.state, types.down, types.up, types.served) == (Shared, Weights, Update, Weights)


def test_replies_are_taken_in_turn_and_refused_with_their_reason():
    problem = Problem(FedAvg(clients_per_round=3))
    server = problem.server(problem.federation(), 1)
    first, second, third = server.ask().ask.clients
    params = server.state.params
    answers = {first: Update(params, 1), second: Update(params, 0)}
    server.take(Replies(answers, {third: "failed: no data"}, {first: 0.5, second: 9.0}))
    assert (server.done.answered, server.done.training_loss) == ((first,), 0.5)
    assert server.done.faults[third] == "failed: no data"
    assert server.done.faults[second].startswith("refused: a reply claims")
    assert server.finished
    server.require_replies()
