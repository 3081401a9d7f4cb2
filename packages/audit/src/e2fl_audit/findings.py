"""The findings of an audit as sentences, true for every table.

The rules: a difference is said to be real only if a test, corrected for all comparisons on the
page, finds it; equality is never claimed beyond what the intervals allow; groups that are too small
are named and not judged; "lowest" always names the measure it is about; every grouping is spoken
of, the one with the largest certain difference first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from e2fl_audit.clients import ClientSpread
from e2fl_audit.figures import (
    Figure,
    Results,
    all_groups,
    client_figure,
    comparable,
    few_figure,
    few_for_a_rate,
    group_figures,
    group_phrase,
    worst_first,
)
from e2fl_audit.ratetable import FOUR_FIFTHS, SUPPRESSED, UNDER_SHARE, RateTable
from e2fl_audit.table import Measure, Table
from e2fl_audit.wording import (
    interval,
    listed,
    noun,
    p_value,
    percent,
    points,
    ratio,
    shown,
    shown_apart,
    whole,
)

SAME = 0.01  # accuracies closer than this are called about the same
SURELY_SAME = 0.05  # unless their intervals allow a difference of this size
FEW_CLIENTS = 10  # with fewer, "eight in ten" is meaningless
ORDER = ("true_positive_rate", "selection_rate", "accuracy", "measure", "false_positive_rate")


@dataclass(frozen=True)
class Findings:
    """The key figures and sentences about a table."""

    figures: list[Figure]
    sentences: list[str]


def find(
    table: Table, results: Results, everything: Sequence[RateTable], spread: ClientSpread | None
) -> Findings:
    """Return the key figures and the sentences of a table."""
    groupings = worst_first(results)
    tables = [rate_table for grouping in results for rate_table in grouping]
    sentences = []
    if groupings:
        sentences += _of_groupings(table, groupings)
    elif tables:
        sentences.append(_not_compared(results))
    else:
        sentences.append("The table names no groups, so only clients and overall rates are shown.")
    sentences += _too_few(results)
    sentences += table.cautions
    sentences.append(_overall(everything))
    if spread is not None:
        differ = table.is_measure and any(rate_table.significant for rate_table in tables)
        sentences.append(_of_clients(spread, differ))
    figures = group_figures(results) + few_figure(results)
    if spread is not None and len(figures) < 4:
        figures.append(client_figure(spread))
    return Findings(figures, [sentence for sentence in sentences if sentence])


def _of_groupings(table: Table, groupings: Results) -> list[str]:
    main, *others = groupings
    every = [rate_table for grouping in groupings for rate_table in comparable(grouping)]
    if any(rate_table.significant for rate_table in every):
        sentences = _certain(table, main, every)
    else:
        sentences = _uncertain(table, main, every)
    sentences += [_turned(rate_table) for rate_table in every]
    crossed = " and " in main[0].grouping
    if any(rate_table.significant for rate_table in every):
        sentences += [_other_grouping(grouping, crossed) for grouping in others]
    fifths = [rate_table for grouping in groupings for rate_table in grouping]
    return sentences + [
        _four_fifths(rate_table, len(groupings) > 1)
        for rate_table in fifths
        if rate_table.rate.four_fifths and any(row.below_four_fifths for row in rate_table.rows)
    ]


def _certain(table: Table, main: list[RateTable], every: list[RateTable]) -> list[str]:
    """Return the sentences about a grouping with a difference that chance does not explain."""
    tables = sorted(comparable(main), key=_priority)
    real = [rate_table for rate_table in tables if rate_table.significant]
    accuracy = next((one for one in tables if one.rate.key == "accuracy"), None)
    sentences = []
    same = accuracy is not None and not accuracy.significant and _about_same(accuracy)
    if accuracy is not None and same and not table.is_measure:
        groups = "Both groups have" if len(accuracy.judged) == 2 else "The groups have"
        parts = [
            f"{percent(row.value)} in {group_phrase(row, accuracy)}" for row in accuracy.judged
        ]
        alike = f"{groups} about the same accuracy ({listed(parts, 4)})."
        sentences.append(f"{alike} {_differ_in(real)}")
    sentences += [finding(rate_table, table) for rate_table in real[:4]]
    if len(real) > 4:
        names = listed([rate_table.rate.title.lower() for rate_table in real[4:]])
        sentences.append(f"Chance does not explain these either: {names}.")
    found = {one.rate.key for one in every if one.significant} | ({"accuracy"} if same else set())
    chance = [one.rate.title.lower() for one in tables if one.rate.key not in found]
    if chance:
        sentences.append(f"No difference beyond chance was found in {listed(chance)}.")
    return sentences


def _uncertain(table: Table, main: list[RateTable], every: list[RateTable]) -> list[str]:
    """Return the sentences about groupings without a certain difference."""
    tables = sorted(comparable(main), key=_priority)
    apart = [rate_table for rate_table in tables if rate_table.apart]
    sentences = [finding(rate_table, table) for rate_table in apart[:1]]
    if not apart:
        what = "Every measured rate" if len(tables) > 1 else tables[0].rate.title
        sentences.append(f"{what} is the same number in {all_groups(tables[0])}.")
    known = [row for one in every for row in one.judged if not math.isnan(row.difference_low)]
    ends = [max(abs(row.difference_low), abs(row.difference_high)) for row in known]
    limit = (
        f" Differences of up to {points(max(ends), main[0].unit)} cannot be ruled out."
        if ends
        else ""
    )
    names = list(dict.fromkeys(one.grouping for one in every))
    by = f", by {listed(names)}" if len(names) > 1 else ""
    what = "any measured rate" if len(tables) > 1 else tables[0].rate.title.lower()
    nothing = f"No group differs from the others in {what} by more than chance explains{by}."
    return [*sentences, nothing + limit]


def _not_compared(results: Results) -> str:
    known = max(
        sum(row.status != "unknown" for row in tables[0].rows) for tables in results if tables
    )
    if known < 2:
        return "Every known row is in one group, so there is nothing to compare."
    if any(row.status == "too few clients" for tables in results for row in tables[0].rows):
        return "No two groups have enough clients to be compared: too few clients to judge."
    return "No two groups are large enough to be compared: too few to judge."


def _overall(tables: Sequence[RateTable]) -> str:
    parts = []
    for table in tables:
        row = table.rows[0]
        if not table.rate.label and not math.isnan(row.value):
            title = table.rate.title if table.rate.key == "measure" else table.rate.title.lower()
            reach = interval(row.low, row.high, table.unit)
            parts.append(f"{title} {shown(row.value, table.unit)} ({reach})")
    return f"Overall: {', '.join(parts)}." if parts else ""


def _about_same(accuracy: RateTable) -> bool:
    """Return whether accuracies are close, and known well enough to say so."""
    reach = [max(abs(row.difference_low), abs(row.difference_high)) for row in accuracy.judged]
    return accuracy.gap < SAME and all(math.isnan(end) or end < SURELY_SAME for end in reach)


def _differ_in(real: Sequence[RateTable]) -> str:
    """Return what groups differ in; "missed" only where labels are found more or less often."""
    if any(table.rate.key == "true_positive_rate" or table.rate.label for table in real):
        return "They differ in who is missed: see error rates."
    return f"They differ in {listed([table.rate.title.lower() for table in real])}."


def _priority(table: RateTable) -> int:
    """Return the rank of a rate: who is found and selected comes before how often it is right."""
    return ORDER.index(table.rate.key) if table.rate.key in ORDER else len(ORDER)


def finding(table: RateTable, source: Table) -> str:
    """Return what a rate is in the extreme groups, and whether that is more than chance."""
    if table.apart:
        return f"{describe(table, source)} {certainty(table)}"
    value, lowest = (
        shown(table.judged[0].value, table.unit),
        min(row.p_holm for row in table.judged),
    )
    return (
        f"{table.rate.title} is the same number in {all_groups(table)}, {value}, but not in the "
        f"groups that are too small to judge, taken together ({p_value(lowest)})."
    )


def describe(table: RateTable, source: Table) -> str:
    """Return what a rate is in the least and the most favourable group."""
    assert table.extremes is not None
    low, best = table.extremes
    gap = points(table.gap, table.unit)
    one, other = shown_apart(low.value, best.value, table.unit)
    here, there = group_phrase(low, table), group_phrase(best, table)
    label = table.rate.label or _positive(source)
    if source.is_measure:
        what = "accuracy" if table.rate.key == "accuracy" else table.rate.title
        side = "lower" if table.rate.better > 0 else "higher"
        mean = f"The clients of {here} have a mean {what} of {one}"
        return f"{mean}, those of {there} {other}: {gap} {side}."
    match table.rate.key:
        case "false_positive_rate":
            wrong = f"the model wrongly predicts {label} for {one} in {here} and {other} in {there}"
            return f"Of the rows not labelled {label}, {wrong}: {gap} more."
        case "predictive_value":
            right = f"it is right in {one} of cases in {here} and {other} in {there}"
            return f"When the model predicts {label}, {right}: {gap} less."
        case "selection_rate":
            quotient = f", a ratio of {ratio(low.value / best.value)}" if best.value else ""
            return f"The model selects {one} of {here} and {other} of {there}{quotient}."
        case "accuracy":
            return f"The model is right for {one} of {here} and {other} of {there}: {gap} less."
        case _:  # the true positive rate, or the recall of a class
            found = f"the model finds {one} in {here} and {other} in {there}"
            return f"Of the rows labelled {label}, {found}: {gap} fewer."


def certainty(table: RateTable) -> str:
    """Return whether the spread of the groups is more than chance."""
    tested = [row for row in table.rows if not math.isnan(row.p_holm)]
    if not tested or table.extremes is None:
        return "It cannot be tested whether this is chance."
    lowest, low = min(row.p_holm for row in tested), table.extremes[0]
    if lowest < 0.05:
        name = group_phrase(low, table)
        if low.p_holm < 0.05:
            value = p_value(low.p_holm)
            return f"This is more than chance explains ({value} for {name} against the rest)."
        apart = [group_phrase(row, table) for row in tested if row.p_holm < 0.05]
        verb = "differs" if len(apart) == 1 else "differ"
        return (
            f"{listed(apart)} {verb} from the rest by more than chance explains "
            f"({p_value(lowest)}); for {name} the difference may be chance."
        )
    if math.isnan(table.p_any):
        return f"This may be chance ({p_value(lowest)}, corrected for the number of tests)."
    value = p_value(table.p_any)
    if table.p_any < 0.05:
        return f"The groups differ overall ({value}), but no single group stands out from the rest."
    return f"Chance alone could explain this ({value}, permutation test over clients)."


def _turned(table: RateTable) -> str:
    """Return that a difference turns inside clients (Simpson's paradox), if it does."""
    if table.turned is None or table.extremes is None:
        return ""
    (turned, clients), (low, best) = table.turned, table.extremes
    where = "every client" if turned == clients else f"{turned:,} of {clients:,} clients"
    return (
        f"{table.rate.title} by {table.grouping}: the difference between {group_phrase(low, table)} "
        f"and {group_phrase(best, table)} points the other way inside {where} with both groups "
        "(Simpson's paradox). It comes from which clients the groups belong to."
    )


def _other_grouping(tables: Sequence[RateTable], alone: bool) -> str:
    """Return one sentence about another grouping: its largest real gap, or that there is none."""
    name = f"{tables[0].grouping}{' alone' if alone else ''}"
    real = [table for table in comparable(tables) if table.significant and table.apart]
    if not real:
        return f"By {name}, no difference is larger than chance explains."
    widest = max(real, key=lambda table: table.gap)
    assert widest.extremes is not None
    low, best = widest.extremes
    one, other = shown_apart(low.value, best.value, widest.unit)
    rate = widest.rate.title.lower()
    return (
        f"By {name}, the largest difference is in {rate}: {one} in {low.group}, {other} in "
        f"{best.group}."
    )


def _four_fifths(table: RateTable, several: bool) -> str:
    below = sorted((row for row in table.rows if row.below_four_fifths), key=lambda row: row.ratio)
    named = listed([f"{row.group} ({ratio(row.ratio)})" for row in below])
    verb = "is" if len(below) == 1 else "are"
    unsure = [row.group for row in below if not row.ratio_high < FOUR_FIFTHS]
    limit = f" For {listed(unsure)} the interval reaches 0.8 or more." if unsure else ""
    if not table.significant:
        limit = " This may be chance: no group differs from the rest by more than chance explains."
    rate, by = table.rate.title.lower(), f" by {table.grouping}" if several else ""
    return (
        f"{named} {verb} below four fifths of the {rate} of {table.reference}, the reference{by}."
        f"{limit}"
    )


def _too_few(results: Results) -> list[str]:
    sentences = []
    for tables in filter(None, results):
        first = tables[0]
        for status in ("too few rows", "too few clients"):
            few = [row.group for row in first.rows if row.status == status]
            if few:
                words = f"{status.capitalize()} to judge, by {first.grouping}"
                sentences.append(f"{words}: {listed(few)}.")
        small = [row.group for row in first.rows if row.status == UNDER_SHARE]
        if small:
            words = f"Under 2 % of the rows and not judged, by {first.grouping}"
            sentences.append(f"{words}: {listed(small)}.")
        parts = few_for_a_rate([tables])
        if parts and not any(table.rate.label for table in tables):
            named = listed([f"{group} ({', '.join(rates)})" for group, rates in parts.items()])
            words = f"Some rates have too few rows to be judged, by {first.grouping}"
            sentences.append(f"{words}: {named}.")
        unknown = [row for row in first.rows if row.status == "unknown"]
        if unknown:
            count = f"{whole(unknown[0].n)} of {whole(first.n)} rows"
            sentences.append(f"{count} have no known {first.grouping} and are shown as unknown.")
        hidden = sum(row.status == SUPPRESSED for row in first.rows)
        if hidden:
            words = f"{noun(hidden, 'group')} by {first.grouping} suppressed"
            sentences.append(f"{words} because of small numbers.")
    return sentences


def _of_clients(spread: ClientSpread, groups_differ: bool) -> str:
    unit = "%" if spread.is_rate else ""
    count, chance = noun(len(spread.names), "client"), spread.chance
    title = spread.title.lower() if spread.is_rate else spread.title
    least, most = float(spread.value.min()), float(spread.value.max())
    if most - least <= 1e-12 * abs(most):
        return f"All {count} have the same {title}, {shown(most, unit)}."
    if len(spread.names) < FEW_CLIENTS:
        text = f"The {title} of {count} is between {shown(least, unit)} and {shown(most, unit)}."
        if chance is None:
            return text
        sure = (
            "This is more than chance explains"
            if chance["p"] < 0.05
            else "Chance alone could explain this"
        )
        return f"{text} {sure} ({p_value(chance['p'])})."
    p10, p90 = shown(spread.measures["p10"], unit), shown(spread.measures["p90"], unit)
    text = f"Of {count}, eight in ten have {title} between {p10} and {p90}."
    if chance is None:
        return text
    reach = f"{percent(chance['p10'])} to {percent(chance['p90'])}"
    text += f" If all clients had the same true accuracy, chance would give {reach}: "
    if chance["p"] < 0.05:
        text += "clients do differ."
    elif groups_differ:
        text += "this alone does not show that clients differ, but their groups do."
    else:
        text += "chance alone could explain this."
    if spread.below:
        verb = "is" if len(spread.below) == 1 else "are"
        below = f"{noun(len(spread.below), 'client')} {verb} below the overall accuracy"
        text += f" {below} by more than chance explains."
    return text


def _positive(source: Table) -> str:
    data = source.data
    if isinstance(data, Measure) or data.positive is None:
        return "positive"
    return data.labels[data.positive]
