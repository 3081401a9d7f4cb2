"""The page of a search: the choice, the final test, plots of the trials, and all trials."""

import io
import itertools
from importlib.metadata import version
from typing import Any

import altair as alt
from markupsafe import Markup

from e2fl.metrics import Measure
from e2fl.report.charts import colour_of, in_file, shape_of
from e2fl.report.table import environment
from e2fl.search.results import Result
from e2fl.search.space import settings_text, shown
from e2fl.search.trials import BYTES, WARM

SIDE = 230  # pixels of a plot


def page(result: Result) -> str:
    """Return the page as HTML, without scripts or network."""
    objectives = [objective.key for objective in result.objectives]
    tables = {
        "chosen": result.table(objectives, chosen=True),
        "final": result.final_table(),
        "effort": result.effort_table(),
        "trials": result.table(),
    }
    plots = heat_maps(result) if result.sampler == "grid" else scatter_plots(result)
    return (
        environment("e2fl.search")
        .get_template("page.html.j2")
        .render(
            result=result,
            share=100 * float(result.experiment.data["validation_share"]),
            tables={name: Markup(table.html()) for name, table in tables.items()},
            plots=[Markup(svg) for svg in plots],
            warm=WARM,
            optuna=version("optuna"),
        )
    )


def heat_maps(result: Result) -> list[str]:
    """Return a map of the first two settings for every combination of the others, as SVG."""
    (method,) = result.tuned
    names = list(method.space)
    across, down, others = names[-1 if len(names) == 1 else 1], names[0], names[2:]
    rows: dict[str, list[dict[str, Any]]] = {}
    for trial in method.trials:
        title = settings_text({name: trial.settings[name] for name in others}) if others else ""
        value = trial.mean(result.pick.key) if trial.state == "complete" else None
        rows.setdefault(title, []).append(
            {
                "across": shown(trial.settings[across]),
                "down": shown(trial.settings[down]) if len(names) > 1 else "",
                "value": value,
                "text": "diverged" if value is None else f"{value:.2f}",
                "chosen": trial is method.chosen,
            }
        )
    return [_heat_map(cells, title, across, down, result.pick) for title, cells in rows.items()]


def _heat_map(
    cells: list[dict[str, Any]], title: str, across: str, down: str, pick: Measure
) -> str:
    base = alt.Chart(alt.InlineData(cells), title=title).encode(
        x=alt.X("across:N", sort=None, title=across, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("down:N", sort=None, title=down if down != across else None),
    )
    scale = alt.Scale(scheme="blues", reverse=pick.sign < 0)
    colour = alt.Color("value:Q", scale=scale, title=pick.key)
    return _svg(
        base.mark_rect().encode(color=colour),
        base.transform_filter("datum.chosen").mark_rect(
            fillOpacity=0, stroke="#f28e2b", strokeWidth=3
        ),
        base.mark_text(color="black", stroke="white", strokeWidth=0.3).encode(text="text:N"),
    )


def scatter_plots(result: Result) -> list[str]:
    """Return a plot of every pair of objectives as SVG; of trials in order if there is only one."""
    points = [
        {
            "algorithm": method.name,
            "trial": trial.number,
            "front": (method.name, trial.number) in result.front,
            "chosen": trial is method.chosen,
        }
        | {
            one.key.replace("/", "_"): _scaled(one, trial.mean(one.key))
            for one in result.objectives
        }
        for method in result.tuned
        for trial in method.trials
        if trial.state == "complete"
    ]
    if not points:
        return []
    names = [method.name for method in result.tuned]
    places = range(len(names))
    colours = alt.Scale(domain=names, range=[colour_of(place) for place in places])
    shapes = alt.Scale(domain=names, range=[shape_of(place) for place in places])
    plots = []
    pairs: list[tuple[Measure | None, Measure]] = [*itertools.combinations(result.objectives, 2)]
    for across, up in pairs or [(None, result.pick)]:
        base = alt.Chart(alt.InlineData(points)).encode(
            x=_axis(alt.X, across),
            y=_axis(alt.Y, up),
            color=alt.Color("algorithm:N", scale=colours),
            shape=alt.Shape("algorithm:N", scale=shapes),
        )
        outline = base.transform_filter("datum.chosen")
        plots.append(
            _svg(
                base.transform_filter("!datum.front").mark_point(size=60, opacity=0.6),
                base.transform_filter("datum.front").mark_point(filled=True, size=90, opacity=1),
                outline.mark_point(size=420, strokeWidth=2, shape="circle", opacity=1),
            )
        )
    return plots


def _scaled(objective: Measure, value: float) -> float:
    return value / 2**20 if objective.key == BYTES else value


def _axis(kind: Any, objective: Measure | None) -> Any:
    if objective is None:
        return kind("trial:Q", title="trial", axis=alt.Axis(format="d", tickMinStep=1))
    better = "higher is better" if objective.sign > 0 else "lower is better"
    name = "MiB sent" if objective.key == BYTES else objective.key
    scale = alt.Scale(zero=False, nice=True)
    return kind(f"{objective.key.replace('/', '_')}:Q", title=f"{name} ({better})", scale=scale)


def _svg(*layers: alt.Chart) -> str:
    chart = alt.layer(*layers).properties(width=SIDE, height=SIDE)
    text = io.StringIO()
    alt.Chart.from_dict(in_file(chart.to_dict())).save(text, format="svg")
    return text.getvalue()
