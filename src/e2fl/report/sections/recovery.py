"""How well were groups found that clients did not declare?"""

import altair as alt
import numpy as np

from e2fl.report.chart import METHOD_TIP, Plot, Row, draw, lines, quantity, tip, whole_numbers
from e2fl.report.section import METHOD, Section
from e2fl.report.study import Study, measured
from e2fl.report.table import Cell, Column, Table, cell
from e2fl.report.theme import Theme

MEASURES = (
    ("matched", "right, %", 1),
    ("purity", "purity, %", 1),
    ("adjusted_rand", "adjusted Rand", 3),
    ("changed", "changed, %", 1),
    ("passes_per_client", "passes per client", 1),
    ("bytes", "bytes", 0),
)


def section(study: Study, theme: Theme) -> Section | None:
    found = [method for method in study.methods if any(outcome.recovery for outcome in method.outcomes)]
    if not found:
        return None
    used = [entry for entry in MEASURES if any(method.by_seed(f"recovery/{entry[0]}") for method in found)]
    columns = [METHOD, *(Column(f"recovery/{key}", title, n, definition="recovery") for key, title, n in used)]
    rows = tuple((Cell(m.label), *(cell(m.interval(f"recovery/{key}")) for key, _, _ in used)) for m in found)
    table = Table("recovery", "How well groups were found", tuple(columns), rows)
    plot = _plot(study, theme)
    intro = "How well were groups found that clients did not declare?"
    return Section("recovery", "Recovered groups", intro, (), () if plot is None else (plot,), (table,))


def _plot(study: Study, theme: Theme) -> Plot | None:
    """Return a plot of the share of clients in the right group, by round."""
    values: list[Row] = []
    for method in study.main:
        if not any(outcome.recovery for outcome in method.outcomes):
            continue
        by_round: dict[int, list[float]] = {}
        for line in (line for outcome in method.outcomes for line in outcome.history):
            value = measured(line, "inference/matched")
            if value is not None:
                by_round.setdefault(int(line["round"]), []).append(value)
        values += [
            {"label": method.label, "at": number, "value": float(np.mean(found))}
            for number, found in sorted(by_round.items())
        ]
    if not values:
        return None
    x = whole_numbers(alt.X, "at", "round", [row["at"] for row in values])
    y = quantity(alt.Y, "value", "clients in the right group, %")
    layers = lines(values, study, theme, x, y, [METHOD_TIP, tip("at", "round", "d"), tip("value", "right, %")])
    ends = {value["label"]: value["value"] for value in values}
    told = "; ".join(f"{label} {value:.1f} %" for label, value in ends.items())
    words = f"Lines: share of clients in the right group, by round. At the end: {told}."
    caption = "After the best one-to-one matching of found to true groups."
    return draw("recovery", "Clients in the right group", caption, words, layers, theme, 240)
