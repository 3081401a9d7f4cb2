"""Order, rank, vote, footrule and mask: pure functions on permutations of the edges of a layer.

`order[i]` is the edge at place i, least important first; `rank[e]` is the place of edge e. Each is the inverse of the
other. A ranking is stored as ranks, because votes, distances, masks and scores all look up the place of an edge.
Every sort is stable: ties go to the lower edge number, so that every machine computes the same ranking.
"""

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from e2fl import compiled

Order = NDArray[np.int32]
Ranks = NDArray[np.int32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

Ranking = dict[str, Ranks]  # the rank of every edge, layer by layer
Mask = dict[str, Bools]  # which edges are kept, layer by layer


def order_of(scores: Floats) -> Order:
    """Return the edges in order of rising score."""
    return compiled.order_of(scores)


def rank_of(scores: Floats) -> Ranks:
    """Return the rank of each edge: its place in order of rising score."""
    return compiled.rank_of(scores)


def invert(permutation: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the ranks of an order, or the order of ranks."""
    return compiled.invert(permutation)


class BordaCount:
    """The Borda count of one layer: each edge collects the ranks that the ballots give it.

    Every vote in the package is one of these: inside a group, across groups, and the centroid of a cluster.
    Sums are exact 64-bit integers, so the result does not depend on the order of the ballots.
    """

    def __init__(self, edges: int):
        self.sums = np.zeros(edges, dtype=np.int64)

    def add(self, rank: Ranks, weight: int = 1) -> None:
        """Count a ballot `weight` times."""
        if weight == 1:
            compiled.add_rank(self.sums, rank)
        else:
            self.sums += np.int64(weight) * rank

    def elect(self) -> Ranks:
        """Return the elected ranking: edges by their sum of ranks. Ties go to the lower edge number."""
        return compiled.rank_of_sums(self.sums)


def vote(ballots: Iterable[Ranking], incumbent: Ranking | None = None, weight: float = 0) -> Ranking:
    """Elect one ranking by Borda count, separately in each layer.

    ballots: read one at a time, any number of them.
    incumbent: the previously elected ranking, which counts as `weight` ballots. The weight is rounded to a fraction
    with a denominator of at most 1000, so that sums are exact integers.
    """
    weight_fraction = Fraction(weight).limit_denominator(1000)
    counts: dict[str, BordaCount] = {}

    def add(ranking: Ranking, times: int) -> None:
        for layer, rank in ranking.items():
            if layer not in counts:
                counts[layer] = BordaCount(len(rank))
            counts[layer].add(rank, times)

    for ballot in ballots:
        add(ballot, weight_fraction.denominator)
    if incumbent is not None and weight_fraction:
        add(incumbent, weight_fraction.numerator)
    if not counts:
        raise ValueError("a vote needs at least one ballot")
    return {layer: count.elect() for layer, count in counts.items()}


def footrule(one: Ranks, other: Ranks) -> int:
    """Return Spearman's footrule, the sum of absolute rank differences; at most floor(edges**2 / 2)."""
    return compiled.footrule(one, other)


def dropped(edges: int, keep: float) -> int:
    """Return how many edges are dropped when the fraction `keep` of a layer is kept."""
    # In binary, 1 - 0.9 is slightly below 0.1: without the offset, keep = 0.9 would drop none of 10 edges.
    return math.floor((1 - keep) * edges + 1e-9)


def mask_of(rank: Ranks, keep: float) -> Bools:
    """Return the mask of one layer: all edges but the least important are kept."""
    return rank >= dropped(len(rank), keep)


def scores_from(rank: Ranks, sorted_scores: Floats) -> Floats:
    """Return scores in the order of this ranking: the edge at place i gets the i-th smallest score."""
    return compiled.scores_from(rank, sorted_scores)


def mask_layers(ranking: Ranking, keep: float) -> Mask:
    """Return the mask of every layer."""
    return {layer: mask_of(rank, keep) for layer, rank in ranking.items()}
