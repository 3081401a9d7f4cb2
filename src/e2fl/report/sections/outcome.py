"""How good is each method, for clients and for groups, what did it cost, and on what data?"""

import base64
from typing import Any

from e2fl.metrics import COLUMNS
from e2fl.report.sections.section import Section
from e2fl.report.study import Study, extremes
from e2fl.report.table import (
    Column,
    Table,
    all_by_chance,
    interval_cells,
    known_measures,
    method_table,
    words,
)

# The picture follows the page: what is black on white is light on dark.
DARK = (
    b"<style>@media (prefers-color-scheme: dark) { text { fill: #e8ebee } "
    b'rect[fill="white"] { fill: #12161b } }</style>'
)


def outcome(study: Study) -> Section:
    """Return the tables of the paper, with differences."""
    tables = [main_table(study), *([difference_table(study)] if study.pair else [])]
    return Section.of("outcome", tables, budget=budget_sentence(study))


def main_table(study: Study) -> Table:
    """Return a table of groups, clients and bytes; the best cell of each column is marked."""
    measures = known_measures(study, COLUMNS["page"])
    which = "" if len(study.seeds) > 1 else ", for the means and the worst values"
    note = words("outcome", "note", intervals=study.interval_label, which=which)
    if any(method.chance for method in study.methods):
        note += words("outcome", "chance")
    if any(all_by_chance(study.methods, measure.key) for measure in measures):
        note += words("outcome", "unmarked")
    return method_table(study, "main", words("outcome", "table"), measures, study.methods, note)


def difference_table(study: Study) -> Table:
    """Return the subject of the verdict minus each other method; over seeds, what is significant
    is marked.
    """
    subject, several = study.subject, len(study.seeds) > 1
    titles = {
        "clients/mean": "mean of clients",
        study.worst: study.worst_label,
        "clients/std": "std. dev. of clients",
    } | ({"group/std": "std. dev. of groups"} if study.group_names else {})
    columns = [Column("against", f"{subject.label} minus")] + [
        Column(key, title, head="difference", definition=key.partition("/")[2], signed=True)
        for key, title in titles.items()
    ]
    rows, bold = [], set()
    for position, other in enumerate(method for method in study.methods if method is not subject):
        row: dict[str, Any] = {"against": other.label}
        for key in titles:
            interval = subject.interval(key, other)
            row |= interval_cells(key, interval)
            if (
                interval is not None
                and interval.over == "seeds"
                and interval.may_be_chance is False
            ):
                bold.add((position, key))
        rows.append(row)
    title = words("outcome", "differences", subject=subject.label)
    judged = words("outcome", "judged" if several else "one_run")
    note = words("outcome", "differences_note", intervals=study.interval_label, judged=judged)
    return Table.of("differences", title, columns, rows, note, bold=frozenset(bold))


def budget_sentence(study: Study) -> str:
    """Return whether the budgets differ, in words; empty for one method."""
    ends = extremes({method.label: method.mean("budget/client_epochs") for method in study.main})
    if ends is None or len(study.main) == 1:
        return ""
    same = ends["most"] <= 1.001 * ends["least"]
    return words("outcome", "equal" if same else "differ", **ends)


def data(study: Study) -> Section | None:
    """What data do the clients hold?"""
    if study.data is None:
        return None
    picture = ""
    if study.data_picture is not None:
        # As an image, not as part of the page: then nothing in it runs.
        drawing = study.data_picture.replace(b">", b">" + DARK, 1)
        picture = f"data:image/svg+xml;base64,{base64.b64encode(drawing).decode()}"
    columns = [Column("name", "group"), Column("clients", "clients", 0)]
    columns += [Column(key, key, 0, "examples") for key in ("train", "test")]
    groups = study.data.get("groups") or []
    behind = [Table.of("data", words("data", "table"), columns, groups)] if groups else []
    clients, examples = study.data.get("clients", 0), study.data.get("examples", {})
    counted_over = study.data.get("looked_at", clients)
    parts = [f"{clients:,} clients"]
    parts += [f"{count:,} {name} examples" for name, count in examples.items()]
    parts += [f"counted over {counted_over:,} clients"] if counted_over < clients else []
    return Section.of("data", (), (), behind, picture, counts=", ".join(parts))
