"""The page of a search: how each algorithm was tuned, the Pareto front as plots and a table, and the final test."""

import io
import itertools
from importlib.metadata import version
from typing import Any

from e2fl.errors import ReportError
from e2fl.report.theme import IN_FILE, shape_of
from e2fl.sweeps.page import render
from e2fl.sweeps.results import LEVELS, MEASURES
from e2fl.tuning.results import TESTED, Result
from e2fl.tuning.trials import WARM, Objective, Trial

SIDE = 230  # pixels of a plot


def page(result: Result) -> str:
    """Return the page as HTML, without scripts or network."""
    front = result.front
    rows = [
        {
            "algorithm": method.name,
            "trial": trial,
            "settings": result.settings(trial),
            "state": _state(trial),
            "cells": result.cells(trial),
            "front": "all" if (method.name, trial.number) in front else "own" if trial.number in method.front else "",
            "chosen": trial is method.chosen,
        }
        for method in result.tuned
        for trial in method.trials
    ]
    return render(
        "tuning/page.html.j2",
        result=result,
        rows=rows,
        plots=plots(result),
        final=result.final_rows(),
        levels=LEVELS.values(),
        tested=[MEASURES[measure] for measure in TESTED],
        warm=WARM,
        optuna=version("optuna"),
    )


def plots(result: Result) -> list[dict[str, Any]]:
    """Return a plot of every pair of objectives; of the trials themselves if there is only one objective."""
    try:
        import altair as alt
        from markupsafe import Markup
    except ImportError as error:
        raise ReportError("the page needs altair; install it with: pip install 'e2fl[report]'") from error
    points = _points(result)
    if not points:
        return []
    names = [method.name for method in result.tuned]
    found = []
    pairs = list(itertools.combinations(range(len(result.objectives)), 2)) or [(-1, 0)]
    for across, up in pairs:
        base = alt.Chart(alt.InlineData(points)).encode(
            x=_axis(alt.X, "trial" if across < 0 else f"v{across}", None if across < 0 else result.objectives[across]),
            y=_axis(alt.Y, f"v{up}", result.objectives[up]),
            color=alt.Color(
                "algorithm:N",
                scale=alt.Scale(domain=names, range=[IN_FILE.colour(place) for place in range(len(names))]),
            ),
            shape=alt.Shape(
                "algorithm:N", scale=alt.Scale(domain=names, range=[shape_of(place) for place in range(len(names))])
            ),
        )
        chart: Any = alt.layer(
            base.transform_filter("!datum.front").mark_point(filled=False, size=60, opacity=0.6),
            base.transform_filter("datum.front").mark_point(filled=True, size=90, opacity=1),
            base.transform_filter("datum.chosen").mark_point(
                filled=False, size=420, strokeWidth=2, shape="circle", opacity=1
            ),
        ).properties(width=SIDE, height=SIDE)
        text = io.StringIO()
        alt.Chart.from_dict(chart.to_dict() | {"config": IN_FILE.config()}).save(text, format="svg")
        first = "Trials in order" if across < 0 else str(result.objectives[across])
        found.append({"title": f"{first} and {result.objectives[up]}", "svg": Markup(text.getvalue())})
    return found


def _points(result: Result) -> list[dict[str, Any]]:
    front, points = result.front, []
    for method in result.tuned:
        for trial in method.trials:
            if trial.state == "complete":
                scaled = zip(result.objectives, trial.values, strict=True)
                means = [sum(values) / len(values) / (2**20 if o.pick is None else 1) for o, values in scaled]
                points.append(
                    {
                        "algorithm": method.name,
                        "trial": trial.number,
                        "front": (method.name, trial.number) in front,
                        "chosen": trial is method.chosen,
                        **{f"v{place}": value for place, value in enumerate(means)},
                    }
                )
    return points


def _axis(kind: Any, field: str, objective: Objective | None) -> Any:
    import altair as alt

    if objective is None:
        return kind(f"{field}:Q", title="trial", axis=alt.Axis(format="d", tickMinStep=1))
    better = "lower is better" if objective.lower_is_better else "higher is better"
    unit = "" if objective.pick is None else ", %"
    return kind(f"{field}:Q", title=f"{objective}{unit} ({better})", scale=alt.Scale(zero=False, nice=True))


def _state(trial: Trial) -> str:
    return f"pruned at round {max(trial.curves[-1])}" if trial.state == "pruned" else trial.state
