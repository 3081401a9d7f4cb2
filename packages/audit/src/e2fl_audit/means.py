"""Means over clients for every group, in tables with one value per client."""

import math
from typing import Any

import numpy as np

from e2fl_audit.counting import Rate
from e2fl_audit.files import Numbers
from e2fl_audit.ratetable import JUDGED, SUPPRESSED, RateTable, reference_of
from e2fl_audit.settings import MIN_CLIENTS, Settings
from e2fl_audit.statistics import clients_test, mean_interval, permutation_test, welch_half
from e2fl_audit.table import Grouping, Measure


def group_means(
    data: Measure, grouping: Grouping, settings: Settings, hidden: frozenset[int] = frozenset()
) -> RateTable:
    """Return the mean of each group with its interval, compared with the reference and the rest."""
    group, value = data.cells[grouping.column].to_numpy(), data.cells["value"].to_numpy()
    members = [value[group == code] for code in range(len(grouping.groups))]
    size = np.array([len(values) for values in members], np.float64)
    mean = np.array([values.mean() if len(values) else math.nan for values in members])
    low, high = np.array([mean_interval(values) for values in members]).T
    if data.is_rate:
        low, high = np.maximum(low, 0.0), np.minimum(high, 1.0)
    few = settings.min_n if settings.min_n is not None else MIN_CLIENTS
    status = np.where(size < few, "too few clients", JUDGED).astype(object)
    if grouping.unknown is not None:
        status[grouping.unknown] = "unknown"
    status[list(hidden)] = SUPPRESSED
    columns: dict[str, Any] = {
        **dict.fromkeys(("n", "clients", "base"), size),
        **dict.fromkeys(("value", "client_mean"), mean),
        **{"hits": np.full(len(size), math.nan), "low": low, "high": high},
        **{"group": grouping.groups, "status": status},
    }
    sign = 1 if data.higher_is_better else -1
    key, title = ("accuracy", "Accuracy") if data.is_rate else ("measure", data.name)
    unit, rate = "%" if data.is_rate else "", Rate(key, title, 0, 0, sign)
    result = RateTable(rate, grouping.name, columns, float(value.mean()), float(len(value)), unit)
    known = group != (-1 if grouping.unknown is None else grouping.unknown)
    columns["p"] = np.full(len(size), math.nan)
    for code in np.flatnonzero(status == JUDGED):
        inside = group[known] == code
        if 2 <= inside.sum() <= known.sum() - 2:
            ones, middle = np.ones(len(inside)), value[known].mean()
            p = clients_test(value[known] - middle, ones, inside, settings.seed)
            columns["p"][code] = p
    if "weight" in data.cells:
        result.weighted = _weighted(data, grouping)
    reference = reference_of(grouping, mean, size, status, sign, settings)
    if reference is not None:
        result.reference = grouping.groups[reference]
        columns |= _compared(mean, reference, members)
    if len(grouping.groups) > 1 and known.sum() > 2:
        result.p_any = permutation_test(value[known], group[known], seed=settings.seed)
    return result


def _compared(value: Numbers, reference: int, members: list[Numbers]) -> dict[str, Numbers]:
    against = float(value[reference])
    ratio = value / against if against > 0 else np.full(len(value), math.nan)
    half = np.array([welch_half(values, members[reference]) for values in members])
    half[reference] = math.nan
    return {
        "difference": value - against,
        "difference_low": value - against - half,
        "difference_high": value - against + half,
        "ratio": np.where(value >= 0, ratio, math.nan),
    }


def _weighted(data: Measure, grouping: Grouping) -> dict[str, float]:
    """Return the mean of each group, weighted by the examples behind each value."""
    cells = data.cells[[grouping.column, "value", "weight"]]
    weighted = {}
    for code, rows in cells.groupby(grouping.column):
        share = rows["weight"] / rows["weight"].max()
        weighted[grouping.groups[int(str(code))]] = float(
            (rows["value"] * share).sum() / share.sum()
        )
    return weighted
