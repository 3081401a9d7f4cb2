"""Agreement of two groupings of the same clients, such as found groups and true groups."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.metrics.arrays import Labels

MIN_STABILITY = 0.6  # of found groups that are called clear; see `e2fl groups`


def matched(found: Labels, true: Labels) -> float:
    """Return the percentage of clients in the right group, groups matched one to one.

    The matching is the one with the most clients in the right group; groups left over on either
    side match nothing.
    """
    # Imported here: scipy.optimize takes longer to load than an audit of a small table takes.
    from scipy.optimize import linear_sum_assignment

    table = _contingency(found, true)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return 100.0 * float(table[rows, columns].sum()) / float(table.sum())


def purity(found: Labels, true: Labels) -> float:
    """Return the percentage of clients with the most frequent true group of their found group."""
    table = _contingency(found, true)
    return 100.0 * float(table.max(axis=1).sum()) / float(table.sum())


def adjusted_rand(one: Labels, other: Labels) -> float:
    """Return the adjusted Rand index: 1 for identical groupings, 0 on average for random ones."""
    table = _contingency(one, other)

    def pairs(counts: NDArray[np.int64]) -> int:
        return int((counts * (counts - 1) // 2).sum())

    both, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    everything = pairs(np.array([table.sum()]))
    expected = rows * columns / everything if everything else 0.0
    best = (rows + columns) / 2
    return 1.0 if best == expected else float((both - expected) / (best - expected))


def changed(now: Mapping[Any, Any], before: Mapping[Any, Any]) -> float | None:
    """Return the percentage of clients whose group changed; None if none had a group before."""
    both = [client for client in now if client in before]
    return (
        100.0 * sum(now[client] != before[client] for client in both) / len(both) if both else None
    )


def _contingency(one: Labels, other: Labels) -> NDArray[np.int64]:
    """Return the number of clients in each pair of groups."""
    rows, columns = np.asarray(one), np.asarray(other)
    if rows.shape != columns.shape or rows.ndim != 1:
        raise ValueError(
            f"two groupings of the same clients are needed, not of {rows.shape} and {columns.shape}"
        )
    if not len(rows):
        raise ValueError("there is nothing to measure")
    row_names, row = np.unique(rows, return_inverse=True)
    column_names, column = np.unique(columns, return_inverse=True)
    table = np.zeros((len(row_names), len(column_names)), dtype=np.int64)
    np.add.at(table, (row, column), 1)
    return table
