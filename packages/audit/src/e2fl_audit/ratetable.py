"""One rate of all groups of a grouping, as a frame with a row per group."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from e2fl_audit.counting import Rate
from e2fl_audit.files import Numbers
from e2fl_audit.settings import Settings
from e2fl_audit.table import CROSS, Grouping

FOUR_FIFTHS = 0.8
JUDGED = "judged"
SUPPRESSED = "suppressed"  # the status of a group that is hidden because it, or another, is small
UNDER_SHARE = "under 2 %"


class GroupRate(NamedTuple):
    """One rate of one group."""

    group: str
    n: float  # rows, or clients in a table of clients
    clients: float
    base: float  # rows the rate is a share of
    hits: float
    value: float
    low: float = math.nan
    high: float = math.nan
    client_mean: float = math.nan
    difference: float = math.nan
    difference_low: float = math.nan
    difference_high: float = math.nan
    ratio: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan
    status: str = JUDGED  # or why the group is not judged
    judged: bool = True
    below_four_fifths: bool = False


@dataclass
class RateTable:
    """One rate of all groups of a grouping. Rates are fractions; a measure is in its own unit."""

    rate: Rate
    grouping: str
    columns: dict[str, Any]  # fields of `GroupRate`, each with one value per group
    overall: float  # the rate of all rows together
    n: float  # all rows
    unit: str = "%"
    reference: str | None = None
    p_any: float = math.nan  # the test that all groups are equal, for measures
    weighted: dict[str, float] = field(default_factory=dict)  # means weighted by n, for measures
    turned: tuple[int, int] | None = None  # clients inside which the difference turns, of so many

    @property
    def is_measure(self) -> bool:
        """Whether its rows are clients."""
        return self.rate.hits == self.rate.base

    @cached_property
    def rows(self) -> list[GroupRate]:
        names = list(self.columns)
        rows = [
            GroupRate(**dict(zip(names, values, strict=True)))
            for values in zip(*map(_plain, self.columns.values()), strict=True)
        ]
        return [
            row._replace(
                judged=row.status == JUDGED,
                below_four_fifths=row.status == JUDGED and row.ratio < FOUR_FIFTHS,
            )
            for row in rows
        ]

    @cached_property
    def judged(self) -> list[GroupRate]:
        return [row for row in self.rows if row.judged]

    @cached_property
    def extremes(self) -> tuple[GroupRate, GroupRate] | None:
        """The least and the most favourable of the judged groups, if there are two or more."""
        sign = -1 if self.rate.better < 0 else 1
        if len(self.judged) < 2:
            return None
        ordered = sorted(self.judged, key=lambda row: sign * row.value)
        best = max(self.judged, key=lambda row: sign * row.value)
        return ordered[0], best

    @property
    def gap(self) -> float:
        values = [row.value for row in self.judged]
        return max(values) - min(values) if len(values) > 1 else math.nan

    @property
    def apart(self) -> bool:
        """Whether the judged groups have different values at all, beyond rounding."""
        return self.gap > 1e-12 * max((abs(row.value) for row in self.judged), default=1.0)

    @property
    def significant(self) -> bool:
        return any(row.p_holm < 0.05 for row in self.rows)

    def suppress(self) -> None:
        """Take every number of hidden groups away."""
        hidden = np.asarray(self.columns["status"]) == SUPPRESSED
        for name, values in self.columns.items():
            if name not in ("group", "status"):
                self.columns[name] = np.where(hidden, math.nan, values)
        for group in np.asarray(self.columns["group"], dtype=object)[hidden]:
            self.weighted.pop(group, None)


def _plain(values: Any) -> list[Any]:
    """Return the values of a column as Python's own numbers and strings."""
    return list(values.tolist() if isinstance(values, np.ndarray) else values)


def reference_of(
    grouping: Grouping,
    value: Numbers,
    n: Numbers,
    status: NDArray[np.object_],
    better: int,
    settings: Settings,
) -> int | None:
    """Return the group that others are compared with."""
    judged = np.flatnonzero(status == JUDGED)
    named = named_reference(grouping, settings.named_references)
    if named is not None:
        return None if math.isnan(value[named]) or status[named] == SUPPRESSED else named
    if not len(judged):
        return None
    size = n if settings.largest else value if better >= 0 else -value
    return int(judged[np.argmax(size[judged])])


def named_reference(grouping: Grouping, names: Sequence[str]) -> int | None:
    """Return the named reference in this grouping; if crossed, the one made of named parts."""
    known = {name.casefold(): place for place, name in enumerate(grouping.groups)}
    if grouping.unknown is not None:
        known.pop(grouping.groups[grouping.unknown].casefold())
    wanted = [name.strip().casefold() for name in names]
    for name in wanted:
        if name in known:
            return known[name]
    for key, place in known.items():
        parts = key.split(CROSS)
        if len(parts) > 1 and all(part in wanted for part in parts):
            return place
    return None
