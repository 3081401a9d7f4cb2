"""The page of a search: the choice, the final test, a chart of the trials, and all trials."""

import io
import itertools
import re
from importlib.metadata import version
from typing import Any

import altair as alt
import pandas as pd
from markupsafe import Markup

from e2fl.metrics import Measure
from e2fl.report.charts import colour_of, data, in_file, shape_of
from e2fl.report.table import environment
from e2fl.search.results import BYTES, WARM, Result
from e2fl.search.space import settings_text

SIZE: dict[str, Any] = {"width": 230, "height": 230}  # pixels of a plot


def page(result: Result) -> str:
    """Return the page as HTML, without scripts or network."""
    tables = {
        "chosen": result.table([objective.key for objective in result.objectives], chosen=True),
        "final": result.final_table(),
        "effort": result.effort_table(),
        "trials": result.table(),
    }
    chart = heat_map(result) if result.sampler == "grid" else scatter_plots(result)
    svg = io.StringIO()
    alt.Chart.from_dict(in_file(chart.to_dict())).save(svg, format="svg")
    return (
        environment("e2fl.search")
        .get_template("page.html.j2")
        .render(
            result=result,
            share=100 * float(result.experiment.data["validation_share"]),
            tables={name: Markup(table.html()) for name, table in tables.items()},
            chart=Markup(
                re.sub(r"gradient_\d+", "gradient", svg.getvalue())
            ),  # counted by the process
            warm=WARM,
            optuna=version("optuna"),
        )
    )


def heat_map(result: Result) -> Any:
    """Return a map of the first two settings for every combination of the others."""
    frame = result.table().frame.assign(none="")
    names = list(result.tuned[0].space)
    down, across, *others = names if len(names) > 1 else ["none", *names]
    values = pd.to_numeric(frame[result.pick.key])
    cells = pd.DataFrame(
        {
            "across": frame[across],
            "down": frame[down],
            "others": [
                settings_text(dict(row)) if others else "" for _, row in frame[others].iterrows()
            ],
            "value": values,
            "text": values.map("{:.2f}".format).where(values.notna(), "diverged"),
            "chosen": frame["chosen"],
        }
    )
    base = alt.Chart(**SIZE).encode(
        x=alt.X("across:N", sort=None, title=across, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("down:N", sort=None, title=None if down == "none" else down),
    )
    scale = alt.Scale(scheme="blues", reverse=result.pick.sign < 0)
    colour = alt.Color("value:Q", scale=scale, title=result.pick.key)
    frames = base.transform_filter("datum.chosen == '*'")
    layers = alt.layer(
        base.mark_rect(opacity=0.6).encode(color=colour),
        frames.mark_rect(fillOpacity=0, stroke="#f28e2b", strokeWidth=3),
        base.mark_text(color="black").encode(text="text:N"),
        data=_data(cells),
    )
    return layers.facet(alt.Facet("others:N", title=None, sort=None), columns=3)


def scatter_plots(result: Result) -> Any:
    """Return a plot of every pair of objectives; of trials in order if there is only one."""
    frame = result.table().frame
    points = frame[frame["state"] == "complete"].rename(columns=lambda name: name.replace("/", "_"))
    points = points.assign(bytes_total=points.get("bytes_total", 0) / 2**20)
    names = [method.name for method in result.tuned]
    colours = alt.Scale(domain=names, range=[colour_of(k) for k in range(len(names))])
    shapes = alt.Scale(domain=names, range=[shape_of(k) for k in range(len(names))])
    pairs: list[tuple[Measure | None, Measure]] = [*itertools.combinations(result.objectives, 2)]
    plots = []
    for across, up in pairs or [(None, result.pick)]:
        base = alt.Chart(**SIZE).encode(
            x=_axis(alt.X, across),
            y=_axis(alt.Y, up),
            color=alt.Color("algorithm:N", scale=colours),
            shape=alt.Shape("algorithm:N", scale=shapes),
        )
        best, others = (base.transform_filter(f"datum.front {sign}= 'all'") for sign in "=!")
        chosen = base.transform_filter("datum.chosen == '*'")
        plots.append(
            alt.layer(
                others.mark_point(size=60, opacity=0.6),
                best.mark_point(filled=True, size=90, opacity=1),
                chosen.mark_point(size=420, strokeWidth=2, shape="circle", opacity=1),
            )
        )
    return alt.concat(*plots, columns=3, data=_data(points))


def _data(frame: pd.DataFrame) -> alt.InlineData:
    rows: Any = frame.to_dict("records")
    return data(rows)


def _axis(kind: Any, objective: Measure | None) -> Any:
    if objective is None:
        return kind("trial:Q", title="trial", axis=alt.Axis(format="d", tickMinStep=1))
    better = "higher is better" if objective.sign > 0 else "lower is better"
    name = "MiB sent" if objective.key == BYTES else objective.key
    scale = alt.Scale(zero=False, nice=True)
    return kind(f"{objective.key.replace('/', '_')}:Q", title=f"{name} ({better})", scale=scale)
