"""Counts from evaluating models on a client's test examples."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from e2fl.data.federated import GroupId

NO_GROUP: GroupId = -1
DIVERGED_LOSS = 1e6  # per example; guessing among a million classes has a cross-entropy of 14


@dataclass(frozen=True)
class Tally:
    """Counts over some examples; the last three are for class 1 of two classes."""

    n: int = 0
    correct: int = 0
    loss: float = 0.0  # summed, not averaged
    true_positive: int = 0
    false_positive: int = 0
    false_negative: int = 0
    own: Mapping[str, float] = field(default_factory=dict)  # the user's own measures, by name

    @property
    def accuracy(self) -> float:
        """Accuracy in percent; NaN without examples."""
        return 100.0 * self.correct / self.n if self.n else math.nan

    @property
    def positives(self) -> int:
        """The number of examples of class 1."""
        return self.true_positive + self.false_negative

    @property
    def diverged(self) -> bool:
        """Whether the loss is that of a diverged model: NaN, infinite, or absurdly large."""
        return not self.loss <= DIVERGED_LOSS * self.n

    @property
    def mean_loss(self) -> float:
        return self.loss / self.n if self.n else math.nan


COUNTS = ("n", "correct", "loss", "true_positive", "false_positive", "false_negative")


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of all counts, added in the order given.

    The user's own measures are averaged over the examples for which they are defined.
    """
    summands = [Tally(), *tallies]
    measures = {}
    for name in dict.fromkeys(name for tally in summands for name in tally.own):
        values = [(tally.own.get(name, math.nan), tally.n) for tally in summands]
        defined = [(value, n) for value, n in values if math.isfinite(value)]
        rows = sum(n for _, n in defined)
        measures[name] = sum(value * n for value, n in defined) / rows if rows else math.nan
    counts = {name: sum(getattr(tally, name) for tally in summands) for name in COUNTS}
    return replace(Tally(own=measures), **counts)


@dataclass(frozen=True)
class Score:
    """The result of one client: with its own model, and with others for comparison.

    views: by name, then by group of the examples (`NO_GROUP` if there is none). The first view is
    the client's own.
    group: the group whose model the client used, where the algorithm has groups.
    passes: passes over its training data that the client spent to find its group.
    validation: the same as `views`, on the client's validation examples, where it has any.
    """

    views: Mapping[str, Mapping[GroupId, Tally]]
    group: GroupId | None = None
    passes: float = 0.0
    validation: Mapping[str, Mapping[GroupId, Tally]] | None = None

    @property
    def own(self) -> Tally:
        """All counts with the client's own model."""
        return total(next(iter(self.views.values())).values())
