"""Accuracy over clients and over groups: mean, worst and best tenth, variance."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from e2fl.metrics.arrays import Labels, Numbers, codes, finite, labels, means_of, numbers


def mean(values: ArrayLike) -> float:
    """Return the mean."""
    return float(np.mean(numbers(values)))


def worst10(values: ArrayLike) -> float:
    """Return the mean of the lowest tenth, of at least one value."""
    ordered = np.sort(numbers(values))
    lowest = ordered[: tenth(len(ordered))]
    return float("nan") if np.isnan(ordered[-1]) else float(np.mean(lowest))  # NaN is sorted last


def best10(values: ArrayLike) -> float:
    """Return the mean of the highest tenth, of at least one value."""
    ordered = np.sort(numbers(values))
    return float(np.mean(ordered[-tenth(len(ordered)) :]))


def variance(values: ArrayLike) -> float:
    """Return the population variance; 0 means that all values are equal."""
    return float(np.var(numbers(values)))


METRICS: dict[str, Callable[[ArrayLike], float]] = {
    "mean": mean,
    "worst10": worst10,
    "best10": best10,
    "variance": variance,
}


def spread(values: ArrayLike) -> dict[str, float]:
    """Return all of `METRICS`."""
    return {name: metric(values) for name, metric in METRICS.items()}


def tenth(count: int) -> int:
    """Return how many values a tenth is: at least one."""
    return max(1, count // 10)


def group_means(values: ArrayLike, groups: Labels) -> dict[Any, float]:
    """Return the mean of each group, in the order of the groups."""
    names, _, means = means_of(numbers(values), groups)
    return dict(zip(names, means.tolist(), strict=True))


def fairness(
    accuracy: ArrayLike,
    sensitive_features: Labels | None = None,
    *,
    client: Labels | None = None,
    n: ArrayLike | None = None,
    loss: ArrayLike | None = None,
) -> dict[str, Any]:
    """Return how evenly clients and groups are served: clients, group and groups of summary.json.

    accuracy: [rows], in percent; a row is a client, or a client's part in one group, and then
    `client` names the client. sensitive_features: [rows], the group of each row; without it, the
    key group is None and groups is empty. n: [rows], the number of examples of each row; it weighs
    the parts of one client and nothing else. loss: [rows], the mean loss of each row.
    """
    rows = finite(accuracy, "accuracy")
    others = {"sensitive_features": sensitive_features, "client": client, "n": n, "loss": loss}
    for name, values in others.items():
        if values is not None and len(np.asarray(values)) != len(rows):
            raise ValueError(f"{len(rows)} accuracies, but {len(np.asarray(values))} of {name}")
    weights = np.ones(len(rows)) if n is None else finite(n, "n")
    if weights.min() <= 0:
        raise ValueError("every row needs at least one example: n must be above 0")
    clients = spread(combined(rows, client, weights))
    losses = None if loss is None else finite(loss, "loss")
    if sensitive_features is None:
        return {"clients": clients, "group": None, "groups": {}}
    names, positions, means = means_of(rows, sensitive_features)
    counts = np.bincount(positions).tolist()
    groups: dict[Any, dict[str, float]] = {
        name: {"clients": members, "accuracy": value}
        for name, members, value in zip(names, counts, means.tolist(), strict=True)
    }
    if losses is not None:
        for name, value in group_means(losses, sensitive_features).items():
            groups[name]["loss"] = value
    return {"clients": clients, "group": spread(means), "groups": groups}


def combined(values: Numbers, client: Labels | None, n: ArrayLike) -> Numbers:
    """Return one value per client, in their order: the mean of its rows, weighted by `n`."""
    if client is None:
        return values
    weights, (_, positions) = numbers(n), codes(client, "client")
    sums = np.bincount(positions, weights=values * weights)
    means: Numbers = sums / np.bincount(positions, weights=weights)
    return means


def accuracies(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    client: Labels,
    sensitive_features: Labels | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the accuracy of each client, or of each client's part in a group.

    All arguments: [examples]. Returns the columns client, n, accuracy and, where given,
    sensitive_features, ready for `fairness(**columns)`.
    """
    columns = {"client": labels(client, "client")}
    if sensitive_features is not None:
        columns["sensitive_features"] = labels(sensitive_features, "group")
    truth, predicted = np.asarray(y_true), np.asarray(y_pred)
    shapes = {values.shape for values in (truth, predicted, *columns.values())}
    if len(shapes) > 1 or truth.ndim != 1:
        raise ValueError(f"one value for each example is needed, not shapes {shapes}")
    if not len(truth):
        raise ValueError("there is nothing to measure")
    coded = {name: np.unique(values, return_inverse=True) for name, values in columns.items()}
    positions = np.stack([position for _, position in coded.values()])
    parts, rows = np.unique(positions, axis=1, return_inverse=True)
    pairs = zip(coded.items(), parts, strict=True)
    made = {name: values[part] for (name, (values, _)), part in pairs}
    n, right = np.bincount(rows), np.bincount(rows, weights=truth == predicted)
    return made | {"n": n, "accuracy": 100.0 * right / n}
