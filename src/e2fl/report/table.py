"""A table and the files it is written to: CSV, LaTeX, JSON. The page's template writes it as HTML."""

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from e2fl.csv_text import neutral
from e2fl.report.intervals import Interval
from e2fl.report.latex import one_line, tex

Value = float | int | str | None
LINKED = 200_000  # characters; a longer table is only exported, so that the page does not hold it twice
DASH = "–"


@dataclass(frozen=True)
class Column:
    """A column: its name in files, its title, and the format of its numbers."""

    key: str
    title: str
    digits: int = 2
    head: str = ""  # a title over several columns
    definition: str = ""  # where it is explained
    signed: bool = False
    scale: float = 1.0  # from the exact value, as in files, to the value as written


@dataclass(frozen=True)
class Cell:
    """A number with its interval, or a string."""

    value: Value
    low: float | None = None
    high: float | None = None
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first column names the row."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    shown: int = 200  # rows on the page; files have all

    def is_text(self, place: int) -> bool:
        """Return whether a column holds strings, which are aligned to the left."""
        return place == 0 or any(isinstance(row[place].value, str) and row[place].value != DASH for row in self.rows)

    def frame(self) -> pd.DataFrame:
        """Return the exact values; an interval has columns of its own."""
        found: dict[str, list[Any]] = {}
        for place, column in enumerate(self.columns):
            cells = [row[place] for row in self.rows]
            found[_one_line(column.key)] = [_plain(cell.value) for cell in cells]
            for end in ("low", "high"):
                if any(getattr(cell, end) is not None for cell in cells):
                    found[_one_line(f"{column.key}_{end}")] = [_plain(getattr(cell, end)) for cell in cells]
        return pd.DataFrame(found, dtype=object)

    def csv(self) -> str:
        return str(self.frame().to_csv(index=False, lineterminator="\n"))

    def latex(self) -> str:
        r"""Return the table for \usepackage{booktabs}; the best cells are bold."""
        rows = [[_tex_cell(c, cell) for c, cell in zip(self.columns, row, strict=True)] for row in self.rows]
        titles = [tex(column.title) for column in self.columns]
        heads = [tex(column.head) for column in self.columns]
        columns = pd.MultiIndex.from_arrays([heads, titles]) if any(heads) else pd.Index(titles)
        align = "".join("l" if self.is_text(place) else "r" for place in range(len(self.columns)))
        frame = pd.DataFrame(rows, columns=columns)
        body = frame.to_latex(index=False, escape=False, column_format=align, multicolumn_format="c")
        return f"% {one_line(self.title)}\n{body}"

    def json(self) -> dict[str, Any]:
        rows = self.frame().to_dict("records")
        return {"title": self.title, "rows": [{k: None if v == "" else v for k, v in row.items()} for row in rows]}

    def link(self) -> str:
        """Return the CSV as a data URL; empty if the table is too long."""
        text = self.csv()
        return "" if len(text) > LINKED else f"data:text/csv;base64,{base64.b64encode(text.encode()).decode()}"

    def spans(self) -> list[tuple[str, int]]:
        """Return titles over several columns, and the number of columns of each."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and spans[-1][0] == column.head:
                spans[-1] = (column.head, spans[-1][1] + 1)
            else:
                spans.append((column.head, 1))
        return spans


def cells(values: Iterable[Value]) -> tuple[Cell, ...]:
    """Return cells without intervals."""
    return tuple(Cell(value) for value in values)


def cell(found: Interval | None, *, best: bool = False) -> Cell:
    """Return a cell with its interval."""
    return Cell(None) if found is None else Cell(found.mean, found.low, found.high, best)


def written(value: Value, column: Column) -> str:
    """Return a value formatted for display; a dash if there is none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return DASH
    if isinstance(value, str):
        return value
    scaled = value * column.scale
    if isinstance(value, int) and scaled == value:
        return f"{value:,}"
    signed = column.signed and round(scaled, column.digits) != 0
    text = f"{scaled:{'+' if signed else ''},.{column.digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def span(cell: Cell, column: Column) -> str:
    """Return the formatted interval of a cell; empty if there is none, or if its ends look the same."""
    if cell.value is None or any(end is None or not math.isfinite(end) for end in (cell.low, cell.high)):
        return ""
    coarser = replace(column, digits=max(0, column.digits - 1))
    low, high = written(cell.low, coarser), written(cell.high, coarser)
    return "" if low == high else f"{low} to {high}"


UNITS = (("MiB", 2.0**20), ("KiB", 2.0**10), ("bytes", 1.0))


def unit(sizes: Sequence[float | None]) -> tuple[str, float, int]:
    """Return the unit for these numbers of bytes, the bytes in it, and the decimals: the smallest is never 0.00."""
    known = [size for size in sizes if size]
    top = max(known, default=0.0)
    name, size = next((found for found in UNITS if top >= found[1]), UNITS[-1])
    return name, size, 0 if size == 1.0 else 2 if min(known, default=size) >= 0.01 * size else 4


def _one_line(text: str) -> str:
    """Return one line that no spreadsheet takes for a formula."""
    return " ".join(str(neutral(text, formatted=False)).splitlines())


def _plain(value: Value) -> Any:
    if isinstance(value, str):
        return _one_line(value)
    return "" if value is None or not math.isfinite(value) else value


def _tex_cell(column: Column, cell: Cell) -> str:
    text = tex(written(cell.value, column))
    interval = span(cell, column)
    text = f"\\textbf{{{text}}}" if cell.best else text
    return f"{text} ({tex(interval)})" if interval else text
