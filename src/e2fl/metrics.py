"""Fairness and utility of anybody's scores: pure functions on arrays, NumPy only.

Accuracies are in percent. Every client weighs the same, however many examples it has; every group weighs the same,
however many clients it has. Variances are population variances, in percent points squared. docs/metrics.md explains.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

    def opportunity(group: Mapping[str, float]) -> float:
        return _rate(group["true_positive"], group["true_positive"] + group["false_negative"])

    def positives(group: Mapping[str, float]) -> float:
        return _rate(group["true_positive"] + group["false_positive"], group["n"])

    def score(group: Mapping[str, float]) -> float:
        return f1(group["true_positive"], group["false_positive"], group["false_negative"])

    return {
        "eod": opportunity(unprivileged) - opportunity(privileged),
        "di": score(unprivileged) - score(privileged),
        "spd": positives(unprivileged) - positives(privileged),
    }


def _numbers(values: ArrayLike) -> Numbers:
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if not len(numbers):
        raise ValueError("there is nothing to measure")
    return numbers


def confusion(y: ArrayLike, y_hat: ArrayLike) -> dict[str, int]:
    """Counts of predictions of 0 and 1, as `protected` takes them."""
    truth, said = _binary(y, "y"), _binary(y_hat, "y_hat")
    if len(truth) != len(said):
        raise ValueError(f"{len(truth)} labels for {len(said)} predictions")
    return {
        "n": len(truth),
        "correct": int(np.count_nonzero(truth == said)),
        "true_positive": int(np.count_nonzero(truth & said)),
        "false_positive": int(np.count_nonzero(~truth & said)),
        "false_negative": int(np.count_nonzero(truth & ~said)),
    }


def by_group(y: ArrayLike, y_hat: ArrayLike, a: ArrayLike) -> dict[int, dict[str, float]]:
    """For the rows of group 0 and of group 1: n, accuracy in percent, true positive rate, positive rate, F1.

    What is undefined is NaN: the true positive rate without positives; everything but F1 without rows. F1 is 0 where
    nothing was or should have been found.
    """
    found = {}
    for group, counts in _counts(y, y_hat, a).items():
        positives = counts["true_positive"] + counts["false_negative"]
        found[group] = {
            "n": counts["n"],
            "accuracy": 100 * _rate(counts["correct"], counts["n"]),
            "true_positive_rate": _rate(counts["true_positive"], positives),
            "positive_rate": _rate(counts["true_positive"] + counts["false_positive"], counts["n"]),
            "f1": f1(counts["true_positive"], counts["false_positive"], counts["false_negative"]),
        }
    return found


def equal_opportunity_difference(y: ArrayLike, y_hat: ArrayLike, a: ArrayLike) -> float:
    """EOD: Pr(y_hat = 1 given a = 0, y = 1) - Pr(y_hat = 1 given a = 1, y = 1); NaN without positives in a group."""
    return _differences(y, y_hat, a)["eod"]


def f1_difference(y: ArrayLike, y_hat: ArrayLike, a: ArrayLike) -> float:
    """DI, as the E2FL paper defines it: F1 of the rows with a = 0 minus F1 of those with a = 1."""
    return _differences(y, y_hat, a)["di"]


def statistical_parity_difference(y_hat: ArrayLike, a: ArrayLike) -> float:
    """SPD: Pr(y_hat = 1 given a = 0) - Pr(y_hat = 1 given a = 1); NaN without rows in a group."""
    return _differences(y_hat, y_hat, a)["spd"]


def _differences(y: ArrayLike, y_hat: ArrayLike, a: ArrayLike) -> dict[str, float]:
    counts = _counts(y, y_hat, a)
    return protected(counts[0], counts[1])


def _counts(y: ArrayLike, y_hat: ArrayLike, a: ArrayLike) -> dict[int, dict[str, int]]:
    truth, said, group = np.asarray(y).reshape(-1), np.asarray(y_hat).reshape(-1), _binary(a, "a")
    if not len(truth) == len(said) == len(group):
        raise ValueError(f"{len(truth)} labels, {len(said)} predictions and {len(group)} groups")
    return {0: confusion(truth[~group], said[~group]), 1: confusion(truth[group], said[group])}


def _rate(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _binary(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    numbers = np.asarray(values).reshape(-1)
    if not np.isin(numbers, (0, 1)).all():
        raise ValueError(f"{name} must hold 0 and 1 only")
    return numbers.astype(np.bool_)
