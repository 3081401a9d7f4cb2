"""Rates of every group with intervals, differences and ratios to a reference, and tests."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl_audit import statistics
from e2fl_audit.counting import (
    BOUNDS,
    FIELDS,
    FOUR_FIFTHS,
    JUDGED,
    NUMBERS,
    SUPPRESSED,
    UNDER_SHARE,
    Counts,
    N,
    Rate,
    RateTable,
    count,
    rates_of,
)
from e2fl_audit.files import Codes, Numbers
from e2fl_audit.reader import CROSS, Grouping, Table
from e2fl_audit.settings import MIN_CLIENTS, MIN_ROWS, AuditError, Settings, did_you_mean

SMALL_SHARE = 0.02  # Local Law 144: categories below 2 % may be left out of impact ratios
MOST_SHUFFLED = 200  # clients on the smaller side
NESTED = 0.95  # share of rows in clients of one side

Statuses = NDArray[np.str_]


def evaluate(table: Table, settings: Settings) -> list[list[RateTable]]:
    """Return for each grouping the table of each rate; p-values are corrected over all of them."""
    names = [name for grouping in table.groupings for name in grouping.groups]
    for name in settings.named_references:
        if name.strip().casefold() not in map(str.casefold, names):
            hint = did_you_mean(name, names[:100])
            raise AuditError(f"--reference: {table.name} has no group '{name}'{hint}")
    results = [_of_grouping(table, grouping, settings) for grouping in table.groupings]
    _correct(one for tables in results for one in tables)
    return [[replace(one) for one in tables] for tables in results]  # with corrected p-values


def overall(table: Table, settings: Settings) -> list[RateTable]:
    """Return the rates of all rows together."""
    whole = replace(table, cells=table.cells.assign(all=0))
    grouping = Grouping("all", ["all rows"], "all")
    return _of_grouping(whole, grouping, Settings(resamples=settings.resamples))


def _of_grouping(table: Table, grouping: Grouping, settings: Settings) -> list[RateTable]:
    if table.is_measure:
        return [_means(table, grouping, settings)]
    clients = len(table.clients or ())  # one client: its rows are independent
    counts = count(table, grouping, clients if clients > 1 else None)
    drawn = counts.resampled(settings.resamples, settings.seed) if counts.named else None
    return [
        _Estimate(grouping, rate, counts, drawn, settings).table()
        for rate in rates_of(table)
        if not settings.ll144 or rate.key == "selection_rate"
    ]


@dataclass
class _Estimate:
    """One rate of the groups of a grouping, and what its intervals and tests need."""

    grouping: Grouping
    rate: Rate
    counts: Counts
    drawn: Numbers | None  # the counts in resamples of the clients
    settings: Settings

    def __post_init__(self) -> None:
        rate, total, drawn = self.rate, self.counts.total, self.drawn
        self.base, self.hits, self.n = total[:, rate.base], total[:, rate.hits], total[:, N]
        self.clients = self.counts.clients[:, rate.base]
        with np.errstate(invalid="ignore", divide="ignore"):
            self.value: Numbers = self.hits / self.base
        self.samples: Numbers | None = None
        self.effective, self.quantile = self.base, np.full(len(self.base), statistics.Z95)
        if drawn is not None:
            self._widen(drawn[:, :, rate.hits], drawn[:, :, rate.base])

    def _widen(self, hits: Numbers, base: Numbers) -> None:
        """Find the effective number of rows; hits, base: [resamples, groups]."""
        with np.errstate(invalid="ignore", divide="ignore"):
            self.samples = hits / base
        own = statistics.design_effect(self.samples, self.value, self.base)
        whole = (hits.sum(axis=1) / np.maximum(base.sum(axis=1), 1))[:, None]
        share = np.array([self.hits.sum() / max(self.base.sum(), 1)])
        general = float(statistics.design_effect(whole, share, np.array([self.base.sum()]))[0])
        # A group's own effect, or that of all rows where it cannot be estimated. That belongs to
        # more rows per client than a small group has; it never exceeds the group's own rows.
        fallback = np.clip(general if general > 1 else 1.0, 1.0, np.maximum(self.base, 1.0))
        self.effective = self.base / np.where(np.isfinite(own), own, fallback)
        self.quantile = np.where(
            self.clients >= 2, statistics.t_quantile(self.clients - 1), statistics.Z95
        )

    def table(self) -> RateTable:
        n, base, hits, settings = self.n, self.base, self.hits, self.settings
        gone = self.grouping.hidden if self.rate.base == N else self.grouping.hidden_parts
        reasons = {
            SUPPRESSED: np.isin(np.arange(len(n)), list(gone)),
            "unknown": ~self.grouping.known,
            "undefined": base == 0,
            UNDER_SHARE: settings.ll144 & (n < SMALL_SHARE * n.sum()),
            "too few rows": base < settings.least(1 if settings.ll144 else MIN_ROWS),
            "too few clients": self.counts.named & (self.clients < MIN_CLIENTS),
        }
        status = np.select(list(reasons.values()), list(reasons), JUDGED)
        columns: dict[str, Any] = {"n": n, "base": base, "hits": hits, "value": self.value}
        columns |= {"clients": self.counts.clients[:, N] if self.counts.named else n * math.nan}
        columns |= {"client_mean": self.counts.client_means(self.rate), "status": status}
        columns["low"], columns["high"] = statistics.wilson(
            self.value * self.effective, self.effective, self.quantile
        )
        reference = _reference(self.grouping, self.value, n, status, self.rate.better, settings)
        if reference is not None:
            columns |= self._compared(reference)
        judged = np.flatnonzero(status == JUDGED)
        columns["p"] = np.full(len(n), math.nan)
        columns["p"][judged] = [self._p_value(int(group)) for group in judged]
        share = float(hits.sum() / base.sum()) if base.sum() else math.nan
        return _table(self.rate, self.grouping, columns, share, reference, self._turned(judged))

    def _compared(self, reference: int) -> dict[str, Numbers]:
        """Return the intervals of the difference and the ratio of each group to the reference."""
        low, high = statistics.wilson(self.hits, self.base)
        value, against = self.value, float(self.value[reference])
        left, right = statistics.newcombe(
            value, (low, high), against, (low[reference], high[reference])
        )
        if self.samples is not None:
            moves = self.samples - self.samples[:, [reference]]
            half = self.quantile * np.nan_to_num(statistics.deviation(moves))
            left = np.maximum(-1.0, np.minimum(left, value - against - half))
            right = np.minimum(1.0, np.maximum(right, value - against + half))
        ends = statistics.ratio_bounds(
            value, self.effective, against, float(self.effective[reference])
        )
        bounds = {"difference_low": left, "difference_high": right}
        return bounds | {"ratio_low": ends[0], "ratio_high": ends[1]}

    def _p_value(self, group: int) -> float:
        """Return the p-value of a group against all other known groups together."""
        own = np.arange(len(self.hits)) == group
        sides = np.stack([own, self.grouping.known & ~own], axis=1).astype(np.float64)
        hits, base = self.hits @ sides, self.base @ sides
        if not base[1]:
            return math.nan
        share = hits.sum() / base.sum()
        error = math.sqrt(share * (1 - share) * (1 / base).sum())
        if self.counts.named:
            hits, base = (
                self.counts.of(column) @ sides for column in (self.rate.hits, self.rate.base)
            )
            present = base.sum(axis=1) > 0
            return _p_over_clients(hits[present], base[present], error, self.settings.seed)
        return statistics.two_sided(float(hits[0] / base[0] - hits[1] / base[1]), error)

    def _turned(self, judged: Codes) -> tuple[int, int] | None:
        """Return inside how many clients the difference of the extreme groups turns, of how many.

        None if it does not: the mean difference inside clients (Mantel, Haenszel) must be certain.
        """
        if not self.counts.named or len(judged) < 2:
            return None
        value = self.value[judged]
        ends = judged[[np.argmin(value), np.argmax(value)]]
        hits = self.counts.of(self.rate.hits)[:, ends].toarray()
        base = self.counts.of(self.rate.base)[:, ends].toarray()
        both = (base > 0).all(axis=1)
        hits, base = hits[both], base[both]
        if len(base) < 2:
            return None
        inside = hits[:, 0] / base[:, 0] - hits[:, 1] / base[:, 1]  # below 0 over all rows
        weight, share = base.prod(axis=1) / base.sum(axis=1), (hits + 0.5) / (base + 1)
        error = np.sqrt((weight**2 * (share * (1 - share) / base).sum(axis=1)).sum())
        certain = (weight * inside).sum() > statistics.Z95 * error
        return (int((inside > 0).sum()), len(inside)) if certain else None


def _table(
    rate: Rate,
    grouping: Grouping,
    columns: dict[str, Any],
    overall: float,
    reference: int | None,
    turned: tuple[int, int] | None = None,
) -> RateTable:
    """Return the table of a rate; what is not known of a group is NaN."""
    frame = pd.DataFrame(columns | {"group": grouping.groups}).reindex(columns=FIELDS)
    frame["judged"] = frame["status"] == JUDGED
    name = None
    if reference is not None:
        name, against = grouping.groups[reference], frame["value"][reference]
        frame["difference"] = frame["value"] - against
        if against > 0:
            frame["ratio"] = (frame["value"] / against).where(frame["value"] >= 0)
        frame.loc[reference, BOUNDS] = math.nan
    frame["below_four_fifths"] = frame["judged"] & (frame["ratio"] < FOUR_FIFTHS)
    frame.loc[frame["status"] == SUPPRESSED, NUMBERS] = math.nan
    frame = frame.astype(dict.fromkeys(NUMBERS, float))
    return RateTable(rate, grouping, frame, overall, name, turned)


def _reference(
    grouping: Grouping,
    value: Numbers,
    n: Numbers,
    status: Statuses,
    better: int,
    settings: Settings,
) -> int | None:
    """Return the group that others are compared with: named, largest or best."""
    wanted = [name.strip().casefold() for name in settings.named_references]
    codes = {
        grouping.groups[group].casefold(): int(group) for group in np.flatnonzero(grouping.known)
    }
    named = [codes[name] for name in wanted if name in codes]
    if grouping.crossed:  # the group made of named parts
        named += [group for name, group in codes.items() if set(name.split(CROSS)) <= set(wanted)]
    if named:
        known = not math.isnan(value[named[0]]) and status[named[0]] != SUPPRESSED
        return named[0] if known else None
    judged = np.flatnonzero(status == JUDGED)
    size = n if "largest" in settings.reference else value if better >= 0 else -value
    return int(judged[np.argmax(size[judged])]) if len(judged) else None


def _p_over_clients(hits: Numbers, base: Numbers, error: float, seed: int) -> float:
    """Return the p-value of the counts of each client inside a group and in the rest: [clients, 2].

    error: of the difference, if rows were independent. Where nearly all rows are of clients on one
    side, and few enough, clients are shuffled, each taken as of the side it mostly is on.
    """
    weight, every = base / base.sum(axis=0), np.arange(len(base))
    few = (base > 0).sum(axis=0).min() <= MOST_SHUFFLED
    if few and weight.max(axis=1).sum() / 2 >= NESTED:
        inside = weight[:, 0] > weight[:, 1]
        side = np.where(inside, 0, 1)
        if len(set(side)) == 1:
            return math.nan
        return statistics.clients_test(hits[every, side], base[every, side], inside, seed)
    rates = hits.sum(axis=0) / base.sum(axis=0)
    parts = (hits - rates * base) / base.sum(axis=0)
    # The standard error over each client's contribution to the difference.
    contribution = np.square(parts[:, 0] - parts[:, 1]).sum()
    error = max(error, math.sqrt(len(base) / (len(base) - 1) * float(contribution)))
    # The effective number of clients, which weigh as their rows do, less one.
    of_client = weight.sum(axis=1)
    freedom = max(1.0, float(of_client.sum() ** 2 / np.square(of_client).sum()) - 1)
    return statistics.two_sided(float(rates[0] - rates[1]), error, freedom)


def _means(table: Table, grouping: Grouping, settings: Settings) -> RateTable:
    """Return the mean over clients of each group, compared with the reference and the rest."""
    group, value = table.cells[grouping.column].to_numpy(), table.cells["value"].to_numpy()
    codes = np.arange(len(grouping.groups))
    members = [value[group == code] for code in codes]
    size = np.array([len(values) for values in members], np.float64)
    mean = np.array([values.mean() if len(values) else math.nan for values in members])
    half = np.array([statistics.mean_half(values) for values in members])
    low, high = mean - half, mean + half
    if table.is_rate:
        low, high = np.maximum(low, 0.0), np.minimum(high, 1.0)
    few = size < settings.least(MIN_CLIENTS)
    reasons = [np.isin(codes, list(grouping.hidden)), ~grouping.known, few]
    status = np.select(reasons, [SUPPRESSED, "unknown", "too few clients"], JUDGED)
    columns: dict[str, Any] = dict.fromkeys(("n", "clients", "base"), size)
    columns |= {"value": mean, "client_mean": mean, "low": low, "high": high, "status": status}
    known = grouping.known[group]
    columns["p"] = np.full(len(size), math.nan)
    for code in np.flatnonzero(status == JUDGED):
        inside = group[known] == code
        if 2 <= inside.sum() <= known.sum() - 2:
            centred = value[known] - value[known].mean()
            columns["p"][code] = statistics.clients_test(
                centred, np.ones(len(inside)), inside, settings.seed
            )
    sign = 1 if table.higher_is_better else -1
    reference = _reference(grouping, mean, size, status, sign, settings)
    if reference is not None:
        difference, others = mean - float(mean[reference]), members[reference]
        half = np.array([statistics.mean_half(values, others) for values in members])
        columns |= {"difference_low": difference - half, "difference_high": difference + half}
    rate = Rate("accuracy" if table.is_rate else "measure", table.title, N, N, sign)
    return _table(rate, grouping, columns, float(value.mean()), reference)


def _correct(tables: Iterable[RateTable]) -> None:
    """Correct all p-values of the page together: 5 % is the chance of any false finding on it."""
    tested = []
    for table in tables:
        p = table.frame.loc[table.frame["judged"], "p"].dropna()
        # Of two groups, each is the other's rest: one test, not two.
        pair = len(p) == 2 and table.grouping.known.sum() == 2
        tested.append((table.frame, p, p[:1] if pair else p))
    adjusted = iter(statistics.holm([one for *_, different in tested for one in different]))
    for frame, p, different in tested:
        own = [next(adjusted) for _ in different]
        frame.loc[p.index, "p_holm"] = own * (len(p) // max(1, len(own)))


def calibration(table: Table, settings: Settings) -> pd.DataFrame:
    """Return for each group the mean score, the share of positives and the calibration error."""
    if table.bins is None:
        return pd.DataFrame()
    parts = []
    for grouping in table.groupings:
        sums = table.bins.groupby([grouping.column, "bin"])[["n", "score", "positives"]].sum()
        sums["error"] = (sums["score"] - sums["positives"]).abs()
        groups = sums.groupby(level=0).sum()
        shares = groups.div(groups["n"], axis=0)
        few = groups["n"] < settings.least(MIN_ROWS)
        frame = pd.DataFrame(
            {
                "grouping": grouping.name,
                "group": [grouping.groups[code] for code in groups.index],
                "n": groups["n"],
                "mean_score": shares["score"],
                "positive_rate": shares["positives"],
                "difference": (groups["score"] - groups["positives"]) / groups["n"],
                "ece": shares["error"],
                "status": np.where(few, "too few rows", JUDGED),
            }
        )
        parts.append(frame[~groups.index.isin(list(grouping.hidden_parts))])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
