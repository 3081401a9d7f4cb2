"""Two tables of the same clients, compared client by client."""

import math
from dataclasses import dataclass, field

import numpy as np

from e2fl_audit.clients import client_values
from e2fl_audit.files import Codes, Numbers
from e2fl_audit.settings import MIN_CLIENTS
from e2fl_audit.statistics import mean_interval, welch_half
from e2fl_audit.suppression import hidden_groups
from e2fl_audit.table import Measure, Table
from e2fl_audit.wording import noun

ROUNDING = 1e-12


@dataclass
class Comparison:
    """The second table minus the first, over the clients that both hold."""

    first: str
    second: str
    title: str
    difference: float
    low: float
    high: float
    is_rate: bool
    paired: bool
    sizes: tuple[int, int]  # clients of each table that are compared
    left_out: int = 0  # clients in one table only
    clients: int = 0  # pairs
    better: int = 0  # clients with a higher value in the second table
    worse: int = 0
    # grouping, group, clients, difference, low, high
    groups: list[tuple[str, str, int, float, float, float]] = field(default_factory=list)
    note: str = ""

    def text(self) -> str:
        """Return the sentence about the two tables."""
        if self.paired and not self.better and not self.worse:
            equal = f"{self.second} and {self.first}: {self.title} is the same number"
            return f"{equal} for each of the {noun(self.clients, 'client')} in both."
        factor, digits, unit = (1, ".4g", "")
        if self.is_rate:
            factor, digits, unit = (100, ".2f", " percentage points")
        amount, low, high = (factor * value for value in (self.difference, self.low, self.high))
        known = not math.isnan(low)
        span = f"95 % interval {low:{digits}} to {high:{digits}}" if known else "no interval"
        change = f"mean {self.title} {amount:+{digits}}{unit} ({span})"
        text = f"{self.second} minus {self.first}: {change}"
        if self.paired:
            text += f", paired over {noun(self.clients, 'client')}"
            text += f"; higher for {self.better:,}, lower for {self.worse:,}"
        same = self.paired and not known  # each client changes by the same amount
        if min(self.sizes) < MIN_CLIENTS:
            text += ". Too few clients to judge."
        elif self.low > 0 or self.high < 0 or (same and self.clients > MIN_CLIENTS):
            text += ". This is more than chance explains."
        else:
            text += ". This may be chance."
        if self.paired and self.left_out:
            count = noun(self.left_out, "client")
            text += f" Left out, because they are in only one of the tables: {count}."
        return f"{text} {self.note}".strip()


def compare(first: Table, second: Table, suppress_below: int = 0) -> Comparison | None:
    """Compare two tables; None where they do not measure the same thing of clients."""
    values, other_values = client_values(first), client_values(second)
    title = _title(first)
    if values is None or other_values is None or title != _title(second):
        return None
    one, other = values[0], other_values[0]
    about = first.name, second.name, title
    mine, theirs = _shared(first, second, one, other)
    if len(mine) > 1:
        change = other[theirs] - one[mine]
        change[np.abs(change) <= ROUNDING * np.abs(one[mine])] = 0.0  # means of equal values
        ends, sizes = mean_interval(change), (len(mine), len(mine))
        result = Comparison(*about, float(change.mean()), *ends, title == "accuracy", True, sizes)
        result.left_out = len(first.clients or ()) + len(second.clients or ()) - sum(sizes)
        result.clients = len(mine)
        result.better, result.worse = int((change > 0).sum()), int((change < 0).sum())
        result.groups = _by_group(first, mine, change, suppress_below)
        return result
    one, other = one[np.isfinite(one)], other[np.isfinite(other)]
    difference, half = float(other.mean() - one.mean()), welch_half(one, other)
    ends, sizes = (difference - half, difference + half), (len(one), len(other))
    result = Comparison(*about, difference, *ends, title == "accuracy", False, sizes, sum(sizes))
    named = first.clients is not None and second.clients is not None
    why = "The tables share fewer than two clients" if named else "The tables name no clients"
    result.note = f"{why}, so they are compared as independent samples."
    return result


def _shared(first: Table, second: Table, one: Numbers, other: Numbers) -> tuple[Codes, Codes]:
    """Return the positions of the clients with a value in both tables."""
    of_second = {name: place for place, name in enumerate(second.clients or ())}
    names = [name for name in first.clients or () if name in of_second]
    of_first = {name: place for place, name in enumerate(first.clients or ())}
    mine = np.array([of_first[name] for name in names], np.int64)
    theirs = np.array([of_second[name] for name in names], np.int64)
    known = np.isfinite(one[mine]) & np.isfinite(other[theirs])
    return mine[known], theirs[known]


def _by_group(
    table: Table, clients: Codes, difference: Numbers, suppress_below: int
) -> list[tuple[str, str, int, float, float, float]]:
    """Return the paired difference of each group, where every client has one group."""
    rows = []
    hidden_of = hidden_groups(table, suppress_below)
    for grouping, hidden in zip(table.groupings, hidden_of, strict=True):
        of_client = table.data.cells.groupby("client")[grouping.column]
        if (of_client.nunique() > 1).any():
            continue
        group = of_client.first().reindex(clients).to_numpy()
        for code, name in enumerate(grouping.groups):
            values = difference[group == code]
            if len(values) >= max(1, suppress_below) and code not in hidden.rows:
                ends = mean_interval(values)
                rows.append((grouping.name, name, len(values), float(values.mean()), *ends))
    return rows


def _title(table: Table) -> str:
    data = table.data
    return data.name.casefold() if isinstance(data, Measure) and not data.is_rate else "accuracy"
