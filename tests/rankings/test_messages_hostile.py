"""Mutated and forged messages with coded rankings end in WireError, before they cost anything."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.fuzz_ballots import mutate
from e2fl.algorithms.e2fl import E2FL
from e2fl.errors import WireError
from e2fl.grouping import KnownGroups, LowestLoss, RankClustering
from e2fl.rankings.ballots import Buckets, Reference
from e2fl.rankings.messages import (
    Ballots,
    CodedBallots,
    CodedInvitation,
    ExactBallots,
    Invitation,
    split_codes,
)
from e2fl.testing.contract import Problem
from tests.rankings.test_messages import DOWN, e2fl
from tests.test_wire import sealed


def mutations(raw, count):
    """Changed, cut and lengthened messages, half of them with a checksum that fits."""
    rng = np.random.default_rng(0)
    for number in range(count):
        forged = bytearray(mutate(raw, [raw], rng))
        yield bytes(sealed(forged) if number % 2 else forged)


@pytest.mark.parametrize("grouping", [KnownGroups(), LowestLoss(), RankClustering()], ids=str)
def test_mutated_ballots_are_refused_or_in_canonical_form(grouping):
    problem = Problem(e2fl(Buckets(16), grouping=grouping))
    recorded = problem.recorded_rounds[0]
    spec = problem.model().spec.only(recorded.request.ask.layers)
    client = min(recorded.replies)
    sent = {c: Ballots.from_bytes(r.to_bytes(spec), spec) for c, r in recorded.replies.items()}
    checked = {c: problem.algorithm.check(recorded.state, c, r) for c, r in sent.items()}
    refused = 0
    for raw in mutations(sent[client].to_bytes(spec), 1000):
        try:
            reply = Ballots.from_bytes(raw, spec)
            decoded = problem.algorithm.check(recorded.state, client, reply)
        except WireError:
            refused += 1
        else:
            assert reply.to_bytes(spec) == raw
            problem.algorithm.aggregate(recorded.state, {**checked, client: decoded})
    assert refused > 900


def test_mutated_invitations_give_wire_errors_only():
    problem = Problem(e2fl(Buckets(16), grouping=LowestLoss(groups=2)))
    recorded = problem.recorded_rounds[1]
    model = problem.model()
    origin = Reference(model.supernet(problem.seed).ranking, {}, model.keep)
    honest = next(iter(recorded.request.inbox.values()))
    assert isinstance(honest, CodedInvitation)
    assert len(honest.lengths) == 3  # the ranking, and the masks of two groups
    refused = 0
    for raw in mutations(honest.to_bytes(model.spec), 1000):
        try:
            message = Invitation.from_bytes(raw, model.spec)
            assert isinstance(message, CodedInvitation)
            ranking = message.decode(DOWN, origin).ranking
            for layer in model.spec.layers:
                assert sorted(ranking[layer.name].tolist()) == list(range(layer.edges))
        except WireError:
            refused += 1
    assert refused > 900


@pytest.mark.parametrize("lengths", [(), (-1, 4), (2,), (4,), (1, 1), (4, -1), (2**31 - 1, 3)])
def test_lengths_must_add_up(lengths):
    assert split_codes(b"abc", (1, 0, 2)) == [b"a", b"", b"bc"]
    with pytest.raises(WireError, match="cannot be cut"):
        split_codes(b"abc", lengths)


def forgeries(recorded, client, problem):
    honest = recorded.replies[client]
    assert isinstance(honest, CodedBallots)
    start = recorded.state.global_ranking
    known = recorded.state.reference(start)
    other = problem.algorithm.ballot.encode(start, known.only(["fc1.weight"]))
    coarser = Buckets(5).encode(start, known)
    (size,) = honest.lengths
    return {
        "exact ballots": ExactBallots(honest.groups, (start,)),
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


def test_forged_ballots_are_refused(monkeypatch):
    problem = Problem(e2fl(Buckets(16)))
    recorded = problem.recorded_rounds[1]
    client = min(recorded.replies)
    for name, forged in forgeries(recorded, client, problem).items():
        with pytest.raises(WireError):
            pytest.fail(f"{name}: {problem.algorithm.check(recorded.state, client, forged)}")
    honest = recorded.replies[client]
    with pytest.raises(WireError, match="ExactBallots is expected"):
        E2FL(clients_per_round=5).check(recorded.state, client, honest)
    many = replace(
        honest, groups=(0,) * 1000, lengths=honest.lengths * 1000, codes=honest.codes * 1000
    )
    monkeypatch.setattr(Buckets, "decode", lambda *_: pytest.fail("a ballot was decoded"))
    with pytest.raises(WireError, match="twice"):
        problem.algorithm.check(recorded.state, client, many)


def test_ballots_of_other_layers_than_were_asked_for_are_refused():
    problem = Problem(e2fl(Buckets(16), grouping=RankClustering(groups=2, layers=("fc1",))))
    preparation, training = problem.recorded_rounds
    assert preparation.request.ask.layers == ("fc1.weight",)
    client = min(training.replies)
    for asked, sent in ((preparation, training), (training, preparation)):
        with pytest.raises(WireError):
            problem.algorithm.check(asked.state, client, sent.replies[client])
