"""The key figures of an audit: three or four, in plain words."""

import math
from dataclasses import dataclass

from e2fl.auditing.clients import ClientSpread
from e2fl.auditing.judging import SUPPRESSED, UNDER_SHARE, GroupRate, RateTable
from e2fl.auditing.wording import interval, listed, noun, p_value, plain, points, ratio, shown, whole


@dataclass(frozen=True)
class Figure:
    """A key figure: what it is, its value, and a sentence about it."""

    title: str
    value: str
    text: str


def main_grouping(results: list[list[RateTable]]) -> list[RateTable] | None:
    """Return the finest grouping in which at least two groups are judged: the key figures are about it."""
    comparable = [tables for tables in results if any(len(table.judged) > 1 for table in tables)]
    return comparable[-1] if comparable else None


def group_phrase(row: GroupRate, table: RateTable) -> str:
    """Return a group's name for a sentence; a bare number would read as a count."""
    return f"{table.grouping} {row.group}" if row.group.replace(".", "").isdecimal() else row.group


def all_groups(table: RateTable) -> str:
    """Return the phrase for all judged groups together."""
    return "both groups compared" if len(table.judged) == 2 else f"all {len(table.judged)} groups compared"


def group_figures(tables: list[RateTable]) -> list[Figure]:
    """Return the lowest group, the largest gap and the four-fifths rule."""
    comparable = [each for each in tables if each.lowest() is not None]
    head = next((each for each in comparable if each.rate.key in ("accuracy", "measure")), comparable[0])
    low = head.lowest()
    assert low is not None
    side = "Highest" if head.rate.better < 0 else "Lowest"
    sure = "is more than chance explains" if low.p_holm < 0.05 else "may be chance"
    if head.apart:
        title, value = f"{side} {head.rate.title.lower()}", f"{low.group}: {shown(low.value, head.unit)}"
        text = (
            f"95 % interval {interval(low.low, low.high, head.unit)}; all: {shown(head.overall.value, head.unit)}; "
            f"the difference from the rest {sure}."
        )
    else:
        title, value = head.rate.title, shown(low.value, head.unit)
        text = f"The same number in {all_groups(head)}."
    figures = [Figure(title, value, text)]
    widest = max(comparable, key=lambda each: (_extremes_differ(each), each.gap))
    if not widest.apart:
        figures.append(Figure("Largest gap", points(widest.gap, widest.unit), "No measured rate differs."))
    else:
        figures.append(_gap_figure(widest))
    fifths = [each for each in comparable if each.rate.four_fifths]
    selection = next((each for each in fifths if each.rate.key == "selection_rate"), None)
    if selection is not None:
        figures.append(_fifths_figure(selection, fifths))
    return figures


def _gap_figure(table: RateTable) -> Figure:
    assert table.extremes is not None
    low, best = table.extremes
    sure = _extremes_differ(table)
    return Figure(
        "Largest gap" if sure else "Largest gap, not certain",
        points(table.gap, table.unit),
        f"{table.rate.title}: {shown(low.value, table.unit)} in {group_phrase(low, table)}, "
        f"{shown(best.value, table.unit)} in {group_phrase(best, table)}. "
        + ("More than chance explains." if sure else "This may be chance."),
    )


def _extremes_differ(table: RateTable) -> bool:
    """Return whether the lowest or the highest group differs from the rest: their gap is then more than chance."""
    return any(row.p_holm < 0.05 for row in table.extremes or ())


def _fifths_figure(selection: RateTable, fifths: list[RateTable]) -> Figure:
    judged = [row for row in selection.judged if not math.isnan(row.ratio)]
    below = [row for row in judged if row.below_four_fifths]
    lowest = min(judged, key=lambda row: row.ratio, default=None)
    text = "No ratio can be computed." if lowest is None else (
        f"Lowest ratio of selection rates: {ratio(lowest.ratio)}, {lowest.group} against {selection.reference}"
        f"{'' if selection.significant else '; it may be chance'}."
    )  # fmt: skip
    for other in fifths:
        if other is not selection:
            count = sum(row.below_four_fifths for row in other.rows)
            text += f" Of true positive rates: {noun(count, 'group')} below."
    return Figure("Below four fifths", f"{len(below)} of {noun(len(judged), 'group')}", text)


def few_figure(results: list[list[RateTable]]) -> list[Figure]:
    """Return which groups are too small to be judged."""
    if not results:
        return []
    main = main_grouping(results) or results[-1]
    first = main[0]
    few = [row.group for row in first.rows if row.status.startswith("too few") or row.status == UNDER_SHARE]
    hidden = sum(row.status == SUPPRESSED for row in first.rows)
    unknown = next((row for row in first.rows if row.status == "unknown"), None)
    text = f"{listed(few, 5)}." if few else "Every group is large enough." if not hidden else ""
    text += f" {noun(hidden, 'group')} suppressed." if hidden else ""
    if unknown is not None:
        text += f" Unknown group: {whole(unknown.n)}."
    return [Figure("Too few to judge", noun(len(few), "group"), text.strip())]


def client_figure(spread: ClientSpread) -> Figure:
    """Return the spread over clients."""
    unit = "%" if spread.is_rate else ""
    std = 100 * spread.measures["std"] if spread.is_rate else spread.measures["std"]
    text = f"Standard deviation over {noun(len(spread.names), 'client')}."
    if spread.chance is not None:
        text += f" Chance alone gives {100 * spread.chance['std']:.1f} ({p_value(spread.chance['p'])})."
    value = f"{std:.1f} percentage points" if unit == "%" else plain(std)
    return Figure("Spread over clients", value, text)
