"""How good is each method, for clients and for groups, and what did it cost?"""

from typing import Any

from e2fl.metrics import COLUMNS, MEASURES, Interval
from e2fl.report.sections.section import Section
from e2fl.report.study import Method, Study, difference
from e2fl.report.table import (
    Column,
    Table,
    all_by_chance,
    best_cells,
    column_of,
    interval_cells,
    known_measures,
    measure_columns,
    method_table,
    sent_column,
    words,
)
from e2fl.report.verdict import chosen


def outcome(study: Study) -> Section:
    """Return the tables of the paper, with differences and budgets."""
    pair = chosen(study)
    against = None if pair is None else difference_table(study, pair.subject)
    tables = (main_table(study), against, budget_table(study))
    shown = [table for table in tables if table is not None]
    return Section.of("outcome", shown, budget=budget_sentence(study))


def main_table(study: Study) -> Table:
    """Return a table of groups, clients and bytes; the best cell of each column is marked."""
    measures = known_measures(study, "page")
    which = "" if len(study.seeds) > 1 else ", for the means and the worst values"
    note = words("outcome", "note", intervals=study.interval_label, which=which)
    if any(method.chance for method in study.methods):
        note += words("outcome", "chance")
    if any(all_by_chance(study.methods, measure.key) for measure in measures):
        note += words("outcome", "unmarked")
    columns = measure_columns(study, measures)
    marked = best_cells(study.methods, measures)
    return method_table(
        "main", words("outcome", "table"), study.methods, columns, note, bold=marked
    )


def difference_table(study: Study, subject: Method) -> Table:
    """Return the subject of the verdict minus each of the other methods."""
    heads = {
        "clients/mean": "mean of clients",
        study.worst: study.worst_label,
        "clients/std": "std. dev. of clients",
    } | ({"group/std": "std. dev. of groups"} if study.group_names else {})
    several = len(study.seeds) > 1
    columns = [Column("against", f"{subject.label} minus")]
    for key, head in heads.items():
        title, head = ("difference", head) if several else (head, "difference")
        definition = key.partition("/")[2]
        columns.append(Column(key, title, head=head, definition=definition, signed=True))
        if several:
            columns.append(Column(f"{key}_judged", "judged", head=head, definition="interval"))
    rows = []
    for other in (method for method in study.methods if method is not subject):
        row: dict[str, Any] = {"against": other.label}
        for key in heads:
            interval = difference(subject, other, key)
            row |= interval_cells(key, interval) | {f"{key}_judged": _judged(interval)}
        rows.append(row)
    title = words("outcome", "differences", subject=subject.label)
    note = words("outcome", "differences_note", intervals=study.interval_label)
    note += "" if several else words("outcome", "one_run")
    return Table.of("differences", title, columns, rows, note)


def _judged(interval: Interval | None) -> str:
    if interval is None:
        return "not known"
    if interval.may_be_chance is None or interval.over == "clients":
        return "one shared seed" if interval.count else "no shared seed"
    if interval.value == 0 and interval.low == interval.high:
        return "equal"
    return "may be chance" if interval.may_be_chance else "significant (95 %)"


def budget_table(study: Study) -> Table | None:
    """Return what each method was given: trainings, epochs, examples and bytes."""
    keys = COLUMNS["budget"]
    methods = [method for method in study.main if any(method.by_seed(key) for key in keys)]
    if not methods:
        return None
    columns = [
        *(column_of(MEASURES[key]) for key in keys),
        sent_column(methods, "{unit} sent in all"),
    ]
    title = words("outcome", "budget")
    return method_table("budget", title, methods, columns, plus_minus="none")


def budget_sentence(study: Study) -> str:
    """Return whether the budgets differ, in words."""
    known = {method.label: method.mean("budget/client_epochs") for method in study.main}
    epochs = {label: value for label, value in known.items() if value is not None}
    missing = [label for label in known if label not in epochs]
    sentences = []
    if len(epochs) > 1:
        low, high = min(epochs, key=epochs.__getitem__), max(epochs, key=epochs.__getitem__)
        ends = {"low": low, "high": high, "least": epochs[low], "most": epochs[high]}
        same = epochs[high] <= 1.001 * epochs[low]
        sentences.append(words("outcome", "equal" if same else "differ", **ends))
    if missing and epochs:
        sentences.append(words("outcome", "missing", methods=", ".join(missing)))
    return " ".join(sentences)
