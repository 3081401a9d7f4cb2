"""How values are distributed over clients or groups: `METRICS` is what a run records of accuracies.

A new measure is a function here, its line in `METRICS` and its entry in measures.toml. Accuracies
are in percent; `_errors` are what is missing to 100. A NaN among the values gives NaN, and so does
a negative value where shares of a total are compared.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]


def numbers(values: ArrayLike, name: str = "") -> Numbers:
    """Return a flat array of at least one value; with a name, all of them finite."""
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if not len(array):
        raise ValueError("there is nothing to measure")
    if name and not np.isfinite(array).all():
        raise ValueError(f"{name} is not a number in row {np.argmin(np.isfinite(array))}")
    return array


def tenth(count: int) -> int:
    """Return how many values a tenth is: at least one."""
    return max(1, count // 10)


def mean(values: ArrayLike) -> float:
    """Return the mean."""
    return float(np.mean(numbers(values)))


def worst10(values: ArrayLike) -> float:
    """Return the mean of the lowest tenth, of at least one value."""
    ordered = np.sort(numbers(values))
    lowest = ordered[: tenth(len(ordered))]
    return math.nan if np.isnan(ordered[-1]) else float(np.mean(lowest))  # NaN is sorted last


def best10(values: ArrayLike) -> float:
    """Return the mean of the highest tenth, of at least one value."""
    ordered = np.sort(numbers(values))
    return float(np.mean(ordered[-tenth(len(ordered)) :]))


def variance(values: ArrayLike) -> float:
    """Return the population variance; 0 means that all values are equal."""
    return float(np.var(numbers(values)))


def std(values: ArrayLike) -> float:
    """Return the population standard deviation; 0 means that all values are equal."""
    return math.sqrt(variance(values))


def gap(values: ArrayLike) -> float:
    """Return the highest value minus the lowest."""
    return float(np.ptp(numbers(values)))


def p10(values: ArrayLike) -> float:
    """Return the 10th percentile, with linear interpolation."""
    return float(np.percentile(numbers(values), 10))


def p90(values: ArrayLike) -> float:
    """Return the 90th percentile, with linear interpolation."""
    return float(np.percentile(numbers(values), 90))


def gini(values: ArrayLike) -> float:
    """Return the Gini coefficient: 0 where all values are equal, near 1 where one has all."""
    ordered = np.sort(_shared(values))
    count, total = len(ordered), ordered.sum()
    ranks = 2 * np.arange(1, count + 1) - count - 1
    return float(ranks @ ordered / (count * total)) if total else 0.0


def jain(values: ArrayLike) -> float:
    """Return Jain's index: 1 where all values are equal, 1 / count where one has everything."""
    array = _shared(values)
    squares = float(array @ array)
    return float(array.sum() ** 2 / (len(array) * squares)) if squares else 1.0


def _shared(values: ArrayLike) -> Numbers:
    """Return values that can be shares of a total: NaN if one of them is negative."""
    array = numbers(values)
    return np.full(len(array), np.nan) if array.min() < 0 else array


# What is recorded over clients and over groups, by its name in records.
METRICS: dict[str, Callable[[ArrayLike], float]] = {
    "mean": mean,
    "worst10": worst10,
    "best10": best10,
    "variance": variance,
    "std": std,
    "gap": gap,
    "p10": p10,
    "p90": p90,
    "gini": gini,
    "gini_errors": lambda values: gini(100.0 - numbers(values)),
    "jain": jain,
    "jain_errors": lambda values: jain(100.0 - numbers(values)),
}


def spread(values: ArrayLike) -> dict[str, float]:
    """Return all of `METRICS`."""
    return {name: metric(values) for name, metric in METRICS.items()}
