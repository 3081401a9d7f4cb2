"""The page of a sweep: the grid as heat maps and as a table, the choice, and the final test. No network, no scripts."""

import itertools
import math
from typing import Any

import numpy as np

from e2fl.errors import ReportError
from e2fl.sweeps.grid import Axis, Point
from e2fl.sweeps.results import LEVELS, MEASURES, Pick, Result, told

LIGHT, DARK = (239, 243, 255), (8, 69, 148)  # the scale of the heat map, worst to best


def render(name: str, **values: Any) -> str:
    """Return a page from a template of this package, such as "sweeps/page.html.j2"."""
    try:
        from jinja2 import FunctionLoader

        from e2fl.templates import asset, environment
    except ImportError as error:
        raise ReportError("the page needs jinja2; install it with: pip install 'e2fl[report]'") from error
    loader = FunctionLoader(lambda path: asset("e2fl", path))
    return environment(loader).get_template(name).render(**values)


def page(result: Result) -> str:
    """Return the page as HTML."""
    picks = [Pick(level, measure) for level in result.levels for measure in MEASURES]
    rows = [
        {
            "point": point.number,
            "chosen": point == result.chosen,
            "settings": point.values,
            "values": [told(result.values(point, pick)) for pick in picks],
        }
        for point in result.found
    ]
    return render(
        "sweeps/page.html.j2",
        result=result,
        choice=result.choice(),
        maps=heat_maps(result),
        picks=picks,
        rows=rows,
        final=result.final_rows(),
        levels=LEVELS,
        measures=MEASURES,
    )


def heat_maps(result: Result) -> list[dict[str, Any]]:
    """Return a map of the first two settings for every combination of the others."""
    down, across, others = _arranged(result.axes)
    means = {
        point: math.nan if result.diverged(point) else float(np.mean(result.values(point, result.pick)))
        for point in result.found
    }
    finite = [value for value in means.values() if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    by_values = {point.values: point for point in result.found}
    maps = []
    for rest in itertools.product(*(axis.values for axis in others)):
        rows = []
        for row in down.values if down else ("",):
            points = [by_values[((row,) if down else ()) + (column,) + rest] for column in across.values]
            rows.append((row, [_cell(point, means[point], low, high, result) for point in points]))
        maps.append(
            {
                "title": ", ".join(f"{axis.name} = {value}" for axis, value in zip(others, rest, strict=True)),
                "down": down.name if down else "",
                "across": across.name,
                "columns": across.values,
                "rows": rows,
            }
        )
    return maps


def _arranged(axes: tuple[Axis, ...]) -> tuple[Axis | None, Axis, tuple[Axis, ...]]:
    """Return the settings that go down and across a map, and those that each map fixes."""
    return (None, axes[0], ()) if len(axes) == 1 else (axes[0], axes[1], axes[2:])


def _cell(point: Point, value: float, low: float, high: float, result: Result) -> dict[str, Any]:
    if not math.isfinite(value):
        return {"text": "diverged", "style": "background: #ddd; color: #333", "chosen": False}
    part = (value - low) / (high - low) if high > low else 1.0
    part = 1 - part if result.pick.lower_is_better and high > low else part
    colour = ", ".join(str(round(a + (b - a) * part)) for a, b in zip(LIGHT, DARK, strict=True))
    ink = "#fff" if part > 0.5 else "#111"
    return {
        "text": f"{value:.2f}",
        "style": f"background: rgb({colour}); color: {ink}",
        "chosen": point == result.chosen,
    }
