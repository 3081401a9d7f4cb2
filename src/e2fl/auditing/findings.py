"""The findings of an audit as sentences, true for every table.

The rules: a difference is said to be real only if a test, corrected for all comparisons on the page, finds it; equality
is never claimed beyond what the intervals allow; groups that are too small are named and not judged; "lowest" always
names the measure it is about.
"""

import math
from dataclasses import dataclass

from e2fl.auditing.clients import ClientSpread
from e2fl.auditing.comparison import Comparison
from e2fl.auditing.figures import (
    Figure,
    all_groups,
    client_figure,
    few_figure,
    group_figures,
    group_phrase,
    main_grouping,
)
from e2fl.auditing.judging import FOUR_FIFTHS, MIN_CLIENTS, UNDER_SHARE, RateTable
from e2fl.auditing.table import Measure, Table
from e2fl.auditing.wording import interval, listed, noun, p_value, percent, points, ratio, shown, whole

SAME = 0.01  # accuracies closer than this are called about the same
FEW_CLIENTS = 10  # with fewer, "eight in ten" is meaningless
SURELY_SAME = 0.05  # unless their intervals allow a difference of this size


@dataclass(frozen=True)
class Findings:
    """The key figures and sentences about a table."""

    figures: list[Figure]
    sentences: list[str]


def find(
    table: Table, results: list[list[RateTable]], whole_table: list[RateTable], spread: ClientSpread | None, ll144: bool
) -> Findings:
    """Return the key figures and the sentences of a table."""
    main = main_grouping(results)
    tables = [each for grouping in results for each in grouping]
    sentences = []
    if main is not None:
        sentences += _main_sentences(table, main, ll144)
        sentences += [_other_grouping(grouping) for grouping in results if grouping is not main]
    elif tables:
        sentences.append(_not_compared(results))
    else:
        sentences.append("The table names no groups, so only clients and overall rates are shown.")
    sentences += _too_few(results)
    sentences.append(_overall(whole_table))
    if spread is not None:
        groups_of_clients = isinstance(table.data, Measure)  # otherwise groups are made of rows
        sentences += _clients(spread, groups_of_clients and any(each.significant for each in tables))
    figures = [] if main is None else group_figures(main)
    figures += few_figure(results)
    if spread is not None and len(figures) < 4:
        figures.append(client_figure(spread))
    return Findings(figures, [sentence for sentence in sentences if sentence])


def _not_compared(results: list[list[RateTable]]) -> str:
    known = max(sum(row.status != "unknown" for row in tables[0].rows) for tables in results if tables)
    if known < 2:
        return "Every known row is in one group, so there is nothing to compare."
    return "No two groups are large enough to be compared: too few to judge."


def _overall(tables: list[RateTable]) -> str:
    parts = []
    for table in (each for each in tables if not each.rate.label):
        row = table.rows[0]
        if not math.isnan(row.value):
            title = table.rate.title if table.rate.key == "measure" else table.rate.title.lower()
            parts.append(f"{title} {shown(row.value, table.unit)} ({interval(row.low, row.high, table.unit)})")
    return f"Overall: {', '.join(parts)}." if parts else ""


