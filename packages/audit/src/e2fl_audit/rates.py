"""Rates of every group with intervals, differences and ratios to a reference, and tests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from e2fl_audit.counting import Counts, N, Rate, count, rates_of
from e2fl_audit.errors import AuditError, did_you_mean
from e2fl_audit.files import Flags, Numbers
from e2fl_audit.means import group_means
from e2fl_audit.ratetable import JUDGED, SUPPRESSED, UNDER_SHARE, RateTable, reference_of
from e2fl_audit.settings import MIN_CLIENTS, Settings
from e2fl_audit.statistics import (
    Z95,
    clients_test,
    design_effect,
    deviation,
    holm,
    newcombe,
    pooled_error,
    ratio_bounds,
    t_quantile,
    two_sided,
    wilson,
)
from e2fl_audit.suppression import HiddenGroups, hidden_groups
from e2fl_audit.table import Grouping, Measure, Predictions, Table

MOST_SHUFFLED = 200  # clients on the smaller side
NESTED = 0.95  # share of rows in clients of one side
SMALL_SHARE = 0.02  # Local Law 144: categories below 2 % may be left out of impact ratios


def evaluate(table: Table, settings: Settings) -> list[list[RateTable]]:
    """Return for each grouping the table of each rate; p-values are corrected over all of them."""
    _require_references(table, settings)
    hidden = hidden_groups(table, settings.suppress_below)
    results = [
        _of_grouping(table, grouping, settings, groups)
        for grouping, groups in zip(table.groupings, hidden, strict=True)
    ]
    tables = [rate_table for tables in results for rate_table in tables]
    for rate_table in tables:
        rate_table.suppress()
    _correct(tables)
    return results


def overall(table: Table, settings: Settings) -> list[RateTable]:
    """Return the rates of all rows together."""
    cells = table.data.cells.assign(all=0)
    data = table.data
    everything = Grouping("all", ["all rows"], "all")
    plain = Settings(resamples=settings.resamples)
    if isinstance(data, Measure):
        whole = Measure(data.name, cells, data.is_rate, data.higher_is_better)
        return [group_means(whole, everything, plain)]
    people = Predictions(cells, data.labels, data.positive)
    return _of_predictions(people, everything, plain, table, HiddenGroups())


def _of_grouping(
    table: Table, grouping: Grouping, settings: Settings, hidden: HiddenGroups
) -> list[RateTable]:
    if isinstance(table.data, Measure):
        return [group_means(table.data, grouping, settings, hidden.rows)]
    return _of_predictions(table.data, grouping, settings, table, hidden)


def _of_predictions(
    data: Predictions, grouping: Grouping, settings: Settings, table: Table, hidden: HiddenGroups
) -> list[RateTable]:
    clients = len(table.clients or ())  # one client: its rows are independent
    counts = count(data, grouping, clients if clients > 1 else None)
    drawn = counts.resampled(settings.resamples, settings.seed) if counts.named else None
    return [
        _rate_table(grouping, rate, counts, drawn, settings, hidden)
        for rate in rates_of(data)
        if not settings.ll144 or rate.key == "selection_rate"
    ]


def _rate_table(
    grouping: Grouping,
    rate: Rate,
    counts: Counts,
    drawn: Numbers | None,
    settings: Settings,
    hidden: HiddenGroups,
) -> RateTable:
    total, clients = counts.total, counts.clients
    base, hits, n = total[:, rate.base], total[:, rate.hits], total[:, N]
    with np.errstate(invalid="ignore", divide="ignore"):
        value = hits / base
        samples = None if drawn is None else drawn[:, :, rate.hits] / drawn[:, :, rate.base]
    effective, quantile = base, np.full(len(base), Z95)
    if samples is not None and drawn is not None:
        effective = base / _effects(samples, drawn, rate, value, base, hits)
        quantile = np.where(clients[:, rate.base] >= 2, t_quantile(clients[:, rate.base] - 1), Z95)
    low, high = wilson(value * effective, effective, quantile)
    status = _statuses(
        grouping, n, base, None if drawn is None else clients[:, rate.base], settings
    )
    status[list(hidden.rows if rate.base == N else hidden.parts)] = SUPPRESSED
    columns: dict[str, Any] = {
        "group": grouping.groups,
        "n": n,
        "clients": clients[:, N] if counts.named else np.full(len(n), math.nan),
        "base": base,
        "hits": hits,
        "value": value,
        "low": low,
        "high": high,
        "client_mean": counts.client_means(rate),
        "status": status,
    }
    whole = hits.sum() / base.sum() if base.sum() else math.nan
    result = RateTable(rate, grouping.name, columns, float(whole), float(n.sum()))
    reference = reference_of(grouping, value, n, status, rate.better, settings)
    if reference is not None:
        result.reference = grouping.groups[reference]
        columns |= _compared(columns, reference, samples, quantile, effective)
    result.turned = _turned(counts, rate, value, status)
    columns["p"] = _tests(columns, grouping, rate, counts, settings.seed)
    return result


def _effects(
    samples: Numbers, drawn: Numbers, rate: Rate, value: Numbers, base: Numbers, hits: Numbers
) -> Numbers:
    """Return the design effect of each group; that of all rows where it cannot be estimated."""
    own = design_effect(samples, value, base)
    drawn_hits, drawn_base = drawn[:, :, rate.hits].sum(axis=1), drawn[:, :, rate.base].sum(axis=1)
    whole = (drawn_hits / np.maximum(drawn_base, 1))[:, None]
    share = np.array([hits.sum() / max(base.sum(), 1)])
    general = float(design_effect(whole, share, np.array([base.sum()]))[0])
    # A general effect belongs to more rows per client than a small group has; it never exceeds the
    # group's own rows.
    fallback = np.clip(general if math.isfinite(general) else 1.0, 1.0, np.maximum(base, 1.0))
    return np.where(np.isfinite(own), own, fallback)


def _statuses(
    grouping: Grouping, n: Numbers, base: Numbers, clients: Numbers | None, settings: Settings
) -> "np.typing.NDArray[np.object_]":
    few_clients = np.zeros(len(n), np.bool_) if clients is None else clients < MIN_CLIENTS
    small = settings.ll144 & (n < SMALL_SHARE * n.sum())
    unknown = np.arange(len(n)) == (-1 if grouping.unknown is None else grouping.unknown)
    reasons = {
        "unknown": unknown,
        "undefined": base == 0,
        UNDER_SHARE: small,
        "too few rows": base < settings.min_rows,
        "too few clients": few_clients,
    }
    status = np.full(len(n), JUDGED, dtype=object)
    for reason, groups in reversed(reasons.items()):
        status[groups] = reason
    return status


def _compared(
    columns: dict[str, Any],
    reference: int,
    samples: Numbers | None,
    quantile: Numbers,
    effective: Numbers,
) -> dict[str, Numbers]:
    """Return the difference and the ratio of each group to the reference, with intervals."""
    value: Numbers = columns["value"]
    low, high = wilson(columns["hits"], columns["base"])
    against = float(value[reference])
    difference = value - against
    left, right = newcombe(value, (low, high), against, (low[reference], high[reference]))
    if samples is not None:
        half = quantile * np.nan_to_num(deviation(samples - samples[:, [reference]]))
        left = np.maximum(-1.0, np.minimum(left, difference - half))
        right = np.minimum(1.0, np.maximum(right, difference + half))
    smallest, largest = ratio_bounds(value, effective, against, float(effective[reference]))
    bounds = {"difference_low": left, "difference_high": right}
    bounds |= {"ratio_low": smallest, "ratio_high": largest}
    for ends in bounds.values():
        ends[reference] = math.nan
    ratio = value / against if against else np.full(len(value), math.nan)
    return {"difference": difference, "ratio": ratio, **bounds}


def _tests(
    columns: dict[str, Any],
    grouping: Grouping,
    rate: Rate,
    counts: Counts,
    seed: int,
) -> Numbers:
    """Return the p-value of each judged group against all other known groups together."""
    hits, base = columns["hits"], columns["base"]
    p = np.full(len(hits), math.nan)
    known = np.arange(len(hits)) != (-1 if grouping.unknown is None else grouping.unknown)
    for group in np.flatnonzero(columns["status"] == JUDGED):
        rest = known & (np.arange(len(hits)) != group)
        rest_hits, rest_base = float(hits[rest].sum()), float(base[rest].sum())
        if not rest_base:
            continue
        error = pooled_error(hits[group], base[group], rest_hits, rest_base)
        difference = hits[group] / base[group] - rest_hits / rest_base
        freedom = None
        if counts.named:
            sides = Sides.of(counts, rate, int(group), rest)
            if sides.nested:
                p[group] = sides.shuffled(seed)
                continue
            error, freedom = max(error, sides.error()), sides.freedom
        certain = 0.0 if difference else 1.0
        p[group] = two_sided(difference / error, freedom) if error else certain
    return p


@dataclass(frozen=True)
class Sides:
    """The counts of each client inside a group and in the rest: [clients, 2]."""

    hits: Numbers
    base: Numbers

    @classmethod
    def of(cls, counts: Counts, rate: Rate, group: int, rest: Flags) -> Self:
        inside = np.stack([np.arange(counts.groups) == group, rest], axis=1).astype(np.float64)
        hits, base = counts.of(rate.hits) @ inside, counts.of(rate.base) @ inside
        present = base.sum(axis=1) > 0
        return cls(hits[present], base[present])

    @property
    def share(self) -> Numbers:
        """The share of each side's rows that each client has."""
        share: Numbers = self.base / self.base.sum(axis=0)
        return share

    @property
    def nested(self) -> bool:
        """Whether nearly all rows are of clients on one side, and few enough to be shuffled."""
        purity = self.share.max(axis=1).sum() / 2
        smaller = int((self.base > 0).sum(axis=0).min())
        return bool(purity >= NESTED) and smaller <= MOST_SHUFFLED

    def shuffled(self, seed: int) -> float:
        """Return the p-value of shuffled clients, each taken as of the side it mostly is on."""
        inside = self.share[:, 0] > self.share[:, 1]
        side, every = np.where(inside, 0, 1), np.arange(len(inside))
        if not 0 < inside.sum() < len(inside):
            return math.nan
        return clients_test(self.hits[every, side], self.base[every, side], inside, seed)

    @property
    def freedom(self) -> float:
        """The effective number of clients, which weigh as their rows do, less one."""
        weight = self.share.sum(axis=1)
        return max(1.0, float(weight.sum() ** 2 / np.square(weight).sum()) - 1)

    def error(self) -> float:
        """Return the standard error of the difference, over each client's contribution to it."""
        rate = self.hits.sum(axis=0) / self.base.sum(axis=0)
        parts = (self.hits - rate * self.base) / self.base.sum(axis=0)
        contribution = parts[:, 0] - parts[:, 1]
        size = len(contribution)
        return math.sqrt(size / (size - 1) * float(np.square(contribution).sum()))


