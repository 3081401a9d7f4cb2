"""Rankings as moves: by how many steps each edge moved, rounded, and back to a full permutation.

A step is a fraction 1 / `steps` of the ranking; for edges at the places `low` to `high` - 1 of the reference ranking,
it is `finer` times as small. The symbol of an edge is the number of steps it moved from its place in the reference
ranking, modulo 2 * `steps` * `finer` + 1. Symbols are in the order of the reference ranking.
"""

from __future__ import annotations

import numpy as np

from e2fl.compiled.arrays import Int32, Int64, UInt8
from e2fl.compiled.machine_code import compiled
from e2fl.compiled.sorting import rank_of_sums


@compiled
def _move_symbols(rank: Int32, reference: Int32, steps: int, finer: int, low: int, high: int, out: UInt8) -> None:
    edges = rank.size
    for e in range(edges):
        place = reference[e]
        own = steps * finer if low <= place < high else steps
        # round(move * own / edges), halves up, in whole numbers
        move = (2 * own * (np.int64(rank[e]) - np.int64(place)) + edges) // (2 * edges)
        out[place] = move if move >= 0 else move + 2 * steps * finer + 1


def move_symbols(rank: Int32, reference: Int32, steps: int, finer: int, low: int, high: int) -> UInt8:
    """Return the symbol of every edge.  steps * finer: at most 127."""
    out = np.empty(rank.size, np.uint8)
    _move_symbols(rank, reference, steps, finer, low, high, out)
    return out


@compiled
def _moved_places(
    symbols: UInt8, reference: Int32, base: Int32, steps: int, finer: int, low: int, high: int, out: Int64
) -> bool:
    """Write the new place of every edge, times `steps` * `finer`; return whether all places are those of rankings."""
    edges = reference.size
    scale = steps * finer
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
    return wrong == 0


def rank_of_moves(symbols: UInt8, reference: Int32, base: Int32, steps: int, finer: int, low: int, high: int) -> Int32:
    """Return the ranking after these moves, each counted from the edge's place in `base`.

    Edges that come to stand at the same place are ordered by edge number.
    Raises ValueError if an edge moves further beyond either end of the reference ranking than rounding can explain.
    """
    places = np.empty(reference.size, np.int64)
    if not _moved_places(symbols, reference, base, steps, finer, low, high, places):
        raise ValueError("an edge moves beyond the end of the ranking")
    return rank_of_sums(places)
