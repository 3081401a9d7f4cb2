"""The uncertainty of a value: Student's t over seeds, bootstraps over clients, tests of means."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr, stdtrit

from e2fl.metrics.accuracy import tenth
from e2fl.metrics.arrays import Numbers, codes

LEVEL = 0.95
RESAMPLES = 2000
FEW = 5  # with fewer clients than this, an interval over clients means nothing
BLOCK = 4_000_000  # values that are drawn at a time, which bounds the memory


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval, whose ends are None where no interval can be given."""

    value: float
    low: float | None = None
    high: float | None = None
    count: int = 0  # of seeds, or of clients
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
    """Return the mean of the lowest tenth of each resample, as `worst10` does."""
    count = tenth(rows.shape[1])
    means: Numbers = np.partition(rows, count - 1, axis=1)[:, :count].mean(axis=1)
    return means


def row_best10(rows: Numbers) -> Numbers:
    """Return the mean of the highest tenth of each resample, as `best10` does."""
    return -row_worst10(-rows)


def over_clients(
    strata: Sequence[Numbers], statistic: Callable[[Numbers], Numbers] = row_means
) -> Interval:
    """Return a statistic, summed over strata, with its bootstrap interval over clients.

    Clients are resampled within each stratum. The percentiles are widened for few clients as much
    as Student's t is (the expanded percentile interval). There is no interval with fewer than `FEW`
    clients in a stratum, nor where a stratum's clients are all alike: clients that share a model
    and a test set would give an interval of width 0, which is not certainty.
    """
    value = sum(float(statistic(stratum[None, :])[0]) for stratum in strata)
    count = min(len(stratum) for stratum in strata)
    if count < FEW or any(np.ptp(stratum) == 0 for stratum in strata):
        return Interval(value, None, None, count, "clients")
    rng = np.random.default_rng(0)  # the same page for the same runs
    draws: Numbers = sum(
        (_resampled(stratum, statistic, rng) for stratum in strata), start=np.zeros(RESAMPLES)
    )
    tail = float(ndtr(-math.sqrt(count / (count - 1)) * stdtrit(count - 1, (1 + LEVEL) / 2)))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(value, float(low), float(high), count, "clients")


def _resampled(
    values: Numbers, statistic: Callable[[Numbers], Numbers], rng: np.random.Generator
) -> Numbers:
    rows = max(1, BLOCK // len(values))
    sizes = [min(rows, RESAMPLES - start) for start in range(0, RESAMPLES, rows)]
    return np.concatenate(
        [statistic(values[rng.integers(0, len(values), (size, len(values)))]) for size in sizes]
    )


def bootstrap(
    metric: Callable[..., float],
    columns: Mapping[str, Any],
    *,
    by: str | None = None,
    resamples: int = 200,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """Return `metric(**columns)` and its percentile bootstrap interval.

    columns: arrays of one length, passed to the metric by name. by: the column that names the
    client of each row; it is not passed to the metric. Rows of one client are not independent, so
    clients are drawn, each with all of its rows. Without `by`, rows are drawn. Resamples in which
    the metric is NaN (a group without positives) are left out.
    """
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    if len({len(values) for values in arrays.values()}) != 1:
        raise ValueError("all columns need the same number of rows")
    if by is not None and by not in arrays:
        raise ValueError(f"there is no column '{by}' to resample by")
    count = len(next(iter(arrays.values())))
    if not count:
        raise ValueError("there is nothing to measure")
    clients = np.arange(count) if by is None else codes(arrays.pop(by), by)[1]
    value = float(metric(**arrays))
    draws = np.array(
        [
            float(metric(**{name: values[rows] for name, values in arrays.items()}))
            for rows in _rows_of_resamples(clients, resamples, seed)
        ]
    )
    known = draws[~np.isnan(draws)]
    size, over = int(clients.max()) + 1, "rows" if by is None else "clients"
    if not len(known):
        return Interval(value, None, None, size, over)
    tail = 50 * (1 - level)
    low, high = np.percentile(known, [tail, 100 - tail])
    return Interval(value, float(low), float(high), size, over)


def _rows_of_resamples(
    clients: NDArray[np.int64], resamples: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of each resample. clients: [rows], the client of each row, counted from 0."""
    order = np.argsort(clients, kind="stable")
    sizes = np.bincount(clients)
    starts = np.cumsum(sizes) - sizes
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        chosen = rng.integers(0, len(sizes), len(sizes))
        lengths = sizes[chosen]
        ends = np.cumsum(lengths)
        # Position in the resample, minus the start of its client there, plus its start in `order`.
        yield order[np.arange(ends[-1]) + np.repeat(starts[chosen] - (ends - lengths), lengths)]


def t_quantile(freedom: float) -> float:
    """Return the two-sided 95 % quantile of Student's t; NaN without a degree of freedom."""
    return float(stdtrit(freedom, (1 + LEVEL) / 2)) if freedom >= 1 else math.nan


def mean_interval(values: Numbers) -> tuple[float, float]:
    """Return the 95 % interval of a mean; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan, math.nan
    half = t_quantile(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    average = float(np.mean(values))
    return average - half, average + half


def mean_test(values: Numbers) -> float:
    """Return the p-value of the t-test that a mean is 0."""
    average, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return _p_value(average, error, len(values) - 1)


def welch(one: Numbers, other: Numbers) -> float:
    """Return the p-value of Welch's t-test; NaN for fewer than two values on a side."""
    if len(one) < 2 or len(other) < 2:
        return math.nan
    first, second = (float(np.var(values, ddof=1)) / len(values) for values in (one, other))
    shares = first**2 / (len(one) - 1) + second**2 / (len(other) - 1)
    freedom = (first + second) ** 2 / shares if shares else 1.0
    difference = float(np.mean(one)) - float(np.mean(other))
    return _p_value(difference, math.sqrt(first + second), freedom)


def _p_value(difference: float, error: float, freedom: float) -> float:
    """Return the two-sided p-value of Student's t."""
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return 2 * float(stdtr(freedom, -abs(difference / error)))
