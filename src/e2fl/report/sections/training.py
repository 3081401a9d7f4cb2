"""Training: curves by round and by data sent, and recovered groups."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import altair as alt
import pandas as pd

from e2fl.metrics import COLUMNS, MEASURES
from e2fl.report.charts import (
    Plot,
    Row,
    draw,
    labels_of,
    lines,
    marks,
    quantity,
    room,
    rounds_axis,
    tips,
)
from e2fl.report.sections.section import Section
from e2fl.report.study import Method, Study
from e2fl.report.table import METHOD, Column, Table, byte_unit, method_table, seed_cells, words

SENT = "bytes/total"


def curves(study: Study) -> Section | None:
    """How did accuracy and its spread develop, by round and by data sent?"""
    titles = {
        "clients/mean": "mean of clients, %",
        study.worst: f"{study.worst_label}, %",
        "clients/std": "standard deviation of clients",
    }
    rows = [row for method in study.methods for row in curve_rows(method, titles)]
    rounds = [row["round"] for row in rows if row["method"] not in _levels(rows)]
    if not rounds:
        return None
    unit, size, digits = byte_unit(row[SENT] for row in rows)
    columns = [METHOD, Column("round", "round", 0)]
    columns.append(Column(SENT, f"{unit} sent", digits, definition="bytes", scale=1 / size))
    for key, title in titles.items():
        short = title.removesuffix(", %").replace("standard deviation", "std. dev.")
        columns.append(Column(key, short, definition=key.partition("/")[2]))
    table = Table.of("curves", words("curves", "table"), columns, rows)
    total = f"{unit} sent so far, all clients, up and down"
    axes = {
        "round": rounds_axis(rounds),
        "sent": quantity(alt.X, "sent", total, 6, nice=False, zero=True),
    }
    drawn = [row | {"label": row["method"], "sent": row[SENT] / size} for row in rows]
    plots = [
        _curve(study, drawn, key, title, along, x)
        for key, title in titles.items()
        for along, x in axes.items()
    ]
    shaded = words("curves", "shaded") if len(study.seeds) > 1 else ""
    once = words("curves", "once") if _levels(rows) else ""
    return Section.of("curves", (), plots, [table], shaded=shaded, once=once)


def curve_rows(method: Method, keys: Iterable[str]) -> Iterator[Row]:
    """Yield the rounds that all seeds have: bytes sent so far, measures with their intervals."""
    for number, rows in method.rows.groupby("round"):
        if len(rows) == len(method.seeds):
            row: Row = {"method": method.label, "round": number, SENT: rows[SENT].mean()}
            for key in keys:
                # A method without groups has no measure of them.
                row |= seed_cells(key, rows.get(key, pd.Series(dtype=float)))
            yield row


def _levels(rows: Sequence[Row]) -> set[str]:
    """Return the methods that were evaluated once: they have a level, not a curve."""
    counts = pd.Series([row["method"] for row in rows]).value_counts()
    return set(counts.index[counts == 1])


def _curve(study: Study, rows: Sequence[Row], key: str, title: str, along: str, x: Any) -> Plot:
    """Return the curves of a measure; what was evaluated once is a dotted line."""
    labels, once = labels_of(study), _levels(rows)
    drawn = [
        {"label": row["label"], "round": row["round"], "sent": row["sent"], "value": row[key]}
        | {end: row[f"{key}_{end}"] for end in ("low", "high")}
        for row in rows
        if row[key] is not None
    ]
    # The curves decide what is shown, not their intervals: one over two seeds can dwarf them.
    std = key.endswith("/std")
    domain = room([row["value"] for row in drawn] + [0.0] * std)
    y, band = (quantity(alt.Y, field, title, 5, **domain) for field in ("value", "low"))
    tip = tips(round="round|d", value=f"{title}|.2f")
    curved = [row for row in drawn if row["label"] not in once]
    level = [row for row in drawn if row["label"] in once]
    area = marks(curved, labels, 0.1, x=x, y=band, y2="high:Q").mark_area(clip=True)
    rule = marks(level, labels, y=y, tooltip=tip).mark_rule(strokeDash=[2, 3], strokeWidth=2)
    last = {row["label"]: row["value"] for row in drawn}
    word = {"clients/mean": "mean", "clients/std": "std"}.get(key, "worst")
    return draw(
        "curves",
        220,
        *([area] if len(study.seeds) > 1 else []),
        *([rule] if level else []),
        *lines(curved, labels, x=x, y=y, tooltip=tip),
        name=f"curve-{word}-{along}",
        measure=title.removesuffix(", %").capitalize(),
        title=title,
        way="by round" if along == "round" else "by data sent",
        better="Lower is more equal." if std else "Higher is better.",
        values="; ".join(f"{label} {value:.2f}" for label, value in last.items()),
    )


def recovery(study: Study) -> Section | None:
    """How well were groups found that clients did not declare?"""
    methods = [method for method in study.main if method.recovers]
    known = {key for key in COLUMNS["recovery"] if any(m.by_seed(key) for m in methods)}
    if not known:
        return None
    measures = [MEASURES[key] for key in COLUMNS["recovery"] if key in known]
    table = method_table(study, "recovery", words("recovery", "table"), measures, methods)
    return Section.of("recovery", [table])
