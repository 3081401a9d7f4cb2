"""Means over clients for every group, in tables with one value per client."""

import math

import numpy as np

from e2fl.auditing.counting import Rate
from e2fl.auditing.judging import MIN_CLIENTS, SUPPRESSED, GroupRate, Judging, RateTable, reference_of
from e2fl.auditing.table import Codes, Grouping, Measure
from e2fl.auditing.uncertainty import permutation_test
from e2fl.metrics.student import mean_interval, welch, welch_half


def group_means(data: Measure, grouping: Grouping, judging: Judging, hidden: frozenset[int] = frozenset()) -> RateTable:
    """Return the mean of each group with its interval, compared with the reference and with the rest."""
    group = grouping.of_combo[data.combo]
    sign = 1 if data.higher_is_better else -1
    rate = Rate("accuracy" if data.is_rate else "measure", "Accuracy" if data.is_rate else data.name, 0, 0, sign)
    few = judging.min_n if judging.min_n is not None else MIN_CLIENTS
    whole = GroupRate("all", len(group), len(group), len(group), math.nan, float(data.value.mean()))
    whole.low, whole.high = _bounded(data, mean_interval(data.value))
    found = RateTable(rate, grouping.name, [], whole, unit="%" if data.is_rate else "")
    known = np.ones(len(group), bool) if grouping.unknown is None else group != grouping.unknown
    for place, name in enumerate(grouping.groups):
        mine = group == place
        values = data.value[mine]
        size = len(values)
        row = GroupRate(name, size, size, size, math.nan, float(values.mean()) if size else math.nan)
        row.client_mean = row.value
        row.low, row.high = _bounded(data, mean_interval(values))
        row.status = "unknown" if place == grouping.unknown else "too few clients" if size < few else ""
        if place in hidden:
            row.status = SUPPRESSED
        if row.judged and size >= 2 and (known & ~mine).sum() >= 2:
            row.p = welch(values, data.value[known & ~mine])
        if data.weight is not None and size:
            share = data.weight[mine] / data.weight[mine].max()
            found.pooled[name] = float(values @ share / share.sum())
        found.rows.append(row)
    _compare_means(found, grouping, data, group, judging)
    if len(grouping.groups) > 1 and known.sum() > 2:
        found.p_any = permutation_test(data.value[known], group[known], seed=judging.seed)
    return found


def _compare_means(table: RateTable, grouping: Grouping, data: Measure, group: Codes, judging: Judging) -> None:
    reference = reference_of(table, grouping, judging)
    if reference is None:
        return
    base = table.rows[reference]
    table.reference = base.group
    for place, row in enumerate(table.rows):
        row.difference = row.value - base.value
        row.ratio = row.value / base.value if base.value > 0 and row.value >= 0 else math.nan
        if place != reference and row.n >= 2 and base.n >= 2:
            one, other = data.value[group == place], data.value[group == reference]
            half = welch_half(one, other)
            if half > 0:
                row.difference_low, row.difference_high = row.difference - half, row.difference + half


def _bounded(data: Measure, interval: tuple[float, float]) -> tuple[float, float]:
    return (max(0.0, interval[0]), min(1.0, interval[1])) if data.is_rate else interval
