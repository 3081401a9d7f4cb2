"""How values are distributed over clients and groups, and how well two groupings of clients agree.

`METRICS` is what a run records of accuracies, in percent; a new measure is a function here, its
line in `METRICS` and its entry in measures.toml. `_errors` are what is missing to 100. A NaN among
the values gives NaN, and so does a negative value where shares of a total are compared.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]
Positions = NDArray[np.int64]
Labels = Sequence[Any] | NDArray[Any]  # one label per row: a group, a client

MIN_STABILITY = 0.6  # of found groups that are called clear; see `e2fl groups`
MAX_RELATIVE_BLUR = 0.5  # of clear groups, as a fraction of the blur of a reference cloud


def numbers(values: ArrayLike, name: str = "") -> Numbers:
    """Return a flat array of at least one value; with a name, all of them finite."""
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if not len(array):
        raise ValueError("there is nothing to measure")
    if name and not np.isfinite(array).all():
        raise ValueError(f"{name} is not a number in row {np.argmin(np.isfinite(array))}")
    return array


def tenth(count: int) -> int:
    """Return the number of values in a tenth: at least one."""
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
    "std": lambda values: math.sqrt(variance(values)),
    "gap": lambda values: float(np.ptp(numbers(values))),
    "p10": lambda values: float(np.percentile(numbers(values), 10)),
    "p90": lambda values: float(np.percentile(numbers(values), 90)),
    "gini": gini,
    "gini_errors": lambda values: gini(100.0 - numbers(values)),
    "jain": jain,
    "jain_errors": lambda values: jain(100.0 - numbers(values)),
}


def spread(values: ArrayLike) -> dict[str, float]:
    """Return all of `METRICS`."""
    return {name: metric(values) for name, metric in METRICS.items()}


def codes(values: Labels, what: str) -> tuple[NDArray[Any], Positions]:
    """Return the distinct labels in order, and for each row the position of its label there."""
    missing = np.array([value is None or value != value for value in values], dtype=bool)
    if missing.any():
        raise ValueError(f"row {np.argmax(missing)} has no {what}")
    names, positions = np.unique(np.asarray(values), return_inverse=True)
    return names, positions.astype(np.int64)


def group_means(values: ArrayLike, groups: Labels) -> dict[Any, float]:
    """Return the mean of each group, in the order of the groups."""
    names, positions = codes(groups, "group")
    means = np.bincount(positions, weights=numbers(values)) / np.bincount(positions)
    return dict(zip(names.tolist(), means.tolist(), strict=True))


def fairness(
    accuracy: ArrayLike,
    sensitive_features: Labels | None = None,
    *,
    client: Labels | None = None,
    n: ArrayLike | None = None,
    loss: ArrayLike | None = None,
) -> dict[str, Any]:
    """Return the fairness over clients and groups: clients, group and groups of summary.json.

    accuracy: [rows], in percent; a row is a client, or a client's part in one group, and then
    `client` names the client. sensitive_features: [rows], the group of each row; without it, the
    key group is None and groups is empty. n: [rows], the number of examples of each row; it weighs
    the parts of one client and nothing else. loss: [rows], the mean loss of each row.
    """
    measured = {"accuracy": numbers(accuracy, "accuracy")}
    measured |= {} if loss is None else {"loss": numbers(loss, "loss")}
    rows = len(measured["accuracy"])
    others = {"sensitive_features": sensitive_features, "client": client, "n": n, "loss": loss}
    for name, values in others.items():
        if values is not None and len(np.asarray(values)) != rows:
            raise ValueError(f"{rows} accuracies, but {len(np.asarray(values))} of {name}")
    weights = np.ones(rows) if n is None else numbers(n, "n")
    if weights.min() <= 0:
        raise ValueError("every row needs at least one example: n must be above 0")
    clients = spread(combined(measured["accuracy"], client, weights))
    if sensitive_features is None:
        return {"clients": clients, "group": None, "groups": {}}
    means = {name: group_means(own, sensitive_features) for name, own in measured.items()}
    names, sizes = np.unique(np.asarray(sensitive_features), return_counts=True)
    groups = {
        group: {"clients": size} | {name: own[group] for name, own in means.items()}
        for group, size in zip(names.tolist(), sizes.tolist(), strict=True)
    }
    return {"clients": clients, "group": spread([*means["accuracy"].values()]), "groups": groups}


def combined(values: Numbers, client: Labels | None, n: ArrayLike) -> Numbers:
    """Return one value per client, in their order: the mean of its rows, weighted by `n`."""
    if client is None:
        return values
    weights, (_, positions) = numbers(n), codes(client, "client")
    sums = np.bincount(positions, weights=values * weights)
    means: Numbers = sums / np.bincount(positions, weights=weights)
    return means


def matched(found: Labels, true: Labels) -> float:
    """Return the percentage of clients in the right group, groups matched one to one.

    The matching is the one with the most clients in the right group; groups left over on either
    side match nothing.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    table = _contingency(found, true)
    pairs = linear_sum_assignment(table, maximize=True)
    return 100.0 * float(table[pairs].sum()) / float(table.sum())


def purity(found: Labels, true: Labels) -> float:
    """Return the percentage of clients with the most frequent true group of their found group."""
    table = _contingency(found, true)
    return 100.0 * float(table.max(axis=1).sum()) / float(table.sum())


def adjusted_rand(one: Labels, other: Labels) -> float:
    """Return the adjusted Rand index: 1 for identical groupings, 0 on average for random ones."""
    table = _contingency(one, other)
    margins = (table, table.sum(axis=1), table.sum(axis=0), table.sum())
    both, rows, columns, whole = (int((count * (count - 1) // 2).sum()) for count in margins)
    expected = rows * columns / whole if whole else 0.0
    best = (rows + columns) / 2
    return 1.0 if best == expected else float((both - expected) / (best - expected))


def changed(now: Mapping[Any, Any], before: Mapping[Any, Any]) -> float | None:
    """Return the percentage of clients whose group changed; None if none had a group before."""
    moved = [now[client] != before[client] for client in now if client in before]
    return 100.0 * sum(moved) / len(moved) if moved else None


def _contingency(one: Labels, other: Labels) -> Positions:
    """Return the number of clients in each pair of groups."""
    if len(one) != len(other) or not len(one):
        raise ValueError(
            f"the groupings must be of the same clients, not of {len(one)} and {len(other)}"
        )
    (rows, row), (columns, column) = codes(one, "group"), codes(other, "group")
    table = np.zeros((len(rows), len(columns)), np.int64)
    np.add.at(table, (row, column), 1)
    return table
