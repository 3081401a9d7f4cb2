"""Do both groups get the same chances, if the groups are a protected attribute?"""

from e2fl.metrics import Interval
from e2fl.report.dotplot import Dot, DotPlot, DotRow, ticks
from e2fl.report.methods import method_table
from e2fl.report.section import Section
from e2fl.report.study import Study
from e2fl.report.table import Column
from e2fl.report.theme import Theme

MEASURES = (
    ("eod", "Equal opportunity difference", "share of positives that are found"),
    ("spd", "Statistical parity difference", "share that is predicted positive"),
    ("di", "F1 gap", "F1 of the positive class"),
)


def section(study: Study, theme: Theme) -> Section | None:
    keys = [f"protected/{key}" for key, _, _ in MEASURES]
    methods = [m for m in study.methods if any(key in m.final for key in keys)]
    if not methods:
        return None
    first, second = study.protected_groups or ("the first group", "the second")
    columns = [
        Column("clients/mean", "mean accuracy", definition="mean"),
        *(
            Column(f"protected/{key}", title, 4, definition=key, signed=True)
            for key, title, _ in MEASURES
        ),
    ]
    note = (
        f"Each is {first} minus {second}: 0 is even, negative is a disadvantage of {first}. "
        "A dash is undefined."
    )
    table = method_table("protected", f"{first} against {second}", methods, columns, note)
    plot = _dots(study, first, second)
    intro = f"Do {first} and {second} get the same chances, and who is missed?"
    plots = () if plot is None else (plot,)
    return Section(
        "protected",
        "Protected attribute",
        intro,
        () if plots else (table,),
        plots,
        (table,) if plots else (),
    )


def _dots(study: Study, first: str, second: str) -> DotPlot | None:
    rows = []
    for key, title, what in MEASURES:
        dots = tuple(
            Dot(place, method.label, found.value, found.low, found.high, hollow=False)
            for place, method in enumerate(study.methods)
            if (found := _points(study, place, key)) is not None
        )
        rows += [DotRow(f"{title}: {what}", None, dots, pinned=True)] if dots else []
    values = [
        end for row in rows for d in row.dots for end in (d.value, d.low, d.high) if end is not None
    ]
    if not values:
        return None
    told = "; ".join(
        f"{row.name}: " + ", ".join(f"{d.label} {d.value:+.1f}" for d in row.dots) for row in rows
    )
    caption = (
        f"{first} minus {second}, in percentage points. 0 is even; left of it {first} is at a "
        "disadvantage."
    )
    words = f"Dot plot, {first} minus {second} in percentage points. {told}."
    title = f"{first} minus {second}"
    return DotPlot(
        "protected",
        title,
        caption,
        words,
        "percentage points",
        tuple(rows),
        ticks([*values, 0.0]),
        0.0,
    )


def _points(study: Study, place: int, key: str) -> Interval | None:
    """Return a difference of rates, in percentage points."""
    found = study.methods[place].interval(f"protected/{key}")
    if found is None:
        return None
    low, high = (None if end is None else 100 * end for end in (found.low, found.high))
    return Interval(100 * found.value, low, high, found.count, found.over)
