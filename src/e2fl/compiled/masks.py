"""Masks: which edges are kept, and the threshold score, found without sorting."""

from __future__ import annotations

import numpy as np

from e2fl.compiled.arrays import Bool, Float32, Int32, UInt32, scratch
from e2fl.compiled.keys import float_key
from e2fl.compiled.machine_code import compiled


def mask_of(rank: Int32, dropped: int) -> Bool:
    """Return the mask that drops the `dropped` lowest ranks and keeps all others."""
    return rank >= dropped


@compiled
def threshold_of(keys: UInt32, dropped: int, kept_keys: UInt32) -> tuple[np.uint32, int]:
    """Return the key at place `dropped` of the sorted keys, and how many keys are below it; counts, does not sort.

    dropped: less than the number of keys.  kept_keys: as large as keys, overwritten.
    """
    counts = np.zeros(2048, np.int64)
    below = 0
    size = keys.size
    left = keys
    for down, width in ((21, 11), (10, 11), (0, 10)):
        mask = np.uint32((1 << width) - 1)
        counts[:] = 0
        for i in range(size):
            counts[(left[i] >> np.uint32(down)) & mask] += 1
        digit = 0
        while below + counts[digit] <= dropped:
            below += counts[digit]
            digit += 1
        size_now = 0
        for i in range(size):
            key = left[i]
            if (key >> np.uint32(down)) & mask == digit:
                kept_keys[size_now] = key
                size_now += 1
        left = kept_keys
        size = size_now
    return left[0], below


@compiled
def first_kept(bits: UInt32, dropped: int, keys: UInt32, spare: UInt32) -> tuple[np.uint32, int]:
    """Return the threshold key, and the first edge that is kept among those with exactly this key.

    bits: of the scores, more than `dropped` of them.  keys, spare: as large as bits, overwritten.
    """
    for e in range(bits.size):
        keys[e] = float_key(bits[e])
    key, below = threshold_of(keys, dropped, spare)
    tied = dropped - below
    e = 0
    while tied > 0:
        tied -= keys[e] == key
        e += 1
    return key, e


@compiled
def write_mask(bits: UInt32, key: np.uint32, first_tied: int, out: Bool) -> None:
    """Write the mask, given the threshold key and the first edge that is kept among those with exactly this key."""
    for e in range(first_tied):
        out[e] = float_key(bits[e]) > key
    for e in range(first_tied, bits.size):
        out[e] = float_key(bits[e]) >= key


def top_mask(scores: Float32, dropped: int) -> Bool:
    """Return the mask that drops the `dropped` lowest scores, without sorting; ties are dropped by edge number."""
    edges = scores.size
    if dropped >= edges:
        return np.zeros(edges, np.bool_)
    bits = scores.view(np.uint32)
    pairs, _ = scratch.of(edges)
    words = pairs.view(np.uint32)
    key, first_tied = first_kept(bits, dropped, words[:edges], words[edges:])
    out = np.empty(edges, np.bool_)
    write_mask(bits, key, first_tied, out)
    return out
