"""How many bits do rankings take, and how good is the worst group for them?"""

from collections.abc import Sequence

import altair as alt

from e2fl.metrics import COLUMNS, MEASURES
from e2fl.report.chart import METHOD_TIP, Plot, Row, draw, quantity, room, scatter, tip
from e2fl.report.methods import method_table
from e2fl.report.section import Section
from e2fl.report.study import Method, Study
from e2fl.report.table import Column, Table, byte_unit, column_of
from e2fl.report.theme import Theme

UP, ENTROPY, DOWN, OVER = COLUMNS["bits"]
NOTE = (
    "A dash under entropy: messages of a fixed size, such as exact rankings or weights, "
    "which are not coded."
)


def section(study: Study, theme: Theme) -> Section | None:
    methods = [
        method
        for method in study.main
        if not method.alone and method.mean(UP) is not None and method.mean(study.worst) is not None
    ]
    if not methods:
        return None
    title = f"{study.worst_label.capitalize()} against bits"
    intro = (
        "What one client sends and receives in a round, in bits for each edge of the network. "
        f"{_words(methods)}"
    )
    table = _table(study, methods, title)
    if len(methods) < 2:
        return Section("bits", title, intro, (table,))
    return Section("bits", title, intro, (), (_plot(study, theme, methods, title),), (table,))


def _words(methods: Sequence[Method]) -> str:
    """Return a sentence for each method: bits up and down, the overhead of the coder, the total."""
    name, size, digits = byte_unit(method.mean("bytes/total") for method in methods)
    sentences = []
    for method in methods:
        up, over, down, total = (method.mean(key) for key in (UP, OVER, DOWN, "bytes/total"))
        above = "" if over is None else f" ({over:.1f} % above the entropy)"
        parts = [f"{up:.2f} bits up{above}", *([] if down is None else [f"{down:.2f} down"])]
        whole = "" if total is None else f"; the whole run sent {total / size:,.{digits}f} {name}"
        sentences.append(f"{method.label}: {', '.join(parts)}{whole}.")
    return " ".join(sentences)


def _plot(study: Study, theme: Theme, methods: Sequence[Method], title: str) -> Plot:
    values: list[Row] = [
        {"label": method.label, "bits": method.mean(UP), "worst": method.mean(study.worst)}
        for method in methods
    ]
    worst = f"{study.worst_label}, %"
    across = room([0.0, *(row["bits"] for row in values)])
    x = quantity(alt.X, "bits", "bits per edge up, mean", **across)
    y = quantity(alt.Y, "worst", worst, **room([row["worst"] for row in values], high=100.0))
    tips = [METHOD_TIP, tip("bits", "bits per edge up"), tip("worst", worst)]
    points = scatter(values, study, theme, x, y, tips)
    told = "; ".join(f"{v['label']}: {v['bits']:.2f} bits, {v['worst']:.1f} %" for v in values)
    words = f"Points: {worst} against bits per edge up. {told}."
    return draw("bits", title, "Up and to the left is better.", words, [points], theme, 280)


def _table(study: Study, methods: Sequence[Method], title: str) -> Table:
    name, size, digits = byte_unit(method.mean("bytes/total") for method in methods)
    columns = [
        Column(study.worst, study.worst_label, definition="worst10"),
        *(column_of(MEASURES[key]) for key in (UP, ENTROPY, DOWN)),
        column_of(MEASURES[OVER], head=""),
        Column("bytes/total", f"{name} in all", digits, definition="bytes", scale=1 / size),
    ]
    coded = all(method.mean(ENTROPY) is not None for method in methods)
    return method_table("bits", f"{title}, by method", methods, columns, "" if coded else NOTE)
