"""Order to rank and back, rank to scores, and the sums of a vote."""

from __future__ import annotations

import numpy as np

from e2fl.compiled.arrays import Float32, Int32, Int64
from e2fl.compiled.machine_code import compiled


@compiled
def _invert(permutation: Int32, out: Int32) -> None:
    for i in range(permutation.size):
        out[permutation[i]] = i


def invert(permutation: Int32) -> Int32:
    """Return the rank of an order, or the order of a rank."""
    out = np.empty_like(permutation)
    _invert(permutation, out)
    return out


@compiled
def add_rank(sums: Int64, rank: Int32) -> None:
    """Add the rank of one ballot to the sums of a vote."""
    for e in range(sums.size):
        sums[e] += rank[e]


@compiled
def _scores_from(rank: Int32, sorted_scores: Float32, out: Float32) -> None:
    for e in range(rank.size):
        out[e] = sorted_scores[rank[e]]


def scores_from(rank: Int32, sorted_scores: Float32) -> Float32:
    """Return the score of each edge: the one at its place in the sorted scores."""
    out = np.empty_like(sorted_scores)
    _scores_from(rank, sorted_scores, out)
    return out