def _main_sentences(table: Table, tables: list[RateTable], ll144: bool) -> list[str]:
    comparable = [each for each in tables if each.lowest() is not None]
    real = sorted((each for each in comparable if each.significant), key=_priority)
    chance = sorted((each for each in comparable if not each.significant), key=_priority)
    sentences = []
    accuracy = next((each for each in chance if each.rate.key == "accuracy"), None)
    if accuracy is not None and real and _about_same(accuracy) and not isinstance(table.data, Measure):
        groups = "Both groups have" if len(accuracy.judged) == 2 else "The groups have"
        values = listed([f"{percent(row.value)} in {group_phrase(row, accuracy)}" for row in accuracy.judged], 4)
        sentences.append(f"{groups} about the same accuracy ({values}). {_differ_in(real)}")
        chance.remove(accuracy)
    sentences += [f"{describe(each, table)} {certainty(each)}" for each in real[:4]]
    if len(real) > 4:
        sentences.append(
            f"Chance does not explain these either: {listed([each.rate.title.lower() for each in real[4:]])}."
        )
    if not real:
        apart = [each for each in chance if each.apart]
        sentences += [f"{describe(each, table)} {certainty(each)}" for each in apart[:1]]
        if comparable and not apart:
            what = "Every measured rate" if len(comparable) > 1 else comparable[0].rate.title
            sentences.append(f"{what} is the same number in {all_groups(comparable[0])}.")
        sentences.append(_nothing_found(comparable))
    elif chance and not ll144:
        names = listed([each.rate.title.lower() for each in chance])
        sentences.append(f"No difference beyond chance was found in {names}.")
    fifths = [each for each in tables if each.rate.four_fifths]
    sentences += [_four_fifths(each) for each in fifths if any(row.below_four_fifths for row in each.rows)]
    return sentences


def _about_same(accuracy: RateTable) -> bool:
    """Return whether accuracies are close, and known well enough to say so."""
    reach = [max(abs(row.difference_low), abs(row.difference_high)) for row in accuracy.judged]
    return accuracy.gap < SAME and all(math.isnan(each) or each < SURELY_SAME for each in reach)


def _differ_in(real: list[RateTable]) -> str:
    """Return what the groups differ in; "missed" only where those with a label are found more or less often."""
    if any(each.rate.key == "true_positive_rate" or each.rate.label for each in real):
        return "They differ in who is missed: see error rates."
    return f"They differ in {listed([each.rate.title.lower() for each in real])}."


def _priority(table: RateTable) -> int:
    """Return the place of a rate among sentences: who is found and selected comes before how often it is right."""
    order = ("true_positive_rate", "selection_rate", "accuracy", "measure", "false_positive_rate", "predictive_value")
    return order.index(table.rate.key) if table.rate.key in order else len(order)


def _nothing_found(tables: list[RateTable]) -> str:
    if not tables:
        return ""
    known = [row for table in tables for row in table.judged if not math.isnan(row.difference_low)]
    reach = max((max(abs(row.difference_low), abs(row.difference_high)) for row in known), default=0.0)
    limit = f" Differences of up to {points(reach, tables[0].unit)} cannot be ruled out." if reach else ""
    what = "any measured rate" if len(tables) > 1 else tables[0].rate.title.lower()
    return f"No group differs from the others in {what} by more than chance explains.{limit}"


def describe(table: RateTable, source: Table) -> str:
    """Return what a rate is in the least and the most favourable group."""
    assert table.extremes is not None
    low, best = table.extremes
    unit, gap = table.unit, points(table.gap, table.unit)
    one, other = shown(low.value, unit), shown(best.value, unit)
    positive = _positive(source)
    here, there = group_phrase(low, table), group_phrase(best, table)
    match table.rate.key:
        case "true_positive_rate":
            return (
                f"Of the rows labelled {positive}, the model finds {one} in {here} and {other} in {there}: {gap} fewer."
            )
        case "false_positive_rate":
            return (
                f"Of the rows not labelled {positive}, the model wrongly predicts {positive} for {one} in {here} "
                f"and {other} in {there}: {gap} more."
            )
        case "predictive_value":
            return (
                f"When the model predicts {positive}, it is right in {one} of cases in {here} and {other} in "
                f"{there}: {gap} less."
            )
        case "selection_rate":
            quotient = f", a ratio of {ratio(low.value / best.value)}" if best.value else ""
            return f"The model selects {one} of {here} and {other} of {there}{quotient}."
        case "accuracy" if not isinstance(source.data, Measure):
            return f"The model is right for {one} of {here} and {other} of {there}: {gap} less."
        case "accuracy" | "measure":
            what = "accuracy" if table.rate.key == "accuracy" else table.rate.title
            side = "lower" if table.rate.better > 0 else "higher"
            return f"The clients of {here} have a mean {what} of {one}, those of {there} {other}: {gap} {side}."
        case _:
            return (
                f"Of the rows labelled {table.rate.label}, the model finds {one} in {here} and {other} in "
                f"{there}: {gap} fewer."
            )


