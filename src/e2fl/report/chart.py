"""The common parts of all plots: an Altair chart with one colour and mark per method.

A method that the reader picks in the legend stays bright in all plots; the others fade.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from e2fl.report.study import Study
from e2fl.report.theme import DASHES, Theme, shape_of
from e2fl.templates import round_step

Row = dict[str, Any]
Channels = dict[str, Any]

# Plots keep names as keys of JavaScript objects, and every object has these already.
INHERITED = {
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
}
PICKED = "picked.length == 0 || indexof(picked, datum.label) >= 0"
FADED = 0.08


@dataclass(frozen=True)
class Plot:
    """A plot: its title, its caption, its alternative text, and its Vega-Lite specification."""

    key: str
    title: str
    caption: str
    alt: str
    spec: dict[str, Any]


def draw(
    key: str,
    title: str,
    caption: str,
    text: str,
    layers: Sequence[alt.Chart],
    theme: Theme,
    height: int,
) -> Plot:
    """Return the plot of these layers; Vega reads the alternative text in its specification."""
    chart: Any = alt.layer(*layers).add_params(alt.param("picked", value=[]))
    fit = alt.AutoSizeParams(type="fit", contains="padding")
    chart = chart.properties(width=theme.width, height=height, description=text, autosize=fit)
    with alt.data_transformers.enable("default", max_rows=None):
        spec: dict[str, Any] = chart.to_dict()
    return Plot(key, title, caption, text, spec | {"config": theme.config()})


def data(rows: Sequence[Row]) -> alt.InlineData:
    """Return rows as chart data: with safe names, and null for values that are not finite."""
    return alt.InlineData([{key: _drawable(value) for key, value in row.items()} for row in rows])


def safe_name(name: str) -> str:
    """Return the name, with an invisible mark if it is a property of every JavaScript object."""
    return f"{name}\u200b" if name in INHERITED else name


def _drawable(value: Any) -> Any:
    if isinstance(value, str):
        return safe_name(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def marks(rows: Sequence[Row], study: Study, theme: Theme) -> alt.Chart:
    """Return a chart of these rows whose points have the colour of their method."""
    return alt.Chart(data(rows)).encode(color=colour(study, theme))


def colour(study: Study, theme: Theme) -> alt.Color:
    """Return the colour encoding of methods, the same everywhere."""
    return alt.Color("label:N", **_by_method(study, theme, list(theme.colours)))


def shape(study: Study, theme: Theme) -> alt.Shape:
    """Return the shape encoding of methods, for readers who do not see the colour."""
    return alt.Shape(
        "label:N", **_by_method(study, theme, [shape_of(n) for n in range(len(study.methods))])
    )


def dash(study: Study, theme: Theme) -> alt.StrokeDash:
    """Return the dash encoding of methods' lines, for the same reason."""
    return alt.StrokeDash("label:N", **_by_method(study, theme, list(DASHES)))


def _by_method(study: Study, theme: Theme, choices: Sequence[Any]) -> Channels:
    labels = [safe_name(method.label) for method in study.methods]
    scale = alt.Scale(
        domain=labels, range=[choices[place % len(choices)] for place in range(len(labels))]
    )
    return {
        "scale": scale,
        "legend": alt.Legend(title=None) if theme.legend and len(labels) > 1 else None,
    }


def bright(full: float = 1.0) -> Any:
    """Return an opacity that is full unless the reader picked other methods."""
    return alt.condition(PICKED, alt.value(full), alt.value(FADED))


def quantity(
    axis: type[alt.X] | type[alt.Y], field: str, title: str, ticks: int = 8, /, **scale: Any
) -> Any:
    """Return a numeric axis, which starts at 0 only if asked to."""
    options = {"zero": False, "nice": True} | scale
    return axis(
        f"{field}:Q", title=title, scale=alt.Scale(**options), axis=alt.Axis(tickCount=ticks)
    )


def room(values: Sequence[float], low: float = 0.0, high: float = math.inf) -> dict[str, Any]:
    """Return a scale with room around these values, but none beyond the possible ones."""
    pad = 0.12 * (max(values) - min(values)) or max(1.0, 0.1 * abs(max(values)))
    return {"domain": [max(low, min(values) - pad), min(high, max(values) + pad)], "nice": False}


def whole_numbers(
    axis: type[alt.X] | type[alt.Y], field: str, title: str, values: Sequence[float]
) -> Any:
    """Return an axis of counts, such as rounds, with ticks at integers only."""
    low, high = math.floor(min(values)), math.ceil(max(values))
    step = int(round_step(max(1.0, (high - low) / 6)))
    ticks = list(range(math.ceil(low / step) * step, high + 1, step))
    scale = alt.Scale(domain=[low, max(high, low + 1)], nice=False, zero=False)
    return axis(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(values=ticks, format=",d"))


def lines(
    rows: Sequence[Row], study: Study, theme: Theme, x: Any, y: Any, tips: Sequence[alt.Tooltip]
) -> list[alt.Chart]:
    """Return a line with marks for each method: rows need label, and the fields of both axes."""
    chart = marks(rows, study, theme).encode(x=x, y=y, opacity=bright())
    return [
        chart.mark_line(strokeWidth=2).encode(strokeDash=dash(study, theme)),
        chart.mark_point(filled=True, size=36).encode(shape=shape(study, theme), tooltip=tips),
    ]


def scatter(
    rows: Sequence[Row],
    study: Study,
    theme: Theme,
    x: Any,
    y: Any,
    tips: Sequence[alt.Tooltip],
    *,
    filled: bool = True,
) -> alt.Chart:
    """Return a chart with a large mark for each method."""
    chart = marks(rows, study, theme).mark_point(size=150, filled=filled, strokeWidth=2.5)
    placed: alt.Chart = chart.encode(
        x=x, y=y, shape=shape(study, theme), opacity=bright(), tooltip=tips
    )
    return placed


def tip(field: str, title: str, form: str = ".2f") -> alt.Tooltip:
    """Return a number for a tooltip."""
    return alt.Tooltip(f"{field}:Q", title=title, format=form)


def tip_text(field: str, title: str) -> alt.Tooltip:
    """Return a string for a tooltip."""
    return alt.Tooltip(f"{field}:N", title=title)


METHOD_TIP = tip_text("label", "method")
