"""The page of a search: the choice, the final test, plots of the trials, and all trials."""

import io
import itertools
from importlib.metadata import version
from typing import Any

import altair as alt
import pandas as pd
from markupsafe import Markup

from e2fl.report.charts import in_file, points
from e2fl.report.table import environment
from e2fl.search.results import Result
from e2fl.search.space import described

SIZE = 230  # pixels of a plot
SHORT = alt.Axis(format="~s")  # 1,500,000 is 1.5M


def page(result: Result) -> str:
    """Return the page as HTML, without scripts or network."""
    tables = {
        "chosen": result.table([objective.key for objective in result.objectives], chosen=True),
        "trials": result.table(),
    } | ({"final": result.final_table()} if result.final else {})
    svg = io.StringIO()
    alt.Chart.from_dict(in_file(plots(result).to_dict())).save(svg, format="svg")
    template = environment("e2fl.search").get_template("page.html.j2")
    return template.render(
        result=result,
        share=100 * float(result.experiment.data["validation_share"]),
        tables={name: Markup(table.html()) for name, table in tables.items()},
        chart=Markup(svg.getvalue()),
        described=described,
        optuna=version("optuna"),
    )


def plots(result: Result) -> Any:
    """Return a plot of each pair of objectives; of a grid, what decides against each setting."""
    trials = result.table().frame.query("state == 'complete'")
    labels = [one.name for one in result.tuned]
    keys = [one.key for one in result.objectives]
    settings = dict.fromkeys(setting for one in result.tuned for setting in one.space)
    pairs = [*itertools.combinations(keys, 2)]
    if result.sampler == "grid" or not pairs:
        pairs = [(name, result.pick.key) for name in settings]
    charts = []
    for across, up in pairs:
        numbers = pd.to_numeric(trials[across], errors="coerce")
        x = trials[across] if numbers.isna().any() else numbers
        rows = trials.assign(x=x, y=trials[up], label=trials["algorithm"])
        kind = "N" if x is not numbers else "Q"
        channels: dict[str, Any] = {
            "x": alt.X(f"x:{kind}", title=across, scale=alt.Scale(zero=False), axis=SHORT),
            "y": alt.Y("y:Q", title=up, scale=alt.Scale(zero=False), axis=SHORT),
        }
        parts = (
            (rows, 60, False),
            (rows.query("front == '*'"), 60, True),
            (rows.query("chosen == '*'"), 420, False),
        )
        layers = []
        for part, size, filled in parts:
            shown: list[Any] = part[["x", "y", "label"]].to_dict("records")
            layers.append(points(shown, labels, size, filled=filled, **channels))
        charts.append(alt.layer(*layers, width=SIZE, height=SIZE))
    return alt.concat(*charts, columns=3).add_params(alt.param("picked", value=[]))
