"""Plots: Vega-Lite specifications made with Altair, one colour and mark per method.

Colours are the variables of the style sheet, so that plots follow the page; a file of its own has
the values of the light page in their place. A method that the reader picks in the legend stays
bright in all plots; the others fade.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import altair as alt

from e2fl.report.study import Study
from e2fl.report.table import words

Row = dict[str, Any]

COLOURS = 16  # of the style sheet, --c0 and so on; safe for colour blindness
LINE = 16  # pixels of a row of a dot plot for each dot
PICKED = "picked.length == 0 || indexof(picked, datum.label) >= 0"
# theme.json: marks by Vega's names, as paths in a box of 16 by 16; dashes; names that every
# JavaScript object has already; configurations of plots on the page and, added to it, in files.
THEME: dict[str, Any] = json.loads((files("e2fl.report") / "theme.json").read_text())


@dataclass(frozen=True)
class Plot:
    """A plot: its title, caption and alternative text, and its Vega-Lite specification."""

    key: str
    title: str
    caption: str
    alt: str
    spec: dict[str, Any]

    def for_page(self, width: int | str = "container") -> dict[str, Any]:
        """Return the specification for the page, where the style sheet decides on colours."""
        return self.spec | {"config": THEME["page"], "width": width}

    def for_file(self) -> dict[str, Any]:
        """Return the specification for a file of its own, with a legend."""
        return in_file(self.spec | {"width": 640})


def draw(key: str, height: int, *layers: Any, name: str = "", **values: Any) -> Plot:
    """Return the plot of these layers, with the sentences of words.toml; name: of its files.

    Vega reads the alternative text in its specification.
    """
    title, caption, text = (words(key, kind, **values) for kind in ("plot", "caption", "alt"))
    fit = alt.AutoSizeParams(type="fit", contains="padding")
    chart = alt.layer(*layers).add_params(alt.param("picked", value=[]))
    with alt.data_transformers.enable("default", max_rows=None):
        spec = chart.properties(height=height, description=text, autosize=fit).to_dict()
    return Plot(name or key, title, caption, text, spec)


def in_file(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a specification with the colours of a light page in place of variables."""
    values = _light()
    text = json.dumps(spec | {"config": THEME["page"] | THEME["file"]})
    themed: dict[str, Any] = json.loads(re.sub(r"var\((--\w+)\)", lambda m: values[m[1]], text))
    return themed


@cache
def _light() -> dict[str, str]:
    """Return the variables of the style sheet, as the light page has them."""
    style = (files("e2fl.report") / "style.css").read_text(encoding="utf-8")
    return dict(re.findall(r"(--\w+): (#\w+);", style.partition("}")[0]))


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


def data(rows: Iterable[Mapping[Any, Any]]) -> alt.InlineData:
    """Return rows as chart data: with safe names, and null for values that are not finite."""
    return alt.InlineData([{key: _drawable(value) for key, value in row.items()} for row in rows])