def certainty(table: RateTable) -> str:
    """Return whether the spread of the groups is more than chance."""
    tested = [row for row in table.rows if not math.isnan(row.p_holm)]
    if not tested:
        return "It cannot be tested whether this is chance."
    lowest = min(row.p_holm for row in tested)
    if lowest < 0.05:
        low = table.lowest()
        name = "the lowest" if low is None else group_phrase(low, table)
        if low is not None and low.p_holm < 0.05:
            return f"This is more than chance explains ({p_value(low.p_holm)} for {name} against the rest)."
        apart = [group_phrase(row, table) for row in tested if row.p_holm < 0.05]
        verb = "differs" if len(apart) == 1 else "differ"
        return (
            f"{listed(apart)} {verb} from the rest by more than chance explains ({p_value(lowest)}); for {name} the "
            "difference may be chance."
        )
    if not math.isnan(table.p_any):
        if table.p_any < 0.05:
            return f"The groups differ overall ({p_value(table.p_any)}), but no single group stands out from the rest."
        return f"Chance alone could explain this ({p_value(table.p_any)}, permutation test over clients)."
    return f"This may be chance ({p_value(lowest)}, corrected for the number of tests)."


def _other_grouping(tables: list[RateTable]) -> str:
    """Return one sentence about another grouping: its largest real gap, or that there is none."""
    comparable = [each for each in tables if each.lowest() is not None]
    if not comparable:
        return ""
    name = comparable[0].grouping
    real = sorted((each for each in comparable if each.significant), key=lambda each: -each.gap)
    if not real:
        return f"By {name} alone, no difference is larger than chance explains."
    assert real[0].extremes is not None
    low, best = real[0].extremes
    return (
        f"By {name} alone, the largest difference is in {real[0].rate.title.lower()}: {shown(low.value, real[0].unit)} "
        f"in {low.group}, {shown(best.value, real[0].unit)} in {best.group}."
    )


def _four_fifths(table: RateTable) -> str:
    below = sorted((row for row in table.rows if row.below_four_fifths), key=lambda row: row.ratio)
    named = listed([f"{row.group} ({ratio(row.ratio)})" for row in below])
    verb = "is" if len(below) == 1 else "are"
    unsure = [row for row in below if not row.ratio_high < FOUR_FIFTHS]
    limit = "" if not unsure else f" For {listed([row.group for row in unsure])} the interval reaches 0.8 or more."
    if not table.significant:
        limit = " This may be chance: no group differs from the rest by more than chance explains."
    rate = table.rate.title.lower()
    return f"{named} {verb} below four fifths of the {rate} of {table.reference}, the reference.{limit}"


def _too_few(results: list[list[RateTable]]) -> list[str]:
    sentences = []
    for tables in results:
        if not tables:
            continue
        first = tables[0]
        few = [row for row in first.rows if row.status.startswith("too few")]
        if few:
            what = "clients" if few[0].status == "too few clients" else "rows"
            sentences.append(f"Too few {what} to judge, by {first.grouping}: {listed([row.group for row in few])}.")
        small = [row.group for row in first.rows if row.status == UNDER_SHARE]
        if small:
            sentences.append(f"Under 2 % of the rows and not judged, by {first.grouping}: {listed(small)}.")
        sentences += _few_for_a_rate(tables)
        unknown = next((row for row in first.rows if row.status == "unknown"), None)
        if unknown is not None:
            sentences.append(
                f"{whole(unknown.n)} of {whole(first.overall.n)} rows have no known {first.grouping} "
                "and are shown as unknown."
            )
        hidden = [row for row in first.rows if row.status == "suppressed"]
        if hidden:
            sentences.append(f"{noun(len(hidden), 'group')} by {first.grouping} suppressed because of small numbers.")
    return sentences


