"""E2FL and FRL with coded ballots: the contract, both runtimes, and resumed runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.frl import FRL
from e2fl.config.experiment import Experiment
from e2fl.construct import fields_of
from e2fl.evaluation import NO_GROUP
from e2fl.grouping import GROUPINGS, Grouping
from e2fl.models import Model
from e2fl.rankings.ballots import Ballot, Boundary, Buckets, Exact, Moves, Reference
from e2fl.rankings.messages import CodedBallots
from e2fl.rankings.order import Ranking
from e2fl.rounds import Replies
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import Run, read_run
from e2fl.runs.watcher import Watcher
from e2fl.testing.contract import CHECKS, Moment, Problem
from e2fl.testing.toy import Toy

BALLOTS: dict[str, Ballot] = {
    "buckets-16": Buckets(16),
    "buckets-5": Buckets(5),
    "buckets-3": Buckets(3),
    "uneven": Buckets(uneven=(0.35, 0.45, 0.5, 0.55, 0.65)),
    "boundary": Boundary(),
    "moves": Moves(),
}
DOWN = Buckets(64)
INSIDE = Toy(clients=6, groups=2, classes=2, inside=True, styles=True)


def grouping(name: str) -> Grouping:
    make = GROUPINGS[name]
    settings = {"groups": 2, "warm": True}
    return make(**{key: value for key, value in settings.items() if key in fields_of(make)})


def e2fl(ballot: Ballot, downlink: Ballot = DOWN, **settings: object) -> E2FL:
    return E2FL(clients_per_round=5, ballot=ballot, downlink=downlink, **settings)  # type: ignore[arg-type]


# Boundary ballots move few of the toy's 456 edges, so they learn slowly; guessing is right in 33 %.
REACHED = dict.fromkeys(BALLOTS, 60.0) | {"boundary": 40.0}
PROBLEMS = {
    f"e2fl-{name}": Problem(e2fl(ballot), accuracy=REACHED[name])
    for name, ballot in BALLOTS.items()
}
PROBLEMS |= {
    "frl": Problem(FRL(clients_per_round=5, ballot=Buckets(16), downlink=DOWN), accuracy=60.0)
}
PROBLEMS |= {
    f"e2fl-{name}-buckets-16": Problem(e2fl(Buckets(16), grouping=grouping(name)), accuracy=60.0)
    for name in GROUPINGS
}
PROBLEMS |= {
    "e2fl-inside": Problem(e2fl(Buckets(5), absent="present_only"), INSIDE),
    "e2fl-init-vote": Problem(e2fl(Buckets(16), absent="init_vote", inside="majority"), INSIDE),
    "only the downlink is coded": Problem(e2fl(Exact(), Buckets(16))),
    "only the ballots are coded": Problem(e2fl(Buckets(16), Exact())),
    "moves from a coarse broadcast": Problem(
        e2fl(Moves(), Buckets(8), incumbents=2.0), accuracy=60.0
    ),
    "moves, recommended": Problem(
        e2fl(Moves(), Buckets(12, finer=8, near=0.08), smoothing=5.0), accuracy=60.0
    ),
    "moves, clustered": Problem(e2fl(Moves(), grouping=grouping("rank_clustering")), accuracy=60.0),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_contract(name: str, check: str) -> None:
    CHECKS[check](PROBLEMS[name])


@pytest.mark.parametrize("kind", GROUPINGS)
@pytest.mark.parametrize("name", BALLOTS)
def test_every_ballot_works_with_every_grouping(name: str, kind: str) -> None:
    problem = Problem(e2fl(BALLOTS[name], grouping=grouping(kind)))
    first, second = problem.moments
    for moment in (first, second):
        for client, reply in moment.replies.items():
            problem.algorithm.check(moment.state, client, reply)
        after = problem.algorithm.aggregate(moment.state, moment.checked)
        for ranking in (after.global_ranking, *after.groups.values()):
            assert_full(ranking, problem.model())
    assert len(first.replies) >= 5


def assert_full(ranking: Ranking, model: Model) -> None:
    for layer in model.spec.layers:
        assert np.array_equal(np.sort(ranking[layer.name]), np.arange(layer.edges))


# As many buckets as edges.


def small(toy: Experiment, **algorithm: object) -> Experiment:
    """128 and 24 edges: 256 buckets are exact."""
    return replace(toy, model={"name": "mlp", "hidden": [8]}, algorithm=toy.algorithm | algorithm)


@pytest.mark.parametrize("name", ["e2fl", "frl", "e2fl_steady"])
def test_as_many_buckets_as_edges_elect_what_exact_ballots_elect(
    name: str, toy: Experiment
) -> None:
    exact = run_experiment(small(toy, name=name))
    buckets = {"name": "buckets", "buckets": 256}
    coded = run_experiment(small(toy, name=name, ballot=buckets, downlink=buckets))
    assert same_rankings(exact, coded)
    assert exact.clients == coded.clients
    coarse = run_experiment(small(toy, name=name, ballot={"name": "buckets", "buckets": 3}))
    assert not same_rankings(exact, coarse)  # so that the comparison above can fail


def same_rankings(one: Run, other: Run) -> bool:
    rankings = [{"global": run.state.global_ranking, **run.state.groups} for run in (one, other)]
    return rankings[0].keys() == rankings[1].keys() and all(
        np.array_equal(rankings[0][group][layer], rankings[1][group][layer])
        for group in rankings[0]
        for layer in rankings[0][group]
    )


@pytest.mark.parametrize("name", BALLOTS)
def test_clients_and_the_server_hold_the_same_ranking(name: str) -> None:
    """What a client decodes from its invitation is what the server decodes its ballots against."""
    problem = Problem(e2fl(BALLOTS[name], Buckets(4)))
    origin = Reference(problem.model().supernet(problem.seed).ranking, keep=problem.model().keep)
    _, second = problem.moments
    for message in second.request.inbox.values():
        start = message.decode(Buckets(4), origin, 0).ranking
        for layer, rank in second.state.global_ranking.items():
            assert np.array_equal(start[layer], rank)


def test_moves_are_counted_from_the_elected_ranking_not_from_the_one_sent() -> None:
    problem = Problem(e2fl(Moves(127, finer=1), Buckets(2)))
    _, second = problem.moments
    state, client = second.state, next(iter(second.request.inbox))
    known = problem.algorithm._reference(state, client)
    assert known.ranking is state.global_ranking
    assert known.base is state.unrounded
    code = Moves(127, finer=1).encode(known.ranking, replace(known, base=None))
    still = CodedBallots((NO_GROUP,), (len(code),), code)
    opened = problem.algorithm.check(state, client, still).rankings[0]
    for layer, rank in opened.items():
        assert np.array_equal(rank, state.unrounded[layer])
    assert any(
        not np.array_equal(rank, state.global_ranking[layer]) for layer, rank in opened.items()
    )


# Runs.


def coded(toy: Experiment, **algorithm: object) -> Experiment:
    ballot = {"name": "buckets", "buckets": 5}
    return replace(
        toy,
        evaluate_every=1,
        algorithm=toy.algorithm
        | {"ballot": ballot, "downlink": {"name": "buckets", "buckets": 16}}
        | algorithm,
    )


class Interrupt(Watcher):
    """Ends a run as Ctrl-C would, after round 2."""

    def advance(self, number: int, measured: object) -> None:
        if number == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", GROUPINGS)
def test_a_run_that_is_stopped_and_resumed_leaves_the_same_files(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    section = {"name": name} | ({} if name in ("known", "one") else {"groups": 2})
    experiment = coded(toy, grouping=section)
    run_experiment(experiment, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=tmp_path / "stopped", watcher=Interrupt())
    run_experiment(experiment, out=tmp_path / "stopped", resume=True)
    whole, again = (read_run(tmp_path / place) for place in ("whole", "stopped"))
    assert again.history == whole.history
    for file in ("clients.csv", "model.safetensors"):
        one, other = (tmp_path / place / file for place in ("whole", "stopped"))
        assert one.read_bytes() == other.read_bytes()
    assert again.summary | {"seconds": 0} == whole.summary | {"seconds": 0}


RECOMMENDED = {
    "ballot": {"name": "moves", "steps": 12},
    "downlink": {"name": "buckets", "buckets": 8, "finer": 8, "near": 0.08},
}


@pytest.mark.parametrize("name", [*GROUPINGS, "clustered", "recommended"])
def test_the_simulator_and_flower_agree(name: str, toy: Experiment, tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")
    from tests.flower.test_runtimes_agree import assert_equal, on_flower

    section = {"name": name} | ({} if name in ("known", "one") else {"groups": 2})
    if name == "clustered":
        section |= {"name": "lowest_loss", "clustered": 2}
    settings = (
        RECOMMENDED | {"name": "e2fl_steady"} if name == "recommended" else {"grouping": section}
    )
    experiment = coded(replace(toy, rounds=4), **settings)
    on_nodes, simulated = on_flower(experiment, tmp_path), run_experiment(experiment)
    assert_equal(on_nodes, simulated)
    assert on_nodes.summary["participation"] == simulated.summary["participation"]
    for key in ("bits", "budget"):
        assert on_nodes.summary[key] == pytest.approx(simulated.summary[key])


def a_moment(**settings: object) -> tuple[Problem, Moment]:
    problem = Problem(e2fl(Buckets(16), **settings))
    return problem, problem.moments[1]


# Decoding once.


@pytest.mark.parametrize(("held", "times"), [(64, 1), (1, 2)])
def test_a_reply_is_decoded_once_in_a_round_unless_there_are_too_many(
    held: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, moment = a_moment()
    expected = problem.algorithm.aggregate(moment.state, moment.checked)
    server = problem.server(problem.federation(), 2)
    server.ask()
    server.done = replace(server.done, state=moment.state)
    decoded: list[bytes] = []
    decode = Buckets.decode
    monkeypatch.setattr(
        Buckets, "decode", lambda self, raw, known: decoded.append(raw) or decode(self, raw, known)
    )
    monkeypatch.setattr("e2fl.rounds.HELD", held)
    server.take(Replies(moment.replies))
    assert tuple(moment.replies) == server.done.answered
    assert len(decoded) == len(moment.replies) * times - (times - 1)
    for layer, rank in expected.global_ranking.items():
        np.testing.assert_array_equal(server.state.global_ranking[layer], rank)
