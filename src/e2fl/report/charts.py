"""Plots: Vega-Lite specifications made with Altair, one colour and mark per method.

Colours are the variables of the style sheet, so that plots follow the page; a file of its own has
the values of the light page in their place. A method that the reader picks in the legend stays
bright in all plots; the others fade.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import altair as alt
import pandas as pd

from e2fl.report.study import Study
from e2fl.report.table import words

Row = dict[str, Any]

COLOURS = 16  # of the style sheet, --c0 and so on; safe for colour blindness
LINE = 16  # pixels of a row of a dot plot for each dot
PICKED = "picked.length == 0 || indexof(picked, datum.label) >= 0"
# theme.json: marks by Vega's names, as paths in a box of 16 by 16; names that every JavaScript
# object has already; configurations of plots on the page and, added to it, in files.
THEME: dict[str, Any] = json.loads((files("e2fl.report") / "theme.json").read_text())
STYLE = (files("e2fl.report") / "style.css").read_text(encoding="utf-8")
LIGHT = dict(re.findall(r"(--\w+): (#\w+);", STYLE.partition("}")[0]))  # of the light page


@dataclass(frozen=True)
class Plot:
    """A plot: its title and caption, and its Vega-Lite specification with an alternative text."""

    key: str
    title: str
    caption: str
    spec: dict[str, Any]

    def for_page(self, width: int | str = "container") -> dict[str, Any]:
        """Return the specification for the page, where the style sheet decides on colours."""
        return self.spec | {"config": THEME["page"], "width": width}

    def for_file(self) -> dict[str, Any]:
        """Return the specification for a file of its own: a legend, colours of a light page."""
        text = json.dumps(self.spec | {"width": 640, "config": THEME["page"] | THEME["file"]})
        spec: dict[str, Any] = json.loads(re.sub(r"var\((--\w+)\)", lambda m: LIGHT[m[1]], text))
        return spec


def draw(key: str, height: int, *layers: Any, name: str = "", **values: Any) -> Plot:
    """Return the plot of these layers, with the sentences of words.toml; name: of its files."""
    title, caption = (words(key, kind, **values) for kind in ("plot", "caption"))
    fit = alt.AutoSizeParams(type="fit", contains="padding")
    chart = alt.layer(*layers).add_params(alt.param("picked", value=[]))
    text = f"{title}. The table below has the numbers."
    with alt.data_transformers.enable("default", max_rows=None):
        spec = chart.properties(height=height, description=text, autosize=fit).to_dict()
    return Plot(name or key, title, caption, spec)


def colour_of(method: int) -> str:
    """Return the colour of a method, by its position."""
    return f"var(--c{method % COLOURS})"


def shape_of(method: int) -> str:
    """Return the mark of a method; marks are shifted where colours repeat: no two look alike."""
    marks = list(THEME["marks"])
    return str(marks[(method + method // COLOURS) % len(marks)])


def safe_name(name: str) -> str:
    """Return the name, with an invisible mark if it is a property of every JavaScript object."""
    return f"{name}\u200b" if name in THEME["inherited"] else name


def labels_of(study: Study) -> list[str]:
    """Return the labels of all methods, in the order of their colours."""
    return [safe_name(method.label) for method in study.methods]


def marks(
    rows: pd.DataFrame | Sequence[Row], labels: Sequence[str], opacity: float = 1.0, **channels: Any
) -> Any:
    """Return a chart of these rows in the colours of their labels, faded unless picked."""
    safe = pd.DataFrame(rows).map(lambda cell: safe_name(cell) if isinstance(cell, str) else cell)
    bright = alt.OpacityValue(0.08, condition={"test": PICKED, "value": opacity})
    colour = alt.Color("label:N", **_by_label(labels, colour_of))
    return alt.Chart(safe).encode(color=colour, opacity=bright, **channels)


def points(
    rows: pd.DataFrame | Sequence[Row],
    labels: Sequence[str],
    size: int,
    *,
    filled: bool = True,
    **more: Any,
) -> Any:
    """Return a mark for each row; its shape tells labels apart where colours do not."""
    shape = alt.Shape("label:N", **_by_label(labels, shape_of))
    chart = marks(rows, labels, shape=shape, **more)
    return chart.mark_point(filled=filled, size=size, strokeWidth=1 if filled else 2.5)


def _by_label(labels: Sequence[str], choose: Any) -> dict[str, Any]:
    domain = [safe_name(label) for label in labels]
    scale = alt.Scale(domain=domain, range=[choose(method) for method in range(len(labels))])
    return {"scale": scale} | ({} if len(labels) > 1 else {"legend": None})


def quantity(axis: Any, field: str, title: str, ticks: int = 6, **scale: Any) -> Any:
    """Return a numeric axis, alt.X or alt.Y, which starts at 0 only if asked to."""
    options = alt.Scale(**({"zero": False, "nice": True} | scale))
    return axis(f"{field}:Q", title=title, scale=options, axis=alt.Axis(tickCount=ticks))


def room(values: "pd.Series[float]") -> dict[str, Any]:
    """Return a scale with room around these values, but none below 0."""
    low, high = values.min(), values.max()
    pad = 0.12 * (high - low) or max(1.0, 0.1 * abs(high))
    return {"domain": [max(0.0, low - pad), high + pad], "nice": False}


def tips(**fields: str) -> list[alt.Tooltip]:
    """Return a tooltip: the method, then fields by their titles; TITLE|FORMAT for a number."""
    shown = [alt.Tooltip("label:N", title="method")]
    for field, text in fields.items():
        title, _, form = text.partition("|")
        number: dict[str, Any] = {"format": form} if form else {}
        shown.append(alt.Tooltip(f"{field}:{'Q' if form else 'N'}", title=title, **number))
    return shown


def dot_plot(
    study: Study, key: str, rows: Sequence[Row], axis: str, *, zero: bool = False, **values: Any
) -> Plot:
    """Return a dot plot: a row has a name, a label, a value and the ends of a line, low and high.

    It may also have the ends of a bar, left and right. zero: 0 is on the axis.
    """
    labels, names = labels_of(study), list(dict.fromkeys(safe_name(row["name"]) for row in rows))
    slots = len(labels) if len(rows) > len(names) else 1
    grid = alt.Axis(grid=True, tickCount=6)
    x = {e: quantity(alt.X, e, axis, zero=zero).axis(grid) for e in ("value", "low", "left")}
    bands = alt.Axis(labelLimit=150, grid=slots > 1, tickBand="extent", ticks=False)
    channels: dict[str, Any] = {
        "y": alt.Y("name:N", sort=names, title=None, axis=bands),
        "tooltip": tips(name="of", value=f"{axis}|.2f", low="from|.2f", high="to|.2f"),
    }
    if slots > 1:
        channels["yOffset"] = alt.YOffset("label:N", sort=labels)
    line = marks(rows, labels, x=x["low"], x2="high:Q", **channels).mark_rule(strokeWidth=2)
    bar = marks(rows, labels, 0.4, x=x["left"], x2="right:Q", **channels).mark_bar(height=LINE - 4)
    present = pd.DataFrame(rows).notna().any()
    layers = [layer for end, layer in (("left", bar), ("low", line)) if present.get(end)]
    dots = points(rows, labels, 90, x=x["value"], **channels)
    height = 40 + len(names) * max(2 * LINE, 8 + LINE * slots)
    return draw(key, height, *layers, dots, **values)


def dot_rows(study: Study, names: Mapping[str, str]) -> list[Row]:
    """Return the rows of a dot plot, with intervals. names: by the path of a measure, its row."""
    rows: list[Row] = []
    for path, name in names.items():
        for method in study.methods:
            interval = method.interval(path)
            if interval is not None:
                ends = {"value": interval.value, "low": interval.low, "high": interval.high}
                rows.append({"name": name, "label": method.label} | ends)
    return rows