def _turned(
    counts: Counts, rate: Rate, value: Numbers, status: NDArray[np.object_]
) -> tuple[int, int] | None:
    """Return inside how many clients the difference of the extreme groups turns, and of how many.

    None if it does not: the mean difference inside clients (Mantel and Haenszel) must be certain.
    """
    judged = np.flatnonzero(status == JUDGED)
    if not counts.named or len(judged) < 2:
        return None
    ends = [judged[np.argmin(value[judged])], judged[np.argmax(value[judged])]]
    hits, base = counts.of(rate.hits)[:, ends].toarray(), counts.of(rate.base)[:, ends].toarray()
    both = (base > 0).all(axis=1)
    hits, base = hits[both], base[both]
    if len(base) < 2:
        return None
    inside = hits[:, 0] / base[:, 0] - hits[:, 1] / base[:, 1]  # below 0 over all rows
    weight, share = base.prod(axis=1) / base.sum(axis=1), (hits + 0.5) / (base + 1)
    error = np.sqrt((weight**2 * (share * (1 - share) / base).sum(axis=1)).sum())
    certain = (weight * inside).sum() > Z95 * error
    return (int((inside > 0).sum()), len(inside)) if certain else None


def _correct(tables: Sequence[RateTable]) -> None:
    """Correct all p-values of the page together: 5 % is the chance of any false finding on it."""
    tested, values = [], []
    for table in tables:
        p, status = table.columns["p"], np.asarray(table.columns["status"])
        groups = np.flatnonzero((status == JUDGED) & ~np.isnan(p))
        # Of two groups, each is the other's rest: one test, not two.
        pair = len(groups) == 2 and (status != "unknown").sum() == 2
        tested.append((groups, pair))
        values += p[groups[:1] if pair else groups].tolist()
    adjusted = iter(holm(values).tolist())
    for table, (groups, pair) in zip(tables, tested, strict=True):
        p_holm = np.full(len(table.columns["p"]), math.nan)
        count = 1 if pair else len(groups)
        p_holm[groups] = [next(adjusted) for _ in range(count)]
        table.columns["p_holm"] = p_holm


def _require_references(table: Table, settings: Settings) -> None:
    names = [name for grouping in table.groupings for name in grouping.groups]
    known = {name.casefold() for name in names}
    for name in settings.named_references:
        if name.strip().casefold() not in known:
            hint = did_you_mean(name, names[:100])
            raise AuditError(f"--reference: {table.name} has no group '{name}'{hint}")
