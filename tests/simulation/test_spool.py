"""Answers beyond a limit lie in a scratch file, and come back as they were."""

import numpy as np
import pytest

from e2fl.data.federated import Lazy
from e2fl.errors import WireError
from e2fl.models import Layer, ModelSpec
from e2fl.rankings.messages import Ballots
from e2fl.simulation.spool import Place, Spool
from e2fl.testing.contract import same

SPEC = ModelSpec((Layer("fc.weight", (20,)),))


def ballot(seed):
    return Ballots(
        (0,), ({"fc.weight": np.random.default_rng(seed).permutation(20).astype(np.int32)},)
    )


def test_what_does_not_fit_in_memory_comes_back_from_disk():
    raw = {client: ballot(client).to_bytes(SPEC) for client in range(6)}
    spool = Spool(Ballots, SPEC, limit=2 * len(raw[0]))
    for client in raw:
        spool.add(client, raw[client])
    assert [isinstance(held, Place) for held in spool.answers.values()] == [
        False,
        False,
        True,
        True,
        True,
        True,
    ]
    assert list(spool) == list(raw)
    assert all(same(spool[client], ballot(client)) for client in raw)
    assert 5 in spool
    assert 6 not in spool


def test_a_damaged_answer_is_refused_at_the_door_even_where_it_would_be_spooled():
    raw = bytearray(ballot(0).to_bytes(SPEC))
    raw[-1] ^= 255
    spool = Spool(Ballots, SPEC, limit=0)
    with pytest.raises(WireError):
        spool.add(0, bytes(raw))
    assert len(spool) == 0


def test_answers_that_were_not_accepted_cannot_be_read():
    accepted = Lazy([2], {1: ballot(1), 2: ballot(2)}.__getitem__)
    assert list(accepted) == [2]
    assert 1 not in accepted
    with pytest.raises(KeyError):
        accepted[1]
