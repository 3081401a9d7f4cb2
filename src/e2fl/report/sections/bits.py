"""How many bits do rankings take, and how good is the worst group for them?"""

from collections.abc import Sequence

import altair as alt

from e2fl.report.chart import METHOD_TIP, Plot, Row, draw, quantity, room, scatter, tip
from e2fl.report.section import METHOD, Section
from e2fl.report.study import Method, Study
from e2fl.report.table import Cell, Column, Table, cell, unit
from e2fl.report.theme import Theme

HEAD = "bits per edge"
UP, ENTROPY, OVER, DOWN = "bits/up_per_edge", "bits/entropy_up_per_edge", "bits/over_entropy", "bits/down_per_edge"
NOTE = "A dash under entropy: messages of a fixed size, such as exact rankings or weights, which are not coded."


def section(study: Study, theme: Theme) -> Section | None:
    known = [m for m in study.main if not m.alone and m.mean(UP) is not None and m.mean(study.worst) is not None]
    if not known:
        return None
    title = f"{study.worst_label.capitalize()} against bits"
    intro = f"What one client sends and receives in a round, in bits for each edge of the network. {_words(known)}"
    table = _table(study, known, title)
    if len(known) < 2:
        return Section("bits", title, intro, (table,))
    return Section("bits", title, intro, (), (_plot(study, theme, known, title),), (table,))


def _words(known: Sequence[Method]) -> str:
    """Return a sentence for each method: bits up and down, the overhead of the coder, and the total."""
    name, size, digits = unit([m.mean("bytes/total") for m in known])
    sentences = []
    for m in known:
        up, over, down, total = (m.mean(key) for key in (UP, OVER, DOWN, "bytes/total"))
        above = "" if over is None else f" ({over:.1f} % above the entropy)"
        parts = [f"{up:.2f} bits up{above}", *([] if down is None else [f"{down:.2f} down"])]
        whole = "" if total is None else f"; the whole run sent {total / size:,.{digits}f} {name}"
        sentences.append(f"{m.label}: {', '.join(parts)}{whole}.")
    return " ".join(sentences)


def _plot(study: Study, theme: Theme, known: Sequence[Method], title: str) -> Plot:
    values: list[Row] = [{"label": m.label, "bits": m.mean(UP), "worst": m.mean(study.worst)} for m in known]
    worst = f"{study.worst_label}, %"
    x = quantity(alt.X, "bits", "bits per edge up, mean", **room([0.0, *(row["bits"] for row in values)]))
    y = quantity(alt.Y, "worst", worst, **room([row["worst"] for row in values], high=100.0))
    points = scatter(values, study, theme, x, y, [METHOD_TIP, tip("bits", "bits per edge up"), tip("worst", worst)])
    told = "; ".join(f"{v['label']}: {v['bits']:.2f} bits, {v['worst']:.1f} %" for v in values)
    words = f"Points: {worst} against bits per edge up. {told}."
    return draw("bits", title, "Up and to the left is better.", words, [points], theme, 280)


def _table(study: Study, known: Sequence[Method], title: str) -> Table:
    name, size, digits = unit([m.mean("bytes/total") for m in known])
    columns = (
        METHOD,
        Column(study.worst, study.worst_label, definition="worst10"),
        Column(UP, "up", 3, HEAD, "bits"),
        Column(ENTROPY, "up, entropy", 3, HEAD, "bits"),
        Column(DOWN, "down", 3, HEAD, "bits"),
        Column(OVER, "up, above the entropy, %", 1, definition="bits"),
        Column("bytes/total", f"{name} in all", digits, definition="bytes", scale=1 / size),
    )
    rows = tuple((Cell(m.label), *(cell(m.interval(column.key)) for column in columns[1:])) for m in known)
    coded = all(m.mean(ENTROPY) is not None for m in known)
    return Table("bits", f"{title}, by method", columns, rows, "" if coded else NOTE)
