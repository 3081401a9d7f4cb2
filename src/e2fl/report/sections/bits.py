"""How good is the worst group for the bits that clients send?"""

import altair as alt

from e2fl.report.chart import METHOD_TIP, Row, draw, quantity, room, scatter, tip
from e2fl.report.section import METHOD, Section
from e2fl.report.study import Study
from e2fl.report.table import Cell, Column, Table, cell
from e2fl.report.theme import Theme

COLUMNS = (("up_per_edge", "up"), ("entropy_up_per_edge", "up, entropy"), ("down_per_edge", "down"))


def section(study: Study, theme: Theme) -> Section | None:
    known = [m for m in study.main if m.mean("bits/up_per_edge") is not None and m.mean(study.worst) is not None]
    if len(known) < 2:
        return None
    values: list[Row] = [
        {"label": method.label, "bits": method.mean("bits/up_per_edge"), "worst": method.mean(study.worst)}
        for method in known
    ]
    worst = f"{study.worst_label}, %"
    x = quantity(alt.X, "bits", "bits per edge up, mean", **room([0.0, *(row["bits"] for row in values)]))
    y = quantity(alt.Y, "worst", worst, **room([row["worst"] for row in values], high=100.0))
    points = scatter(values, study, theme, x, y, [METHOD_TIP, tip("bits", "bits per edge up"), tip("worst", worst)])
    told = "; ".join(f"{v['label']}: {v['bits']:.2f} bits, {v['worst']:.1f} %" for v in values)
    title = f"{study.worst_label.capitalize()} against bits"
    words = f"Points: {worst} against bits per edge up. {told}."
    plot = draw("bits", title, "Up and to the left is better.", words, [points], theme, 280)
    intro = "The bits that a client sends for each edge of the network, and the accuracy of the worst group."
    columns = (
        METHOD,
        Column(study.worst, study.worst_label, definition="worst10"),
        *(Column(f"bits/{key}", title, 3, "bits per edge", "bits") for key, title in COLUMNS),
    )
    rows = tuple(
        (Cell(m.label), cell(m.interval(study.worst)), *(cell(m.interval(f"bits/{key}")) for key, _ in COLUMNS))
        for m in known
    )
    table = Table("bits", f"{title}, by method", columns, rows)
    return Section("bits", title, intro, (), (plot,), (table,))
