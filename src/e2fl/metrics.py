"""Fairness and utility of anybody's scores: pure functions on arrays, NumPy and SciPy only.

Accuracies are in percent. Every client weighs the same, however many examples it has; every group weighs the same,
however many clients it has. Variances are population variances, in percent points squared. A value that is NaN makes
every measure of it NaN. docs/metrics.md explains.
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
    if math.isnan(ordered[-1]):  # NaN is sorted last
        return math.nan
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
    names, places = np.unique(_names(groups, "group"), return_inverse=True)
    if len(places) != len(numbers):
        raise ValueError(f"{len(numbers)} values for {len(places)} groups")
    sums = np.bincount(places, weights=numbers)
    counts = np.bincount(places)
    return {
        name.item() if hasattr(name, "item") else name: float(s / c)
        for name, s, c in zip(names, sums, counts, strict=True)
    }


def fairness(
    accuracy: ArrayLike,
    group: Sequence[Any] | NDArray[Any] | None = None,
    *,
    client: Sequence[Any] | NDArray[Any] | None = None,
    n: ArrayLike | None = None,
    loss: ArrayLike | None = None,
) -> dict[str, Any]:
    """How evenly clients and groups are served: the keys user, group and groups of a run's summary.json.

    accuracy: [rows], in percent; a row is a client, or the part of a client that lies in one group: then `client` says
    whose part it is. n: [rows], the examples behind each row; it weighs the parts of one client and nothing else.
    loss: [rows], the mean loss of each row. Without `group`, the key group is None and groups is empty.
    """
    rows = _finite(accuracy, "accuracy")
    others = {"group": group, "client": client, "n": n, "loss": loss}
    for name, values in others.items():
        if values is not None and len(np.asarray(values)) != len(rows):
            raise ValueError(f"{len(rows)} accuracies, but {len(np.asarray(values))} values of {name}")
    weights = np.ones(len(rows)) if n is None else _finite(n, "n")
    lost = None if loss is None else _finite(loss, "loss")
    if weights.min() <= 0:
        raise ValueError("every row needs at least one example: n must be above 0")
    result: dict[str, Any] = {"user": spread(combined(rows, client, weights)), "group": None, "groups": {}}
    if group is None:
        return result
    losses = None if lost is None else group_means(lost, group)
    names, sizes = np.unique(_names(group, "group"), return_counts=True)
    members = dict(zip(names.tolist(), sizes.tolist(), strict=True))
    for name, value in group_means(rows, group).items():
        result["groups"][name] = {"clients": members[name], "accuracy": value}
        if losses is not None:
            result["groups"][name]["loss"] = losses[name]
    result["group"] = spread([found["accuracy"] for found in result["groups"].values()])
    return result


def combined(values: Numbers, client: Sequence[Any] | NDArray[Any] | None, n: ArrayLike) -> Numbers:
    """One value for each client, in the order of clients: the mean of its rows, weighted by their examples."""
    if client is None:
        return values
    weights = _numbers(n)
    _, places = np.unique(_names(client, "client"), return_inverse=True)
    sums: Numbers = np.bincount(places, weights=values * weights) / np.bincount(places, weights=weights)
    return sums


def accuracies(
    y: ArrayLike,
    y_hat: ArrayLike,
    *,
    client: Sequence[Any] | NDArray[Any],
    group: Sequence[Any] | NDArray[Any] | None = None,
) -> dict[str, NDArray[Any]]:
    """Accuracy of each client, or of each group inside it, from labels and predictions; `fairness(**found)` goes on.

    All arguments: [examples]. Returns columns client, n, accuracy and, where given, group: [client and group pairs].
    """
    truth, said = np.asarray(y), np.asarray(y_hat)
    given = {"y": truth, "y_hat": said, "client": _names(client, "client")}
    if group is not None:
        given["group"] = _names(group, "group")
    if truth.ndim != 1 or len({values.shape for values in given.values()}) > 1:
        shapes = ", ".join(f"{name} {values.shape}" for name, values in given.items())
        raise ValueError(f"one value for each example is needed, not shapes {shapes}")
    if not len(truth):
        raise ValueError("there is nothing to measure")
    right = truth == said
    clients, client_code = np.unique(given["client"], return_inverse=True)
    if group is None:
        n = np.bincount(client_code)
        correct = np.bincount(client_code, weights=right)
        return {"client": clients, "n": n, "accuracy": 100.0 * correct / n}
    groups, group_code = np.unique(given["group"], return_inverse=True)
    pairs, places = np.unique(client_code * len(groups) + group_code, return_inverse=True)
    n = np.bincount(places)
    correct = np.bincount(places, weights=right)
    return {
        "client": clients[pairs // len(groups)],
        "group": groups[pairs % len(groups)],
        "n": n,
        "accuracy": 100.0 * correct / n,
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


def changed(now: Mapping[Any, Any], before: Mapping[Any, Any]) -> float | None:
    """Percent of those that were in a group before and are in another now; None where nobody was in one before."""
    both = [client for client in now if client in before]
    return 100.0 * sum(now[client] != before[client] for client in both) / len(both) if both else None


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


def _names(values: Sequence[Any] | NDArray[Any], what: str) -> NDArray[Any]:
    """Groups or clients, one of each row; refused where there is none, which would be a name like others."""
    plain = isinstance(values, np.ndarray) and values.dtype.kind in "iubU"
    for row, value in enumerate(() if plain else values):
        if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
            raise ValueError(f"row {row} has no {what}")
    return np.asarray(values)


def _numbers(values: ArrayLike) -> Numbers:
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if not len(numbers):
        raise ValueError("there is nothing to measure")
    return numbers


def _finite(values: ArrayLike, name: str) -> Numbers:
    numbers = _numbers(values)
    if not np.isfinite(numbers).all():
        place = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"{name} is not a number in row {place}")
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
