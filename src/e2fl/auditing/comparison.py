"""Two tables of the same clients, compared client by client."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from e2fl.auditing.clients import client_values
from e2fl.auditing.suppression import hidden_groups
from e2fl.auditing.table import Codes, Measure, Numbers, Predictions, Table
from e2fl.metrics.student import mean_interval, welch_half

ROUNDING = 1e-12


@dataclass(frozen=True)
class Comparison:
    """The second table minus the first, over the clients that both hold."""

    first: str
    second: str
    title: str
    is_rate: bool
    paired: bool
    left_out: int  # clients in one table only
    difference: float
    low: float
    high: float
    clients: int = 0
    better: int = 0  # clients with a higher value in the second table
    worse: int = 0
    # grouping, group, clients, difference, low, high
    groups: list[tuple[str, str, int, float, float, float]] = field(default_factory=list)
    note: str = ""
    sizes: tuple[int, int] = (0, 0)  # clients of each table that are compared


def compare(first: Table, second: Table, suppress_below: int = 0) -> Comparison | None:
    """Compare two tables; None where they do not measure the same thing of clients."""
    one, other = client_values(first), client_values(second)
    if one is None or other is None or _title(first) != _title(second):
        return None
    about: dict[str, Any] = {
        "first": first.name,
        "second": second.name,
        "title": _title(first),
        "is_rate": isinstance(first.data, Predictions) or first.data.is_rate,
    }
    if first.clients is None or second.clients is None:
        return _unpaired(one[0], other[0], "The tables name no clients", about)
    places = {name: place for place, name in enumerate(second.clients)}
    pairs = [(place, places[name]) for place, name in enumerate(first.clients) if name in places]
    pairs = [(a, b) for a, b in pairs if np.isfinite(one[0][a]) and np.isfinite(other[0][b])]
    if len(pairs) < 2:
        return _unpaired(one[0], other[0], "The tables share fewer than two clients", about)
    mine, theirs = np.array(pairs).T
    difference = other[0][theirs] - one[0][mine]
    difference[np.abs(difference) <= ROUNDING * np.abs(one[0][mine])] = 0.0  # weighted means of equal values
    low, high = mean_interval(difference)
    return Comparison(
        **about,
        paired=True,
        clients=len(pairs),
        left_out=len(first.clients) + len(second.clients) - 2 * len(pairs),
        difference=float(difference.mean()),
        low=low,
        high=high,
        better=int((difference > 0).sum()),
        worse=int((difference < 0).sum()),
        groups=_by_group(first, mine, difference, suppress_below),
        sizes=(len(pairs), len(pairs)),
    )


def _by_group(
    table: Table, clients: Codes, difference: Numbers, suppress_below: int
) -> list[tuple[str, str, int, float, float, float]]:
    """Return the paired difference of each group, for groupings in which every client has one group."""
    found = []
    data = table.data
    assert data.client is not None
    for grouping, hidden in zip(table.groupings, hidden_groups(table, suppress_below), strict=True):
        of_client = np.full(len(table.clients or ()), -1, dtype=np.int64)
        group = grouping.of_combo[data.combo]
        of_client[data.client] = group
        if (of_client[data.client] != group).any():
            continue
        for place, name in enumerate(grouping.groups):
            mine = of_client[clients] == place
            if mine.sum() >= max(1, suppress_below) and place not in hidden.rows:
                low, high = mean_interval(difference[mine])
                size = int(mine.sum())
                found.append((grouping.name, name, size, float(difference[mine].mean()), low, high))
    return found


def _unpaired(one: Numbers, other: Numbers, why: str, about: dict[str, Any]) -> Comparison:
    one, other = one[np.isfinite(one)], other[np.isfinite(other)]
    difference = float(other.mean() - one.mean())
    half = welch_half(one, other) if len(one) > 1 and len(other) > 1 else math.nan
    return Comparison(
        **about,
        paired=False,
        left_out=len(one) + len(other),
        difference=difference,
        low=difference - half,
        high=difference + half,
        note=f"{why}, so they are compared as independent samples.",
        sizes=(len(one), len(other)),
    )


def _title(table: Table) -> str:
    data = table.data
    return data.name.casefold() if isinstance(data, Measure) and not data.is_rate else "accuracy"
