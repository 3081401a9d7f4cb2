"""Training: curves by round and by data sent, what is traded off, bits, and recovered groups."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from e2fl.metrics import COLUMNS, MEASURES, Interval
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
from e2fl.report.table import (
    METHOD,
    Column,
    Table,
    byte_unit,
    column_of,
    interval_cells,
    method_table,
    sent_column,
    words,
)

UP, ENTROPY, DOWN, OVER = COLUMNS["bits"]
SENT = "bytes/total"


def curves(study: Study) -> Section | None:
    """How did accuracy and its spread develop, by round and by data sent?"""
    titles = {
        "clients/mean": "mean of clients, %",
        study.worst: f"{study.worst_label}, %",
        "clients/std": "standard deviation of clients",
    }
    rows = [row for method in study.methods for row in curve_rows(method, titles)]
    evaluated = Counter(row["method"] for row in rows)
    if max(evaluated.values(), default=0) < 2:
        return None
    unit, size, digits = byte_unit(row["bytes_sent"] for row in rows)
    sent = Column("bytes_sent", f"{unit} sent", digits, definition="bytes", scale=1 / size)
    columns = [METHOD, Column("round", "round", 0), sent]
    for key, title in titles.items():
        short = title.removesuffix(", %").replace("standard deviation", "std. dev.")
        columns.append(Column(key, short, definition=key.partition("/")[2]))
    table = Table.of("curves", words("curves", "table"), columns, rows)
    plots = [
        plot
        for key, title in titles.items()
        for along in ("round", "sent")
        if (plot := _curve(study, rows, key, title, along)) is not None
    ]
    shaded = words("curves", "shaded") if len(study.seeds) > 1 else ""
    once = words("curves", "once") if 1 in evaluated.values() else ""
    return Section.of("curves", (), plots, [table], shaded=shaded, once=once)


def curve_rows(method: Method, keys: Iterable[str]) -> Iterator[Row]:
    """Yield the rounds that all seeds have: bytes sent so far, measures with their intervals."""
    for number in sorted(set(method.rows["round"])):
        rows = method.rows[method.rows["round"] == number]
        if len(rows) == len(method.seeds):
            sent = _over_seeds(rows, SENT)
            row: Row = {"method": method.label, "round": int(number)}
            row["bytes_sent"] = None if sent is None else sent.value
            for key in keys:
                row |= interval_cells(key, _over_seeds(rows, key))
            yield row


def _over_seeds(rows: pd.DataFrame, key: str) -> Interval | None:
    values = rows[key].astype(float).to_numpy() if key in rows else np.empty(0)
    known = values[np.isfinite(values)].tolist()
    return over_seeds(known) if known else None


def _curve(study: Study, rows: Sequence[Row], key: str, title: str, along: str) -> Plot | None:
    unit, size, _ = byte_unit(row["bytes_sent"] for row in rows)
    evaluated = Counter(row["method"] for row in rows)
    curved: list[Row] = []
    level: list[Row] = []  # of methods that were evaluated once: they have no curve
    for row in rows:
        value, sent = row[key], row["bytes_sent"]
        if value is None or (along == "sent" and sent is None):
            continue
        low, high = (row[f"{key}_{end}"] for end in ("low", "high"))
        ends = {"low": value, "high": value} if low is None else {"low": low, "high": high}
        place = {"round": row["round"], "sent": None if sent is None else sent / size}
        drawn = {"label": row["method"], "value": value} | place | ends
        (curved if evaluated[row["method"]] > 1 else level).append(drawn)
    if not curved:
        return None
    # The curves decide what is shown, not their intervals: one over two seeds can dwarf them.
    values = [row["value"] for row in [*curved, *level]]
    pad = 0.06 * (max(values) - min(values)) or 1.0
    std = key.endswith("/std")
    domain = [0.0 if std else max(0.0, min(values) - pad), max(values) + pad]
    y, band = (quantity(alt.Y, field, title, 5, domain=domain) for field in ("value", "low"))
    x = rounds_axis([row["round"] for row in curved])
    if along == "sent":
        across = f"{unit} sent so far, all clients, up and down"
        x = quantity(alt.X, "sent", across, 6, nice=False, zero=True)
    tip = tips(round="round|d", value=f"{title}|.2f")
    layers = lines(curved, study, x=x, y=y, tooltip=tip)
    if len(study.seeds) > 1:
        area = marks(curved, study, 0.1, x=x, y=band, y2="high:Q")
        layers.insert(0, area.mark_area(clip=True))
    if level:
        once = marks(level, study, y=y, tooltip=tip)
        layers.append(once.mark_rule(strokeDash=[2, 3], strokeWidth=2))
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
        values=_ends([*curved, *level], ".2f"),
    )


def _ends(rows: Sequence[Row], form: str) -> str:
    """Return the last value of each method, in words."""
    last = {row["label"]: row["value"] for row in rows}
    return "; ".join(f"{label} {value:{form}}" for label, value in last.items())


def recovery(study: Study) -> Section | None:
    """How well were groups found that clients did not declare?"""
    methods = [method for method in study.main if method.recovers]
    if not methods:
        return None
    keys = [key for key in COLUMNS["recovery"] if any(method.by_seed(key) for method in methods)]
    columns = [column_of(MEASURES[key]) for key in keys]
    table = method_table("recovery", words("recovery", "table"), methods, columns)
    key, rows = "inference/matched", []
    for method in methods:
        if key in method.rows:
            means = method.rows.dropna(subset=[key]).groupby("round")[key].mean()
            rows += [
                {"label": method.label, "round": number, "value": value}
                for number, value in means.items()
            ]
    plots = []
    if rows:
        axes = {
            "x": rounds_axis([row["round"] for row in rows]),
            "y": quantity(alt.Y, "value", "clients in the right group, %"),
        }
        axes["tooltip"] = tips(round="round|d", value="right, %|.2f")
        values = _ends(rows, ".1f")
        plots.append(draw("recovery", 240, *lines(rows, study, **axes), values=values))
    return Section.of("recovery", (), plots, [table])


def tradeoff(study: Study) -> Section | None:
    """Which methods are not beaten in accuracy, equity and bytes at once?"""
    methods = [m for m in study.methods if m.means("clients/mean", study.worst) is not None]
    if len(methods) < 2:
        return None
    sent = sent_column(methods, "{unit} in all")
    keys = ("clients/mean", study.worst, SENT)
    rows: list[Row] = [{key: method.mean(key) for key in keys} for method in methods]
    # Fewer bytes are better, and unknown ones are not compared.
    values = np.array([[*row.values()] for row in rows], dtype=float) * [1, 1, -1]
    for row, method, own in zip(rows, methods, values, strict=True):
        beats = (values > own).any(axis=1) & ~(values < own).any(axis=1)
        others = [other.label for other, beaten in zip(methods, beats, strict=True) if beaten]
        front = f"beaten by {', '.join(others)}" if others else "not beaten"
        row |= {"method": method.label, "front": front}
    columns = (
        METHOD,
        Column("clients/mean", "mean of clients", definition="mean"),
        Column(study.worst, study.worst_label, definition="worst10"),
        sent,
        Column("front", "on all three", definition="pareto"),
    )
    table = Table.of("tradeoff", words("tradeoff", "table"), columns, rows)
    means = _scatter_rows(methods, "clients/mean", study.worst)
    filled = [row["front"] == "not beaten" for row in rows]
    across = room([row["x"] for row in means], high=100.0)
    x = quantity(alt.X, "x", "mean of clients, %", **across)
    plots = [_scatter(study, "tradeoff-mean", x, means, filled)]
    if np.isfinite(values).all():
        bytes_sent = _scatter_rows(methods, SENT, study.worst, sent.scale)
        most = max(row["x"] for row in bytes_sent) or 1.0
        title = sent.title.replace(" in all", " sent in all")
        x = quantity(alt.X, "x", title, domain=[-0.04 * most, 1.08 * most], nice=False)
        plots.append(_scatter(study, "tradeoff-sent", x, bytes_sent, filled))
    return Section.of("tradeoff", (), plots, [table])


def _scatter_rows(methods: Sequence[Method], x: str, y: str, scale: float = 1.0) -> list[Row]:
    pairs = [(method.label, method.means(x, y)) for method in methods]
    return [{"label": label, "x": p[0] * scale, "y": p[1]} for label, p in pairs if p is not None]


def _scatter(study: Study, key: str, x: Any, rows: Sequence[Row], filled: Sequence[bool]) -> Plot:
    """Return a plot of equity against something else: x, y and a mark for each method."""
    worst, across = f"{study.worst_label}, %", x.to_dict()["title"]
    y = quantity(alt.Y, "y", worst, **room([row["y"] for row in rows], high=100.0))
    tip = tips(x=f"{across}|,.2f", y=f"{worst}|.2f")
    layers = [
        points(part, study, 150, filled=kind, x=x, y=y, tooltip=tip)
        for kind in (True, False)
        if (part := [row for row, own in zip(rows, filled, strict=True) if own is kind])
    ]
    values = "; ".join(f"{r['label']}: {r['x']:,.2f}, {r['y']:.1f} %" for r in rows)
    text = f"Points: {worst} against {across}. {values}."
    return draw(key, 280, *layers, text=text, worst=study.worst_label.capitalize())


def bits(study: Study) -> Section | None:
    """How many bits do rankings take, and how good is the worst group for them?"""
    methods = [m for m in study.main if not m.alone and m.means(UP, study.worst) is not None]
    if not methods:
        return None
    sent = sent_column(methods, "{unit} in all")
    columns = [
        Column(study.worst, study.worst_label, definition="worst10"),
        *(column_of(MEASURES[key]) for key in (UP, ENTROPY, DOWN)),
        column_of(MEASURES[OVER], head=""),
        sent,
    ]
    worst = study.worst_label.capitalize()
    coded = all(method.mean(ENTROPY) is not None for method in methods)
    note = "" if coded else words("bits", "note")
    table = method_table("bits", words("bits", "table", worst=worst), methods, columns, note)
    texts: Row = {"worst": worst, "methods": " ".join(_bits_sentence(m, sent) for m in methods)}
    if len(methods) < 2:
        return Section.of("bits", [table], **texts)
    rows = _scatter_rows(methods, UP, study.worst)
    across = room([0.0, *(row["x"] for row in rows)])
    x = quantity(alt.X, "x", "bits per edge up, mean", **across)
    plot = _scatter(study, "bits", x, rows, [True] * len(rows))
    return Section.of("bits", (), [plot], [table], **texts)


def _bits_sentence(method: Method, sent: Column) -> str:
    """Return bits up and down, the overhead of the coder, and the total, in a sentence."""
    up, over, down, total = (method.mean(key) for key in (UP, OVER, DOWN, SENT))
    text = f"{method.label}: {up:.2f} bits up"
    text += "" if over is None else f" ({over:.1f} % above the entropy)"
    text += "" if down is None else f", {down:.2f} down"
    if total is not None:
        unit = sent.title.partition(" ")[0]
        text += f"; the whole run sent {total * sent.scale:,.{sent.digits}f} {unit}"
    return f"{text}."
