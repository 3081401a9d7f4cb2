"""Counts from evaluating models on a client's test examples."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from e2fl.data.federated import GroupId

NO_GROUP: GroupId = -1


@dataclass(frozen=True)
class Tally:
    """Counts over some examples; the last three are for class 1 of two classes."""

    n: int = 0
    correct: int = 0
    loss: float = 0.0  # summed, not averaged
    true_positive: int = 0
    false_positive: int = 0
    false_negative: int = 0

    @property
    def accuracy(self) -> float:
        """Accuracy in percent; NaN without examples."""
        return 100.0 * self.correct / self.n if self.n else math.nan

    @property
    def positives(self) -> int:
        """The number of examples of class 1."""
        return self.true_positive + self.false_negative

    @property
    def finite(self) -> bool:
        """Whether the loss is finite; a diverged model has a loss of NaN or inf."""
        return math.isfinite(self.loss)

    @property
    def mean_loss(self) -> float:
        return self.loss / self.n if self.n else math.nan


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of all counts, added in the order given."""
    columns = list(zip(*(astuple(tally) for tally in tallies), strict=True))
    return Tally(*(sum(column) for column in columns))


@dataclass(frozen=True)
class Score:
    """The result of one client: with its own model, and with others for comparison.

    views: by name, then by group of the examples (`NO_GROUP` if there is none). The first view is the client's own.
    group: the group whose model the client used, where the algorithm has groups.
    passes: passes over its training data that the client spent to find its group.
    validation: the same as `views`, on the client's validation examples, where it has any.
    """

    views: Mapping[str, Mapping[GroupId, Tally]]
    group: GroupId | None = None
    passes: float = 0.0
    validation: Mapping[str, Mapping[GroupId, Tally]] | None = None
