"""Order, rank, vote, footrule and mask: pure functions on the permutations of one layer's edges.

`order[i]` is the edge in place i, least wanted first; `rank[e]` is the place of edge e. Each is the inverse of the
other. In memory a ranking is kept as ranks, because votes, distances, masks and scores all ask "where is this edge?".
Every sort is stable: equal values stand in the order of their edge numbers, so that every machine agrees.
"""

import math
from collections.abc import Iterable

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
    """The edges by rising score."""
    return compiled.order_of(scores)


def rank_of(scores: Floats) -> Ranks:
    """The place of each edge when edges stand by rising score."""
    return compiled.rank_of(scores)


def invert(permutation: NDArray[np.int32]) -> NDArray[np.int32]:
    """The ranks of an order, or the order of ranks."""
    return compiled.invert(permutation)


def vote(ballots: Iterable[Ranks]) -> Ranks:
    """Elect one ranking: edges by the sum of the ranks they were given (Borda count).

    Ballots are read one at a time and may be any number; the sums are exact 64-bit integers.
    Ties go to the lower edge number.
    """
    sums: NDArray[np.int64] | None = None
    for rank in ballots:
        if sums is None:
            sums = np.zeros(len(rank), dtype=np.int64)
        compiled.add_rank(sums, rank)
    if sums is None:
        raise ValueError("a vote needs at least one ballot")
    return compiled.rank_of_sums(sums)


def footrule(one: Ranks, other: Ranks) -> int:
    """Spearman's footrule: how far the edges' places differ in all; at most floor(edges**2 / 2)."""
    return compiled.footrule(one, other)


def dropped(edges: int, keep: float) -> int:
    """How many edges a layer loses when the fraction `keep` of it is kept."""
    # 1 - 0.9 lies just below 0.1 in binary: without the nudge, 10 edges at keep = 0.9 would lose none.
    return math.floor((1 - keep) * edges + 1e-9)


def mask_of(rank: Ranks, keep: float) -> Bools:
    """The edges kept: all but the least wanted."""
    return rank >= dropped(len(rank), keep)


def scores_from(rank: Ranks, sorted_scores: Floats) -> Floats:
    """Scores that stand in this ranking: the edge in place i gets the i-th smallest score."""
    return compiled.scores_from(rank, sorted_scores)


def vote_layers(ballots: Iterable[Ranking]) -> Ranking:
    """Elect a ranking of every layer, each layer by itself."""
    sums: dict[str, NDArray[np.int64]] = {}
    for ballot in ballots:
        for layer, rank in ballot.items():
            if layer not in sums:
                sums[layer] = np.zeros(len(rank), dtype=np.int64)
            compiled.add_rank(sums[layer], rank)
    if not sums:
        raise ValueError("a vote needs at least one ballot")
    return {layer: compiled.rank_of_sums(total) for layer, total in sums.items()}


def mask_layers(ranking: Ranking, keep: float) -> Mask:
    """The edges kept in every layer."""
    return {layer: mask_of(rank, keep) for layer, rank in ranking.items()}
