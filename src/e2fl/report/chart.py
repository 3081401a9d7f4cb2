"""What all plots share: a Vega-Lite frame, a colour and a mark for each contender, and how numbers are shown.

Plots are Vega-Lite specifications, plain dictionaries; a contender that the reader picks stays bright in all of them.
"""

from dataclasses import dataclass
from typing import Any

from e2fl.report.study import Study
from e2fl.report.theme import DASHES, Paint, shape_of
from e2fl.runs.records import finite

Spec = dict[str, Any]  # what Vega-Lite takes: nested dictionaries of plain values

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


@dataclass(frozen=True)
class Plot:
    """A picture: what it is called, what to see in it, what it says to those who cannot see it."""

    key: str
    title: str
    caption: str
    alt: str
    spec: Spec


def frame(paint: Paint, height: int, layers: list[Spec], values: list[Spec]) -> Spec:
    """A whole specification: layers over shared data."""
    layers = [layer | {"data": _harmless(layer["data"]["values"])} if "data" in layer else layer for layer in layers]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": paint.width,
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "config": paint.config(),
        "params": [{"name": "picked", "value": []}],
        "data": _harmless(values),
        "layer": layers,
    }


def own_name(name: str) -> str:
    """The name, marked invisibly if every JavaScript object has something of that name: plots keep names as keys."""
    return f"{name}\u200b" if name in INHERITED else name


def _harmless(values: list[Spec]) -> Spec:
    rows = [{k: own_name(v) if isinstance(v, str) else v for k, v in row.items()} for row in values]
    return {"values": finite(rows)}


def colour(study: Study, paint: Paint) -> Spec:
    """The colour of a contender, the same everywhere."""
    return _by_contender(study, paint, list(paint.colours))


def shape(study: Study, paint: Paint) -> Spec:
    """Its mark, for those who do not see the colour."""
    return _by_contender(study, paint, [shape_of(place) for place in range(len(study.contenders))])


def dash(study: Study, paint: Paint) -> Spec:
    """Its line, for the same reason."""
    return _by_contender(study, paint, list(DASHES))


def _by_contender(study: Study, paint: Paint, choices: list[Any]) -> Spec:
    labels = [own_name(contender.label) for contender in study.contenders]
    scale = {"domain": labels, "range": [choices[place % len(choices)] for place in range(len(labels))]}
    legend: Spec | None = {} if paint.legend and len(labels) > 1 else None
    return {"field": "label", "type": "nominal", "scale": scale, "legend": legend}


def lit(full: float = 1.0) -> Spec:
    """Bright, unless the reader picked others."""
    return {"condition": {"test": PICKED, "value": full}, "value": 0.08}


def quantity(field: str, title: str | None, ticks: int = 8, /, **scale: Any) -> Spec:
    """A numeric axis; the scale starts at 0 only where it is told to."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False, "nice": True} | scale,
        "axis": {"tickCount": ticks},
    }


def whole(axis: Spec) -> Spec:
    """The same axis for things that are counted: no ticks between whole numbers."""
    return axis | {"axis": axis["axis"] | {"tickMinStep": 1, "format": ",d"}}


def names(field: str, count: int, title: str | None = None) -> Spec:
    """An axis of so many names, in the order of the data; turned where there are many."""
    angle = 0 if count <= 14 else -50
    # Naming the order here would make an expression of names that anybody wrote.
    place: Spec = {"field": field, "type": "nominal", "sort": None, "title": title, "axis": {"labelAngle": angle}}
    return place | {"scale": {"padding": 0.6}} if count < 5 else place  # two bars need not fill a page


def tip(field: str, title: str, form: str = ".2f") -> Spec:
    """A number in a tooltip."""
    return {"field": field, "title": title, "format": form, "type": "quantitative"}


def tip_text(field: str, title: str) -> Spec:
    """A word in a tooltip."""
    return {"field": field, "title": title, "type": "nominal"}


ALGORITHM = tip_text("label", "algorithm")
