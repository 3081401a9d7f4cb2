"""The bytes of ballots, which must not change: old messages and the bits in the ledger depend on them."""

import hashlib

import numpy as np
import pytest

from e2fl.ballots import Ballot, Boundary, Buckets, Exact, Moves, Reference, decode_mask, encode_mask
from e2fl.ranking import Ranking, mask_layers

# Two small layers, one whose units have levels, and one with levels above 15.
SIZES = {"small": 288, "cells": 5000, "levels": 300 * 300, "wide": 2 * 70_000}
FAN_IN = {"small": 9, "cells": 50, "levels": 300, "wide": 70_000}


def mixed(numbers: np.ndarray, salt: int) -> np.ndarray:
    """Return numbers below 2^32 that look random, the same with every version of every library."""
    x = numbers.astype(np.uint64) * np.uint64(2654435761) + np.uint64(salt)
    for shift in (15, 13, 16):
        x = ((x ^ (x >> np.uint64(shift))) * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
    return x.astype(np.int64)


def places(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.int32)


REFERENCE = Reference(
    {name: places(mixed(np.arange(size), 1)) for name, size in SIZES.items()}, FAN_IN, keep=0.4, offset=77
)


def moved(rank: np.ndarray, fan_in: int) -> np.ndarray:
    """Return a ranking in which some inputs move far and others not at all."""
    edges = np.arange(rank.size)
    speed = mixed(edges % fan_in, 3) % 4 * (mixed(edges // fan_in, 4) % 3)
    return places(rank + speed * (mixed(edges, 2) % rank.size - rank.size // 2) // 20)


BALLOT: Ranking = {name: moved(rank, FAN_IN[name]) for name, rank in REFERENCE.ranking.items()}
BYTES: dict[Ballot, str] = {
    Exact(): "514699 de613fc1f5102e68",
    Buckets(16): "27391 9581528746a11f74",
    Buckets(3): "5836 8f890a8be28f8534",
    Buckets(256): "94825 2f8d7d87ab39a620",
    Buckets(5, dither=True): "10127 436fbf7b9fa14e2b",
    Buckets(uneven=(0.35, 0.45, 0.5, 0.55, 0.65)): "11612 db8fc0c938624c98",
    Buckets(12, finer=8, near=0.08): "31259 7906fe19b0369027",
    Moves(): "29645 805042effb1cead7",
    Moves(24, finer=1): "31840 216096a3a17160f2",
    Boundary(): "2941 7855852ba75b1b47",
}


def digest(raw: bytes) -> str:
    return f"{len(raw)} {hashlib.blake2b(raw, digest_size=8).hexdigest()}"


@pytest.mark.parametrize("ballot", BYTES, ids=str)
def test_the_bytes_of_a_ballot_are_as_ever(ballot: Ballot) -> None:
    sent = ballot.encode(BALLOT, REFERENCE)
    assert digest(sent) == BYTES[ballot]
    decoded = ballot.decode(sent, REFERENCE)
    for name, rank in ballot.rounded(BALLOT, REFERENCE).items():
        assert np.array_equal(decoded[name], rank)


def test_the_bytes_of_a_mask_are_as_ever() -> None:
    mask = mask_layers(BALLOT, REFERENCE.keep)
    sent = encode_mask(mask, REFERENCE)
    assert digest(sent) == "3164 a4ea73e8c6dea87b"
    assert all(np.array_equal(kept, mask[name]) for name, kept in decode_mask(sent, REFERENCE).items())
