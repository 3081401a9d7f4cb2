"""Training: curves by round and by data sent, the trade-off, and recovered groups."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

from e2fl.metrics import COLUMNS, MEASURES
from e2fl.metrics.intervals import over_seeds
from e2fl.report.charts import (
    Plot,
    Row,
    draw,
    lines,
    marks,
    points,
    quantity,
    room,
    rounds_axis,
    tips,
)
from e2fl.report.sections.section import Section
from e2fl.report.study import Method, Study
from e2fl.report.table import METHOD, Column, Table, byte_unit, interval_cells, method_table, words

SENT = "bytes/total"


def curves(study: Study) -> Section | None:
    """How did accuracy and its spread develop, by round and by data sent?"""
    titles = {
        "clients/mean": "mean of clients, %",
        study.worst: f"{study.worst_label}, %",
        "clients/std": "standard deviation of clients",
    }
    rows = [row for method in study.methods for row in curve_rows(method, titles)]
    drawn = [row | {"label": row["method"], "sent": row[SENT]} for row in rows]
    once = _evaluated_once(drawn)
    if len(once) == len({row["label"] for row in drawn}):
        return None
    unit, size, digits = byte_unit(row[SENT] for row in rows)
    columns = [METHOD, Column("round", "round", 0)]
    columns.append(Column(SENT, f"{unit} sent", digits, definition="bytes", scale=1 / size))
    for key, title in titles.items():
        short = title.removesuffix(", %").replace("standard deviation", "std. dev.")
        columns.append(Column(key, short, definition=key.partition("/")[2]))
    table = Table.of("curves", words("curves", "table"), columns, rows)
    drawn = [row | {"sent": row["sent"] / size} for row in drawn]
    total = f"{unit} sent so far, all clients, up and down"
    axes = {
        "round": rounds_axis([row["round"] for row in drawn if row["label"] not in once]),
        "sent": quantity(alt.X, "sent", total, 6, nice=False, zero=True),
    }
    plots = [
        _curve(study, drawn, key, title, along, x)
        for key, title in titles.items()
        for along, x in axes.items()
    ]
    shaded = words("curves", "shaded") if len(study.seeds) > 1 else ""
    said = words("curves", "once") if once else ""
    return Section.of("curves", (), plots, [table], shaded=shaded, once=said)


def curve_rows(method: Method, keys: Iterable[str]) -> Iterator[Row]:
    """Yield the rounds that all seeds have: bytes sent so far, measures with their intervals."""
    for number, rows in method.rows.groupby("round"):
        if len(rows) == len(method.seeds):
            row: Row = {"method": method.label, "round": number, SENT: rows[SENT].mean()}
            for key in keys:
                known = rows[key].dropna()
                row |= interval_cells(key, over_seeds(known.to_list()) if len(known) else None)
            yield row


def _curve(study: Study, rows: Sequence[Row], key: str, title: str, along: str, x: Any) -> Plot:
    """Return the curves of a measure; what was evaluated once is a dotted line."""
    drawn = [
        {"label": row["label"], "round": row["round"], "sent": row["sent"], "value": row[key]}
        | {end: row[f"{key}_{end}"] for end in ("low", "high")}
        for row in rows
        if row[key] is not None
    ]
    # The curves decide what is shown, not their intervals: one over two seeds can dwarf them.
    values = [row["value"] for row in drawn]
    pad = 0.06 * (max(values) - min(values)) or 1.0
    std = key.endswith("/std")
    domain = [0.0 if std else max(0.0, min(values) - pad), max(values) + pad]
    y, band = (quantity(alt.Y, field, title, 5, domain=domain) for field in ("value", "low"))
    tip = tips(round="round|d", value=f"{title}|.2f")
    once = _evaluated_once(drawn)
    curved = [row for row in drawn if row["label"] not in once]
    level = marks([row for row in drawn if row["label"] in once], study, y=y, tooltip=tip)
    area = marks(curved, study, 0.1, x=x, y=band, y2="high:Q").mark_area(clip=True)
    layers = [
        *([area] if len(study.seeds) > 1 else []),
        *lines(curved, study, x=x, y=y, tooltip=tip),
        *([level.mark_rule(strokeDash=[2, 3], strokeWidth=2)] if once else []),
    ]
    word = {"clients/mean": "mean", "clients/std": "std"}.get(key, "worst")
    return draw(
        "curves",
        220,
        *layers,
        name=f"curve-{word}-{along}",
        measure=title.removesuffix(", %").capitalize(),
        title=title,
        way="by round" if along == "round" else "by data sent",
        better="Lower is more equal." if std else "Higher is better.",
        values=_ends(drawn, ".2f"),
    )


def _evaluated_once(rows: Sequence[Row]) -> set[str]:
    counts = Counter(row["label"] for row in rows)
    return {label for label, count in counts.items() if count == 1}


def _ends(rows: Sequence[Row], form: str) -> str:
    """Return the last value of each method, in words."""
    last = {row["label"]: row["value"] for row in rows}
    return "; ".join(f"{label} {value:{form}}" for label, value in last.items())


def recovery(study: Study) -> Section | None:
    """How well were groups found that clients did not declare?"""
    methods = [method for method in study.main if method.recovers]
    measures = [
        MEASURES[key]
        for key in COLUMNS["recovery"]
        if any(method.by_seed(key) for method in methods)
    ]
    if not measures:
        return None
    table = method_table(study, "recovery", words("recovery", "table"), measures, methods)
    rows: list[Row] = []
    for method in methods:
        right = method.rows.get("inference/matched", pd.Series(dtype=float)).dropna()
        means = right.groupby(method.rows["round"]).mean()
        rows += [{"label": method.label, "round": k, "value": v} for k, v in means.items()]
    if not rows:
        return Section.of("recovery", [table])
    x = rounds_axis([row["round"] for row in rows])
    y = quantity(alt.Y, "value", "clients in the right group, %")
    curve = lines(rows, study, x=x, y=y, tooltip=tips(round="round|d", value="right, %|.2f"))
    plot = draw("recovery", 240, *curve, values=_ends(rows, ".1f"))
    return Section.of("recovery", (), [plot], [table])


def tradeoff(study: Study) -> Section | None:
    """Which methods are not beaten in accuracy, equity and bytes at once?"""
    keys = ("clients/mean", study.worst, SENT)
    methods = [method for method in study.methods if all(method.by_seed(key) for key in keys)]
    if len(methods) < 2:
        return None
    title, measures = words("tradeoff", "table"), [MEASURES[key] for key in keys]
    table = method_table(study, "tradeoff", title, measures, methods)
    values = table.frame[list(keys)].to_numpy(float) * [measure.sign for measure in measures]
    fronts = []
    for own in values:
        beats = (values >= own).all(axis=1) & (values > own).any(axis=1)
        others = [method.label for method, beaten in zip(methods, beats, strict=True) if beaten]
        fronts.append(f"beaten by {', '.join(others)}" if others else "not beaten")
    front = Column("front", "on all three", definition="pareto")
    table = replace(table, columns=(*table.columns, front), frame=table.frame.assign(front=fronts))
    mean, worst = "mean of clients, %", f"{study.worst_label}, %"
    rows: list[Row] = [
        {"label": label, "x": x, "y": y, "front": text}
        for label, x, y, text in table.frame[["method", *keys[:2], "front"]].to_numpy()
    ]
    across, up = (room([row[axis] for row in rows], high=100.0) for axis in ("x", "y"))
    channels = {
        "x": quantity(alt.X, "x", mean, **across),
        "y": quantity(alt.Y, "y", worst, **up),
        "tooltip": tips(x=f"{mean}|.2f", y=f"{worst}|.2f", front="on all three"),
    }
    filled = [row["front"] == "not beaten" for row in rows]
    layers = [
        points(part, study, 150, filled=kind, **channels)
        for kind in (True, False)
        if (part := [row for row, own in zip(rows, filled, strict=True) if own is kind])
    ]
    said = "; ".join(f"{row['label']}: {row['x']:.2f}, {row['y']:.1f} %" for row in rows)
    plot = draw("tradeoff", 280, *layers, worst=worst, across=mean, values=said)
    return Section.of("tradeoff", (), [plot], [table])
