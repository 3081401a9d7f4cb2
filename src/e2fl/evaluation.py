"""What is counted when a client tries a model on its test examples."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from e2fl.data.federated import GroupId

NO_GROUP: GroupId = -1


@dataclass(frozen=True)
class Tally:
    """Counts over some examples; the last three are of class 1, where there are two classes."""

    n: int = 0
    correct: int = 0
    loss: float = 0.0  # summed, not averaged
    true_positive: int = 0
    false_positive: int = 0
    false_negative: int = 0

    @property
    def accuracy(self) -> float:
        """In percent; NaN where there was nothing to get right."""
        return 100.0 * self.correct / self.n if self.n else math.nan

    @property
    def positives(self) -> int:
        """Examples that are of class 1."""
        return self.true_positive + self.false_negative

    @property
    def finite(self) -> bool:
        """Whether the model gave numbers: a loss that is none comes of outputs that are none."""
        return math.isfinite(self.loss)

    @property
    def mean_loss(self) -> float:
        return self.loss / self.n if self.n else math.nan


def total(tallies: Iterable[Tally]) -> Tally:
    """All of them counted together, in the order given."""
    columns = list(zip(*(astuple(tally) for tally in tallies), strict=True))
    return Tally(*(sum(column) for column in columns))


@dataclass(frozen=True)
class Score:
    """How one client fares: with the model it is given, and with others shown beside it.

    views: by name, then by group of the examples (`NO_GROUP` where there is none). The first view is the client's own.
    group: the group the client was served as, where the algorithm has groups.
    passes: forward passes over its training data that the client spent to find its group.
    """

    views: Mapping[str, Mapping[GroupId, Tally]]
    group: GroupId | None = None
    passes: float = 0.0
