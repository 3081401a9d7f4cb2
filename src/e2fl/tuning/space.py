"""The settings that a search tries: a range of numbers, or a choice of values."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from e2fl.config.experiment import Experiment
from e2fl.config.overrides import Change
from e2fl.errors import ConfigError
from e2fl.sweeps.grid import axes_of, shown

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")
DIGITS = 4  # significant digits of a number that is drawn: more would be noise in a table
BUDGET = ("rounds", "evaluate_every")  # the same for all trials


@dataclass(frozen=True)
class Range:
    """A number between two others, both included."""

    name: str
    low: float
    high: float
    log: bool = False  # drawn uniformly on a logarithmic scale
    whole: bool = False

    @property
    def size(self) -> float:
        """How many values there are."""
        return self.high - self.low + 1 if self.whole else math.inf

    @property
    def example(self) -> Any:
        return self.value(self.low)

    def value(self, drawn: float) -> Any:
        """Return the value that a trial gets for a drawn number."""
        if self.whole:
            return int(drawn)
        return min(max(float(f"{drawn:.{DIGITS}g}"), self.low), self.high)

    def __str__(self) -> str:
        kind = "integers, " if self.whole else ""
        return f"{kind}{self.low:g} to {self.high:g}{', logarithmic' if self.log else ''}"


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    name: str
    values: tuple[Any, ...]

    @property
    def size(self) -> float:
        return len(self.values)

    @property
    def example(self) -> Any:
        return self.values[0]

    def value(self, drawn: float) -> Any:
        """Return the value at a drawn place."""
        return self.values[int(drawn)]

    def __str__(self) -> str:
        return ", ".join(map(shown, self.values))


Dimension = Range | Choice


def change(name: str, value: Any) -> Change:
    return Change(tuple(name.split(".")), value)


def space_of(texts: Sequence[str]) -> list[Dimension]:
    """Return dimensions from strings such as "learner.learning_rate=0.01..1:log" or "algorithm.smoothing=0,2,5"."""
    found: list[Dimension] = []
    for text in texts:
        name, _, values = (part.strip() for part in text.partition("="))
        if name in BUDGET:
            raise ConfigError(f"{name} is part of the budget, which all trials share; use --set {name}=... for it")
        (axis,) = axes_of([text], "--space")  # it reads a range as a string
        match = RANGE.fullmatch(values)
        if match is not None:
            found.append(_range(name, *match.groups()))
        elif ".." in values:
            raise ConfigError(f"--space takes KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A,B,...; not '{text}'")
        else:
            found.append(Choice(name, tuple(change.value for change in axis.changes)))
    if len({dimension.name for dimension in found}) != len(found):
        raise ConfigError("each setting can be given to --space once")
    return found


def _range(name: str, low: str, high: str, log: str | None) -> Range:
    ends = float(low), float(high)
    if not ends[0] < ends[1] < math.inf:
        raise ConfigError(f"--space {name}={low}..{high}: the first number must be below the second")
    if log and ends[0] <= 0:
        raise ConfigError(f"--space {name}={low}..{high}:log: a logarithmic scale needs numbers above 0")
    return Range(name, *ends, bool(log), all(re.fullmatch(r"[-+]?\d+", end) for end in (low, high)))


def fitted(dimension: Dimension, complete: Experiment) -> Dimension:
    """Return the dimension for an experiment with all defaults: a range of a float setting is not one of integers."""
    if isinstance(dimension, Choice):
        return dimension
    return replace(dimension, whole=dimension.whole and not isinstance(_setting(dimension, complete), float))


def own_settings(space: Sequence[Dimension], complete: Experiment) -> dict[str, float]:
    """Return what would have to be drawn for the experiment's own settings, if they lie in the space."""
    found: dict[str, float] = {}
    for dimension in space:
        value = _setting(dimension, complete)
        if isinstance(dimension, Choice):
            if value in dimension.values:
                found[dimension.name] = dimension.values.index(value)
        elif isinstance(value, int | float) and dimension.low <= value <= dimension.high:
            found[dimension.name] = value
    return found


def _setting(dimension: Dimension, complete: Experiment) -> Any:
    value: Any = complete.to_dict()
    for part in dimension.name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
