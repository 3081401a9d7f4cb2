"""How good is each method, for clients and for groups, what did it cost, and on what data?"""

import base64
from typing import Any

from e2fl.metrics import COLUMNS, MEASURES, Interval
from e2fl.report.sections.section import Section
from e2fl.report.study import Json, Method, Study, difference, extremes
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

LABELS = 40  # more labels than this make no table
# The picture follows the page: what is black on white is light on dark.
DARK = (
    b"<style>@media (prefers-color-scheme: dark) { text { fill: #e8ebee } "
    b'rect[fill="white"] { fill: #12161b } }</style>'
)


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
    epochs = {method.label: method.mean("budget/client_epochs") for method in study.main}
    missing = [label for label, value in epochs.items() if value is None]
    ends, sentences = extremes(epochs), []
    if ends and len(epochs) - len(missing) > 1:
        same = ends["most"] <= 1.001 * ends["least"]
        sentences.append(words("outcome", "equal" if same else "differ", **ends))
    if ends and missing:
        sentences.append(words("outcome", "missing", methods=", ".join(missing)))
    return " ".join(sentences)


def data(study: Study) -> Section | None:
    """What data do the clients hold?"""
    if study.data is None:
        return None
    picture = ""
    if study.data_picture is not None:
        # As an image, not as part of the page: then nothing in it runs.
        drawing = study.data_picture.replace(b">", b">" + DARK, 1)
        picture = f"data:image/svg+xml;base64,{base64.b64encode(drawing).decode()}"
    behind = [_data_table(study.data)] if study.data.get("groups") else []
    return Section.of("data", (), (), behind, picture, counts=_counts(study.data))


def _counts(described: Json) -> str:
    clients, examples = described.get("clients", 0), described.get("examples", {})
    parts = [f"{examples[name]:,} {name}" for name in ("train", "test") if name in examples]
    text = f"{clients:,} clients." + (f" {' and '.join(parts)} examples." if parts else "")
    looked_at = described.get("looked_at", clients)
    if looked_at < clients:
        text += f" Examples and labels are counted over {looked_at:,} of the clients."
    return text


def _data_table(described: Json) -> Table:
    labels = [str(name) for name in described.get("labels") or ()]
    labels = labels if len(labels) <= LABELS else []
    rows: list[dict[str, Any]] = []
    for group in described["groups"]:
        sizes = {key: group.get(key) for key in ("clients", "train", "test")}
        counts = zip(labels, group.get("labels") or (), strict=False)
        mix = {f"label_{name}": count for name, count in counts}
        rows.append({"group": str(group["name"]), **sizes, **mix})
    columns = [Column("group", "group"), Column("clients", "clients", 0)]
    columns += [Column(key, key, 0, "examples") for key in ("train", "test")]
    columns += [Column(f"label_{name}", name, 0, "training examples by label") for name in labels]
    return Table.of("data", words("data", "table"), columns, rows)
