"""Plots: Vega-Lite specifications made with Altair, one colour and mark per method.

Colours are the variables of the style sheet, so that plots follow the page; a file of its own has
the values of the light page in their place. A method that the reader picks in the legend stays
bright in all plots; the others fade.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
class Dot:
    """The value of one method in one row of a dot plot."""

    method: int  # its position
    label: str
    value: float
    low: float | None
    high: float | None
    hollow: bool = False  # too few clients to judge


@dataclass(frozen=True)
class DotRow:
    """A row of a dot plot, such as a group: its name, its clients, and a dot for each method."""

    name: str
    dots: Sequence[Dot]
    size: float | None = None
    pinned: bool = False  # stays first in every order
    sort: float = 0.0


@dataclass(frozen=True)
class Plot:
    """A plot: its title, caption and alternative text, and its Vega-Lite specification.

    rows: of a dot plot, which the page draws with HTML and small SVG strips whose positions are
    percentages: they need no script, and rows are named at every width.
    """

    key: str
    title: str
    caption: str
    alt: str
    spec: dict[str, Any]
    rows: Sequence[DotRow] = ()
    ticks: Sequence[float] = ()
    axis: str = ""
    reference: float | None = None  # a dashed line

    def at(self, value: float) -> float:
        """Return the position of a value, in percent of the width."""
        low, high = self.ticks[0], self.ticks[-1]
        return round(100 * (min(max(value, low), high) - low) / (high - low), 3)

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


def data(rows: Iterable[Row]) -> alt.InlineData:
    """Return rows as chart data: with safe names, and null for values that are not finite."""
    return alt.InlineData([{key: _drawable(value) for key, value in row.items()} for row in rows])


def _drawable(value: Any) -> Any:
    if isinstance(value, str):
        return safe_name(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def marks(rows: Iterable[Row], study: Study, opacity: float = 1.0, **channels: Any) -> Any:
    """Return a chart of these rows in the colours of their methods, faded unless picked."""
    bright = alt.condition(PICKED, alt.value(opacity), alt.value(0.08))
    colour = alt.Color("label:N", **_by_method(study, colour_of))
    return alt.Chart(data(rows)).encode(color=colour, opacity=bright, **channels)


def points(
    rows: Iterable[Row], study: Study, size: int, *, filled: bool = True, **more: Any
) -> Any:
    """Return a mark for each row in the shape of its method, for who does not see its colour."""
    shape = alt.Shape("label:N", **_by_method(study, shape_of))
    chart = marks(rows, study, shape=shape, **more)
    return chart.mark_point(filled=filled, size=size, strokeWidth=1 if filled else 2.5)


def lines(rows: Sequence[Row], study: Study, **channels: Any) -> list[Any]:
    """Return a line with marks for each method."""
    dashes = _by_method(study, lambda method: THEME["dashes"][method % len(THEME["dashes"])]) | {
        "legend": None
    }
    line = marks(rows, study, strokeDash=alt.StrokeDash("label:N", **dashes), **channels)
    return [line.mark_line(strokeWidth=2), points(rows, study, 36, **channels)]


def _by_method(study: Study, choose: Any) -> dict[str, Any]:
    labels = [safe_name(method.label) for method in study.methods]
    scale = alt.Scale(domain=labels, range=[choose(method) for method in range(len(labels))])
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
    study: Study,
    key: str,
    rows: Sequence[DotRow],
    axis: str,
    reference: float | None = None,
    **values: Any,
) -> Plot:
    """Return a dot plot of these rows, with its sentences; a reference of 0 is on the axis."""
    ends = [end for row in rows for dot in row.dots for end in (dot.value, dot.low, dot.high)]
    known = [end for end in (*ends, reference) if end is not None]
    marked = ticks(known or [0.0, 100.0])
    dots = [
        {"row": f"{row.name} ({counted(row.size)})" if row.size else row.name, "label": dot.label}
        | {"value": dot.value, "low": dot.low, "high": dot.high}
        for row in rows
        for dot in row.dots
    ]
    scale: dict[str, Any] = {
        "scale": alt.Scale(domain=[marked[0], marked[-1]]),
        "axis": alt.Axis(grid=True),
    }
    places: dict[str, Any] = {
        "y": alt.Y("row:N", sort=None, title=None),
        "yOffset": alt.YOffset("label:N", sort=None),
    }
    spans = marks(dots, study, x=alt.X("low:Q", title=axis, **scale), x2="high:Q", **places)
    drawn = points(dots, study, 60, x=alt.X("value:Q", **scale), **places)
    height = sum(8 + LINE * max(1, len(row.dots)) for row in rows)
    plot = draw(key, height, spans.mark_rule(strokeWidth=2), drawn, **values)
    return replace(plot, rows=rows, ticks=marked, axis=axis, reference=reference)


def ticks(values: Sequence[float], most: int = 6) -> list[float]:
    """Return round numbers that span these values, about `most` of them."""
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 1, high + 1
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(position * step, 10) for position in range(first, last + 1)]


def counted(clients: float) -> str:
    """Return a number of clients, in words."""
    return "1 client" if clients == 1 else f"{clients:,.0f} clients"
