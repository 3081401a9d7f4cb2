"""Votes: rules that elect one ranking from ballots, and the registry of these rules.

Every election of E2FL and FRL calls `elect`: inside a group, across groups, and for smoothing. To
add a rule, write a subclass of `Vote` and one line in `VOTES`; experiments then choose it with
`vote = "name"`. docs/extending.md has an example.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar

import numpy as np
from typing_extensions import Doc

from e2fl import kernels
from e2fl.construct import Checked, Limits
from e2fl.kernels import Int64
from e2fl.rankings.order import Bools, Ranking, Ranks, mask_of

EDGES_PER_BLOCK = 2**16  # edges whose ranks are sorted at a time
WeightedRanks = tuple[Ranks, int]  # of one layer in a ballot, and the weight of the ballot


@dataclass(frozen=True)
class Vote(Checked, ABC):
    """A vote rule. Its fields are its settings.

    A rule must not depend on the order of the ballots, and must compute with integers or in a fixed
    order of additions, so that every machine elects the same ranking.
    """

    section: ClassVar[str] = "vote"

    @abstractmethod
    def elect(self, ballots: Sequence[WeightedRanks]) -> Ranks:
        """Return the elected ranks of one layer: an int32 permutation of 0 to edges - 1.

        ballots: at least one. A ballot of weight k counts as k equal ballots.
        """


class BordaCount:
    """The Borda count of one layer: each edge collects the ranks that the ballots give it.

    Sums are exact 64-bit integers, so the result does not depend on the order of the ballots.
    """

    def __init__(self, edges: int):
        self.sums = np.zeros(edges, dtype=np.int64)

    def add(self, rank: Ranks, weight: int = 1) -> None:
        """Count a ballot `weight` times."""
        if weight == 1:
            kernels.add_rank(self.sums, rank)
        else:
            self.sums += np.int64(weight) * rank

    def elect(self) -> Ranks:
        """Return the edges' places by their sum of ranks. Ties go to the lower edge number."""
        return kernels.rank_of_sums(self.sums)


@dataclass(frozen=True)
class Borda(Vote):
    """The paper's rule: edges are ranked by the sum of their ranks over all ballots."""

    def elect(self, ballots: Sequence[WeightedRanks]) -> Ranks:
        count = BordaCount(len(ballots[0][0]))
        for rank, weight in ballots:
            count.add(rank, weight)
        return count.elect()


@dataclass(frozen=True)
class TrimmedBorda(Vote):
    """Borda without the lowest and the highest ranks of each edge, which may be attacks.

    With fewer than `least` ballots nothing is dropped: all ballots count.
    """

    trim: Annotated[
        float, Doc("share of the ballots that is dropped at each end"), Limits(least=0, below=0.5)
    ] = 0.1
    least: Annotated[
        int, Doc("ballots; a vote with fewer is a plain Borda count"), Limits(least=3)
    ] = 5

    def elect(self, ballots: Sequence[WeightedRanks]) -> Ranks:
        weights = np.array([weight for _, weight in ballots], dtype=np.int64)
        cut = int(self.trim * int(weights.sum()) + 1e-9)
        if len(ballots) < self.least or not cut:
            return Borda().elect(ballots)
        sums = np.empty(len(ballots[0][0]), dtype=np.int64)
        for start in range(0, len(sums), EDGES_PER_BLOCK):
            block = np.stack([rank[start : start + EDGES_PER_BLOCK] for rank, _ in ballots])
            places = np.argsort(block, axis=0, kind="stable")
            ends = np.cumsum(weights[places], axis=0)
            last = np.minimum(ends, ends[-1] - cut)
            first = np.maximum(ends - weights[places], cut)
            counted = np.maximum(last - first, 0)  # how often each rank counts
            ranks = np.take_along_axis(block, places, axis=0)
            sums[start : start + EDGES_PER_BLOCK] = (counted * ranks).sum(axis=0)
        return kernels.rank_of_sums(sums)


VOTES: Mapping[str, type[Vote]] = {"borda": Borda, "trimmed_borda": TrimmedBorda}


def name_of(vote: Vote) -> str:
    """Return the name of a rule in `VOTES`, or of its class."""
    names = {kind: name for name, kind in VOTES.items()}
    return names.get(type(vote), type(vote).__qualname__)


