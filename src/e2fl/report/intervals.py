"""The uncertainty of a value: Student's t over seeds, or a bootstrap over clients if there is only one seed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from e2fl import metrics
from e2fl.metrics.student import mean_interval

LEVEL = 0.95
RESAMPLES = 2000
FEW = 5  # with fewer clients than this, an interval over clients means nothing
BLOCK = 4_000_000  # values that are drawn at a time, which bounds the memory

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval, whose ends are None where no interval can be given."""

    mean: float
    low: float | None
    high: float | None
    count: int  # seeds, or clients
    over: str = "seeds"

    @property
    def half(self) -> float | None:
        """Half the width of the interval; None if there is none."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def may_be_chance(self) -> bool | None:
        """Whether 0 lies inside the interval; None if there is no interval."""
        return None if self.low is None or self.high is None else self.low <= 0 <= self.high


def over_seeds(values: Sequence[float]) -> Interval:
    """Return the mean of values from different seeds, with its Student's t interval."""
    numbers = np.asarray(values, dtype=np.float64)
    low, high = mean_interval(numbers) if len(numbers) > 1 else (None, None)
    return Interval(float(numbers.mean()), low, high, len(numbers))


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Interval | None:
    """Return first minus second, seed by seed; None if they share no seed."""
    shared = sorted(first.keys() & second.keys())
    return over_seeds([first[seed] - second[seed] for seed in shared]) if shared else None


def row_means(rows: Numbers) -> Numbers:
    """Return the mean of each resample."""
    means: Numbers = rows.mean(axis=1)
    return means


def row_worst10(rows: Numbers) -> Numbers:
    """Return the mean of the lowest tenth of each resample, as `metrics.worst10` does."""
    count = metrics.tenth(rows.shape[1])
    means: Numbers = np.partition(rows, count - 1, axis=1)[:, :count].mean(axis=1)
    return means


def bootstrap(strata: Sequence[Numbers], statistic: Callable[[Numbers], Numbers] = row_means) -> Interval:
    """Return the statistic, summed over strata, with its bootstrap interval: clients are resampled within each stratum.

    The percentiles are widened for few clients as much as Student's t is (the expanded percentile interval). There is
    no interval with fewer than `FEW` clients in a stratum, nor where a stratum's clients are all alike: clients that
    share a model and a test set would give an interval of width 0, which is not certainty.
    """
    value = sum(float(statistic(stratum[None, :])[0]) for stratum in strata)
    count = min(len(stratum) for stratum in strata)
    if count < FEW or any(np.ptp(stratum) == 0 for stratum in strata):
        return Interval(value, None, None, count, "clients")
    rng = np.random.default_rng(0)  # the same page for the same runs
    draws: Numbers = sum((_resampled(stratum, statistic, rng) for stratum in strata), start=np.zeros(RESAMPLES))
    tail = float(ndtr(-math.sqrt(count / (count - 1)) * stdtrit(count - 1, (1 + LEVEL) / 2)))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(value, float(low), float(high), count, "clients")


def _resampled(values: Numbers, statistic: Callable[[Numbers], Numbers], rng: np.random.Generator) -> Numbers:
    rows = max(1, BLOCK // len(values))
    sizes = [min(rows, RESAMPLES - start) for start in range(0, RESAMPLES, rows)]
    return np.concatenate([statistic(values[rng.integers(0, len(values), (size, len(values)))]) for size in sizes])
