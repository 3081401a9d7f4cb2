"""What data do the clients hold? The answer comes from what the run stored."""

import base64
import math
from collections.abc import Mapping
from typing import Any

from e2fl.report.section import Section
from e2fl.report.study import Study
from e2fl.report.table import Column, Table
from e2fl.report.theme import Theme

LABELS = 40  # more labels than this make no table
# The picture follows the page: what is black on white is light on dark.
DARK = (
    b"<style>@media (prefers-color-scheme: dark) { text { fill: #e8ebee } "
    b'rect[fill="white"] { fill: #12161b } }</style>'
)


def section(study: Study, theme: Theme) -> Section | None:
    if study.data is None:
        return None
    picture = ""
    if study.data_picture is not None:
        # As an image, not as part of the page: then nothing in it runs.
        drawing = study.data_picture.replace(b">", b">" + DARK, 1)
        picture = f"data:image/svg+xml;base64,{base64.b64encode(drawing).decode()}"
    table = _table(study.data)
    intro = " ".join(_counts(study.data)) or "The data of the clients."
    words = "Picture of the data: examples, sizes and labels; the table has the numbers."
    return Section("data", "Data", intro, (), (), () if table is None else (table,), picture, words)


def _counts(data: Mapping[str, object]) -> list[str]:
    clients, examples = number(data.get("clients")), data.get("examples")
    told = [] if clients is None else [f"{clients:,.0f} clients."]
    parts = examples if isinstance(examples, Mapping) else {}
    known = [
        f"{value:,.0f} {name}"
        for name in ("train", "test")
        if (value := number(parts.get(name))) is not None
    ]
    told += [f"{' and '.join(known)} examples."] if known else []
    looked_at = number(data.get("looked_at"))
    if looked_at is not None and clients is not None and looked_at < clients:
        told.append(f"Examples and labels are counted over {looked_at:,.0f} of the clients.")
    return told


def _table(data: Mapping[str, object]) -> Table | None:
    names, groups = data.get("labels"), data.get("groups")
    labels = (
        [str(name) for name in names] if isinstance(names, list) and len(names) <= LABELS else []
    )
    entries = (
        [group for group in groups if isinstance(group, Mapping)]
        if isinstance(groups, list)
        else []
    )
    if not entries:
        return None
    rows = []
    for group in entries:
        counts = group.get("labels")
        mix = [number(count) for count in counts] if isinstance(counts, list) else []
        mix = mix if len(mix) == len(labels) else [None] * len(labels)
        sizes = {key: number(group.get(key)) for key in ("clients", "train", "test")}
        keys = (f"label_{name}" for name in labels)
        rows.append(
            {"group": str(group.get("name", "")), **sizes, **dict(zip(keys, mix, strict=True))}
        )
    columns = [Column("group", "group"), Column("clients", "clients", 0)]
    columns += [Column(key, key, 0, "examples") for key in ("train", "test")]
    columns += [Column(f"label_{name}", name, 0, "training examples by label") for name in labels]
    return Table.of("data", "Clients, examples and labels by group", columns, rows)


def number(value: Any) -> float | None:
    """Return a finite number, or None."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None
