"""Sorting and selection of edges by score or by the sums of a vote; order, rank, scores and mask.

Pairs of (key, edge), each in one 64-bit word, are first partitioned into groups of neighbouring
keys.  Each group then fits in a cache, where it is sorted by a radix sort, least significant digit
first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.kernels.machine_code import Float32, Int32, Int64, UInt32, UInt64, compiled, scratch

_NAN = np.uint32(0xFFFFFFFF)
_SIGN = np.uint32(0x80000000)
_INFINITY = np.uint32(0x7F800000)
_LEADING = 16  # leading bits of a key that determine its group
_GROUP = 32768  # pairs in a group, a quarter of a megabyte; more if many keys are equal
_DIGIT = 11  # bits per pass of the radix sort
_ONE = np.uint32(1)


@compiled
def float_key(bits: np.uint32) -> np.uint32:
    """Map the bits of a float32 to an integer with the same order.

    Both zeros are equal, NaN comes last.
    """
    if (bits & ~_SIGN) > _INFINITY:
        return _NAN
    if bits == _SIGN:
        return _SIGN
    if bits & _SIGN:
        return np.uint32(~bits)
    return np.uint32(bits | _SIGN)


@compiled
def invert(permutation: Int32) -> Int32:
    """Return the rank of an order, or the order of a rank."""
    out = np.empty_like(permutation)
    for i in range(permutation.size):
        out[permutation[i]] = i
    return out


@compiled
def add_rank(sums: Int64, rank: Int32) -> None:
    """Add the rank of one ballot to the sums of a vote."""
    for e in range(sums.size):
        sums[e] += rank[e]


@compiled
def gather(values: NDArray[Any], positions: Int32) -> NDArray[Any]:
    """Return the value at each of these positions."""
    out = np.empty(positions.size, values.dtype)
    for i in range(out.size):
        out[i] = values[positions[i]]
    return out


@compiled
def scatter_into(values: NDArray[Any], positions: Int32, out: NDArray[Any]) -> None:
    """Move value i to `out[positions[i]]`."""
    for i in range(values.size):
        out[positions[i]] = values[i]


def scatter(values: NDArray[Any], positions: Int32) -> NDArray[Any]:
    """Undo `gather`: move value i to `positions[i]`."""
    out = np.empty_like(values)
    scatter_into(values, positions, out)
    return out


def scores_from(rank: Int32, sorted_scores: Float32) -> Float32:
    """Return the score of each edge: the one at its place in the sorted scores."""
    return gather(sorted_scores, rank)


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
    """Count how often each value of one digit occurs, in two rows to be added."""
    counts[:, : np.int64(mask) + 1] = 0
    shift = np.uint64(down)
    last = pairs.size - 1
    # Neighbours go to different rows: an increment seldom waits for the one before it.
    for i in range(0, last, 2):
        counts[0, ((pairs[i] - least) >> shift) & mask] += _ONE
        counts[1, ((pairs[i + 1] - least) >> shift) & mask] += _ONE
    if last % 2 == 0:
        counts[0, ((pairs[last] - least) >> shift) & mask] += _ONE


@compiled
def _group(pairs: UInt64, spare: UInt64, down: int, ends: Int64) -> int:
    """Partition pairs into groups of neighbouring keys, ascending.

    Writes where groups end and returns their number.
    """
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
    """Return the smallest key, shifted as in a pair, and the bit length of the range of keys."""
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
def _sort_group(
    pairs: UInt64, spare: UInt64, near: Int32, counts: UInt32, shift: int, order: Int32
) -> None:
    """Write the edges of one group in sorted order.

    spare: as large as pairs; both are overwritten.  near: a buffer in the cache, as large as the
    order, or empty to write to the order directly.
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
        last = p == passes - 1
        for i in range(size):
            pair = pairs[i]
            digit = ((pair - least) >> down) & mask
            place = places[digit]
            places[digit] = np.uint32(place + _ONE)
            if last:
                out[place] = np.int32(pair & edge)
            else:
                spare[place] = pair
        pairs, spare = spare, pairs
    if near.size:
        order[:] = near[:size]


@compiled
def _sort(pairs: UInt64, spare: UInt64, shift: int, bits: int, order: Int32) -> None:
    """Write the edges of pairs (key of `bits` bits, edge of `shift` bits) in sorted order.

    Overwrites both arrays.
    """
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
        # The buffers of every group are at the start of the array that pairs came from, so they
        # stay in the cache.
        near = (
            pairs[size : size + (size + 1) // 2].view(np.int32)[:size]
            if 2 * size < pairs.size
            else order[:0]
        )
        _sort_group(spare[start:end], pairs[:size], near, counts, shift, order[start:end])
        start = end


def order_of(scores: Float32) -> Int32:
    """Return the edges by ascending score: ties by edge number, both zeros equal, NaN last."""
    order = np.empty(scores.size, np.int32)
    if scores.size:
        pairs, spare = scratch.of(scores.size)
        _pair_scores(scores.view(np.uint32), pairs, 32)
        _sort(pairs, spare, 32, 32, order)
    return order


def order_of_sums(sums: Int64) -> Int32:
    """Return the edges by ascending sum, ties by edge number."""
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


def rank_of(scores: Float32) -> Int32:
    """Return the place of each edge in `order_of(scores)`."""
    return invert(order_of(scores))


def rank_of_sums(sums: Int64) -> Int32:
    """Return the place of each edge in `order_of_sums(sums)`."""
    return invert(order_of_sums(sums))


@compiled
def threshold_of(keys: UInt32, dropped: int, kept_keys: UInt32) -> tuple[np.uint32, int]:
    """Return the key at place `dropped` of the sorted keys, and how many keys are below it.

    Counts, does not sort.

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
def _block(edges: int) -> int:
    """Return how many differences to sum at a time: they fit the L1 cache, their sum 32 bits."""
    return max(1, min(2048, (1 << 32) // max(1, edges)))


@compiled
def _footrule(a: Int32, b: Int32) -> np.int64:
    """Return the footrule of one block. A loop over a whole array is what LLVM turns into SIMD."""
    part = np.uint32(0)  # 32 bits: twice as many SIMD lanes as 64
    for e in range(a.size):
        part = np.uint32(part + np.uint32(max(a[e], b[e]) - min(a[e], b[e])))
    return np.int64(part)


@compiled
def footrule(a: Int32, b: Int32) -> int:
    """Return the sum over edges of the absolute difference of two ranks."""
    total, block = np.int64(0), _block(a.size)
    for start in range(0, a.size, block):
        total += _footrule(a[start : start + block], b[start : start + block])
    return int(total)


@compiled
def footrules(ranks: Int32, centroids: Int32) -> Int64:
    """Return [clients, groups]: the footrule of each row of `ranks` to each row of `centroids`."""
    out = np.zeros((ranks.shape[0], centroids.shape[0]), np.int64)
    block = _block(ranks.shape[1])
    # All rows of one block of edges before the next block: the centroids' block stays in the cache.
    for start in range(0, ranks.shape[1], block):
        stop = start + block
        for m in range(ranks.shape[0]):
            for q in range(centroids.shape[0]):
                out[m, q] += _footrule(ranks[m, start:stop], centroids[q, start:stop])
    return out
