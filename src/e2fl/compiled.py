"""Compiled loops on the rankings of one layer: sorting, selecting, voting, packing and comparing.

`order[i]` is the edge in place i, least wanted first; `rank[e]` is the place of edge e.  Both are int32 arrays of one
dimension, and every sort is stable, so that equal values stand in the order of their edge numbers.  Each function
here has a plain twin of the same name in `e2fl.testing.reference`, and gives the same bits.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
UInt16 = NDArray[np.uint16]
UInt32 = NDArray[np.uint32]
UInt64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_LEADING = 16  # bits of a key that decide its group
_GROUP = 32768  # pairs of a group, or more where many keys are alike: a quarter of a megabyte
_DIGIT = 11  # bits sorted at a time inside a group
_NAN = np.uint32(0xFFFFFFFF)
_SIGN = np.uint32(0x80000000)
_INFINITY = np.uint32(0x7F800000)
_ONE = np.uint32(1)


def _cache_directory() -> str:
    """Where machine code is kept: a folder named after the contents of all files with loops.

    Loops of one file are compiled into those of another, which Numba would not see change.
    """
    here = Path(__file__).parent
    files = [Path(__file__), *sorted((here / "learning").glob("*.py"))]
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in files), digest_size=8).hexdigest()
    return str(here / "__pycache__" / f"compiled-{digest}")


_DIRECTORY = _cache_directory()


def compiled(function: _Function) -> _Function:
    """Compile to machine code that runs without the interpreter lock and is cached on disk."""
    config: Any = numba.config  # its attributes are made when it is imported
    before = config.CACHE_DIR
    config.CACHE_DIR = before or _DIRECTORY  # a directory the user has chosen comes first
    try:
        return cast(_Function, numba.njit(nogil=True, cache=True)(function))
    finally:
        config.CACHE_DIR = before


class _Scratch(threading.local):
    """Memory a thread keeps between sorts, because the first touch of fresh pages costs more than the sort."""

    def __init__(self) -> None:
        self.words: UInt64 = np.empty(0, np.uint64)

    def of(self, edges: int) -> tuple[UInt64, UInt64]:
        """Two arrays of this many words, with whatever was last left in them."""
        if self.words.size < 2 * edges:
            self.words = np.empty(2 * edges, np.uint64)
        return self.words[:edges], self.words[edges : 2 * edges]


scratch = _Scratch()


# Sorting: pairs of (key, edge) in one word.  Pairs are first brought into groups of neighbouring keys, few enough to
# write to at the same time; then each group is sorted by digits, the last one first, in memory that stays in a cache.


@compiled
def float_key(bits: np.uint32) -> np.uint32:
    """Map the bits of a float32 to an integer that sorts alike: both zeros equal, every NaN last."""
    if (bits & ~_SIGN) > _INFINITY:
        return _NAN
    if bits == _SIGN:
        return _SIGN
    if bits & _SIGN:
        return np.uint32(~bits)
    return np.uint32(bits | _SIGN)


@compiled
def _pair_scores(bits: UInt32, pairs: UInt64, shift: int) -> None:
    for e in range(bits.size):
        pairs[e] = (np.uint64(float_key(bits[e])) << np.uint64(shift)) | np.uint64(e)


@compiled
def _pair_sums(sums: Int64, least: int, pairs: UInt64, shift: int) -> None:
    for e in range(sums.size):
        pairs[e] = (np.uint64(sums[e] - least) << np.uint64(shift)) | np.uint64(e)


@compiled
def _count(pairs: UInt64, least: np.uint64, down: int, mask: np.uint64, counts: UInt32) -> None:
    """Count how often each value of one digit occurs."""
    counts[:, : np.int64(mask) + 1] = 0
    shift = np.uint64(down)
    last = pairs.size - 1
    # Neighbours count apart, so that one count seldom waits for the one before it.
    for i in range(0, last, 2):
        counts[0, ((pairs[i] - least) >> shift) & mask] += _ONE
        counts[1, ((pairs[i + 1] - least) >> shift) & mask] += _ONE
    if last % 2 == 0:
        counts[0, ((pairs[last] - least) >> shift) & mask] += _ONE


@compiled
def _group(pairs: UInt64, spare: UInt64, down: int, ends: Int64) -> int:
    """Bring pairs into groups of neighbouring keys, in rising order, and note where each ends; returns how many."""
    values = 1 << _LEADING
    mask = np.uint64(values - 1)
    counts = np.empty((2, values), np.uint32)
    _count(pairs, np.uint64(0), down, mask, counts)
    group_of = np.empty(values, np.uint16)
    places = np.empty(values, np.uint32)
    groups = start = size = 0
    for digit in range(values):
        if size == 0:
            places[groups] = start
        group_of[digit] = groups
        size += int(counts[0, digit]) + int(counts[1, digit])
        if size >= _GROUP:
            start += size
            ends[groups] = start
            groups += 1
            size = 0
    if size > 0:
        ends[groups] = start + size
        groups += 1
    for i in range(pairs.size):
        pair = pairs[i]
        group = group_of[(pair >> np.uint64(down)) & mask]
        place = places[group]
        places[group] = np.uint32(place + _ONE)
        spare[place] = pair
    return groups


@compiled
def _bounds(pairs: UInt64, shift: int) -> tuple[np.uint64, int]:
    """The least key, as it stands in a pair, and the bits by which the largest exceeds it."""
    least = most = pairs[0]
    for i in range(pairs.size):
        least = min(least, pairs[i])
        most = max(most, pairs[i])
    least = (least >> np.uint64(shift)) << np.uint64(shift)
    excess = (most - least) >> np.uint64(shift)
    bits = 0
    while excess > np.uint64(0):
        excess >>= np.uint64(1)
        bits += 1
    return least, bits


@compiled
def _sort_group(pairs: UInt64, spare: UInt64, near: Int32, counts: UInt32, shift: int, order: Int32) -> None:
    """Write the edges of a group's pairs in order.

    spare: as many words as pairs; both are overwritten.  near: as large as the order, or empty to write to it directly.
    """
    size = pairs.size
    least, bits = _bounds(pairs, shift)
    passes = max(1, -(-bits // _DIGIT))
    width = -(-bits // passes)
    mask = np.uint64((1 << width) - 1)
    edge = np.uint64((1 << shift) - 1)
    out = near if near.size else order
    places = counts[0]
    for p in range(passes):
        down = np.uint64(shift + p * width)
        _count(pairs, least, shift + p * width, mask, counts)
        start = np.uint32(0)
        for digit in range(1 << width):
            count = np.uint32(counts[0, digit] + counts[1, digit])
            places[digit] = start
            start = np.uint32(start + count)
        if p < passes - 1:
            for i in range(size):
                pair = pairs[i]
                digit = ((pair - least) >> down) & mask
                place = places[digit]
                places[digit] = np.uint32(place + _ONE)
                spare[place] = pair
            pairs, spare = spare, pairs
        else:
            for i in range(size):
                pair = pairs[i]
                digit = ((pair - least) >> down) & mask
                place = places[digit]
                places[digit] = np.uint32(place + _ONE)
                out[place] = np.int32(pair & edge)
    if near.size:
        order[:] = near[:size]


@compiled
def _sort(pairs: UInt64, spare: UInt64, shift: int, bits: int, order: Int32) -> None:
    """Write the edges of pairs of (key of `bits` bits, edge of `shift` bits) in order; both arrays are overwritten."""
    counts = np.empty((2, 1 << _DIGIT), np.uint32)
    if pairs.size <= 2 * _GROUP:
        _sort_group(pairs, spare, order[:0], counts, shift, order)
        return
    ends = np.empty(1 << _LEADING, np.int64)
    groups = _group(pairs, spare, shift + max(0, bits - _LEADING), ends)
    start = 0
    for group in range(groups):
        end = ends[group]
        size = end - start
        # What a group is sorted with lies at the start of the array its pairs came from, and so stays in a cache.
        near = pairs[size : size + (size + 1) // 2].view(np.int32)[:size] if 2 * size < pairs.size else order[:0]
        _sort_group(spare[start:end], pairs[:size], near, counts, shift, order[start:end])
        start = end


def order_of(scores: Float32) -> Int32:
    """Sort edges by score, ascending: ties by edge number, both zeros equal, NaN last."""
    order = np.empty(scores.size, np.int32)
    if scores.size:
        pairs, spare = scratch.of(scores.size)
        _pair_scores(scores.view(np.uint32), pairs, 32)
        _sort(pairs, spare, 32, 32, order)
    return order


def rank_of(scores: Float32) -> Int32:
    """The place of each edge in `order_of(scores)`."""
    return invert(order_of(scores))


def order_of_sums(sums: Int64) -> Int32:
    """Sort edges by an integer, ascending, ties by edge number."""
    order = np.empty(sums.size, np.int32)
    if sums.size == 0:
        return order
    least = int(sums.min())
    bits = (int(sums.max()) - least).bit_length()
    shift = (sums.size - 1).bit_length()
    if bits + shift > 64:
        return sums.argsort(kind="stable").astype(np.int32)
    pairs, spare = scratch.of(sums.size)
    _pair_sums(sums, least, pairs, shift)
    _sort(pairs, spare, shift, bits, order)
    return order


def rank_of_sums(sums: Int64) -> Int32:
    """The place of each edge in `order_of_sums(sums)`."""
    return invert(order_of_sums(sums))


# Orders into ranks and back, and votes.


@compiled
def _invert(permutation: Int32, out: Int32) -> None:
    for i in range(permutation.size):
        out[permutation[i]] = i


def invert(permutation: Int32) -> Int32:
    """Turn an order into its rank, or a rank into its order."""
    out = np.empty_like(permutation)
    _invert(permutation, out)
    return out


@compiled
def add_rank(sums: Int64, rank: Int32) -> None:
    """Add one voter's rank to the running sums of a vote."""
    for e in range(sums.size):
        sums[e] += rank[e]


