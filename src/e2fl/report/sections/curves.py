"""How did accuracy and its spread develop, by round and by data sent?"""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd

from e2fl.metrics import Interval
from e2fl.metrics.intervals import over_seeds
from e2fl.report.chart import (
    METHOD_TIP,
    Plot,
    Row,
    bright,
    draw,
    lines,
    marks,
    quantity,
    tip,
    whole_numbers,
)
from e2fl.report.section import Section
from e2fl.report.study import Method, Study
from e2fl.report.table import METHOD, Column, Table, byte_unit, interval_cells
from e2fl.report.theme import Theme


@dataclass(frozen=True)
class Moment:
    """A method after one evaluated round, averaged over seeds."""

    number: int
    sent: float | None  # bytes so far
    values: dict[str, Interval | None]


def section(study: Study, theme: Theme) -> Section | None:
    worst = f"{study.worst_label}, %"
    keys = {
        "clients/mean": "mean of clients, %",
        study.worst: worst,
        "clients/std": "standard deviation of clients",
    }
    found = {m.label: moments for m in study.methods if (moments := curve(m, list(keys)))}
    if not any(len(moments) > 1 for moments in found.values()):
        return None
    plots = []
    for key, title in keys.items():
        for along in ("round", "sent"):
            plot = _plot(study, theme, found, key, title, along)
            plots += [] if plot is None else [plot]
    intro = "Left: by training round. Right: by data sent so far."
    if len(study.seeds) > 1:
        intro += " Shaded: 95 % interval over seeds, cut at the frame."
    if any(len(moments) == 1 for moments in found.values()):
        intro += " A dotted line is a method that was evaluated once, at its end."
    return Section(
        "curves", "Learning curves", intro, (), tuple(plots), (_table(study, found, list(keys)),)
    )


def curve(method: Method, keys: Sequence[str]) -> list[Moment]:
    """Return the rounds that all seeds have."""
    moments = []
    for number in sorted(set(method.rows["round"])):
        rows = method.rows[method.rows["round"] == number]
        if len(rows) == len(method.seeds):
            sent = _averaged(rows, "bytes/total")
            values = {key: _averaged(rows, key) for key in keys}
            moments.append(Moment(int(number), None if sent is None else sent.value, values))
    return moments


def _averaged(rows: pd.DataFrame, key: str) -> Interval | None:
    values = rows[key].astype(float) if key in rows else pd.Series(dtype=float)
    known = values[np.isfinite(values)].to_list()
    return over_seeds(known) if known else None


def _plot(
    study: Study, theme: Theme, found: dict[str, list[Moment]], key: str, title: str, along: str
) -> Plot | None:
    name, size, _ = byte_unit([moment.sent for moments in found.values() for moment in moments])
    values: list[Row] = []
    levels: list[Row] = []  # of methods that were evaluated once: they have no curve
    for label, moments in found.items():
        rows = [
            row for moment in moments if (row := _row(label, moment, key, along, size)) is not None
        ]
        (values if len(moments) > 1 else levels).extend(rows)
    if not values:
        return None
    # The curves decide what is shown, not their intervals: one over two seeds can dwarf them.
    numbers = [row["value"] for row in [*values, *levels]]
    pad = 0.06 * (max(numbers) - min(numbers)) or 1.0
    bottom = 0.0 if key.endswith("/std") else max(0.0, min(numbers) - pad)
    y = quantity(alt.Y, "value", title, 5, domain=[bottom, max(numbers) + pad])
    if along == "round":
        x = whole_numbers(alt.X, "at", "round", [row["at"] for row in values])
    else:
        x = quantity(
            alt.X, "at", f"{name} sent so far, all clients, up and down", 6, nice=False, zero=True
        )
    tips = [METHOD_TIP, tip("round", "round", "d"), tip("value", title)]
    layers: list[alt.Chart] = []
    if len(study.seeds) > 1:
        band = quantity(alt.Y, "low", title, 5, domain=[bottom, max(numbers) + pad])
        area = marks(values, study, theme).mark_area(clip=True)
        layers.append(area.encode(x=x, y=band, y2="high:Q", opacity=bright(0.1)))
    layers += lines(values, study, theme, x, y, tips)
    if levels:
        level = marks(levels, study, theme).mark_rule(strokeWidth=2, strokeDash=[2, 3])
        layers.append(level.encode(y=y, opacity=bright(), tooltip=tips))
    ends = {row["label"]: row["value"] for row in [*values, *levels]}
    told = "; ".join(f"{label} {value:.2f}" for label, value in ends.items())
    way = "by round" if along == "round" else "by data sent"
    heading = f"{title.removesuffix(', %').capitalize()}, {way}"
    caption = "Lower is more equal." if key.endswith("/std") else "Higher is better."
    words = f"Lines: {title} {way}. At the end: {told}."
    keyword = {"clients/mean": "mean", "clients/std": "std"}.get(key, "worst")
    return draw(f"curve-{keyword}-{along}", heading, caption, words, layers, theme, 220)


def _row(label: str, moment: Moment, key: str, along: str, size: float) -> Row | None:
    value = moment.values[key]
    at = moment.number if along == "round" else None if moment.sent is None else moment.sent / size
    if at is None or value is None:
        return None
    ends = {"low": value.low if value.low is not None else value.value}
    ends["high"] = value.high if value.high is not None else value.value
    return {"label": label, "at": at, "round": moment.number, "value": value.value} | ends


def _table(study: Study, found: dict[str, list[Moment]], keys: Sequence[str]) -> Table:
    name, size, digits = byte_unit(
        [moment.sent for moments in found.values() for moment in moments]
    )
    titles = dict(
        zip(keys, ("mean of clients", study.worst_label, "std. dev. of clients"), strict=True)
    )
    columns = [METHOD, Column("round", "round", 0)]
    columns += [Column("bytes_sent", f"{name} sent", digits, definition="bytes", scale=1 / size)]
    columns += [Column(key, titles[key], definition=key.partition("/")[2]) for key in keys]
    rows = [
        {"method": label, "round": moment.number, "bytes_sent": moment.sent}
        | {
            name: value
            for key in keys
            for name, value in interval_cells(key, moment.values[key]).items()
        }
        for label, moments in found.items()
        for moment in moments
    ]
    return Table.of("curves", "Evaluated rounds, averaged over seeds", columns, rows)
