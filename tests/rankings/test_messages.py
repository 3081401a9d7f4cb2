"""E2FL and FRL with coded ballots: what server and clients know, and what they cost."""

import math
from dataclasses import replace

import pytest

from e2fl.algorithms.e2fl import E2FL
from e2fl.evaluation import NO_GROUP
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
    _, second = problem.recorded_rounds
    for message in second.request.inbox.values():
        assert same(message.decode(Buckets(4), origin).ranking, second.state.global_ranking)


def test_moves_are_counted_from_the_elected_ranking_not_from_the_one_sent():
    problem = Problem(e2fl(Moves(127, finer=1), Buckets(2)))
    _, second = problem.recorded_rounds
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


@pytest.mark.parametrize(("held", "times"), [(64, 1), (1, 2)])
def test_a_reply_is_decoded_once_in_a_round_unless_there_are_too_many(held, times, monkeypatch):
    problem = Problem(e2fl(Buckets(16)))
    recorded = problem.recorded_rounds[1]
    expected = problem.algorithm.aggregate(recorded.state, recorded.checked)
    server = problem.server(problem.federation(), 2)
    server.ask()
    server.done = replace(server.done, state=recorded.state)
    decoded = []
    decode = Buckets.decode
    monkeypatch.setattr(
        Buckets, "decode", lambda self, raw, known: decoded.append(raw) or decode(self, raw, known)
    )
    monkeypatch.setattr("e2fl.rounds.MAX_DECODED", held)
    server.take(Replies(recorded.replies))
    assert tuple(recorded.replies) == server.done.answered
    assert len(decoded) == len(recorded.replies) * times - (times - 1)
    assert same(expected.global_ranking, server.state.global_ranking)


def test_a_summary_has_bits_per_edge(toy):
    exact = run_experiment(toy)
    cheap = run_experiment(coded(toy))
    dense = run_experiment(toy.variant("fedavg"))
    edges = 16 * 24 + 24 * 3
    for run_ in (exact, cheap, dense):
        bits, sent = run_.summary["bits"], run_.summary["bytes"]
        assert (bits["up_total_bytes"], bits["down_total_bytes"]) == (
            sent["up_total"],
            sent["down_total"],
        )
        assert bits["up_per_edge"] == pytest.approx(8 * sent["up_total"] / (6 * 4 * edges))
        assert bits["down_per_edge"] == pytest.approx(8 * sent["down_total"] / (6 * 4 * edges))
    assert dense.summary["bits"]["up_per_edge"] == pytest.approx(32, abs=1)  # and a header
    assert exact.summary["bits"]["up_per_edge"] == pytest.approx((384 * 9 + 72 * 7) / edges, abs=1)
    assert exact.summary["bits"]["entropy_up_per_edge"] is None
    assert (
        0 < cheap.summary["bits"]["entropy_up_per_edge"] < cheap.summary["bits"]["up_per_edge"] < 5
    )


def test_a_preparation_counts_the_entropy_of_the_layers_it_asks_for(toy):
    grouping = {"name": "rank_clustering", "groups": 2, "layers": ["fc2"]}
    bits = run_experiment(coded(toy, grouping=grouping, ballot={"name": "exact"})).summary["bits"]
    first, second = (math.lgamma(edges + 1) / math.log(2) for edges in (384, 72))
    # 8 clients send fc2 to be clustered, then 4 send both layers in each of 6 rounds.
    total = 8 * second + 6 * 4 * (first + second)
    assert bits["entropy_up_per_edge"] == pytest.approx(total / ((8 + 6 * 4) * (384 + 72)))


def test_clients_that_train_alone_send_no_bits(toy):
    assert "bits" not in run_experiment(toy.variant("local")).summary
