"""Accuracy over clients and over groups, and how well two groupings of clients agree.

What is missing or not finite in an argument is a `ValueError`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from e2fl.metrics.inequality import Numbers, numbers, spread

Labels = Sequence[Any] | NDArray[Any]  # one label per row: a group, a client
Positions = NDArray[np.int64]

MIN_STABILITY = 0.6  # of found groups that are called clear; see `e2fl groups`
MAX_RELATIVE_BLUR = 0.5  # of clear groups, as a fraction of the blur of a reference cloud


def codes(values: Labels, what: str) -> tuple[NDArray[Any], Positions]:
    """Return the distinct labels in order, and for each row the position of its label there."""
    missing = np.array([value is None or value != value for value in values], dtype=bool)
    if missing.any():
        raise ValueError(f"row {np.argmax(missing)} has no {what}")
    names, positions = np.unique(np.asarray(values), return_inverse=True)
    return names, positions.astype(np.int64)


def group_means(values: ArrayLike, groups: Labels) -> dict[Any, float]:
    """Return the mean of each group, in the order of the groups."""
    rows, (names, positions) = numbers(values), codes(groups, "group")
    if len(positions) != len(rows):
        raise ValueError(f"{len(rows)} values for {len(positions)} groups")
    means = np.bincount(positions, weights=rows) / np.bincount(positions)
    return dict(zip(names.tolist(), means.tolist(), strict=True))


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
    rows = numbers(accuracy, "accuracy")
    others = {"sensitive_features": sensitive_features, "client": client, "n": n, "loss": loss}
    for name, values in others.items():
        if values is not None and len(np.asarray(values)) != len(rows):
            raise ValueError(f"{len(rows)} accuracies, but {len(np.asarray(values))} of {name}")
    weights = np.ones(len(rows)) if n is None else numbers(n, "n")
    if weights.min() <= 0:
        raise ValueError("every row needs at least one example: n must be above 0")
    measured = {"accuracy": rows} | ({} if loss is None else {"loss": numbers(loss, "loss")})
    clients = spread(combined(rows, client, weights))
    if sensitive_features is None:
        return {"clients": clients, "group": None, "groups": {}}
    by_name = {name: group_means(own, sensitive_features) for name, own in measured.items()}
    names, positions = codes(sensitive_features, "group")
    sizes = zip(names.tolist(), np.bincount(positions).tolist(), strict=True)
    groups = {
        group: {"clients": size} | {name: means[group] for name, means in by_name.items()}
        for group, size in sizes
    }
    return {
        "clients": clients,
        "group": spread(list(by_name["accuracy"].values())),
        "groups": groups,
    }


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
        raise ValueError(f"two groupings of the same clients, not of {len(one)} and {len(other)}")
    (rows, row), (columns, column) = codes(one, "group"), codes(other, "group")
    cells = np.bincount(row * len(columns) + column, minlength=len(rows) * len(columns))
    return cells.reshape(len(rows), len(columns))
