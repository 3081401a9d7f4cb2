"""The page of a search: the choice, the final test, plots of the trials, and all trials."""

import io
from importlib.metadata import version
from itertools import combinations
from typing import Any

import altair as alt
import pandas as pd
from markupsafe import Markup

from e2fl.report.table import environment
from e2fl.search.results import Result
from e2fl.search.space import described


def page(result: Result) -> str:
    """Return the page as HTML, without scripts or network."""
    tables = {
        "chosen": result.table([objective.key for objective in result.objectives], chosen=True),
        "trials": result.table(),
    } | ({"final": result.final_table()} if result.final else {})
    svg = io.StringIO()
    plots(result).save(svg, format="svg")
    return (
        environment("e2fl.search")
        .get_template("page.html.j2")
        .render(
            result=result,
            share=100 * float(result.experiment.data["validation_share"]),
            tables={name: Markup(table.html()) for name, table in tables.items()},
            chart=Markup(svg.getvalue()),
            described=described,
            optuna=version("optuna"),
        )
    )


def plots(result: Result) -> alt.ConcatChart:
    """Return a plot of each pair of objectives; of a grid, what decides against each setting."""
    trials = result.table().frame.query("state == 'complete'")
    pairs = [*combinations([one.key for one in result.objectives], 2)]
    if result.sampler == "grid" or not pairs:
        settings = dict.fromkeys(setting for one in result.tuned for setting in one.space)
        pairs = [(name, result.pick.key) for name in settings]
    colour, charts = alt.Color("algorithm:N"), []
    for across, up in pairs:
        rows = trials[["algorithm", "front", "chosen"]].assign(y=trials[up])
        numbers = pd.to_numeric(trials[across], errors="coerce")
        words = numbers.isna().any()
        axes: dict[str, Any] = {"scale": alt.Scale(zero=False), "axis": alt.Axis(format="~s")}
        chart = alt.Chart(rows.assign(x=trials[across] if words else numbers)).mark_point()
        charts.append(
            chart.encode(
                x=alt.X(f"x:{'N' if words else 'Q'}", title=across, **({} if words else axes)),
                y=alt.Y("y:Q", title=up, **axes),
                color=colour,
                shape="algorithm:N",
                fill=alt.condition(alt.datum.front == "*", colour, alt.value("transparent")),
                size=alt.condition(alt.datum.chosen == "*", alt.value(420), alt.value(60)),
            )
        )
    return alt.concat(*charts, columns=3)
