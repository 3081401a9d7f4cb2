"""How good is each method, for clients and for groups, and what did it cost?"""

from typing import Any

from e2fl.metrics import COLUMNS, MEASURES, Interval
from e2fl.report.methods import (
    all_by_chance,
    best_cells,
    known_measures,
    measure_columns,
    method_table,
    sent_column,
)
from e2fl.report.sections.section import Section
from e2fl.report.study import Method, Study, difference
from e2fl.report.table import METHOD, Column, Table, column_of, interval_cells
from e2fl.report.verdict import chosen


def outcome(study: Study) -> Section:
    """Return the tables of the paper, with differences and budgets."""
    pair = chosen(study)
    against = None if pair is None else difference_table(study, pair.subject)
    tables = (main_table(study), against, budget_table(study))
    intro = (
        "Measured after the last round, never the best one; the same seed gives every method the "
        f"same data. {budget_sentence(study)}".strip()
    )
    shown = [table for table in tables if table is not None]
    return Section("outcome", "Outcome", intro, shown, open=True)


def main_table(study: Study) -> Table:
    """Return a table of groups, clients and bytes; the best cell of each column is marked."""
    measures = known_measures(study, "page")
    note = (
        "Accuracies and standard deviations in percentage points, variances in percentage points "
        f"squared. Small figures: {study.interval_label}"
    )
    note += "." if len(study.seeds) > 1 else ", for the means and the worst values."
    if any(method.chance for method in study.methods):
        note += (
            " After 'chance': the spread that chance alone gives, if all clients are served alike."
        )
    if any(all_by_chance(study.methods, measure.key) for measure in measures):
        note += (
            " No cell of a spread is marked where chance alone explains the spread of every method."
        )
    title = "Accuracy and its spread after the last round"
    columns = measure_columns(study, measures)[1:]
    marked = best_cells(study.methods, measures)
    return method_table("main", title, study.methods, columns, note, bold=marked)


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
    note = f"In percentage points; {study.interval_label}. A lower standard deviation is better."
    if not several:
        note += " One run only: it is not known how far another run would differ."
    return Table.of("differences", f"{subject.label} against the others", columns, rows, note)


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
    rows = [
        {"method": method.label} | {column.key: method.mean(column.key) for column in columns}
        for method in methods
    ]
    return Table.of("budget", "Training budget of each method", [METHOD, *columns], rows)


def budget_sentence(study: Study) -> str:
    """Return whether the budgets differ, in words."""
    known = {method.label: method.mean("budget/client_epochs") for method in study.main}
    epochs = {label: value for label, value in known.items() if value is not None}
    missing = [label for label in known if label not in epochs]
    sentences = []
    if len(epochs) > 1:
        low, high = min(epochs, key=epochs.__getitem__), max(epochs, key=epochs.__getitem__)
        sentences.append(f"All methods train {epochs[high]:,.0f} client epochs.")
        if epochs[high] > 1.001 * epochs[low]:
            sentences = [
                f"Budgets differ: {high} trains {epochs[high]:,.0f} client epochs, "
                f"{low} trains {epochs[low]:,.0f}."
            ]
    if missing and epochs:
        sentences.append(f"The budget of {', '.join(missing)} was not recorded.")
    return " ".join(sentences)
