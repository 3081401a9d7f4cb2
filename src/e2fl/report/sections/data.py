"""What data do the clients hold? The answer comes from what the run stored; no data set is built here."""

import base64
from collections.abc import Mapping

from e2fl.report.section import Section
from e2fl.report.study import Study, number
from e2fl.report.table import Cell, Column, Table, cells
from e2fl.report.theme import Theme

LABELS = 40  # more labels than this make no table


def section(study: Study, theme: Theme) -> Section | None:
    if study.data is None:
        return None
    picture = ""
    if study.data_picture is not None:
        # As an image, not as part of the page: then nothing in it runs.
        picture = f"data:image/svg+xml;base64,{base64.b64encode(study.data_picture).decode()}"
    table = _table(study.data)
    intro = " ".join(_counts(study.data)) or "The data of the clients."
    words = "Picture of the data: examples, sizes and labels; the table has the numbers."
    return Section("data", "Data", intro, (), (), () if table is None else (table,), picture, words)


def _counts(data: Mapping[str, object]) -> list[str]:
    clients, examples = number(data.get("clients")), data.get("examples")
    told = [] if clients is None else [f"{clients:,.0f} clients."]
    parts = examples if isinstance(examples, Mapping) else {}
    known = [f"{value:,.0f} {name}" for name in ("train", "test") if (value := number(parts.get(name))) is not None]
    told += [f"{' and '.join(known)} examples."] if known else []
    looked_at = number(data.get("looked_at"))
    if looked_at is not None and clients is not None and looked_at < clients:
        told.append(f"Examples and labels are counted over {looked_at:,.0f} of the clients.")
    return told


def _table(data: Mapping[str, object]) -> Table | None:
    names, groups = data.get("labels"), data.get("groups")
    labels = [str(name) for name in names] if isinstance(names, list) and len(names) <= LABELS else []
    entries = [group for group in groups if isinstance(group, Mapping)] if isinstance(groups, list) else []
    if not entries:
        return None
    rows = []
    for group in entries:
        counts = group.get("labels")
        mix = [number(count) for count in counts] if isinstance(counts, list) else []
        mix = mix if len(mix) == len(labels) else [None] * len(labels)
        sizes = [number(group.get(key)) for key in ("clients", "train", "test")]
        rows.append((Cell(str(group.get("name", ""))), *cells([*sizes, *mix])))
    columns = [Column("group", "group"), Column("clients", "clients", 0)]
    columns += [Column(key, key, 0, "examples") for key in ("train", "test")]
    columns += [Column(f"label_{name}", name, 0, "training examples by label") for name in labels]
    return Table("data", "Clients, examples and labels by group", tuple(columns), tuple(rows))
