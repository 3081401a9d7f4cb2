"""Rates of every group with intervals, differences and ratios to a reference, and tests against the rest."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from e2fl.auditing.counting import Counts, N, Rate, count, rates_of
from e2fl.auditing.judging import (
    MIN_CLIENTS,
    MIN_ROWS,
    SMALL_SHARE,
    SUPPRESSED,
    UNDER_SHARE,
    GroupRate,
    Judging,
    RateTable,
    reference_of,
    require_references,
)
from e2fl.auditing.means import group_means
from e2fl.auditing.suppression import NOTHING_HIDDEN, HiddenGroups, hidden_groups
from e2fl.auditing.table import Grouping, Numbers, Predictions, Table
from e2fl.auditing.uncertainty import (
    Z95,
    design_effect,
    holm,
    newcombe,
    pooled_error,
    ratio_interval,
    replicates,
    wilson,
)
from e2fl.metrics.student import t_quantile, two_sided


def evaluate(table: Table, judging: Judging, tell: Callable[[int, int], None] | None = None) -> list[list[RateTable]]:
    """Return for each grouping the table of each rate; p-values are corrected over all of them."""
    require_references(table, judging)
    found = []
    for grouping, hidden in zip(table.groupings, hidden_groups(table, judging.suppress_below), strict=True):
        if isinstance(table.data, Predictions):
            found.append(_of_predictions(table, table.data, grouping, judging, tell, hidden))
        else:
            found.append([group_means(table.data, grouping, judging, hidden.rows)])
    tables = [each for grouping in found for each in grouping]
    for each in tables:
        _suppress(each)
    _correct(tables)
    return found


def overall(table: Table, judging: Judging) -> list[RateTable]:
    """Return the rates of all rows together."""
    combos = int(table.data.combo.max()) + 1
    everything = Grouping("all", ["all rows"], np.zeros(combos, dtype=np.int64), None)
    if isinstance(table.data, Predictions):
        return _of_predictions(table, table.data, everything, Judging(resamples=judging.resamples), None)
    return [group_means(table.data, everything, Judging())]


def _of_predictions(
    table: Table,
    data: Predictions,
    grouping: Grouping,
    judging: Judging,
    tell: Callable[[int, int], None] | None,
    hidden: HiddenGroups = NOTHING_HIDDEN,
) -> list[RateTable]:
    rates, columns = rates_of(data)
    if judging.ll144:
        rates = [rate for rate in rates if rate.key == "selection_rate"]
    counts = count(data, grouping, columns)
    drawn = None
    if counts.client is not None and clustered(counts, len(grouping.groups)):
        shape = (-1, len(grouping.groups), columns)
        drawn = replicates(
            counts.column,
            counts.client,
            counts.count,
            len(grouping.groups) * columns,
            len(table.clients or ()),
            judging.resamples,
            judging.seed,
            tell,
        ).reshape(shape)
    return [
        _rate_table(table, grouping, rate, counts, drawn, judging, hidden.rows if rate.base == N else hidden.parts)
        for rate in rates
    ]


def clustered(counts: Counts, groups: int) -> bool:
    """Return whether clients can be resampled: some group has enough of them.

    Otherwise (three hospitals, or every group is one client) rows are taken as independent, and the page says so.
    """
    return groups > 0 and bool((counts.clients_with(N) >= MIN_CLIENTS).any())


def _rate_table(
    table: Table,
    grouping: Grouping,
    rate: Rate,
    counts: Counts,
    drawn: Numbers | None,
    judging: Judging,
    hidden: frozenset[int],
) -> RateTable:
    base, hits = counts.total[:, rate.base], counts.total[:, rate.hits]
    clients = counts.clients_with(rate.base) if counts.client is not None else None
    with np.errstate(invalid="ignore", divide="ignore"):
        value = hits / base
        sample = None if drawn is None else drawn[:, :, rate.hits] / drawn[:, :, rate.base]
    effective, quantile = base, np.full(len(base), Z95)
    if sample is not None and drawn is not None and clients is not None:
        effective = base / _effects(sample, drawn, rate, value, base, hits)
        quantile = np.where(clients >= 2, t_quantile(clients - 1), Z95)
    low, high = wilson(value * effective, effective, quantile)
    plain_low, plain_high = wilson(hits, base)
    means = counts.client_means(rate)
    statuses = _statuses(grouping, counts.total[:, N], base, clients if sample is not None else None, judging)
    statuses = [SUPPRESSED if place in hidden else status for place, status in enumerate(statuses)]
    rows = [
        GroupRate(
            group=name,
            n=float(counts.total[place, N]),
            clients=None if clients is None else int(counts.clients_with(N)[place]),
            base=float(base[place]),
            hits=float(hits[place]),
            value=float(value[place]),
            low=float(low[place]),
            high=float(high[place]),
            client_mean=float(means[place]),
            status=statuses[place],
        )
        for place, name in enumerate(grouping.groups)
    ]
    found = RateTable(rate, grouping.name, rows, _whole(rate, counts, table))
    reference = reference_of(found, grouping, judging)
    if reference is not None:
        found.reference = rows[reference].group
        _differences(found, reference, sample, quantile, plain_low, plain_high, effective)
    _tests(found, grouping, hits, base, drawn, clients)
    return found


def _effects(sample: Numbers, drawn: Numbers, rate: Rate, value: Numbers, base: Numbers, hits: Numbers) -> Numbers:
    """Return the design effect of each group; that of all rows where a group's own cannot be estimated."""
    own = design_effect(sample, value, base)
    whole = drawn[:, :, rate.hits].sum(axis=1) / np.maximum(drawn[:, :, rate.base].sum(axis=1), 1)
    share = np.array([hits.sum() / max(base.sum(), 1)])
    general = float(design_effect(whole[:, None], share, np.array([base.sum()]))[0])
    # A general effect belongs to more rows per client than a small group has; it never exceeds the group's own rows.
    fallback = np.clip(general if math.isfinite(general) else 1.0, 1.0, np.maximum(base, 1.0))
    return np.where(np.isfinite(own), own, fallback)


