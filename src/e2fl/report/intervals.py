"""How far a mean over seeds can be trusted: Student's t intervals, paired where the same seeds were run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and half the width of its 95 % interval; no width where there is only one value."""

    mean: float
    half: float | None
    count: int

    @property
    def low(self) -> float | None:
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        return None if self.half is None else self.mean + self.half

    @property
    def within_noise(self) -> bool | None:
        """Whether 0 lies inside the interval; None where one value is all there is."""
        return None if self.half is None else abs(self.mean) <= self.half


def interval(values: Sequence[float]) -> Interval:
    """The mean of these values, each from a seed of its own, with its interval."""
    numbers = np.asarray(values, dtype=np.float64)
    count = len(numbers)
    if not count:
        raise ValueError("there is nothing to average")
    mean = float(numbers.mean())
    if count < 2:
        return Interval(mean, None, count)
    error = float(numbers.std(ddof=1)) / math.sqrt(count)
    return Interval(mean, float(stdtrit(count - 1, (1 + LEVEL) / 2)) * error, count)


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Interval | None:
    """First minus second, seed by seed; None where they share no seed."""
    shared = sorted(first.keys() & second.keys())
    return interval([first[seed] - second[seed] for seed in shared]) if shared else None
