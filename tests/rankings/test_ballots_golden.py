"""The bytes of ballots must not change: old messages and the bits in the ledger depend on them."""

import hashlib

import numpy as np
import pytest

from e2fl.rankings.ballots import (
    Boundary,
    Buckets,
    Exact,
    Moves,
    Reference,
    decode_mask,
    encode_mask,
)
from e2fl.rankings.order import mask_layers
from e2fl.testing.contract import same

# Two small layers, one whose units have levels, and one with levels above 15.
SIZES = {"small": 288, "cells": 5000, "levels": 300 * 300, "wide": 2 * 70_000}
FAN_IN = {"small": 9, "cells": 50, "levels": 300, "wide": 70_000}


def mixed(numbers, salt):
    """Return numbers below 2^32 that look random, the same with every version of every library."""
    x = numbers.astype(np.uint64) * np.uint64(2654435761) + np.uint64(salt)
    for shift in (15, 13, 16):
        x = ((x ^ (x >> np.uint64(shift))) * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
    return x.astype(np.int64)


def places(values):
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.int32)


REFERENCE = Reference(
    {name: places(mixed(np.arange(size), 1)) for name, size in SIZES.items()}, FAN_IN, keep=0.4
)


def moved(rank, fan_in):
    """Return a ranking in which some inputs move far and others not at all."""
    edges = np.arange(rank.size)
    speed = mixed(edges % fan_in, 3) % 4 * (mixed(edges // fan_in, 4) % 3)
    return places(rank + speed * (mixed(edges, 2) % rank.size - rank.size // 2) // 20)


BALLOT = {name: moved(rank, FAN_IN[name]) for name, rank in REFERENCE.ranking.items()}
BYTES = {
    Exact(): "514699 de613fc1f5102e68",
    Buckets(16): "27351 03e2bf39fa492ea6",
    Buckets(3): "5860 9dd913ce7797d40d",
    Buckets(256): "94237 c7e24c032884143d",
    Buckets(5): "10062 df01f3f875c01550",
    Buckets(uneven=(0.35, 0.45, 0.5, 0.55, 0.65)): "11609 ff144be53351ad1e",
    Buckets(12, finer=8, near=0.08): "31208 8a61383e3f5c10f4",
    Moves(): "29557 f18df302141e971c",
    Moves(24, finer=1): "31755 e5c58f83c6ea3f26",
    Boundary(): "2970 aeb7300c92c108c5",
}


def digest(raw):
    return f"{len(raw)} {hashlib.blake2b(raw, digest_size=8).hexdigest()}"


@pytest.mark.parametrize("ballot", BYTES, ids=str)
def test_the_bytes_of_a_ballot_are_as_ever(ballot):
    sent = ballot.encode(BALLOT, REFERENCE)
    assert digest(sent) == BYTES[ballot]
    assert same(ballot.decode(sent, REFERENCE), ballot.rounded(BALLOT, REFERENCE))


def test_the_bytes_of_a_mask_are_as_ever():
    mask = mask_layers(BALLOT, REFERENCE.keep)
    sent = encode_mask(mask, REFERENCE)
    assert digest(sent) == "3170 f87bebd3149560f6"
    assert same(decode_mask(sent, REFERENCE), mask)
