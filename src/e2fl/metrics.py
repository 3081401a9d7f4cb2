"""Fairness and utility of anybody's scores: pure functions on arrays, NumPy and SciPy only.

Accuracies are in percent. Every client weighs the same, however many examples it has; every group weighs the same,
however many clients it has. Variances are population variances, in percent points squared. docs/metrics.md explains.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

Labels = Sequence[Any] | NDArray[Any]  # the group of each client
Numbers = NDArray[np.float64]


def mean(values: ArrayLike) -> float:
    """The mean."""
    return float(np.mean(_numbers(values)))


def worst10(values: ArrayLike) -> float:
    """The mean of the lowest tenth; of at least one value."""
    ordered = np.sort(_numbers(values))
    return float(np.mean(ordered[: tenth(len(ordered))]))


def best10(values: ArrayLike) -> float:
    """The mean of the highest tenth; of at least one value."""
    ordered = np.sort(_numbers(values))
    return float(np.mean(ordered[-tenth(len(ordered)) :]))


def variance(values: ArrayLike) -> float:
    """The population variance: 0 means that all are served alike."""
    return float(np.var(_numbers(values)))


METRICS: dict[str, Callable[[ArrayLike], float]] = {
    "mean": mean,
    "worst10": worst10,
    "best10": best10,
    "variance": variance,
}


def spread(values: ArrayLike) -> dict[str, float]:
    """All of `METRICS` at once."""
    numbers = _numbers(values)
    return {name: metric(numbers) for name, metric in METRICS.items()}


def tenth(count: int) -> int:
    """How many values a tenth is."""
    return max(1, count // 10)


def group_means(values: ArrayLike, groups: Sequence[Any] | NDArray[Any]) -> dict[Any, float]:
    """The mean of each group, in the order of the groups; a group without values is not there."""
    numbers = _numbers(values)
    names, places = np.unique(np.asarray(groups), return_inverse=True)
    if len(places) != len(numbers):
        raise ValueError(f"{len(numbers)} values for {len(places)} groups")
    sums = np.bincount(places, weights=numbers)
    counts = np.bincount(places)
    return {
        name.item() if hasattr(name, "item") else name: float(s / c)
        for name, s, c in zip(names, sums, counts, strict=True)
    }


def f1(true_positive: float, false_positive: float, false_negative: float) -> float:
    """F1 of the positive class; 0 where nothing was or should have been found."""
    whole = 2 * true_positive + false_positive + false_negative
    return 2 * true_positive / whole if whole else 0.0


def protected(unprivileged: Mapping[str, float], privileged: Mapping[str, float]) -> dict[str, float]:
    """Differences between two groups, unprivileged minus privileged; 0 is even, negative is a disadvantage.

    Each group is given by its counts: n, true_positive, false_positive, false_negative. What is undefined is NaN:
    equal opportunity without positives in a group, parity without examples.
    """

    def rate(part: float, whole: float) -> float:
        return part / whole if whole else math.nan

    def opportunity(group: Mapping[str, float]) -> float:
        return rate(group["true_positive"], group["true_positive"] + group["false_negative"])

    def positives(group: Mapping[str, float]) -> float:
        return rate(group["true_positive"] + group["false_positive"], group["n"])

    def score(group: Mapping[str, float]) -> float:
        return f1(group["true_positive"], group["false_positive"], group["false_negative"])

    return {
        "eod": opportunity(unprivileged) - opportunity(privileged),
        "di": score(unprivileged) - score(privileged),
        "spd": positives(unprivileged) - positives(privileged),
    }


def matched(found: Labels, true: Labels) -> float:
    """Percent of clients in the right group, when found groups are matched with true ones one to one.

    The matching is the one that puts most clients in the right group; groups left over on either side match nothing.
    """
    table = _contingency(found, true)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return 100.0 * float(table[rows, columns].sum()) / float(table.sum())


def purity(found: Labels, true: Labels) -> float:
    """Percent of clients in the right group, when every found group counts as the true group most of it is of."""
    table = _contingency(found, true)
    return 100.0 * float(table.max(axis=1).sum()) / float(table.sum())


def adjusted_rand(one: Labels, other: Labels) -> float:
    """How far two groupings agree, whatever their groups are called: 1 is fully, 0 as chance would have it."""
    table = _contingency(one, other)

    def pairs(counts: NDArray[np.int64]) -> int:
        return int((counts * (counts - 1) // 2).sum())

    both, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    everything = pairs(np.array([table.sum()]))
    expected = rows * columns / everything if everything else 0.0
    best = (rows + columns) / 2
    return 1.0 if best == expected else float((both - expected) / (best - expected))


def changed(now: Mapping[Any, Any], before: Mapping[Any, Any]) -> float:
    """Percent of those that were in a group before and are in another now; 0 where nobody was in one before."""
    both = [client for client in now if client in before]
    return 100.0 * sum(now[client] != before[client] for client in both) / len(both) if both else 0.0


def _contingency(one: Labels, other: Labels) -> NDArray[np.int64]:
    """How many are in each pair of groups."""
    rows, columns = np.asarray(one), np.asarray(other)
    if rows.shape != columns.shape or rows.ndim != 1:
        raise ValueError(f"two groupings of the same clients are needed, not of {rows.shape} and {columns.shape}")
    if not len(rows):
        raise ValueError("there is nothing to measure")
    row_names, row = np.unique(rows, return_inverse=True)
    column_names, column = np.unique(columns, return_inverse=True)
    table = np.zeros((len(row_names), len(column_names)), dtype=np.int64)
    np.add.at(table, (row, column), 1)
    return table


def _numbers(values: ArrayLike) -> Numbers:
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if not len(numbers):
        raise ValueError("there is nothing to measure")
    return numbers
