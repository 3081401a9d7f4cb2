"""How well were groups found that clients did not declare?"""

import altair as alt

from e2fl.metrics import COLUMNS, MEASURES
from e2fl.report.chart import METHOD_TIP, Plot, Row, draw, lines, quantity, tip, whole_numbers
from e2fl.report.methods import method_table
from e2fl.report.section import Section
from e2fl.report.study import Study
from e2fl.report.table import column_of
from e2fl.report.theme import Theme


def section(study: Study, theme: Theme) -> Section | None:
    methods = [method for method in study.main if method.recovers]
    if not methods:
        return None
    columns = [
        column_of(MEASURES[key])
        for key in COLUMNS["recovery"]
        if any(method.by_seed(key) for method in methods)
    ]
    table = method_table("recovery", "How well groups were found", methods, columns)
    plot = _plot(study, theme)
    plots = () if plot is None else (plot,)
    intro = "How well were groups found that clients did not declare?"
    return Section("recovery", "Recovered groups", intro, (), plots, (table,))


def _plot(study: Study, theme: Theme) -> Plot | None:
    """Return a plot of the share of clients in the right group, by round."""
    key = "inference/matched"
    values: list[Row] = []
    for method in study.main:
        if method.recovers and key in method.rows:
            means = method.rows.dropna(subset=[key]).groupby("round", as_index=False)[key].mean()
            values += [
                {"label": method.label, "at": int(number), "value": float(value)}
                for number, value in zip(means["round"], means[key], strict=True)
            ]
    if not values:
        return None
    x = whole_numbers(alt.X, "at", "round", [row["at"] for row in values])
    y = quantity(alt.Y, "value", "clients in the right group, %")
    tips = [METHOD_TIP, tip("at", "round", "d"), tip("value", "right, %")]
    layers = lines(values, study, theme, x, y, tips)
    ends = {value["label"]: value["value"] for value in values}
    told = "; ".join(f"{label} {value:.1f} %" for label, value in ends.items())
    words = f"Lines: share of clients in the right group, by round. At the end: {told}."
    caption = "After the best one-to-one matching of found to true groups."
    return draw("recovery", "Clients in the right group", caption, words, layers, theme, 240)
