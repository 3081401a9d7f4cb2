"""Votes: rules that elect one ranking from ballots, and the registry of these rules.

Every election of E2FL and FRL calls `elect`: inside a group, across groups, and for smoothing. To
add a rule, write a subclass of `Vote` and one line in `VOTES`; experiments then choose it with
`vote = "name"`. docs/extending.md has an example.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from e2fl import kernels
from e2fl.rankings.order import Ranking, Ranks

Cast = tuple[Ranks, int]  # the ranks that a ballot gives the edges of a layer, and its weight


@dataclass(frozen=True)
class Vote(ABC):
    """A vote rule. Its fields are its settings.

    A rule must not depend on the order of the ballots, and must compute with integers or in a fixed
    order of additions, so that every machine elects the same ranking.
    """

    @abstractmethod
    def elect(self, ballots: Sequence[Cast]) -> Ranks:
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

    def elect(self, ballots: Sequence[Cast]) -> Ranks:
        count = BordaCount(len(ballots[0][0]))
        for rank, weight in ballots:
            count.add(rank, weight)
        return count.elect()


VOTES: Mapping[str, type[Vote]] = {"borda": Borda}


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
    share = Fraction(weight).limit_denominator(1000)
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