def _drawable(value: Any) -> Any:
    if isinstance(value, str):
        return safe_name(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def labels_of(study: Study) -> list[str]:
    """Return the labels of all methods, in the order of their colours."""
    return [method.label for method in study.methods]


def marks(
    rows: Iterable[Mapping[Any, Any]], labels: Sequence[str], opacity: float = 1.0, **channels: Any
) -> Any:
    """Return a chart of these rows in the colours of their labels, faded unless picked."""
    bright = alt.condition(PICKED, alt.value(opacity), alt.value(0.08))
    colour = alt.Color("label:N", **_by_label(labels, colour_of))
    return alt.Chart(data(rows)).encode(color=colour, opacity=bright, **channels)


def points(
    rows: Iterable[Row], labels: Sequence[str], size: int, *, filled: bool = True, **more: Any
) -> Any:
    """Return a mark for each row in the shape of its label, for who does not see its colour."""
    shape = alt.Shape("label:N", **_by_label(labels, shape_of))
    chart = marks(rows, labels, shape=shape, **more)
    return chart.mark_point(filled=filled, size=size, strokeWidth=1 if filled else 2.5)


def lines(rows: Sequence[Row], labels: Sequence[str], **channels: Any) -> list[Any]:
    """Return a line with marks for each label."""
    dashes = _by_label(labels, lambda method: THEME["dashes"][method % len(THEME["dashes"])])
    dash = alt.StrokeDash("label:N", **dashes | {"legend": None})
    line = marks(rows, labels, strokeDash=dash, **channels)
    return [line.mark_line(strokeWidth=2), points(rows, labels, 36, **channels)]


def _by_label(labels: Sequence[str], choose: Any) -> dict[str, Any]:
    domain = [safe_name(label) for label in labels]
    scale = alt.Scale(domain=domain, range=[choose(method) for method in range(len(labels))])
    return {"scale": scale} | ({} if len(labels) > 1 else {"legend": None})


def quantity(axis: Any, field: str, title: str, ticks: int = 8, **scale: Any) -> Any:
    """Return a numeric axis, alt.X or alt.Y, which starts at 0 only if asked to."""
    options = alt.Scale(**({"zero": False, "nice": True} | scale))
    return axis(f"{field}:Q", title=title, scale=options, axis=alt.Axis(tickCount=ticks))


def room(values: Sequence[float], low: float = 0.0, high: float = math.inf) -> dict[str, Any]:
    """Return a scale with room around these values, but none beyond the possible ones."""
    pad = 0.12 * (max(values) - min(values)) or max(1.0, 0.1 * abs(max(values)))
    return {"domain": [max(low, min(values) - pad), min(high, max(values) + pad)], "nice": False}


def rounds_axis(rounds: Sequence[int]) -> Any:
    """Return an axis of rounds, with ticks at integers only."""
    low, high = min(rounds), max(rounds)
    scale = alt.Scale(domain=[low, max(high, low + 1)], nice=False, zero=False)
    axis = alt.Axis(tickMinStep=1, tickCount=6, format=",d")
    return alt.X("round:Q", title="round", scale=scale, axis=axis)


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
    labels, names = labels_of(study), {row["name"] for row in rows}
    slots = len(labels) if len(rows) > len(names) else 1
    x = {end: quantity(alt.X, end, axis, 6, zero=zero) for end in ("value", "low", "left")}
    x = {end: channel.axis(grid=True, tickCount=6) for end, channel in x.items()}
    places: dict[str, Any] = {
        "y": alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=150)),
        "tooltip": tips(name="of", value=f"{axis}|.2f", low="from|.2f", high="to|.2f"),
    }
    if slots > 1:
        places["yOffset"] = alt.YOffset("label:N", sort=[safe_name(label) for label in labels])
    line = marks(rows, labels, x=x["low"], x2="high:Q", **places).mark_rule(strokeWidth=2)
    bar = marks(rows, labels, 0.4, x=x["left"], x2="right:Q", **places).mark_bar(height=LINE - 4)
    layers = [bar, line] if "left" in rows[0] else [line]
    dots = points(rows, labels, 90, x=x["value"], **places)
    height = 40 + len(names) * max(2 * LINE, 8 + LINE * slots)
    return draw(key, height, *layers, dots, **values)


def dot_rows(study: Study, names: Mapping[str, str], scale: float = 1.0) -> list[Row]:
    """Return the rows of a dot plot, with intervals. names: by the path of a measure, its row."""
    rows: list[Row] = []
    for path, name in names.items():
        for method in study.methods:
            interval = method.interval(path)
            if interval is not None:
                low, high = (end and scale * end for end in (interval.low, interval.high))
                ends = {"value": scale * interval.value, "low": low, "high": high}
                rows.append({"name": name, "label": method.label} | ends)
    return rows


def counted(clients: float) -> str:
    """Return a number of clients, in words."""
    return "1 client" if clients == 1 else f"{clients:,.0f} clients"
