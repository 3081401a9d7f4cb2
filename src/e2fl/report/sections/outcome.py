"""How good is each method, for clients and for groups, and what did it cost?"""

from e2fl.metrics import COLUMNS, MEASURES, Interval
from e2fl.report.methods import (
    NO_BEST,
    SPREADS,
    all_by_chance,
    best_cells,
    chance_cells,
    known_measures,
    measure_columns,
    method_table,
)
from e2fl.report.section import Section
from e2fl.report.study import Method, Study, difference
from e2fl.report.table import METHOD, Column, Table, byte_unit, column_of, interval_cells
from e2fl.report.theme import Theme
from e2fl.report.verdict import chosen


def section(study: Study, theme: Theme) -> Section:
    """Return the tables of the paper, with differences and budgets."""
    pair = chosen(study)
    tables = [
        main_table(study),
        None if pair is None else difference_table(study, pair.subject),
        budget_table(study),
    ]
    intro = (
        "Measured after the last round, never the best one; the same seed gives every method the "
        f"same data. {budget_sentence(study)}".strip()
    )
    shown = tuple(table for table in tables if table is not None)
    return Section("outcome", "Outcome", intro, shown, open=True)


def main_table(study: Study) -> Table:
    """Return a table of groups, clients and bytes; the best cell of each column is marked."""
    measures = known_measures(study, "page")
    columns = measure_columns(study, measures)[1:]
    table = method_table(
        "main", "Accuracy and its spread after the last round", study.methods, columns
    )
    for row, method in enumerate(study.methods):
        for key, value in chance_cells(method, columns).items():
            table.frame.loc[row, key] = value
    note = (
        "Accuracies and standard deviations in percentage points, variances in percentage points "
        f"squared. Small figures: {study.interval_label}"
    )
    note += "." if len(study.seeds) > 1 else ", for the means and the worst values."
    if any(method.chance for method in study.methods):
        note += (
            " After 'chance': the spread that chance alone gives, if all clients are served alike."
        )
    spreads = [m.key for m in measures if m.key.rpartition("/")[2] in SPREADS]
    if any(all_by_chance(study.methods, key) for key in spreads):
        note += f" {NO_BEST}"
    marked = best_cells(study.methods, measures)
    return Table("main", table.title, table.columns, table.frame, note, marked)


def difference_table(study: Study, subject: Method) -> Table | None:
    """Return the subject of the verdict minus each of the other methods."""
    keys = [
        ("clients/mean", "mean of clients"),
        (study.worst, study.worst_label),
        ("clients/std", "std. dev. of clients"),
    ]
    keys += [("group/std", "std. dev. of groups")] if study.group_names else []
    several = len(study.seeds) > 1
    columns = [Column("against", f"{subject.label} minus")]
    for key, head in keys:
        title, head = ("difference", head) if several else (head, "difference")
        definition = key.partition("/")[2]
        columns.append(Column(key, title, head=head, definition=definition, signed=True))
        if several:
            columns.append(Column(f"{key}_judged", "judged", head=head, definition="interval"))
    rows = []
    for other in (method for method in study.methods if method is not subject):
        row: dict[str, float | str | None] = {"against": other.label}
        for key, _ in keys:
            interval = difference(subject, other, key)
            row |= interval_cells(key, interval)
            row[f"{key}_judged"] = _judged(interval)
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
    sent = [method.mean("bytes/total") for method in methods if not method.alone]
    name, size, digits = byte_unit(sent)
    columns = [METHOD, *(column_of(MEASURES[key]) for key in keys)]
    columns.append(
        Column("bytes/total", f"{name} sent in all", digits, definition="bytes", scale=1 / size)
    )
    rows = [
        {"method": method.label} | {column.key: method.mean(column.key) for column in columns[1:]}
        for method in methods
    ]
    return Table.of("budget", "Training budget of each method", columns, rows)


def budget_sentence(study: Study) -> str:
    """Return whether the budgets differ, in words."""
    epochs = {
        method.label: value
        for method in study.main
        if (value := method.mean("budget/client_epochs")) is not None
    }
    missing = [method.label for method in study.main if method.label not in epochs]
    told = f"The budget of {', '.join(missing)} was not recorded." if missing and epochs else ""
    if len(epochs) < 2:
        return told
    low = min(epochs, key=lambda label: epochs[label])
    high = max(epochs, key=lambda label: epochs[label])
    if epochs[high] > 1.001 * epochs[low]:
        first = (
            f"Budgets differ: {high} trains {epochs[high]:,.0f} client epochs, "
            f"{low} trains {epochs[low]:,.0f}."
        )
    else:
        first = f"All methods train {epochs[high]:,.0f} client epochs."
    return f"{first} {told}".strip()
