"""The page of a search: the choice, the final test, plots of the trials, and all trials."""

import io
import itertools
import re
from importlib.metadata import version
from typing import Any

import altair as alt
import pandas as pd
from markupsafe import Markup

from e2fl.metrics import Measure
from e2fl.report.charts import colour_of, in_file, shape_of
from e2fl.report.table import environment
from e2fl.search.results import BYTES, WARM, Result

SIDE = 230  # pixels of a plot


def page(result: Result) -> str:
    """Return the page as HTML, without scripts or network."""
    tables = {
        "chosen": result.table([objective.key for objective in result.objectives], chosen=True),
        "final": result.final_table(),
        "effort": result.effort_table(),
        "trials": result.table(),
    }
    plots = heat_maps(result) if result.sampler == "grid" else scatter_plots(result)
    template = environment("e2fl.search").get_template("page.html.j2")
    return template.render(
        result=result,
        share=100 * float(result.experiment.data["validation_share"]),
        tables={name: Markup(table.html()) for name, table in tables.items()},
        plots=[
            Markup(re.sub(r"gradient_\d+", f"gradient_{position}", svg))  # counted by the process
            for position, svg in enumerate(plots)
        ],
        warm=WARM,
        optuna=version("optuna"),
    )


def heat_maps(result: Result) -> list[str]:
    """Return a map of the first two settings for every combination of the others, as SVG."""
    frame, names = result.table().frame, list(result.tuned[0].space)
    across, down, others = names[min(1, len(names) - 1)], names[0], names[2:]
    values = pd.to_numeric(frame[result.pick.key])
    cells = pd.DataFrame(
        {
            "across": frame[across],
            "down": frame[down] if len(names) > 1 else "",
            "value": values,
            "text": values.map("{:.2f}".format).where(values.notna(), "diverged"),
            "chosen": frame["chosen"] == "*",
            "title": [
                ", ".join(f"{name} = {row[name]}" for name in others) for _, row in frame.iterrows()
            ],
        }
    )
    scale = alt.Scale(scheme="blues", reverse=result.pick.sign < 0)
    colour = alt.Color("value:Q", scale=scale, title=result.pick.key)
    maps = []
    for title, part in cells.groupby("title", sort=False):
        base = alt.Chart(_data(part), title=str(title)).encode(
            x=alt.X("across:N", sort=None, title=across, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("down:N", sort=None, title=down if down != across else None),
        )
        frames = base.transform_filter("datum.chosen")
        maps.append(
            _svg(
                base.mark_rect().encode(color=colour),
                frames.mark_rect(fillOpacity=0, stroke="#f28e2b", strokeWidth=3),
                base.mark_text(color="black", stroke="white", strokeWidth=0.3).encode(
                    text="text:N"
                ),
            )
        )
    return maps


def scatter_plots(result: Result) -> list[str]:
    """Return a plot of every pair of objectives as SVG; of trials in order if there is only one."""
    frame = result.table().frame
    points = frame[frame["state"] == "complete"].rename(columns=lambda name: name.replace("/", "_"))
    if points.empty:
        return []
    if "bytes_total" in points:
        points["bytes_total"] = points["bytes_total"] / 2**20
    names = [method.name for method in result.tuned]
    colours = alt.Scale(domain=names, range=[colour_of(k) for k in range(len(names))])
    shapes = alt.Scale(domain=names, range=[shape_of(k) for k in range(len(names))])
    plots = []
    pairs: list[tuple[Measure | None, Measure]] = [*itertools.combinations(result.objectives, 2)]
    for across, up in pairs or [(None, result.pick)]:
        base = alt.Chart(_data(points)).encode(
            x=_axis(alt.X, across),
            y=_axis(alt.Y, up),
            color=alt.Color("algorithm:N", scale=colours),
            shape=alt.Shape("algorithm:N", scale=shapes),
        )
        best, chosen = base.transform_filter("datum.front == 'all'"), "datum.chosen == '*'"
        plots.append(
            _svg(
                base.transform_filter("datum.front != 'all'").mark_point(size=60, opacity=0.6),
                best.mark_point(filled=True, size=90, opacity=1),
                base.transform_filter(chosen).mark_point(
                    size=420, strokeWidth=2, shape="circle", opacity=1
                ),
            )
        )
    return plots


def _axis(kind: Any, objective: Measure | None) -> Any:
    if objective is None:
        return kind("trial:Q", title="trial", axis=alt.Axis(format="d", tickMinStep=1))
    better = "higher is better" if objective.sign > 0 else "lower is better"
    name = "MiB sent" if objective.key == BYTES else objective.key
    scale = alt.Scale(zero=False, nice=True)
    return kind(f"{objective.key.replace('/', '_')}:Q", title=f"{name} ({better})", scale=scale)


def _data(frame: pd.DataFrame) -> alt.InlineData:
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return alt.InlineData([{str(key): value for key, value in row.items()} for row in rows])


def _svg(*layers: alt.Chart) -> str:
    chart = alt.layer(*layers).properties(width=SIDE, height=SIDE)
    text = io.StringIO()
    alt.Chart.from_dict(in_file(chart.to_dict())).save(text, format="svg")
    return text.getvalue()
