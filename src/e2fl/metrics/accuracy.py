"""Accuracy over clients and over groups: mean, worst and best tenth, variance."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from e2fl.metrics.arrays import Labels, Numbers, finite, labels, means_of, numbers


def mean(values: ArrayLike) -> float:
    """Return the mean."""
    return float(np.mean(numbers(values)))


def worst10(values: ArrayLike) -> float:
    """Return the mean of the lowest tenth, of at least one value."""
    ordered = np.sort(numbers(values))
    if math.isnan(ordered[-1]):  # NaN is sorted last
        return math.nan
    return float(np.mean(ordered[: tenth(len(ordered))]))


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
    found = numbers(values)
    return {name: metric(found) for name, metric in METRICS.items()}


def tenth(count: int) -> int:
    """Return how many values a tenth is: at least one."""
    return max(1, count // 10)


def group_means(values: ArrayLike, groups: Labels) -> dict[Any, float]:
    """Return the mean of each group, in the order of the groups. Groups without values are left out."""
    names, _, means = means_of(numbers(values), groups)
    return dict(zip(names, means.tolist(), strict=True))


def fairness(
    accuracy: ArrayLike,
    group: Labels | None = None,
    *,
    client: Labels | None = None,
    n: ArrayLike | None = None,
    loss: ArrayLike | None = None,
) -> dict[str, Any]:
    """Return how evenly clients and groups are served: the keys user, group and groups of a run's summary.json.

    accuracy: [rows], in percent; a row is a client, or a client's part in one group, and then `client` names the
    client. n: [rows], the number of examples of each row; it weighs the parts of one client and nothing else.
    loss: [rows], the mean loss of each row. Without `group`, the key group is None and groups is empty.
    """
    rows = finite(accuracy, "accuracy")
    others = {"group": group, "client": client, "n": n, "loss": loss}
    for name, values in others.items():
        if values is not None and len(np.asarray(values)) != len(rows):
            raise ValueError(f"{len(rows)} accuracies, but {len(np.asarray(values))} values of {name}")
    weights = np.ones(len(rows)) if n is None else finite(n, "n")
    lost = None if loss is None else finite(loss, "loss")
    if weights.min() <= 0:
        raise ValueError("every row needs at least one example: n must be above 0")
    result: dict[str, Any] = {"user": spread(combined(rows, client, weights)), "group": None, "groups": {}}
    if group is None:
        return result
    losses = None if lost is None else group_means(lost, group)
    names, sizes = np.unique(labels(group, "group"), return_counts=True)
    members = dict(zip(names.tolist(), sizes.tolist(), strict=True))
    for name, value in group_means(rows, group).items():
        result["groups"][name] = {"clients": members[name], "accuracy": value}
        if losses is not None:
            result["groups"][name]["loss"] = losses[name]
    result["group"] = spread([found["accuracy"] for found in result["groups"].values()])
    return result


def combined(values: Numbers, client: Labels | None, n: ArrayLike) -> Numbers:
    """Return one value per client, in the order of the clients: the mean of its rows, weighted by `n`."""
    if client is None:
        return values
    weights = numbers(n)
    if weights.max() > 1e300:  # sums of such counts overflow; only their proportions matter
        weights = weights / weights.max()
    _, places = np.unique(labels(client, "client"), return_inverse=True)
    sums: Numbers = np.bincount(places, weights=values * weights) / np.bincount(places, weights=weights)
    return sums


def accuracies(
    y: ArrayLike,
    y_hat: ArrayLike,
    *,
    client: Labels,
    group: Labels | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the accuracy of each client, or of each client's part in a group, from labels and predictions.

    All arguments: [examples]. Returns the columns client, n, accuracy and, where given, group, ready for
    `fairness(**columns)`.
    """
    truth, predicted = np.asarray(y), np.asarray(y_hat)
    given = {"y": truth, "y_hat": predicted, "client": labels(client, "client")}
    if group is not None:
        given["group"] = labels(group, "group")
    if truth.ndim != 1 or len({values.shape for values in given.values()}) > 1:
        shapes = ", ".join(f"{name} {values.shape}" for name, values in given.items())
        raise ValueError(f"one value for each example is needed, not shapes {shapes}")
    if not len(truth):
        raise ValueError("there is nothing to measure")
    right = truth == predicted
    clients, client_code = np.unique(given["client"], return_inverse=True)
    groups, group_code = np.unique(given.get("group", np.zeros(len(truth), np.int64)), return_inverse=True)
    pairs, places = np.unique(client_code * len(groups) + group_code, return_inverse=True)
    n = np.bincount(places)
    found = {"client": clients[pairs // len(groups)]}
    if group is not None:
        found["group"] = groups[pairs % len(groups)]
    return found | {"n": n, "accuracy": 100.0 * np.bincount(places, weights=right) / n}
