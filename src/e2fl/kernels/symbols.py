"""Rankings as one symbol per edge, buckets of places or moves, and back to a full permutation.

Buckets. Some places of a ranking, from `low` on, are divided into buckets; `bucket_of[i]` is the
bucket of place `low` + i. The symbol of an edge is the number of buckets it moved from its place in
the reference ranking, modulo the number of buckets. Symbols are in the order of the reference
ranking.

Moves. A step is a fraction 1 / `steps` of the ranking; for edges at the places `low` to `high` - 1
of the reference ranking, it is `finer` times as small. The symbol of an edge is the number of steps
it moved from its place in the reference ranking, modulo 2 * `steps` * `finer` + 1. Symbols are in
the order of the reference ranking.
"""

from __future__ import annotations

import numpy as np

from e2fl.kernels.machine_code import Int32, Int64, UInt8, compiled
from e2fl.kernels.sorting import rank_of_sums


@compiled
def bucket_symbols(
    rank: Int32, reference: Int32, low: int, bucket_of: UInt8, buckets: int
) -> UInt8:
    """Return the symbols of the edges at the places of `bucket_of` in the reference ranking.

    Only these edges are ranked against each other: the one with the least rank among them moves to
    place `low`.
    """
    out = np.empty(bucket_of.size, np.uint8)
    if out.size == rank.size:
        for e in range(rank.size):
            out[reference[e]] = bucket_of[rank[e]]
    else:
        slots = np.full(rank.size, -1, np.int32)
        for e in range(rank.size):
            place = reference[e] - low
            if 0 <= place < out.size:
                slots[rank[e]] = place
        count = 0
        for p in range(slots.size):
            if slots[p] >= 0:
                out[slots[p]] = bucket_of[count]
                count += 1
    for i in range(out.size):
        move = np.int32(out[i]) - np.int32(bucket_of[i])
        out[i] = move if move >= 0 else move + buckets
    return out


@compiled
def rank_of_symbols(symbols: UInt8, reference: Int32, bucket_of: UInt8, borders: Int64) -> Int32:
    """Return the rank of these symbols: in a bucket in reference order, others at their place.

    symbols: below the number of buckets.  borders: where each bucket begins, and where the last one
    ends. Raises ValueError unless every bucket gets as many edges as it has places.
    """
    buckets = borders.size - 1
    following = borders.copy()
    places = np.empty(symbols.size, np.int32)
    for i in range(symbols.size):
        bucket = np.int64(symbols[i]) + np.int64(bucket_of[i])
        if bucket >= buckets:
            bucket -= buckets
        places[i] = following[bucket]
        following[bucket] += 1
    # Bucket k is exactly full when its next free place is where bucket k + 1 begins.
    for k in range(buckets):
        if following[k] != borders[k + 1]:
            raise ValueError("a bucket has too many or too few edges")
    low = borders[0]
    out = np.empty_like(reference)
    for e in range(reference.size):
        place = reference[e] - low
        out[e] = places[place] if 0 <= place < places.size else reference[e]
    return out


@compiled
def moved_edges(symbols: UInt8, reference: Int32, low: int, fan_in: int) -> tuple[Int64, Int64]:
    """Count the edges that left their bucket, by the units they come from and lead to."""
    inputs, outputs = np.zeros(fan_in, np.int64), np.zeros(reference.size // fan_in, np.int64)
    e = 0
    for row in range(outputs.size):
        for column in range(inputs.size):
            place = reference[e] - low
            e += 1
            if 0 <= place < symbols.size and symbols[place] != 0:
                inputs[column] += 1
                outputs[row] += 1
    return inputs, outputs


@compiled
def kinds_at(
    inputs: UInt8, outputs: UInt8, kinds: UInt8, reference: Int32, low: int, size: int
) -> UInt8:
    """Return the kind of the edge at each of `size` places, from `low` on, of the reference.

    inputs, outputs: the level of each unit.  kinds: of an edge, by the levels of its output and its
    input.
    """
    out = np.empty(size, np.uint8)
    e = 0
    for row in range(outputs.size):
        of_input = kinds[outputs[row]]
        for column in range(inputs.size):
            place = reference[e] - low
            e += 1
            if 0 <= place < size:
                out[place] = of_input[inputs[column]]
    return out


@compiled
def positions_by_kind(kinds: UInt8, number: int, cells: int) -> tuple[Int32, Int64]:
    """Sort places by kind, then cell: where each one goes, and the size of each (kind, cell).

    Cell c begins at place c * size // cells.
    """
    size = kinds.size
    counts = np.zeros((number, cells), np.int64)
    for cell in range(cells):
        for i in range(cell * size // cells, (cell + 1) * size // cells):
            counts[kinds[i], cell] += 1
    following = np.zeros((number, cells), np.int64)
    total = 0
    for kind in range(number):
        for cell in range(cells):
            following[kind, cell] = total
            total += counts[kind, cell]
    out = np.empty(size, np.int32)
    for cell in range(cells):
        for i in range(cell * size // cells, (cell + 1) * size // cells):
            out[i] = following[kinds[i], cell]
            following[kinds[i], cell] += 1
    return out, counts.ravel()


@compiled
def move_symbols(
    rank: Int32, reference: Int32, steps: int, finer: int, low: int, high: int
) -> UInt8:
    """Return the symbol of every edge.  steps * finer: at most 127."""
    edges = rank.size
    out = np.empty(edges, np.uint8)
    for e in range(edges):
        place = reference[e]
        own = steps * finer if low <= place < high else steps
        # round(move * own / edges), halves up, in whole numbers
        move = (2 * own * (np.int64(rank[e]) - np.int64(place)) + edges) // (2 * edges)
        out[place] = move if move >= 0 else move + 2 * steps * finer + 1
    return out


@compiled
def _moved_places(
    symbols: UInt8, reference: Int32, base: Int32, steps: int, finer: int, low: int, high: int
) -> Int64:
    """Return the new place of every edge, times `steps` * `finer`."""
    edges = reference.size
    scale = steps * finer
    out = np.empty(edges, np.int64)
    wrong = 0
    for e in range(edges):
        before = reference[e]
        move = np.int64(symbols[before])
        if move > scale:
            move -= 2 * scale + 1
        step = edges if low <= before < high else edges * finer
        place = 2 * (np.int64(before) * scale + move * step)
        if place < -step or place > 2 * (edges - 1) * scale + step:
            wrong += 1
        out[e] = np.int64(base[e]) * scale + move * step
    if wrong:
        raise ValueError("an edge moves beyond the end of the ranking")
    return out


def rank_of_moves(
    symbols: UInt8, reference: Int32, base: Int32, steps: int, finer: int, low: int, high: int
) -> Int32:
    """Return the ranking after these moves, each counted from the edge's place in `base`.

    Edges that come to stand at the same place are ordered by edge number. Raises ValueError if an
    edge moves further beyond either end of the reference ranking than rounding can explain.
    """
    return rank_of_sums(_moved_places(symbols, reference, base, steps, finer, low, high))
