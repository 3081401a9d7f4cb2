"""What data do the clients hold? The answer comes from what the run stored."""

import base64
from typing import Any

from e2fl.report.sections.section import Section
from e2fl.report.study import Json, Study
from e2fl.report.table import Column, Table, words

LABELS = 40  # more labels than this make no table
# The picture follows the page: what is black on white is light on dark.
DARK = (
    b"<style>@media (prefers-color-scheme: dark) { text { fill: #e8ebee } "
    b'rect[fill="white"] { fill: #12161b } }</style>'
)


def data(study: Study) -> Section | None:
    """What data do the clients hold?"""
    if study.data is None:
        return None
    picture = ""
    if study.data_picture is not None:
        # As an image, not as part of the page: then nothing in it runs.
        drawing = study.data_picture.replace(b">", b">" + DARK, 1)
        picture = f"data:image/svg+xml;base64,{base64.b64encode(drawing).decode()}"
    behind = [_table(study.data)] if study.data.get("groups") else []
    return Section.of("data", (), (), behind, picture, counts=_counts(study.data))


def _counts(described: Json) -> str:
    clients, examples = described.get("clients", 0), described.get("examples", {})
    parts = [f"{examples[name]:,} {name}" for name in ("train", "test") if name in examples]
    text = f"{clients:,} clients." + (f" {' and '.join(parts)} examples." if parts else "")
    looked_at = described.get("looked_at", clients)
    if looked_at < clients:
        text += f" Examples and labels are counted over {looked_at:,} of the clients."
    return text


def _table(described: Json) -> Table:
    labels = [str(name) for name in described.get("labels") or ()]
    labels = labels if len(labels) <= LABELS else []
    rows: list[dict[str, Any]] = []
    for group in described["groups"]:
        sizes = {key: group.get(key) for key in ("clients", "train", "test")}
        mix = dict(
            zip((f"label_{name}" for name in labels), group.get("labels") or (), strict=False)
        )
        rows.append({"group": str(group["name"]), **sizes, **mix})
    columns = [Column("group", "group"), Column("clients", "clients", 0)]
    columns += [Column(key, key, 0, "examples") for key in ("train", "test")]
    columns += [Column(f"label_{name}", name, 0, "training examples by label") for name in labels]
    return Table.of("data", words("data", "table"), columns, rows)
