"""E2FL and FRL with coded ballots: both runtimes, and what server and clients know."""

from dataclasses import replace

import numpy as np
import pytest

from e2fl.algorithms.e2fl import E2FL
from e2fl.evaluation import NO_GROUP
from e2fl.grouping import GROUPINGS
from e2fl.rankings.ballots import Boundary, Buckets, Moves, Reference
from e2fl.rankings.messages import CodedBallots
from e2fl.rounds import Replies
from e2fl.runs.runner import run_experiment
from e2fl.testing.contract import Problem, same

BALLOTS = {
    "buckets": Buckets(16),
    "uneven": Buckets(uneven=(0.35, 0.45, 0.5, 0.55, 0.65)),
    "boundary": Boundary(),
    "moves": Moves(),
}
DOWN = Buckets(64)


def e2fl(ballot, downlink=DOWN, **settings):
    return E2FL(clients_per_round=5, ballot=ballot, downlink=downlink, **settings)


@pytest.mark.parametrize("name", GROUPINGS)
def test_every_grouping_sorts_coded_ballots(name):
    section = {} if name in ("known", "one") else {"groups": 2}
    problem = Problem(e2fl(Buckets(3), grouping=GROUPINGS[name](**section)))
    for moment in problem.moments:
        after = problem.algorithm.aggregate(moment.state, moment.checked)
        for ranking in (after.global_ranking, *after.groups.values()):
            assert_full(ranking, problem.model())


def assert_full(ranking, model):
    for layer in model.spec.layers:
        assert np.array_equal(np.sort(ranking[layer.name]), np.arange(layer.edges))


def small(toy, **algorithm):
    """128 and 24 edges: 256 buckets are exact."""
    return replace(toy, model={"name": "mlp", "hidden": [8]}, algorithm=toy.algorithm | algorithm)


@pytest.mark.parametrize("name", ["e2fl_steady", "frl"])
def test_as_many_buckets_as_edges_elect_what_exact_ballots_elect(name, toy):
    exact = run_experiment(small(toy, name=name))
    buckets = {"name": "buckets", "buckets": 256}
    coded = run_experiment(small(toy, name=name, ballot=buckets, downlink=buckets))
    assert same(exact.state.global_ranking, coded.state.global_ranking)
    assert same(exact.state.groups, coded.state.groups)
    assert exact.clients == coded.clients
    coarse = run_experiment(small(toy, name=name, ballot={"name": "buckets", "buckets": 3}))
    assert not same(exact.state.groups, coarse.state.groups)


@pytest.mark.parametrize("name", BALLOTS)
def test_clients_and_the_server_hold_the_same_ranking(name):
    """What a client decodes from its invitation is what the server decodes its ballots against."""
    problem = Problem(e2fl(BALLOTS[name], Buckets(4)))
    origin = Reference(problem.model().supernet(problem.seed).ranking, keep=problem.model().keep)
    _, second = problem.moments
    for message in second.request.inbox.values():
        assert same(message.decode(Buckets(4), origin).ranking, second.state.global_ranking)


def test_moves_are_counted_from_the_elected_ranking_not_from_the_one_sent():
    problem = Problem(e2fl(Moves(127, finer=1), Buckets(2)))
    _, second = problem.moments
    state, client = second.state, next(iter(second.request.inbox))
    known = problem.algorithm.reference(state, client)
    assert known.ranking is state.global_ranking
    assert known.base is state.unrounded
    code = Moves(127, finer=1).encode(known.ranking, replace(known, base=None))
    still = CodedBallots((NO_GROUP,), (len(code),), code)
    opened = problem.algorithm.check(state, client, still).rankings[0]
    assert same(opened, state.unrounded)
    assert not same(opened, state.global_ranking)


def coded(toy, **algorithm):
    ballot = {"name": "buckets", "buckets": 5}
    downlink = {"name": "buckets", "buckets": 16}
    settings = toy.algorithm | {"ballot": ballot, "downlink": downlink} | algorithm
    return replace(toy, evaluate_every=1, algorithm=settings)


RECOMMENDED = {
    "name": "e2fl_steady",
    "ballot": {"name": "moves", "steps": 12},
    "downlink": {"name": "buckets", "buckets": 8, "finer": 8, "near": 0.08},
}
CLUSTERED = {"grouping": {"name": "lowest_loss", "groups": 2, "clustered": 2}}


@pytest.mark.parametrize("settings", [RECOMMENDED, CLUSTERED], ids=["recommended", "clustered"])
def test_the_simulator_and_flower_agree(settings, toy, tmp_path):
    pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")
    from tests.flower.test_runtimes_agree import assert_equal, on_flower

    experiment = coded(replace(toy, rounds=4), **settings)
    on_nodes, simulated = on_flower(experiment, tmp_path), run_experiment(experiment)
    assert_equal(on_nodes, simulated)
    for key in ("bits", "budget"):
        assert on_nodes.summary[key] == pytest.approx(simulated.summary[key])


def a_moment(**settings):
    problem = Problem(e2fl(Buckets(16), **settings))
    return problem, problem.moments[1]


@pytest.mark.parametrize(("held", "times"), [(64, 1), (1, 2)])
def test_a_reply_is_decoded_once_in_a_round_unless_there_are_too_many(held, times, monkeypatch):
    problem, moment = a_moment()
    expected = problem.algorithm.aggregate(moment.state, moment.checked)
    server = problem.server(problem.federation(), 2)
    server.ask()
    server.done = replace(server.done, state=moment.state)
    decoded = []
    decode = Buckets.decode
    monkeypatch.setattr(
        Buckets, "decode", lambda self, raw, known: decoded.append(raw) or decode(self, raw, known)
    )
    monkeypatch.setattr("e2fl.rounds.HELD", held)
    server.take(Replies(moment.replies))
    assert tuple(moment.replies) == server.done.answered
    assert len(decoded) == len(moment.replies) * times - (times - 1)
    assert same(expected.global_ranking, server.state.global_ranking)
