"""Agreement of two groupings of the same clients, such as found groups and true groups."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.metrics.arrays import Labels, codes

MIN_STABILITY = 0.6  # of found groups that are called clear; see `e2fl groups`


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


def _contingency(one: Labels, other: Labels) -> NDArray[np.int64]:
    """Return the number of clients in each pair of groups."""
    if len(one) != len(other) or not len(one):
        raise ValueError(f"two groupings of the same clients, not of {len(one)} and {len(other)}")
    (rows, row), (columns, column) = codes(one, "group"), codes(other, "group")
    cells = np.bincount(row * len(columns) + column, minlength=len(rows) * len(columns))
    return cells.reshape(len(rows), len(columns))