@compiled
def add_order(sums: Int64, order: Int32) -> None:
    """Add one voter's rank, given as an order, to the running sums of a vote."""
    for i in range(order.size):
        sums[order[i]] += i


@compiled
def _scores_from(rank: Int32, sorted_scores: Float32, out: Float32) -> None:
    for e in range(rank.size):
        out[e] = sorted_scores[rank[e]]


def scores_from(rank: Int32, sorted_scores: Float32) -> Float32:
    """Give each edge the score that belongs to its place."""
    out = np.empty_like(sorted_scores)
    _scores_from(rank, sorted_scores, out)
    return out


# Masks.


def mask_of(rank: Int32, dropped: int) -> Bool:
    """Keep every edge but the first `dropped` of the order."""
    return rank >= dropped


@compiled
def threshold_of(keys: UInt32, dropped: int, kept_keys: UInt32) -> tuple[np.uint32, int]:
    """Find the key at place `dropped` (less than the size) and how many keys are below it, by counting, not sorting.

    kept_keys: as large as keys, overwritten.
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
    """Find the key at which kept scores begin and, of the edges that have this very key, the first one kept.

    bits: of the scores, more than `dropped`.  keys, spare: as many words, overwritten.
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
    """Write which edges are kept, given the key at which they begin and the first edge kept of those that have it."""
    for e in range(first_tied):
        out[e] = float_key(bits[e]) > key
    for e in range(first_tied, bits.size):
        out[e] = float_key(bits[e]) >= key


