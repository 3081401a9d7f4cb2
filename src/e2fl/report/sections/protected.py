"""Do both groups get the same chances, if the groups are a protected attribute?"""

from e2fl.report.dotplot import Dot, DotPlot, DotRow, ticks
from e2fl.report.intervals import Interval
from e2fl.report.section import METHOD, Section
from e2fl.report.study import Study
from e2fl.report.table import Cell, Column, Table, cell
from e2fl.report.theme import Theme

MEASURES = (
    ("eod", "Equal opportunity difference", "share of positives that are found"),
    ("spd", "Statistical parity difference", "share that is predicted positive"),
    ("di", "F1 gap", "F1 of the positive class"),
)


def section(study: Study, theme: Theme) -> Section | None:
    found = [method for method in study.methods if any(outcome.protected for outcome in method.outcomes)]
    if not found:
        return None
    first, second = study.protected_groups or ("the first group", "the second")
    rows = tuple(
        (
            Cell(m.label),
            cell(m.interval("user/mean")),
            *(cell(m.interval(f"protected/{key}")) for key, _, _ in MEASURES),
        )
        for m in found
    )
    columns = (
        METHOD,
        Column("user/mean", "mean accuracy", definition="mean"),
        *(Column(f"protected/{key}", title, 4, definition=key, signed=True) for key, title, _ in MEASURES),
    )
    note = f"Each is {first} minus {second}: 0 is even, negative is a disadvantage of {first}. A dash is undefined."
    table = Table("protected", f"{first} against {second}", columns, rows, note)
    plot = _dots(study, first, second)
    intro = f"Do {first} and {second} get the same chances, and who is missed?"
    plots = () if plot is None else (plot,)
    return Section(
        "protected", "Protected attribute", intro, () if plots else (table,), plots, (table,) if plots else ()
    )


def _dots(study: Study, first: str, second: str) -> DotPlot | None:
    rows = []
    for key, title, what in MEASURES:
        dots = tuple(
            Dot(place, method.label, found.mean, found.low, found.high, hollow=False)
            for place, method in enumerate(study.methods)
            if (found := _points(study, place, key)) is not None
        )
        rows += [DotRow(f"{title}: {what}", None, dots, pinned=True)] if dots else []
    values = [end for row in rows for d in row.dots for end in (d.value, d.low, d.high) if end is not None]
    if not values:
        return None
    told = "; ".join(f"{row.name}: " + ", ".join(f"{d.label} {d.value:+.1f}" for d in row.dots) for row in rows)
    caption = f"{first} minus {second}, in percentage points. 0 is even; left of it {first} is at a disadvantage."
    words = f"Dot plot, {first} minus {second} in percentage points. {told}."
    title = f"{first} minus {second}"
    return DotPlot("protected", title, caption, words, "percentage points", tuple(rows), ticks([*values, 0.0]), 0.0)


def _points(study: Study, place: int, key: str) -> Interval | None:
    """Return a difference of rates, in percentage points."""
    found = study.methods[place].interval(f"protected/{key}")
    if found is None:
        return None
    low, high = (None if end is None else 100 * end for end in (found.low, found.high))
    return Interval(100 * found.mean, low, high, found.count, found.over)
