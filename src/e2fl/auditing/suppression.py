"""Suppression of small groups, and of others so that the hidden numbers cannot be computed.

A hidden group is the total less all others, a hidden cell of sex and race is its sex less the other races, and a
hidden race is the sum of its cells. So a group is never hidden alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from e2fl.auditing.counting import N, count, rates_of
from e2fl.auditing.table import Grouping, Numbers, Predictions, Table


@dataclass(frozen=True)
class HiddenGroups:
    """The positions of hidden groups of one grouping."""

    rows: frozenset[int] = frozenset()  # for rates over all rows of a group
    parts: frozenset[int] = frozenset()  # for rates over some of its rows, such as those with a positive label


NOTHING_HIDDEN = HiddenGroups()


def hidden_groups(table: Table, below: int) -> list[HiddenGroups]:
    """Return for each grouping the groups that are not shown."""
    if below <= 0:
        return [NOTHING_HIDDEN for _ in table.groupings]
    sizes = [_sizes(table, grouping) for grouping in table.groupings]
    rows = [each[:, 0] for each in sizes]
    whole = _complete(table.groupings, rows, [set(np.flatnonzero(n < below).tolist()) for n in rows])
    # The rows of a rate that are left: those with the label and those without make up the group, so all rates over
    # parts of the rows are hidden together.
    smallest = [np.where(each > 0, each, np.inf).min(axis=1) for each in sizes]
    start = [known | set(np.flatnonzero(each < below).tolist()) for known, each in zip(whole, smallest, strict=True)]
    parts = _complete(table.groupings, smallest, start)
    return [HiddenGroups(frozenset(one), frozenset(other)) for one, other in zip(whole, parts, strict=True)]


def _sizes(table: Table, grouping: Grouping) -> Numbers:
    """Return the rows behind each rate: [groups, rates], all rows first."""
    groups = len(grouping.groups)
    if not isinstance(table.data, Predictions):
        clients = np.bincount(grouping.of_combo[table.data.combo], minlength=groups)
        return clients.astype(np.float64)[:, None]
    rates, columns = rates_of(table.data)
    total = count(table.data, grouping, columns).total
    return total[:, [N, *(rate.base for rate in rates)]]


def _complete(groupings: Sequence[Grouping], sizes: list[Numbers], hidden: list[set[int]]) -> list[set[int]]:
    """Hide more groups until none that is hidden can be computed from those shown."""
    found = [set(each) for each in hidden]
    lines = _lines(groupings)
    before = -1
    while (after := sum(map(len, found))) != before:
        before = after
        for each, size in zip(found, sizes, strict=True):
            if len(each) == 1:
                each |= _smallest(set(range(len(size))) - each, size)
        for place, group, cells in lines:
            inside = cells & found[-1]
            if group in found[place] and not inside:
                found[-1] |= _smallest(cells, sizes[-1])
            elif group not in found[place] and len(inside) == 1:
                more = _smallest(cells - inside, sizes[-1])
                found[-1] |= more
                found[place] |= set() if more else {group}
    return found


def _smallest(places: set[int], size: Numbers) -> set[int]:
    present = [place for place in sorted(places) if 0 < size[place] < np.inf]
    return {min(present, key=lambda place: float(size[place]))} if present else set()


def _lines(groupings: Sequence[Grouping]) -> list[tuple[int, int, set[int]]]:
    """Return for each group of an attribute the cells of the crossed grouping, the last, that make it up."""
    if len(groupings) < 2 or not groupings[-1].crossed:
        return []
    crossed = groupings[-1]
    found = []
    for place, grouping in enumerate(groupings[:-1]):
        for group in range(len(grouping.groups)):
            cells = set(crossed.of_combo[grouping.of_combo == group].tolist()) - {crossed.unknown}
            found.append((place, group, cells))
    return [(place, group, cells) for place, group, cells in found if cells]
