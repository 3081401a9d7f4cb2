"""Bootstrap intervals for any metric; whole clients are resampled where rows belong to clients."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from e2fl.metrics.arrays import codes


class Interval(NamedTuple):
    """A value and the limits of its interval."""

    value: float
    low: float
    high: float


def bootstrap(
    metric: Callable[..., float],
    columns: Mapping[str, Any],
    *,
    by: str | None = None,
    resamples: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return `metric(**columns)` and its percentile bootstrap interval.

    columns: arrays of one length, passed to the metric by name. by: the column that names the client of each row; it is
    not passed to the metric. Rows of one client are not independent, so clients are drawn, each with all of its rows.
    Without `by`, rows are drawn. Resamples in which the metric is NaN (a group without positives) are left out.
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
    drawn = [float(metric(**{name: v[rows] for name, v in arrays.items()})) for rows in draws(clients, resamples, seed)]
    known = np.array([found for found in drawn if found == found])
    if not len(known):
        return Interval(value, float("nan"), float("nan"))
    tail = 50 * (1 - level)
    low, high = np.percentile(known, [tail, 100 - tail])
    return Interval(value, float(low), float(high))


def draws(clients: NDArray[np.int64], resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of each resample. clients: [rows], the client of each row, counted from 0."""
    order = np.argsort(clients, kind="stable")
    sizes = np.bincount(clients)
    starts = np.cumsum(sizes) - sizes
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        chosen = rng.integers(0, len(sizes), len(sizes))
        lengths = sizes[chosen]
        ends = np.cumsum(lengths)
        # Position inside the resample, minus where its client begins there, plus where that client begins in `order`.
        yield order[np.arange(ends[-1]) + np.repeat(starts[chosen] - (ends - lengths), lengths)]