def top_mask(scores: Float32, dropped: int) -> Bool:
    """Keep every edge but the `dropped` lowest, without sorting: ties are dropped by edge number."""
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


# Packing: field i takes bits i*bits to (i+1)*bits of the raw bytes, lowest bit of the lowest byte first.


def packed_size(count: int, bits: int) -> int:
    """The bytes that `count` fields of `bits` bits take."""
    return -(-count * bits // 8)


@compiled
def _pack(values: Int32, bits: int, words: UInt64) -> None:
    word = np.uint64(0)
    filled = 0
    at = 0
    for i in range(values.size):
        value = np.uint64(values[i])
        word |= value << np.uint64(filled)
        filled += bits
        if filled >= 64:
            words[at] = word
            at += 1
            filled -= 64
            # Two shifts, because one by 64 has no defined result.
            word = (value >> np.uint64(bits - filled - 1)) >> np.uint64(1) if filled < bits else np.uint64(0)
    if filled > 0:
        words[at] = word


def pack(values: Int32, bits: int) -> UInt8:
    """Write each value in `bits` bits (0 to 31) one after the other; unused final bits are zero."""
    if values.size and (int(values.min()) < 0 or int(values.max()) >> bits):
        raise ValueError(f"a value does not fit in {bits} bits: they run from {values.min()} to {values.max()}")
    words = np.zeros(-(-values.size * bits // 64), np.uint64)
    if bits:
        _pack(values, bits, words)
    return words.view(np.uint8)[: packed_size(values.size, bits)]


def _words(raw: UInt8, count: int, bits: int) -> UInt64:
    """Copy raw bytes to words, with one more at the end, so that no field is read out of bounds."""
    size = packed_size(count, bits)
    if raw.size != size:
        raise ValueError(f"{count} fields of {bits} bits take {size} bytes, not {raw.size}")
    if used := count * bits % 8:
        last = int(raw[-1])
        if last >> used:
            raise ValueError(f"the unused last {8 - used} bits are not zero")
    words = np.empty(size // 8 + 2, np.uint64)
    words[-2:] = 0
    words.view(np.uint8)[:size] = raw
    return words


@compiled
def _field(words: UInt64, bit: int, mask: np.uint64) -> np.uint64:
    shift = np.uint64(bit & 63)
    low = words[bit >> 6] >> shift
    high = (words[(bit >> 6) + 1] << np.uint64(1)) << (np.uint64(63) - shift)
    return np.uint64((low | high) & mask)


@compiled
def _unpack(words: UInt64, bits: int, out: Int32) -> None:
    mask = np.uint64((1 << bits) - 1)
    for i in range(out.size):
        out[i] = np.int32(_field(words, i * bits, mask))


def unpack(raw: UInt8, count: int, bits: int) -> Int32:
    """Read `count` values of `bits` bits; ValueError when the bytes are not exactly what `pack` writes."""
    out = np.empty(count, np.int32)
    _unpack(_words(raw, count, bits), bits, out)
    return out


@compiled
def _unpack_rank(words: UInt64, bits: int, rank: Int32) -> bool:
    mask = np.uint64((1 << bits) - 1)
    edges = np.uint64(rank.size)
    for e in range(rank.size):
        rank[e] = -1
    for i in range(rank.size):
        edge = _field(words, i * bits, mask)
        if edge >= edges:
            return False
        rank[edge] = i
    # As many places as edges: if one edge stood in two places, another would stand in none.
    missing = 0
    for e in range(rank.size):
        missing += rank[e] < 0
    return missing == 0


def pack_order_of_rank(rank: Int32, bits: int) -> UInt8:
    """Pack the order that a rank is the inverse of."""
    return pack(invert(rank), bits)


def unpack_rank(raw: UInt8, count: int, bits: int) -> Int32:
    """Read a packed order and return its rank; ValueError unless it is a permutation of 0 to count - 1."""
    rank = np.empty(count, np.int32)
    if not _unpack_rank(_words(raw, count, bits), bits, rank):
        raise ValueError(f"not an order of {count} edges: an edge is out of range or repeated")
    return rank


# Distance.


@compiled
def _footrule(a: Int32, b: Int32, block: int) -> int:
    total = 0
    for start in range(0, a.size, block):
        stop = min(start + block, a.size)
        part = np.uint32(0)  # 32 bits are twice the lanes of 64, and a block is short enough not to overflow them
        for e in range(start, stop):
            part = np.uint32(part + np.uint32(max(a[e], b[e]) - min(a[e], b[e])))
        total += int(part)
    return total


@compiled
def _footrules(ranks: Int32, centroids: Int32, block: int, out: Int64) -> None:
    edges = ranks.shape[1]
    # Some rows of one stretch of edges at a time, so that the centroids' stretch stays in the nearest cache.
    for start in range(0, edges, block):
        stop = min(start + block, edges)
        for m in range(ranks.shape[0]):
            for q in range(centroids.shape[0]):
                out[m, q] += _footrule(ranks[m, start:stop], centroids[q, start:stop], block)


def _block(edges: int) -> int:
    """How many differences of ranks add up in 32 bits whatever they are, at most one cache-sized stretch."""
    return max(1, min(2048, (1 << 32) // max(1, edges)))


def footrule(a: Int32, b: Int32) -> int:
    """The sum over edges of the distance between the places two ranks give them."""
    return int(_footrule(a, b, _block(a.size)))


def footrules(ranks: Int32, centroids: Int32) -> Int64:
    """The footrule of each rank to each centroid: [clients, edges] and [groups, edges] to [clients, groups]."""
    out = np.zeros((ranks.shape[0], centroids.shape[0]), np.int64)
    _footrules(ranks, centroids, _block(ranks.shape[1]), out)
    return out


def warm(tell: Callable[[str], None]) -> None:
    """Compile every loop of this file, or load it from the cache; `tell` hears the name of each before it is."""
    order = np.array([1, 0, 2], np.int32)
    scores, sums = np.ones(3, np.float32), np.ones(3, np.int64)
    calls: dict[str, Callable[[], object]] = {
        "order_of": lambda: order_of(scores),
        "rank_of": lambda: rank_of(scores),
        "rank_of_sums": lambda: rank_of_sums(sums),
        "invert": lambda: invert(order),
        "add_rank": lambda: add_rank(sums, order),
        "add_order": lambda: add_order(sums, order),
        "scores_from": lambda: scores_from(order, scores),
        "top_mask": lambda: top_mask(scores, 1),
        "unpack": lambda: unpack(pack(order, 2), 3, 2),
        "unpack_rank": lambda: unpack_rank(pack(order, 2), 3, 2),
        "footrule": lambda: footrule(order, order),
        "footrules": lambda: footrules(order[None], order[None]),
    }
    for name, call in calls.items():
        tell(name)
        call()
