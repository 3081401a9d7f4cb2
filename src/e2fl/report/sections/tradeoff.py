"""Which methods are not beaten in accuracy, equity and bytes at once?"""

from collections.abc import Sequence

import altair as alt

from e2fl.report.chart import METHOD_TIP, Plot, Row, draw, quantity, room, scatter, tip, tip_text
from e2fl.report.section import Section
from e2fl.report.study import ParetoPoint, Study, pareto
from e2fl.report.table import METHOD, Column, Table, byte_unit
from e2fl.report.theme import Theme

FILLED = "Filled: no other method is at least as good on all three measures and better on one."


def section(study: Study, theme: Theme) -> Section | None:
    fronts = pareto(study)
    if len(fronts) < 2:
        return None
    plots = [_plot(study, theme, fronts, "mean")]
    if all(front.sent is not None for front in fronts):
        plots.append(_plot(study, theme, fronts, "sent"))
    intro = (
        "Methods trade accuracy, equity and data sent against each other. "
        "Which methods are not beaten in all three?"
    )
    return Section(
        "tradeoff", "Trade-off", intro, (), tuple(plots), (tradeoff_table(study, fronts),)
    )


def _plot(study: Study, theme: Theme, fronts: Sequence[ParetoPoint], along: str) -> Plot:
    name, size, _ = byte_unit([front.sent for front in fronts if not front.method.alone])
    worst = f"{study.worst_label}, %"
    values: list[Row] = [
        {"label": f.method.label, "mean": f.mean, "worst": f.worst}
        | {
            "sent": None if f.sent is None else f.sent / size,
            "front": "beaten" if f.beaten_by else "not beaten",
        }
        for f in fronts
    ]
    tips = [METHOD_TIP, tip("mean", "mean, %"), tip("worst", worst)]
    tips += [] if values[0]["sent"] is None else [tip("sent", name, ",.1f")]
    if along == "mean":
        title, axis, better = (
            "Accuracy and equity",
            "mean of clients, %",
            "Up and to the right is better.",
        )
        x = quantity(alt.X, "mean", axis, **room([front.mean for front in fronts], high=100.0))
    else:
        most = max(row["sent"] for row in values) or 1.0
        title, axis, better = (
            "Data sent and equity",
            f"{name} sent in all",
            "Up and to the left is better.",
        )
        x = quantity(alt.X, "sent", axis, domain=[-0.04 * most, 1.08 * most], nice=False)
    y = quantity(alt.Y, "worst", worst, **room([front.worst for front in fronts], high=100.0))
    tips.append(tip_text("front", "on all three"))
    kinds = {
        front: [row for row in values if row["front"] == front]
        for front in ("not beaten", "beaten")
    }
    layers = [
        scatter(rows, study, theme, x, y, tips, filled=front == "not beaten")
        for front, rows in kinds.items()
        if rows
    ]
    told = "; ".join(
        f"{v['label']}: mean {v['mean']:.1f}, worst {v['worst']:.1f}"
        + ("" if v["sent"] is None else f", {v['sent']:.1f} {name}")
        for v in values
    )
    words = f"Points: {worst} against {axis}. {told}."
    return draw(f"tradeoff-{along}", title, f"{better} {FILLED}", words, layers, theme, 280)


def tradeoff_table(study: Study, fronts: Sequence[ParetoPoint]) -> Table:
    """Return a table of accuracy, equity and bytes."""
    name, size, digits = byte_unit([front.sent for front in fronts if not front.method.alone])
    columns = (
        METHOD,
        Column("clients/mean", "mean of clients", definition="mean"),
        Column(study.worst, study.worst_label, definition="worst10"),
        Column("bytes/total", f"{name} in all", digits, definition="bytes", scale=1 / size),
        Column("front", "on all three", definition="pareto"),
    )
    rows = [
        {"method": front.method.label, "clients/mean": front.mean, study.worst: front.worst}
        | {"bytes/total": front.sent}
        | {"front": f"beaten by {', '.join(front.beaten_by)}" if front.beaten_by else "not beaten"}
        for front in fronts
    ]
    return Table.of("tradeoff", "Accuracy, equity and data sent", columns, rows)
