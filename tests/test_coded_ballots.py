"""E2FL and FRL with coded ballots: the contract, both runtimes, hostile replies, and what a summary says of bits."""

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.frl import FRL
from e2fl.ballots import Ballot, Boundary, Buckets, Exact, Moves, Reference
from e2fl.config.experiment import Experiment
from e2fl.construct import fields_of
from e2fl.e2fl_messages import AnyBallots, AnyInvitation, Ballots, CodedBallots, CodedInvitation, Invitation
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP
from e2fl.grouping import GROUPINGS, Grouping
from e2fl.grouping.decoded_ballots import DECODED, DecodedBallots
from e2fl.grouping.rank_clustering import RankClustering
from e2fl.models import Model, mlp
from e2fl.ranking import Ranking
from e2fl.rounds import run
from e2fl.runs.runner import Run, Watcher, read_run, run_experiment
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.testing.contract import CHECKS, Moment, Problem, moments
from e2fl.testing.toy import Toy

BALLOTS: dict[str, Ballot] = {
    "buckets-16": Buckets(16),
    "buckets-5": Buckets(5),
    "buckets-3": Buckets(3),
    "dither": Buckets(16, dither=True),
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
PROBLEMS = {f"e2fl-{name}": Problem(e2fl(ballot), accuracy=REACHED[name]) for name, ballot in BALLOTS.items()}
PROBLEMS |= {
    f"frl-{name}": Problem(FRL(clients_per_round=5, ballot=ballot, downlink=DOWN), accuracy=REACHED[name])
    for name, ballot in BALLOTS.items()
}
PROBLEMS |= {
    f"e2fl-{name}-buckets-16": Problem(e2fl(Buckets(16), grouping=grouping(name)), accuracy=60.0) for name in GROUPINGS
}
PROBLEMS |= {
    "e2fl-inside": Problem(e2fl(Buckets(5), absent="present_only"), INSIDE),
    "e2fl-init-vote": Problem(e2fl(Buckets(16), absent="init_vote", inside="majority"), INSIDE),
    "only the downlink is coded": Problem(e2fl(Exact(), Buckets(16))),
    "only the ballots are coded": Problem(e2fl(Buckets(16), Exact())),
    "moves from a coarse broadcast": Problem(e2fl(Moves(), Buckets(8), incumbents=2.0), accuracy=60.0),
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
    first, second = moments(problem)
    for moment in (first, second):
        for client, reply in moment.replies.items():
            problem.algorithm.check(moment.state, client, reply)
        after = problem.algorithm.aggregate(moment.state, moment.replies)
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
def test_as_many_buckets_as_edges_elect_what_exact_ballots_elect(name: str, toy: Experiment) -> None:
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
    _, second = moments(problem)
    for message in second.request.inbox.values():
        start = message.decode(Buckets(4), origin).ranking
        for layer, rank in second.state.global_ranking.items():
            assert np.array_equal(start[layer], rank)


def test_moves_are_counted_from_the_ranking_that_was_elected_not_from_the_one_that_was_sent() -> None:
    problem = Problem(e2fl(Moves(127, finer=1), Buckets(2)))
    _, second = moments(problem)
    state, client = second.state, next(iter(second.request.inbox))
    known = problem.algorithm._reference(state, client)
    assert known.ranking is state.global_ranking
    assert known.base is state.unrounded
    still = CodedBallots((NO_GROUP,), *coded_once(Moves(127, finer=1).encode(known.ranking, replace(known, base=None))))
    opened = problem.algorithm._decoded(state, client, still).rankings[0]
    for layer, rank in opened.items():
        assert np.array_equal(rank, state.unrounded[layer])
    assert any(not np.array_equal(rank, state.global_ranking[layer]) for layer, rank in opened.items())


def coded_once(code: bytes) -> tuple[tuple[int, ...], bytes]:
    return (len(code),), code


# Runs.


def coded(toy: Experiment, **algorithm: object) -> Experiment:
    ballot = {"name": "buckets", "buckets": 5, "dither": True}
    return replace(
        toy,
        evaluate_every=1,
        algorithm=toy.algorithm | {"ballot": ballot, "downlink": {"name": "buckets", "buckets": 16}} | algorithm,
    )


class Interrupt(Watcher):
    """Ends a run as Ctrl-C would, after round 2."""

    def advance(self, number: int, measured: object) -> None:
        if number == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", GROUPINGS)
def test_a_run_that_is_stopped_and_resumed_leaves_the_same_files(name: str, toy: Experiment, tmp_path: Path) -> None:
    section = {"name": name} | ({} if name in ("known", "one") else {"groups": 2})
    experiment = coded(toy, grouping=section)
    run_experiment(experiment, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=tmp_path / "stopped", watcher=Interrupt())
    run_experiment(experiment, out=tmp_path / "stopped", resume=True)
    whole, again = (read_run(tmp_path / place) for place in ("whole", "stopped"))
    assert again.history == whole.history
    for file in ("clients.csv", "model.safetensors"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert again.summary | {"seconds": 0} == whole.summary | {"seconds": 0}  # bits and participation among them


@pytest.mark.parametrize("name", GROUPINGS)
def test_the_simulator_and_flower_agree(name: str, toy: Experiment, tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")
    from tests.test_runtimes_agree import assert_equal, on_flower

    section = {"name": name} | ({} if name in ("known", "one") else {"groups": 2})
    experiment = coded(replace(toy, rounds=4), grouping=section)
    on_nodes, simulated = on_flower(experiment, tmp_path), run_experiment(experiment)
    assert_equal(on_nodes, simulated)
    assert on_nodes.summary["participation"] == simulated.summary["participation"]
    for key in ("bits", "budget"):
        assert on_nodes.summary[key] == pytest.approx(simulated.summary[key])


# Hostile messages.


def a_moment(**settings: object) -> tuple[Problem, Moment]:
    problem = Problem(e2fl(Buckets(16), **settings))
    return problem, moments(problem)[1]


def mutations(raw: bytes, count: int) -> Iterator[bytes]:
    """Changed, cut and lengthened messages, half of them with a checksum that fits."""
    rng = np.random.default_rng(0)
    for number in range(count):
        forged = bytearray(raw)
        for _ in range(rng.integers(1, 4)):
            what, place = rng.integers(4), int(rng.integers(4, len(forged)))
            if what < 2:
                forged[place] = int(rng.integers(256))
            elif what == 2:
                del forged[place : place + int(rng.integers(1, 9))]
            else:
                forged[place:place] = rng.bytes(int(rng.integers(1, 9)))
        if number % 2:
            forged = sealed(forged)
        yield bytes(forged)


def sealed(raw: bytearray) -> bytearray:
    """Make the length of the payload and the checksum fit, as a forger would."""
    if len(raw) >= 44:
        raw[12:20] = max(0, len(raw) - raw[5]).to_bytes(8, "little")
        raw[28:32] = zlib.crc32(raw[32:], zlib.crc32(raw[:28])).to_bytes(4, "little")
    return raw


@pytest.mark.parametrize("kind", ["known", "lowest_loss", "rank_clustering"])
def test_mutated_ballots_are_refused_or_in_canonical_form(kind: str) -> None:
    problem = Problem(e2fl(Buckets(16), grouping=grouping(kind)))
    moment = moments(problem)[0]
    spec = problem.model().spec.only(moment.request.ask.layers)
    client = min(moment.replies)
    refused = 0
    for raw in mutations(moment.replies[client].to_bytes(spec), 1000):
        try:
            reply = AnyBallots.from_bytes(raw, spec)
            problem.algorithm.check(moment.state, client, reply)
        except WireError:
            refused += 1
        else:
            assert reply.to_bytes(spec) == raw
            problem.algorithm.aggregate(moment.state, {**moment.replies, client: reply})
    assert refused > 900


def test_mutated_invitations_give_wire_errors_only() -> None:
    problem = Problem(e2fl(Buckets(16), grouping=grouping("lowest_loss")))
    moment = moments(problem)[1]
    model = problem.model()
    origin = Reference(model.supernet(problem.seed).ranking, {}, model.keep)
    honest = next(iter(moment.request.inbox.values()))
    assert isinstance(honest, CodedInvitation)
    assert len(honest.lengths) == 3  # the ranking, and the masks of two groups
    refused = 0
    for raw in mutations(honest.to_bytes(model.spec), 1000):
        try:
            message = AnyInvitation.from_bytes(raw, model.spec)
            assert isinstance(message, CodedInvitation)
            assert_full(message.decode(DOWN, origin).ranking, model)
        except WireError:
            refused += 1
    assert refused > 900


def forgeries(moment: Moment, client: int, problem: Problem) -> dict[str, AnyBallots]:
    honest = moment.replies[client]
    assert isinstance(honest, CodedBallots)
    start = moment.state.global_ranking
    part = Reference({"fc1.weight": start["fc1.weight"]}, moment.state.fan_in, moment.state.keep)
    other = problem.algorithm.ballot.encode(start, part)
    coarser = Buckets(5).encode(start, Reference(start, moment.state.fan_in, moment.state.keep))
    (size,) = honest.lengths
    return {
        "exact ballots": Ballots(honest.groups, (start,)),
        "too short": replace(honest, codes=honest.codes[:-1]),
        "too long": replace(honest, codes=honest.codes + b"\0"),
        "a length that is too small": replace(honest, lengths=(size - 1,)),
        "a length that is negative": replace(honest, lengths=(-1, size + 1)),
        "no codes": replace(honest, lengths=(), codes=b""),
        "empty codes": replace(honest, lengths=(0,), codes=b""),
        "two ballots for one group": replace(honest, lengths=(size, size), codes=2 * honest.codes),
        "two groups": replace(honest, groups=(0, 1), lengths=(size, size), codes=2 * honest.codes),
        "another group": replace(honest, groups=(7,)),
        "layers missing": replace(honest, lengths=(len(other),), codes=other),
        "other buckets": replace(honest, lengths=(len(coarser),), codes=coarser),
        "random bytes": replace(honest, codes=np.random.default_rng(1).bytes(size)),
    }


FORGERIES = list(forgeries(a_moment()[1], min(a_moment()[1].replies), a_moment()[0]))


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_ballots_are_refused(name: str) -> None:
    problem, moment = a_moment()
    client = min(moment.replies)
    with pytest.raises(WireError):
        problem.algorithm.check(moment.state, client, forgeries(moment, client, problem)[name])


def test_coded_ballots_are_refused_where_exact_ones_are_asked_for() -> None:
    _, moment = a_moment()
    client, reply = next(iter(moment.replies.items()))
    with pytest.raises(WireError, match="Ballots is expected"):
        E2FL(clients_per_round=5).check(moment.state, client, reply)


def test_ballots_of_other_layers_than_were_asked_for_are_refused() -> None:
    problem = Problem(e2fl(Buckets(16), grouping=RankClustering(groups=2, layers=("fc1",))))
    preparation, training = moments(problem)
    assert preparation.request.ask.layers == ("fc1.weight",)
    client = min(training.replies)
    with pytest.raises(WireError):
        problem.algorithm.check(preparation.state, client, training.replies[client])
    with pytest.raises(WireError):
        problem.algorithm.check(training.state, client, preparation.replies[client])


def test_a_reply_with_many_cheap_ballots_is_refused_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, moment = a_moment()
    client = min(moment.replies)
    honest = moment.replies[client]
    many = replace(honest, groups=(0,) * 1000, lengths=honest.lengths * 1000, codes=honest.codes * 1000)
    monkeypatch.setattr(Buckets, "decode", lambda *_: pytest.fail("a ballot was decoded"))
    with pytest.raises(WireError, match="twice"):
        problem.algorithm.check(moment.state, client, many)


@dataclass(frozen=True)
class OneBadClient(E2FL):
    """E2FL in which client 0 sends whatever `forge` makes of its ballots."""

    forge: Callable[[AnyBallots], AnyBallots] = lambda reply: reply

    def train(self, message, client, learner):  # type: ignore[no-untyped-def]
        reply = super().train(message, client, learner)
        if client.id != 0:
            return reply
        return self.forge(CodedBallots.from_bytes(reply.to_bytes(learner.model.spec), learner.model.spec))


@pytest.mark.parametrize(
    "forge",
    [
        lambda reply: replace(reply, codes=reply.codes[::-1]),
        lambda reply: replace(reply, lengths=()),
        lambda reply: replace(reply, groups=(1,)),
        lambda reply: Ballots((0,), (Model(mlp((16,), 3, hidden=(24,))).supernet(0).ranking,)),
        lambda reply: Invitation({}, ()),
    ],
)
def test_one_bad_client_never_ends_a_run(forge: Callable[[AnyBallots], AnyBallots], toy: Experiment) -> None:
    algorithm = OneBadClient(clients_per_round=8, ballot=Buckets(16), downlink=DOWN, forge=forge)
    problem = Problem(algorithm, toy.build_data())
    rounds = list(problem.run(problem.federation(), 3))
    assert all(done.answered == (1, 2, 3, 4, 5, 6, 7) for done in rounds)
    assert all(set(done.faults) == {0} for done in rounds)


def test_a_client_that_cannot_read_its_invitation_is_one_fault(toy: Experiment) -> None:
    @dataclass(frozen=True)
    class BadInvitation(E2FL):
        def broadcast(self, state, clients):  # type: ignore[no-untyped-def]
            sent = super().broadcast(state, clients)
            return {c: replace(m, codes=m.codes[::-1]) if c == 0 else m for c, m in sent.items()}

    problem = Problem(BadInvitation(clients_per_round=8, ballot=Buckets(16)), toy.build_data())
    federation: SimulatedFederation = problem.federation()
    for done in run(problem.server(federation, 2), federation):
        assert set(done.faults) == {0}
        assert "WireError" in done.faults[0]


# Decoding once.


def test_a_checked_reply_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, moment = a_moment()
    expected = problem.algorithm.aggregate(moment.state, moment.replies)
    decoded: list[bytes] = []
    decode = Buckets.decode
    monkeypatch.setattr(Buckets, "decode", lambda self, raw, known: decoded.append(raw) or decode(self, raw, known))
    for client, reply in moment.replies.items():
        problem.algorithm.check(moment.state, client, reply)
    after = problem.algorithm.aggregate(moment.state, moment.replies)
    assert len(decoded) == len(moment.replies)
    assert all(np.array_equal(after.global_ranking[layer], rank) for layer, rank in expected.global_ranking.items())
    assert not {id(reply) for reply in moment.replies.values()} & DECODED.entries.keys()  # given out once


def test_a_reply_is_decoded_again_against_another_ranking() -> None:
    problem, moment = a_moment()
    client, reply = next(iter(moment.replies.items()))
    problem.algorithm.check(moment.state, client, reply)
    copies = {layer: rank.copy() for layer, rank in moment.state.global_ranking.items()}
    state = replace(moment.state, global_ranking=copies)
    assert DECODED.take(reply, problem.algorithm.ballot, problem.algorithm._reference(state, client)) is None
    assert DECODED.take(reply, Buckets(5), problem.algorithm._reference(moment.state, client)) is None
    assert DECODED.take(reply, problem.algorithm.ballot, problem.algorithm._reference(moment.state, client)) is not None


def test_decoded_replies_take_bounded_memory() -> None:
    ranking = {"a": np.arange(100, dtype=np.int32)}
    reference = Reference(ranking)
    for kept, expected in (
        (DecodedBallots(most_ballots=3), 3),
        (DecodedBallots(most_bytes=1000), 2),
        (DecodedBallots(most_bytes=1), 0),
    ):
        messages = [CodedBallots((0,), (1,), bytes([number])) for number in range(5)]
        for message in messages:
            kept.keep(message, Exact(), reference, Ballots((0,), (ranking,)))
        found = [kept.take(message, Exact(), reference) is not None for message in messages]
        assert found == [False] * (5 - expected) + [True] * expected  # the oldest are dropped


# What a summary says.


def test_a_summary_has_bits_per_edge(toy: Experiment) -> None:
    exact = run_experiment(toy)
    cheap = run_experiment(coded(toy))
    dense = run_experiment(toy.variant("fedavg"))
    edges = 16 * 24 + 24 * 3
    for run_ in (exact, cheap, dense):
        bits, sent = run_.summary["bits"], run_.summary["bytes"]
        assert (bits["up_total_bytes"], bits["down_total_bytes"]) == (sent["up_total"], sent["down_total"])
        assert bits["up_per_edge"] == pytest.approx(8 * sent["up_total"] / (6 * 4 * edges))
        assert bits["down_per_edge"] == pytest.approx(8 * sent["down_total"] / (6 * 4 * edges))
    assert dense.summary["bits"]["up_per_edge"] == pytest.approx(32, abs=1)  # and a header
    assert exact.summary["bits"]["up_per_edge"] == pytest.approx((384 * 9 + 72 * 7) / edges, abs=1)
    assert exact.summary["bits"]["entropy_up_per_edge"] is None
    assert 0 < cheap.summary["bits"]["entropy_up_per_edge"] < cheap.summary["bits"]["up_per_edge"] < 5
    assert cheap.result.bits == cheap.summary["bits"]


def test_a_preparation_counts_the_entropy_of_the_layers_it_asks_for(toy: Experiment) -> None:
    grouping = {"name": "rank_clustering", "groups": 2, "layers": ["fc2"]}
    bits = run_experiment(coded(toy, grouping=grouping, ballot={"name": "exact"})).summary["bits"]
    first, second = (math.lgamma(edges + 1) / math.log(2) for edges in (384, 72))
    # 8 clients send fc2 to be clustered, then 4 send both layers in each of 6 rounds.
    total = 8 * second + 6 * 4 * (first + second)
    assert bits["entropy_up_per_edge"] == pytest.approx(total / ((8 + 6 * 4) * (384 + 72)))


def test_clients_that_train_alone_send_no_bits(toy: Experiment) -> None:
    assert "bits" not in run_experiment(toy.variant("local")).summary