def _whole(rate: Rate, counts: Counts, table: Table) -> GroupRate:
    base, hits = float(counts.total[:, rate.base].sum()), float(counts.total[:, rate.hits].sum())
    value = hits / base if base else math.nan
    rows = float(counts.total[:, N].sum())
    return GroupRate("all", rows, None if table.clients is None else len(table.clients), base, hits, value)


def _statuses(grouping: Grouping, rows: Numbers, base: Numbers, clients: Numbers | None, judging: Judging) -> list[str]:
    few = judging.min_n if judging.min_n is not None else 1 if judging.ll144 else MIN_ROWS
    total = rows.sum()
    found = []
    for place in range(len(grouping.groups)):
        if place == grouping.unknown:
            found.append("unknown")
        elif not base[place]:
            found.append("undefined")
        elif judging.ll144 and rows[place] < SMALL_SHARE * total:
            found.append(UNDER_SHARE)
        elif base[place] < few:
            found.append("too few rows")
        elif clients is not None and clients[place] < MIN_CLIENTS:
            found.append("too few clients")
        else:
            found.append("")
    return found


def _differences(
    table: RateTable,
    reference: int,
    sample: Numbers | None,
    quantile: Numbers,
    plain_low: Numbers,
    plain_high: Numbers,
    effective: Numbers,
) -> None:
    base = table.rows[reference]
    for place, row in enumerate(table.rows):
        if not row.base or not base.base:
            continue
        row.difference = row.value - base.value
        row.ratio = row.value / base.value if base.value else math.nan
        if place == reference:
            continue
        row.difference_low, row.difference_high = newcombe(
            (row.value, float(plain_low[place]), float(plain_high[place])),
            (base.value, float(plain_low[reference]), float(plain_high[reference])),
        )
        if sample is not None:
            known = sample[:, place] - sample[:, reference]
            known = known[np.isfinite(known)]
            half = float(quantile[place]) * float(np.std(known, ddof=1)) if len(known) > 1 else 0.0
            row.difference_low = max(-1.0, min(row.difference_low, row.difference - half))
            row.difference_high = min(1.0, max(row.difference_high, row.difference + half))
        row.ratio_low, row.ratio_high = ratio_interval(
            (row.value * float(effective[place]), float(effective[place])),
            (base.value * float(effective[reference]), float(effective[reference])),
        )


def _tests(
    table: RateTable,
    grouping: Grouping,
    hits: Numbers,
    base: Numbers,
    drawn: Numbers | None,
    clients: Numbers | None,
) -> None:
    """Test each judged group against all other known groups together."""
    known = [place for place in range(len(table.rows)) if place != grouping.unknown]
    for place in known:
        row = table.rows[place]
        rest = [other for other in known if other != place]
        rest_hits, rest_base = float(hits[rest].sum()), float(base[rest].sum())
        if not row.judged or not rest_base:
            continue
        error = pooled_error(row.hits, row.base, rest_hits, rest_base)
        freedom = None
        if drawn is not None and clients is not None:
            with np.errstate(invalid="ignore", divide="ignore"):
                apart = drawn[:, place, table.rate.hits] / drawn[:, place, table.rate.base]
                apart = apart - drawn[:, rest, table.rate.hits].sum(1) / drawn[:, rest, table.rate.base].sum(1)
            apart = apart[np.isfinite(apart)]
            error = max(error, float(np.std(apart, ddof=1)) if len(apart) > 1 else 0.0)
            freedom = max(1.0, float(clients[place]) - 1)
        difference = row.value - rest_hits / rest_base
        row.p = two_sided(difference / error, freedom) if error else (1.0 if not difference else 0.0)


def _suppress(table: RateTable) -> None:
    """Take every number of hidden groups away."""
    for place, row in enumerate(table.rows):
        if row.status == SUPPRESSED:
            table.rows[place] = GroupRate(row.group, math.nan, None, math.nan, math.nan, math.nan, status=SUPPRESSED)
            table.pooled.pop(row.group, None)


def _correct(tables: Sequence[RateTable]) -> None:
    """Correct all p-values of the page together, so that 5 % is the chance of any false finding on it."""
    tested = []
    for table in tables:
        rows = [row for row in table.rows if row.judged and not math.isnan(row.p)]
        known = [row for row in table.rows if row.status != "unknown"]
        # Of two groups, each is the other's rest: one test, not two.
        tested.append(rows[:1] if len(known) == 2 and len(rows) == 2 else rows)
    adjusted = iter(holm([row.p for rows in tested for row in rows]))
    for table, rows in zip(tables, tested, strict=True):
        for row in rows:
            row.p_holm = next(adjusted)
        if len(rows) == 1:
            for row in table.rows:
                if row.judged and not math.isnan(row.p):
                    row.p_holm = rows[0].p_holm
