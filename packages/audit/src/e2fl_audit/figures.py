"""The key figures of an audit: three or four, in plain words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from e2fl_audit.clients import ClientSpread
from e2fl_audit.ratetable import SUPPRESSED, UNDER_SHARE, RateTable
from e2fl_audit.wording import (
    interval,
    listed,
    noun,
    p_value,
    plain,
    points,
    ratio,
    shown,
    shown_apart,
    whole,
)

NOT_JUDGED = ("too few rows", "too few clients", "undefined")

Results = Sequence[list[RateTable]]  # for each grouping, the table of each rate


@dataclass(frozen=True)
class Figure:
    """A key figure: what it is, its value, and a sentence about it."""

    title: str
    value: str
    text: str


def comparable(tables: Sequence[RateTable]) -> list[RateTable]:
    """Return the tables in which at least two groups are judged."""
    return [table for table in tables if table.extremes is not None]


def worst_first(results: Results) -> list[list[RateTable]]:
    """Return the groupings that can be compared, the one with the largest certain gap first.

    Where no gap is certain, the finest grouping is first.
    """

    def certain_gap(tables: Sequence[RateTable]) -> float:
        return max((table.gap for table in tables if table.significant), default=-math.inf)

    ranked = [tables for tables in reversed(results) if comparable(tables)]
    return sorted(ranked, key=lambda tables: -certain_gap(comparable(tables)))


def group_phrase(row: Any, table: RateTable) -> str:
    """Return a group's name for a sentence; a bare number would read as a count."""
    is_number = row.group.replace(".", "").isdecimal()
    return f"{table.grouping} {row.group}" if is_number else row.group


def all_groups(table: RateTable) -> str:
    """Return the phrase for all judged groups together."""
    count = len(table.judged)
    return "both groups compared" if count == 2 else f"all {count} groups compared"


def group_figures(results: Results) -> list[Figure]:
    """Return the lowest group, the largest gap and the four-fifths rule, over all groupings."""
    groupings = worst_first(results)
    if not groupings:
        return []
    several = len(groupings) > 1
    tables = [table for grouping in groupings for table in comparable(grouping)]
    widest = max(tables, key=lambda table: (_extremes_differ(table), table.gap))
    if widest.apart:
        gap = _gap_figure(widest, several)
    else:
        gap = Figure("Largest gap", points(widest.gap, widest.unit), "No measured rate differs.")
    selections = [table for table in tables if table.rate.key == "selection_rate"]
    figures = [_lowest_figure(comparable(groupings[0]), several), gap]
    return figures + ([_fifths_figure(selections, tables)] if selections else [])


def _lowest_figure(tables: Sequence[RateTable], several: bool) -> Figure:
    wanted = (table for table in tables if table.rate.key in ("accuracy", "measure"))
    head = next(wanted, tables[0])
    assert head.extremes is not None
    low = head.extremes[0]
    if not head.apart:
        text = f"The same number in {all_groups(head)}."
        return Figure(head.rate.title, shown(low.value, head.unit), text)
    side = "Highest" if head.rate.better < 0 else "Lowest"
    sure = "is more than chance explains" if low.p_holm < 0.05 else "may be chance"
    text = (
        f"95 % interval {interval(low.low, low.high, head.unit)}; all: "
        f"{shown(head.overall, head.unit)}; the difference from the rest {sure}."
    )
    title = f"{side} {head.rate.title.lower()}" + (f" by {head.grouping}" if several else "")
    return Figure(title, f"{low.group}: {shown(low.value, head.unit)}", text)


def _gap_figure(table: RateTable, several: bool) -> Figure:
    assert table.extremes is not None
    low, best = table.extremes
    sure = _extremes_differ(table)
    one, other = shown_apart(low.value, best.value, table.unit)
    by = f" by {table.grouping}" if several else ""
    return Figure(
        "Largest gap" if sure else "Largest gap, not certain",
        points(table.gap, table.unit),
        f"{table.rate.title}{by}: {one} in {group_phrase(low, table)}, {other} in "
        f"{group_phrase(best, table)}. "
        + ("More than chance explains." if sure else "This may be chance."),
    )


def _extremes_differ(table: RateTable) -> bool:
    """Return whether the lowest or the highest group differs from the rest."""
    return table.apart and any(row.p_holm < 0.05 for row in table.extremes or ())


def _fifths_figure(selections: Sequence[RateTable], tables: Sequence[RateTable]) -> Figure:
    judged = [
        (row, table) for table in selections for row in table.judged if row.ratio == row.ratio
    ]
    below = sum(row.below_four_fifths for row, _ in judged)
    text = "No ratio can be computed."
    if judged:
        row, table = min(judged, key=lambda pair: pair[0].ratio)
        unsure = "" if table.significant else "; it may be chance"
        pair = f"{row.group} against {table.reference}"
        text = f"Lowest ratio of selection rates: {ratio(row.ratio)}, {pair}{unsure}."
    others = [table for table in tables if table.rate.key == "true_positive_rate"]
    if others:
        count = sum(row.below_four_fifths for table in others for row in table.rows)
        text += f" Of true positive rates: {noun(count, 'group')} below."
    return Figure("Below four fifths", f"{below} of {noun(len(judged), 'group')}", text)


def few_figure(results: Results) -> list[Figure]:
    """Return which groups are too small to be judged, or to be judged in some of the rates."""
    first = [tables[0] for tables in results if tables]
    if not first:
        return []
    rows = [row for table in first for row in table.rows]
    few = [
        row.group for row in rows if row.status in ("too few rows", "too few clients", UNDER_SHARE)
    ]
    hidden = sum(row.status == SUPPRESSED for row in rows)
    parts = few_for_a_rate(results)
    unknown = [row for row in rows if row.status == "unknown"]
    sentences = [f"{listed(few, 5)}." if few else ""]
    if parts:
        sentences.append(f"Too few for some of the rates: {listed(list(parts), 5)}.")
    if not (few or parts or hidden):
        sentences.append("Every group is large enough.")
    if hidden:
        sentences.append(f"{noun(hidden, 'group')} suppressed.")
    if unknown:
        sentences.append(f"Unknown group: {whole(max(row.n for row in unknown))}.")
    return [Figure("Too few to judge", noun(len(few), "group"), " ".join(filter(None, sentences)))]


def few_for_a_rate(results: Results) -> dict[str, list[str]]:
    """Return the groups that are large enough, but have too few rows for these rates."""
    found: dict[str, list[str]] = {}
    for tables in results:
        for table in tables[1:]:
            for row, whole_row in zip(table.rows, tables[0].rows, strict=True):
                if whole_row.judged and row.status in NOT_JUDGED:
                    word = "undefined " if row.status == "undefined" else ""
                    rates = found.setdefault(row.group, [])
                    rates.append(word + table.rate.title.lower())
    return found


def client_figure(spread: ClientSpread) -> Figure:
    """Return the spread over clients."""
    std = spread.measures["std"]
    text = f"Standard deviation over {noun(len(spread.names), 'client')}."
    if spread.chance is not None:
        chance = 100 * spread.chance["std"]
        text += f" Chance alone gives {chance:.1f} ({p_value(spread.chance['p'])})."
    value = f"{100 * std:.1f} percentage points" if spread.is_rate else plain(std)
    return Figure("Spread over clients", value, text)
