"""Suppression of small groups, and of others so that the hidden numbers cannot be computed.

A hidden group is the total less all others, a hidden cell of sex and race is its sex less the other
races, and a hidden race is the sum of its cells. So a group is never hidden alone.
"""

from dataclasses import dataclass

import numpy as np

from e2fl_audit.counting import N, count, rates_of
from e2fl_audit.files import Numbers
from e2fl_audit.table import Grouping, Predictions, Table


@dataclass(frozen=True)
class HiddenGroups:
    """The positions of hidden groups of one grouping."""

    rows: frozenset[int] = frozenset()  # for rates over all rows of a group
    parts: frozenset[int] = frozenset()  # for rates over some, such as those with a positive label


def hidden_groups(table: Table, below: int) -> list[HiddenGroups]:
    """Return for each grouping the groups that are not shown."""
    if below <= 0:
        return [HiddenGroups() for _ in table.groupings]
    sizes = [_sizes(table, grouping) for grouping in table.groupings]
    rows = [size[:, 0] for size in sizes]
    whole = _completed(table, rows, [set(np.flatnonzero(n < below).tolist()) for n in rows])
    # Rows with the label and those without make up the group, so all rates over parts of the rows
    # are hidden together.
    smallest = [np.where(size > 0, size, np.inf).min(axis=1) for size in sizes]
    start = [
        known | set(np.flatnonzero(size < below).tolist())
        for known, size in zip(whole, smallest, strict=True)
    ]
    parts = _completed(table, smallest, start)
    pairs = zip(whole, parts, strict=True)
    return [HiddenGroups(frozenset(one), frozenset(other)) for one, other in pairs]


def _sizes(table: Table, grouping: Grouping) -> Numbers:
    """Return the rows behind each rate: [groups, rates], all rows first."""
    if not isinstance(table.data, Predictions):
        return table.sizes(grouping).astype(np.float64)[:, None]
    total = count(table.data, grouping, None).total
    return total[:, [N, *(rate.base for rate in rates_of(table.data))]]


def _completed(table: Table, sizes: list[Numbers], hidden: list[set[int]]) -> list[set[int]]:
    """Hide more groups until none that is hidden can be computed from those shown."""
    result = [set(groups) for groups in hidden]
    lines = _lines(table)
    before = -1
    while (after := sum(map(len, result))) != before:
        before = after
        for groups, size in zip(result, sizes, strict=True):
            if len(groups) == 1:
                groups |= _smallest(set(range(len(size))) - groups, size)
        for place, group, cells in lines:
            inside = cells & result[-1]
            if group in result[place] and not inside:
                result[-1] |= _smallest(cells, sizes[-1])
            elif group not in result[place] and len(inside) == 1:
                more = _smallest(cells - inside, sizes[-1])
                result[-1] |= more
                result[place] |= set() if more else {group}
    return result


def _smallest(groups: set[int], size: Numbers) -> set[int]:
    present = [group for group in sorted(groups) if 0 < size[group] < np.inf]
    return {min(present, key=lambda group: float(size[group]))} if present else set()


def _lines(table: Table) -> list[tuple[int, int, set[int]]]:
    """Return for each group of an attribute the cells of the crossed grouping that make it up."""
    if not table.groupings or not table.groupings[-1].crossed:
        return []
    *single, crossed = table.groupings
    lines = []
    for place, grouping in enumerate(single):
        pairs = table.data.cells[[grouping.column, crossed.column]].drop_duplicates().to_numpy()
        for group in np.unique(pairs[:, 0]).tolist():
            inside = set(pairs[pairs[:, 0] == group, 1].tolist()) - {crossed.unknown}
            if inside:
                lines.append((place, group, inside))
    return lines
