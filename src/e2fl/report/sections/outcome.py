"""How good is each method, for clients and for groups, and what did it cost?"""

from collections.abc import Sequence
from dataclasses import dataclass

from e2fl.report.intervals import Interval
from e2fl.report.section import METHOD, Section
from e2fl.report.study import Method, Study, difference
from e2fl.report.table import Cell, Column, Table, cell, unit
from e2fl.report.theme import Theme
from e2fl.report.verdict import chosen


@dataclass(frozen=True)
class Measure:
    """A column of the main table."""

    key: str
    title: str
    definition: str
    better: int = 1  # 1: more is better, -1: less is better
    head: str = ""


SPREAD = (
    ("mean", "mean", 1),
    ("worst10", "worst 10 %", 1),
    ("best10", "best 10 %", 1),
    ("std", "std. dev.", -1),
    ("variance", "variance", -1),
)
MEASURES = (
    *(
        Measure(f"{level}/{key}", title, key, better, head)
        for level, head in (("group", "groups"), ("user", "clients"))
        for key, title, better in SPREAD
    ),
    Measure("bytes/up_per_client_round", "up", "bytes", -1),
    Measure("bytes/down_per_client_round", "down", "bytes", -1),
)
BUDGET = (
    ("budget/client_trainings", "client trainings", 0),
    ("budget/client_epochs", "client epochs", 1),
    ("budget/examples", "examples", 0),
    ("bytes/total", "sent in all", 0),
)


def section(study: Study, theme: Theme) -> Section:
    """Return the tables of the paper, with differences and budgets."""
    pair = chosen(study)
    tables = [main_table(study), None if pair is None else difference_table(study, pair.subject), budget_table(study)]
    intro = "Measured after the last round, never the best one; the same seed gives every method the same data."
    intro = f"{intro} {budget_sentence(study)}".strip()
    return Section("outcome", "Outcome", intro, tuple(table for table in tables if table is not None))


def main_table(study: Study) -> Table:
    """Return a table of groups, clients and bytes; the best cell of each column is marked."""
    used = [measure for measure in MEASURES if any(m.by_seed(measure.key) for m in study.methods)]
    best = {measure.key: _best(study.methods, measure) for measure in used}
    rows = [
        (Cell(m.label), *(cell(m.interval(measure.key), best=m.label in best[measure.key]) for measure in used))
        for m in study.methods
    ]
    note = "Accuracies and standard deviations in percentage points, variances in percentage points squared. "
    note += f"Small figures: {study.interval_label}"
    note += "." if len(study.seeds) > 1 else ", for the means and the worst values."
    note += " Bold: the best of a column." if len(study.methods) > 1 else ""
    columns = (METHOD, *(_column(study, measure) for measure in used))
    return Table("main", "Accuracy and its spread after the last round", columns, tuple(rows), note)


def _column(study: Study, measure: Measure) -> Column:
    if measure.definition == "bytes":
        keys = [measure.key for measure in MEASURES if measure.definition == "bytes"]
        name, size, digits = unit([m.mean(key) for m in study.methods if not m.alone for key in keys])
        head = f"{name} per client per round"
        return Column(measure.key, measure.title, digits, head, "bytes", scale=1 / size)
    title, head = measure.title, measure.head
    if head == "groups":
        head = "found groups" if study.groups_found else "groups"
        title = title.replace(" 10 %", "") if study.worst_label.endswith("group") else title
    return Column(measure.key, title, 2, head, measure.definition)


def _best(methods: Sequence[Method], measure: Measure) -> set[str]:
    """Return the methods to mark: all that print the same as the best. Training alone is not marked for bytes."""
    able = [m for m in methods if not (m.alone and measure.definition == "bytes")]
    means = {m.label: mean * measure.better for m in able if (mean := m.mean(measure.key)) is not None}
    top = round(max(means.values()), 2) if len(means) > 1 else None
    return {label for label, mean in means.items() if round(mean, 2) == top}


def difference_table(study: Study, subject: Method) -> Table | None:
    """Return the subject of the verdict minus each of the other methods."""
    others = [method for method in study.methods if method is not subject]
    keys = [("user/mean", "mean of clients"), (study.worst, study.worst_label), ("user/std", "std. dev. of clients")]
    keys += [("group/std", "std. dev. of groups")] if study.group_names else []
    several = len(study.seeds) > 1
    columns = [Column("against", f"{subject.label} minus")]
    for key, head in keys:
        title, head = ("difference", head) if several else (head, "difference")
        columns.append(Column(key, title, head=head, definition=key.partition("/")[2], signed=True))
        columns += [Column(f"{key}_judged", "judged", head=head, definition="interval")] if several else []
    rows = []
    for other in others:
        row = [Cell(other.label)]
        for key, _ in keys:
            found = difference(subject, other, key)
            row += [cell(found), Cell(_judged(found))] if several else [cell(found)]
        rows.append(tuple(row))
    note = f"In percentage points; {study.interval_label}. A lower standard deviation is better."
    if len(study.seeds) == 1:
        note += " One run only: an interval over clients does not show how far another run would differ."
    return Table("differences", f"{subject.label} against the others", tuple(columns), tuple(rows), note)


def _judged(found: Interval | None) -> str:
    if found is None:
        return "not known"
    if found.may_be_chance is None or found.over == "clients":
        return "one shared seed" if found.count else "no shared seed"
    if found.mean == 0 and found.low == found.high:
        return "equal"
    return "may be chance" if found.may_be_chance else "more than chance"


def budget_table(study: Study) -> Table | None:
    """Return what each method was given: trainings, epochs, examples and bytes."""
    known = [method for method in study.main if any(method.by_seed(key) for key, _, _ in BUDGET[:3])]
    if not known:
        return None
    name, size, digits = unit([method.mean("bytes/total") for method in known if not method.alone])
    columns = [METHOD, *(Column(key, title, places, definition="budget") for key, title, places in BUDGET[:3])]
    columns.append(Column("bytes/total", f"{name} sent in all", digits, definition="bytes", scale=1 / size))
    rows = tuple((Cell(m.label), *(Cell(m.mean(key)) for key, _, _ in BUDGET)) for m in known)
    return Table("budget", "Training budget of each method", tuple(columns), rows)


def budget_sentence(study: Study) -> str:
    """Return whether the budgets differ, in words."""
    epochs = {m.label: value for m in study.main if (value := m.mean("budget/client_epochs")) is not None}
    missing = [method.label for method in study.main if method.label not in epochs]
    told = f"The budget of {', '.join(missing)} was not recorded." if missing and epochs else ""
    if len(epochs) < 2:
        return told
    low, high = min(epochs, key=lambda label: epochs[label]), max(epochs, key=lambda label: epochs[label])
    if epochs[high] > 1.001 * epochs[low]:
        first = f"Budgets differ: {high} trains {epochs[high]:,.0f} client epochs, {low} trains {epochs[low]:,.0f}."
    else:
        first = f"All methods train {epochs[high]:,.0f} client epochs."
    return f"{first} {told}".strip()
