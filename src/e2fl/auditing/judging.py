"""When a group is large enough to be judged, what it is compared with, and the resulting tables of rates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from e2fl.auditing.counting import Rate
from e2fl.auditing.table import CROSS, Grouping, Table
from e2fl.construct import did_you_mean
from e2fl.errors import ConfigError, DataError

MIN_ROWS = 30
MIN_CLIENTS = 5
MAX_RESAMPLES = 100_000
FOUR_FIFTHS = 0.8
SUPPRESSED = "suppressed"  # the status of a group that is hidden because it, or another, is small
SMALL_SHARE = 0.02  # Local Law 144: categories below 2 % of the data may be left out of impact ratios
UNDER_SHARE = "under 2 %"


@dataclass(frozen=True)
class Judging:
    """When a group is large enough to be judged, and what it is compared with."""

    reference: tuple[str, ...] = ()  # names of groups; empty: the best group
    largest: bool = False  # compare with the largest group
    min_n: int | None = None
    suppress_below: int = 0
    resamples: int = 400
    seed: int = 0
    ll144: bool = False

    def __post_init__(self) -> None:
        if not 50 <= self.resamples <= MAX_RESAMPLES:
            raise ConfigError(
                f"resamples: at least 50 are needed for an interval, and at most {MAX_RESAMPLES:,} used, not "
                f"{self.resamples:,}"
            )
        if self.min_n is not None and self.min_n < 1:
            raise ConfigError(f"min_n must be 1 or more, not {self.min_n}")
        if self.suppress_below < 0:
            raise ConfigError(f"suppress_below must be 0 or more, not {self.suppress_below}")

    @classmethod
    def of(cls, reference: str | Sequence[str] | None, profile: str | None, **settings: Any) -> Self:
        """Return the settings as users give them: a reference is best, largest, or names of groups."""
        names = [] if reference is None else [reference] if isinstance(reference, str) else list(reference)
        groups = tuple(str(name) for name in names if name not in ("best", "largest"))
        return cls(groups, "largest" in names, ll144=profile == "ll144", **settings)


@dataclass
class GroupRate:
    """One rate of one group. Rates are fractions; a measure is in its own unit."""

    group: str
    n: float  # rows, or clients in a table of clients
    clients: int | None
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
    status: str = ""  # empty: judged; otherwise why not

    @property
    def judged(self) -> bool:
        return not self.status

    @property
    def below_four_fifths(self) -> bool:
        return self.judged and self.ratio < FOUR_FIFTHS


@dataclass
class RateTable:
    """One rate of all groups of a grouping."""

    rate: Rate
    grouping: str
    rows: list[GroupRate]
    overall: GroupRate
    reference: str | None = None
    p_any: float = math.nan  # the test that all groups are equal, for measures
    unit: str = "%"
    pooled: dict[str, float] = field(default_factory=dict)  # of a measure with n: weighted by it

    @property
    def judged(self) -> list[GroupRate]:
        return [row for row in self.rows if row.judged]

    def lowest(self) -> GroupRate | None:
        """Return the least favourable judged group: the lowest rate, or the highest where lower is better."""
        return self.extremes[0] if self.extremes else None

    @property
    def extremes(self) -> tuple[GroupRate, GroupRate] | None:
        """The least and the most favourable of the judged groups, if there are two or more."""

        def favour(row: GroupRate) -> float:
            return -row.value if self.rate.better < 0 else row.value

        return (min(self.judged, key=favour), max(self.judged, key=favour)) if len(self.judged) > 1 else None

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


def reference_of(table: RateTable, grouping: Grouping, judging: Judging) -> int | None:
    places = [place for place, row in enumerate(table.rows) if row.judged]
    named = named_reference(grouping, judging.reference)
    if named is not None:
        shown = table.rows[named].base and table.rows[named].status != SUPPRESSED
        return named if shown else None
    if not places:
        return None
    if judging.largest:
        return max(places, key=lambda place: table.rows[place].n)
    sign = -1 if table.rate.better < 0 else 1
    return max(places, key=lambda place: sign * table.rows[place].value)


def named_reference(grouping: Grouping, names: Sequence[str]) -> int | None:
    """Return the named reference in this grouping; for crossed groups, the one made of named parts."""
    known = {name.casefold(): place for place, name in enumerate(grouping.groups) if place != grouping.unknown}
    wanted = [name.strip().casefold() for name in names]
    for name in wanted:
        if name in known:
            return known[name]
    for key, place in known.items():
        parts = key.split(CROSS)
        if len(parts) > 1 and all(part in wanted for part in parts):
            return place
    return None


def require_references(table: Table, judging: Judging) -> None:
    names = [name for grouping in table.groupings for name in grouping.groups]
    known = {name.casefold() for name in names}
    for name in judging.reference:
        if name.strip().casefold() not in known:
            raise DataError(f"--reference: {table.name} has no group '{name}'{did_you_mean(name, names[:100])}")
