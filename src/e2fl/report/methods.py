"""Tables of methods: a row per method, chosen measures as columns.

The terminal, paper.tex, notebooks and the page's tables of methods come from here.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from e2fl.errors import ConfigError
from e2fl.metrics import COLUMNS, MEASURES, Measure, measure_of, tenth
from e2fl.metrics.intervals import t_quantile
from e2fl.report.study import Method, Study
from e2fl.report.table import (
    METHOD,
    Column,
    PlusMinus,
    Table,
    byte_unit,
    column_of,
    interval_cells,
)

MEANING = {
    "std": " ± is the standard deviation over {seeds} seeds.",
    "ci": " ± is half the 95 % confidence interval of the mean over {seeds} seeds.",
}
SPREADS = ("worst10", "best10", "std", "variance")  # what chance alone changes, too


def summary_table(
    study: Study,
    columns: Sequence[str] = (),
    order: Sequence[str] = (),
    plus_minus: PlusMinus = "std",
    *,
    views: bool = True,
    default: str = "printed",
) -> Table:
    """Return the table of a comparison, for a terminal and for a paper; ± is always explained.

    columns: measures, by default those of `COLUMNS[default]` and the user's own. order: methods
    that come first. views: whether other models of the same runs, such as (GM), have rows.
    """
    chosen = [measure_of(path, study.own) for path in columns]
    for measure in chosen:
        if not any(method.by_seed(measure.key) for method in study.methods):
            raise ConfigError(f"no run has a measure '{measure.key}'; choose others with --columns")
    measures = chosen or known_measures(study, default)
    methods = ordered([method for method in study.methods if views or not method.view], order)
    seeds = min((len(method.seeds) for method in methods), default=0)
    shown: PlusMinus = plus_minus if seeds > 1 else "none"
    note = f"Accuracy in percent{f', mean over {seeds} seeds' if seeds > 1 else ''}."
    note += MEANING.get(shown, "").format(seeds=seeds)
    table_columns = measure_columns(study, measures)
    rows = [_cells(method, table_columns, shown) for method in methods]
    marked = best_cells(methods, measures)
    return Table.of(
        "results", study.title, table_columns, rows, note, bold=marked, plus_minus=shown
    )


def _cells(method: Method, columns: Sequence[Column], plus_minus: PlusMinus) -> dict[str, Any]:
    """Return the means over seeds of a method, what follows ±, and what chance alone gives."""
    cells: dict[str, Any] = {"method": method.label} | chance_cells(method, columns)
    for column in columns[1:]:
        values = list(method.by_seed(column.key).values())
        cells[column.key] = float(np.mean(values)) if values else None
        # What is sent hardly depends on the seed: ± 0.00 says nothing.
        if plus_minus != "none" and len(values) > 1 and not column.key.startswith("bytes/"):
            spread = float(np.std(values, ddof=1))
            if plus_minus == "ci":
                spread *= t_quantile(len(values) - 1) / math.sqrt(len(values))
            cells[f"{column.key}/{plus_minus}"] = spread
    return cells


def chance_cells(method: Method, columns: Sequence[Column]) -> dict[str, float]:
    """Return what chance alone gives for the spreads among these columns."""
    known = [column.key for column in columns if column.key in method.chance]
    return {f"{key}_chance": method.chance[key].value for key in known}


def known_measures(study: Study, default: str) -> list[Measure]:
    """Return the default measures of a table that any method has, and the user's own."""
    measures = [*(MEASURES[key] for key in COLUMNS[default]), *study.own]
    return [m for m in measures if any(method.by_seed(m.key) for method in study.methods)]


def method_table(
    key: str,
    title: str,
    methods: Iterable[Method],
    columns: Sequence[Column],
    note: str = "",
    **more: Any,
) -> Table:
    """Return a table of measures with their intervals, and what chance alone gives."""
    rows = []
    for method in methods:
        row: dict[str, Any] = {"method": method.label}
        for column in columns:
            row |= interval_cells(column.key, method.interval(column.key))
        rows.append(row | chance_cells(method, columns))
    return Table.of(key, title, (METHOD, *columns), rows, note, **more)


def measure_columns(study: Study, measures: Sequence[Measure]) -> list[Column]:
    """Return the column of methods and those of these measures, with units that fit the values."""
    sent = [measure.key for measure in measures if measure.unit == "bytes"]
    unit, size, digits = byte_unit(
        m.mean(key) for m in study.methods if not m.alone for key in sent
    )
    columns = [METHOD]
    for measure in measures:
        column = column_of(measure)
        if measure.key in sent:
            head = measure.head.format(unit=unit)
            column = replace(column, digits=digits, head=head, scale=1 / size)
        elif measure.key.startswith("group/"):
            single = tenth(len(study.group_names) or 1) == 1
            title = measure.title.replace(" 10 %", "") if single else measure.title
            head = "found groups" if study.groups_found else measure.head
            column = replace(column, title=title, head=head)
        columns.append(column)
    return columns


def sent_column(methods: Iterable[Method], title: str) -> Column:
    """Return the column of all bytes sent, in a unit that fits.

    {unit} in the title is that unit.
    """
    unit, size, digits = byte_unit(m.mean("bytes/total") for m in methods if not m.alone)
    title = title.format(unit=unit)
    return Column("bytes/total", title, digits, definition="bytes", scale=1 / size)


def best_cells(
    methods: Sequence[Method], measures: Sequence[Measure]
) -> frozenset[tuple[int, str]]:
    """Return the cells to mark: all that print the same as the best of their column.

    Training alone is not marked for bytes. In the column of a spread, nothing is marked if chance
    alone explains the spread of every method.
    """
    marked = set()
    for measure in measures:
        values = {
            row: round(value * measure.sign, measure.digits)
            for row, method in enumerate(methods)
            if not (method.alone and measure.unit == "bytes")
            and (value := method.mean(measure.key)) is not None
        }
        if len(values) > 1 and measure.sign and not all_by_chance(methods, measure.key):
            best = max(values.values())
            marked |= {(row, measure.key) for row, value in values.items() if value == best}
    return frozenset(marked)


def all_by_chance(methods: Iterable[Method], key: str) -> bool:
    """Return whether chance alone explains this spread for every method that has it."""
    known = [method for method in methods if key in method.chance and method.by_seed(key)]
    return bool(known) and all(method.by_chance(key) for method in known)


def require_columns(columns: Sequence[str], own: Iterable[Measure] = ()) -> None:
    """Raise an error for measures that no run can have; those of groups depend on the data."""
    for column in columns:
        if not column.startswith("measures/"):
            measure_of(column, own)


def require_order(order: Sequence[str], names: Sequence[str]) -> None:
    """Raise an error for methods to order that a comparison will not have."""
    for wanted in order:
        # A view of a method, such as E2FL (GM), is known when the method has run.
        _position(re.sub(r"\(.*\)$", "", wanted), names)


def ordered(methods: Sequence[Method], order: Sequence[str]) -> list[Method]:
    """Return the named methods first, in this order, then the others."""
    labels = [method.label for method in methods]
    first = [methods[_position(wanted, labels)] for wanted in order]
    return [*first, *(method for method in methods if method not in first)]


def _position(wanted: str, names: Sequence[str]) -> int:
    """Return the position of a name, in any case and punctuation."""
    known = [_letters(name) for name in names]
    if _letters(wanted) not in known:
        words = ", ".join(names)
        raise ConfigError(f"--order: there is no method '{wanted}'; the methods are {words}")
    return known.index(_letters(wanted))


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