def share_of(weight: float) -> Fraction:
    """Return the weight of an incumbent, relative to a ballot, as a ratio of small integers."""
    return Fraction(weight).limit_denominator(1000)


def elect(
    ballots: Iterable[Ranking],
    incumbent: Ranking | None = None,
    weight: float = 0,
    *,
    rule: Vote | None = None,
) -> Ranking:
    """Elect one ranking, separately in each layer.

    incumbent: the previously elected ranking, which counts as `weight` ballots. The weight is
    rounded to a fraction with a denominator of at most 1000, so that weights are integers.
    rule: the vote rule; default: `Borda`.
    """
    share = share_of(weight)
    cast = [(ballot, share.denominator) for ballot in ballots]
    if incumbent is not None and share:
        cast.append((incumbent, share.numerator))
    if not cast:
        raise ValueError("a vote needs at least one ballot")
    chosen = rule or Borda()
    return {
        layer: chosen.elect([(ranking[layer], times) for ranking, times in cast])
        for layer in cast[0][0]
    }


def most_exchanged(sums: Int64, kept: Bools, ballot: Ranks, weight: int = 1) -> int:
    """Return how many kept edges of a Borda count its voter could exchange by another ballot.

    sums: of all ballots, this one included; kept: the mask that they elect. The result is exact.

    Let s be the sums without the ballot. To exchange m kept edges, a new ballot must lift m dropped
    edges above them. It can do no better than to take the dropped edges with the largest s and the
    kept ones with the smallest; to give the former the ranks n - m to n - 1, the smallest s the
    highest, which makes the lowest of the lifted sums as high as possible; and the latter 0 to
    m - 1, the largest s the lowest. With all other edges between them in the order of s, just these
    edges cross the cut if the lowest lifted sum is above the highest lowered one. If m edges can
    cross, fewer can. Ties go to the lower edge number: s * n + edge has none.
    """
    edges = len(sums)
    # No edge moves further than this by one ballot: those further from the cut cannot cross it.
    reach = 2 * weight * (edges - 1)
    fewer = min(np.count_nonzero(kept), np.count_nonzero(~kept))
    if not fewer or np.array_equal(sums, weight * ballot.astype(np.int64)):
        return int(fewer)  # nothing to exchange, or nobody else votes
    near = np.where(kept, sums <= sums[~kept].max() + reach, sums >= sums[kept].min() - reach)
    numbers = np.flatnonzero(near)
    keys = (sums[numbers] - weight * ballot[numbers].astype(np.int64)) * edges + numbers
    above, below = np.sort(keys[kept[numbers]]), np.sort(keys[~kept[numbers]])[::-1]
    most = min(len(above), len(below))
    position = np.arange(1, most + 1)
    step = weight * edges
    lifted = np.minimum.accumulate(below[:most] + step * position) + step * (edges - 1 - position)
    lowered = np.maximum.accumulate(above[:most] - step * position) + step * position
    return int(np.count_nonzero(lifted > lowered))


def influence(
    ballots: Sequence[Ranking],
    elected: Ranking,
    keep: float,
    incumbent: Ranking | None = None,
    weights: tuple[int, int] = (0, 1),
) -> dict[str, Any]:
    """Return the largest share of kept edges, in percent, that one voter of a Borda count could
    exchange: over the whole mask, and in each layer.

    weights: of the incumbent and of a ballot.
    """
    exchanged, sizes = [], {}
    for layer, first in ballots[0].items():
        count = BordaCount(len(first))
        for ballot in ballots:
            count.add(ballot[layer], weights[1])
        if incumbent is not None:
            count.add(incumbent[layer], weights[0])
        kept = mask_of(elected[layer], keep)
        sizes[layer] = int(kept.sum())
        exchanged.append(
            [most_exchanged(count.sums, kept, ballot[layer], weights[1]) for ballot in ballots]
        )
    by_layer = zip(sizes, exchanged, strict=True)
    shares = {layer: 100 * max(counts) / sizes[layer] for layer, counts in by_layer}
    whole = 100 * max(map(sum, zip(*exchanged, strict=True))) / sum(sizes.values())
    return {"ballots": len(ballots), "mask": whole, "layers": shares}