def _few_for_a_rate(tables: list[RateTable]) -> list[str]:
    """Name the groups that are large enough, but have too few rows for some of the rates."""
    found: dict[str, list[str]] = {}
    for table in tables[1:]:
        for row, base in zip(table.rows, tables[0].rows, strict=True):
            if base.judged and row.status in ("too few rows", "too few clients", "undefined"):
                word = "undefined " if row.status == "undefined" else ""
                found.setdefault(row.group, []).append(word + table.rate.title.lower())
    if not found or any(table.rate.label for table in tables):
        return []
    parts = [f"{group} ({', '.join(rates)})" for group, rates in found.items()]
    return [f"Some rates have too few rows to be judged, by {tables[0].grouping}: {listed(parts)}."]


def _clients(spread: ClientSpread, groups_differ: bool) -> list[str]:
    unit = "%" if spread.is_rate else ""
    p10, p90 = shown(spread.measures["p10"], unit), shown(spread.measures["p90"], unit)
    count, title = noun(len(spread.names), "client"), spread.title.lower() if spread.is_rate else spread.title
    least, most = float(spread.value.min()), float(spread.value.max())
    if most - least <= 1e-12 * abs(most):
        return [f"All {count} have the same {title}, {shown(most, unit)}."]
    if len(spread.names) < FEW_CLIENTS:
        text = f"The {title} of {count} is between {shown(least, unit)} and {shown(most, unit)}."
        if spread.chance is not None:
            real = spread.chance["p"] < 0.05
            sure = "This is more than chance explains" if real else "Chance alone could explain this"
            text += f" {sure} ({p_value(spread.chance['p'])})."
        return [text]
    text = f"Of {count}, eight in ten have {title} between {p10} and {p90}."
    if spread.chance is None:
        return [text]
    low, high = percent(spread.chance["p10"]), percent(spread.chance["p90"])
    text += f" If all clients had the same true accuracy, chance would give {low} to {high}: "
    if spread.chance["p"] < 0.05:
        text += "clients do differ."
    elif groups_differ:
        text += "this alone does not show that clients differ, but their groups do."
    else:
        text += "chance alone could explain this."
    if spread.below:
        verb = "is" if len(spread.below) == 1 else "are"
        text += f" {noun(len(spread.below), 'client')} {verb} below the overall accuracy by more than chance explains."
    return [text]


def compared(comparison: Comparison) -> str:
    """Return the sentence about two tables."""
    factor, digits, what = (100, ".2f", " percentage points") if comparison.is_rate else (1, ".4g", "")
    amount, low, high = (factor * value for value in (comparison.difference, comparison.low, comparison.high))
    if comparison.paired and not comparison.better and not comparison.worse:
        same = f"{comparison.second} and {comparison.first}: {comparison.title} is the same number"
        return f"{same} for each of the {noun(comparison.clients, 'client')} in both."
    span = "no interval" if math.isnan(low) else f"95 % interval {low:{digits}} to {high:{digits}}"
    text = f"{comparison.second} minus {comparison.first}: mean {comparison.title} {amount:+{digits}}{what} ({span})"
    if comparison.paired:
        text += f", paired over {noun(comparison.clients, 'client')}"
        text += f"; higher for {comparison.better:,}, lower for {comparison.worse:,}"
    if min(comparison.sizes) < MIN_CLIENTS:
        text += ". Too few clients to judge."
    else:
        real = comparison.low > 0 or comparison.high < 0
        text += ". This is more than chance explains." if real else ". This may be chance."
    if comparison.paired and comparison.left_out:
        text += f" Left out, because they are in only one of the tables: {noun(comparison.left_out, 'client')}."
    return f"{text} {comparison.note}".strip()


def _positive(source: Table) -> str:
    data = source.data
    if isinstance(data, Measure) or data.positive is None:
        return "positive"
    return data.labels[data.positive]
