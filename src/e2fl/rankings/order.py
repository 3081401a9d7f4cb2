"""Order, rank, footrule and mask: pure functions on permutations of the edges of a layer.

`order[i]` is the edge at place i, least important first; `rank[e]` is the place of edge e. Each is
the inverse of the other. A ranking is stored as ranks, because votes, distances, masks and scores
all look up the place of an edge. Every sort is stable: ties go to the lower edge number, so that
every machine computes the same ranking.
"""

import math

import numpy as np
from numpy.typing import NDArray

from e2fl import kernels

Order = NDArray[np.int32]
Ranks = NDArray[np.int32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

Ranking = dict[str, Ranks]  # the rank of every edge, layer by layer
Mask = dict[str, Bools]  # which edges are kept, layer by layer


def order_of(scores: Floats) -> Order:
    """Return the edges in order of rising score."""
    return kernels.order_of(scores)


def rank_of(scores: Floats) -> Ranks:
    """Return the rank of each edge: its place in order of rising score."""
    return kernels.rank_of(scores)


def invert(permutation: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the ranks of an order, or the order of ranks."""
    return kernels.invert(permutation)


def footrule(one: Ranks, other: Ranks) -> int:
    """Return Spearman's footrule, the sum of absolute rank differences.

    At most floor(edges**2 / 2).
    """
    return kernels.footrule(one, other)


def dropped(edges: int, keep: float) -> int:
    """Return how many edges are dropped when the fraction `keep` of a layer is kept."""
    # In binary, 1 - 0.9 is slightly below 0.1: without the offset, keep = 0.9 would drop none of 10
    # edges.
    return math.floor((1 - keep) * edges + 1e-9)


def mask_of(rank: Ranks, keep: float) -> Bools:
    """Return the mask of one layer: all edges but the least important are kept."""
    return rank >= dropped(len(rank), keep)


def scores_from(rank: Ranks, sorted_scores: Floats) -> Floats:
    """Return scores in the order of this ranking: the edge at place i gets the i-th smallest."""
    return kernels.scores_from(rank, sorted_scores)


def mask_layers(ranking: Ranking, keep: float) -> Mask:
    """Return the mask of every layer."""
    return {layer: mask_of(rank, keep) for layer, rank in ranking.items()}
