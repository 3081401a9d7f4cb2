"""One table: a DataFrame and columns, written as text, Markdown, CSV, LaTeX, HTML and JSON.

Beside the column KEY, the frame may hold what is written with its values: KEY_low and KEY_high, an
interval; KEY/std or KEY/ci, what follows ±; KEY_chance, what chance alone gives.
"""

import base64
import html
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from e2fl.csv_text import neutral
from e2fl.metrics import Measure
from e2fl.metrics.intervals import Interval
from e2fl.terminal import aligned

PlusMinus = Literal["std", "ci", "none"]
DASH = "–"
LINKED = 200_000  # characters; a longer table is only exported: the page holds it once
SHOWN = 200  # rows on the page; files have all
CHANCE = "What chance alone gives, if all clients are served alike:"
UNITS = (("MiB", 2.0**20), ("KiB", 2.0**10), ("bytes", 1.0))
TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\N{MINUS SIGN}": "$-$",
    "±": r"\(\pm\)",
    "–": "--",
    "²": r"\textsuperscript{2}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}
FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"  # as wide as the text


@dataclass(frozen=True)
class Column:
    """A column: its name in the frame, its title, and the format of its numbers."""

    key: str
    title: str
    digits: int = 2
    head: str = ""  # a title over neighbouring columns
    definition: str = ""  # the entry of `DEFINITIONS` that explains it
    signed: bool = False
    scale: float = 1.0  # from the exact value, as in files, to the value as written


METHOD = Column("method", "method")


def column_of(measure: Measure, **changes: Any) -> Column:
    """Return the column of a measure."""
    column = Column(
        measure.key,
        measure.title,
        measure.digits,
        measure.head,
        measure.definition,
        measure.signed,
    )
    return replace(column, **changes)


def interval_cells(key: str, interval: Interval | None) -> dict[str, float | None]:
    """Return the cells of a value with its interval."""
    if interval is None:
        return {key: None}
    return {key: interval.value, f"{key}_low": interval.low, f"{key}_high": interval.high}


@dataclass(frozen=True, eq=False)
class Table:
    """Rows under columns; the first column names the row, `bold` are cells (row, key) to mark."""

    key: str
    title: str
    columns: tuple[Column, ...]
    frame: pd.DataFrame
    note: str = ""
    bold: frozenset[tuple[int, str]] = frozenset()
    plus_minus: PlusMinus = "none"

    @classmethod
    def of(
        cls,
        key: str,
        title: str,
        columns: Sequence[Column],
        rows: Iterable[Mapping[str, Any]],
        note: str = "",
        **more: Any,
    ) -> "Table":
        """Return a table of rows that hold cells by the keys of the columns."""
        frame = pd.DataFrame(list(rows), dtype=object)
        missing = [column.key for column in columns if column.key not in frame]
        return cls(key, title, tuple(columns), frame.assign(**dict.fromkeys(missing)), note, **more)

    def __len__(self) -> int:
        return len(self.frame)

    def text(self) -> str:
        """Return the table for a terminal, and below it what chance gives and the note."""
        titles = [column.title for column in self.columns]
        heads = [cell for head, n in self.spans() for cell in (head, *[""] * (n - 1))]
        rows = [self._texts(row) for row in range(len(self))]
        parts = [aligned([titles, *rows], heads if any(heads) else None)]
        spreads = [c for c in self.columns if f"{c.key}_chance" in self.frame]
        if spreads:
            shown = (self.columns[0], *(replace(c, key=f"{c.key}_chance") for c in spreads))
            parts += [CHANCE, replace(self, columns=shown, note="", plus_minus="none").text()]
        return "\n\n".join([*parts, *([self.note] if self.note else [])])

    def markdown(self) -> str:
        """Return the table for Markdown; heads stand before the titles."""
        rows = [[_joined(column) for column in self.columns]]
        rows.append(["---" if self.is_text(place) else "--:" for place in range(len(rows[0]))])
        for row in range(len(self)):
            cells = zip(self._texts(row), self.columns, strict=True)
            rows.append([f"**{text}**" if (row, c.key) in self.bold else text for text, c in cells])
        return "\n".join(f"| {' | '.join(_one_line(cell) for cell in row)} |" for row in rows)

    def csv(self) -> str:
        """Return the exact values; no cell is taken for a formula by a spreadsheet."""
        return str(self._exact().to_csv(index=False, lineterminator="\n"))

    def json(self) -> dict[str, Any]:
        """Return the title and the exact values, with None for what is missing."""
        rows = self._exact().to_dict("records")
        return {
            "title": self.title,
            "rows": [{k: None if v == "" else v for k, v in row.items()} for row in rows],
        }

    def latex(self) -> str:
        r"""Return a float with a label, for \usepackage{booktabs,graphicx}; marks are bold."""
        lines = [
            r"\begin{table*}",
            r"\centering",
            rf"\caption{{{tex('. '.join(part for part in (self.title, self.note) if part))}}}",
            rf"\label{{tab:{self.key}}}",
            r"\small\setlength{\tabcolsep}{4pt}",
            FIT,
            rf"\begin{{tabular}}{{{''.join('l' if text else 'r' for text in self.texts())}}}",
            r"\toprule",
            *self._tex_heads(),
            " & ".join(tex(_capital(column.title)) for column in self.columns) + r" \\",
            r"\midrule",
        ]
        for row in range(len(self)):
            cells = [self._tex_cell(row, column) for column in self.columns]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table*}"]) + "\n"

    def html(self) -> str:
        """Return the table as HTML, for notebooks; every name is escaped."""
        heads = "".join(
            f'<th colspan="{count}">{html.escape(head)}</th>' for head, count in self.spans()
        )
        titles = "".join(f"<th>{html.escape(column.title)}</th>" for column in self.columns)
        rows = []
        for row in range(len(self)):
            cells = zip(self._texts(row), self.columns, strict=True)
            marked = [_marked(text, (row, c.key) in self.bold) for text, c in cells]
            rows.append("".join(f"<td>{cell}</td>" for cell in marked))
        body = "".join(f"<tr>{row}</tr>" for row in (heads, titles, *rows))
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<table>{body}</table>{note}"

    def link(self) -> str:
        """Return the CSV as a data URL; empty if the table is too long."""
        text = self.csv()
        if len(text) > LINKED:
            return ""
        return f"data:text/csv;base64,{base64.b64encode(text.encode()).decode()}"

    def spans(self) -> list[tuple[str, int]]:
        """Return the titles over neighbouring columns, and the number of columns of each."""
        heads = itertools.groupby(column.head for column in self.columns)
        return [(head, len(list(columns))) for head, columns in heads]

    def is_text(self, place: int) -> bool:
        """Return whether a column holds strings, which are aligned to the left."""
        values = self.frame[self.columns[place].key]
        return place == 0 or any(isinstance(value, str) and value != DASH for value in values)

    def texts(self) -> list[bool]:
        """Return which columns hold strings."""
        return [self.is_text(place) for place in range(len(self.columns))]

    def value(self, row: int, key: str) -> Any:
        """Return the exact value of a cell; None if it is missing or not finite."""
        if key not in self.frame:
            return None
        value = self.frame[key].iloc[row]
        if isinstance(value, str):
            return value
        return None if value is None or not math.isfinite(value) else value

    def cell(self, row: int, column: Column) -> str:
        """Return a cell as written, without what stands beside it."""
        return written(self.value(row, column.key), column)

    def by_chance(self, row: int, column: Column) -> str:
        """Return what chance alone gives in place of a cell, as written; empty if not known."""
        chance = self.value(row, f"{column.key}_chance")
        coarser = replace(column, digits=max(0, column.digits - 1))
        return "" if chance is None else f"chance {written(chance, coarser)}"

    def interval(self, row: int, column: Column) -> str:
        """Return the interval of a cell, as written; empty if there is none."""
        low, high = (self.value(row, f"{column.key}_{end}") for end in ("low", "high"))
        coarser = replace(column, digits=max(0, column.digits - 1))
        ends = [written(end, coarser) for end in (low, high)]
        return "" if None in (low, high) or ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"

    def _texts(self, row: int) -> list[str]:
        return [f"{self.cell(row, c)}{self._plus_minus(row, c)}" for c in self.columns]

    def _plus_minus(self, row: int, column: Column) -> str:
        spread = self.value(row, f"{column.key}/{self.plus_minus}")
        if spread is None:
            return ""
        return f" ± {written(spread, replace(column, signed=False))}"

    def _tex_heads(self) -> list[str]:
        if not any(head for head, _ in self.spans()):
            return []
        heads, rules, place = [], [], 1
        for head, count in self.spans():
            heads.append(rf"\multicolumn{{{count}}}{{c}}{{{tex(_capital(head))}}}")
            rules += [rf"\cmidrule(lr){{{place}-{place + count - 1}}}"] if head else []
            place += count
        return [" & ".join(heads) + r" \\", "".join(rules)]

    def _tex_cell(self, row: int, column: Column) -> str:
        text = tex(self.cell(row, column))
        text = rf"\textbf{{{text}}}" if (row, column.key) in self.bold else text
        plus_minus = tex(self._plus_minus(row, column))
        beside = "" if plus_minus else tex(self.interval(row, column))
        return text + (f" {plus_minus}" if plus_minus else "") + (f" ({beside})" if beside else "")

    def _exact(self) -> pd.DataFrame:
        """Return the columns and what stands beside them, where any cell has it."""
        exact: dict[str, list[Any]] = {}
        for column in self.columns:
            suffixes = ("", "_low", "_high", f"/{self.plus_minus}", "_chance")
            for key in (f"{column.key}{suffix}" for suffix in suffixes):
                values = [self.value(row, key) for row in range(len(self))]
                if key == column.key or any(value is not None for value in values):
                    exact[_safe(key)] = [_safe(value) for value in values]
        return pd.DataFrame(exact, dtype=object)


def written(value: float | str | None, column: Column) -> str:
    """Return a value formatted for display; a dash if there is none."""
    if value is None:
        return DASH
    if isinstance(value, str):
        return value
    scaled = value * column.scale
    if isinstance(value, int) and scaled == value:
        return f"{value:,}"
    signed = column.signed and round(scaled, column.digits) != 0
    text = f"{scaled:{'+' if signed else ''},.{column.digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def byte_unit(sizes: Iterable[float | None]) -> tuple[str, float, int]:
    """Return the unit for these numbers of bytes, the bytes in it, and decimals that show them."""
    known = [size for size in sizes if size]
    top = max(known, default=0.0)
    name, size = next((unit for unit in UNITS if top >= unit[1]), UNITS[-1])
    return name, size, 0 if size == 1.0 else 2 if min(known, default=size) >= 0.01 * size else 4


def tex(text: str) -> str:
    """Return the string for LaTeX: every special character is escaped, on one line."""
    return "".join(TEX.get(letter, letter) for letter in _one_line(text))


def _safe(value: Any) -> Any:
    """Return a cell of a file: one line that no spreadsheet takes for a formula; empty for None."""
    if isinstance(value, str):
        return " ".join(str(neutral(value, formatted=False)).splitlines())
    return "" if value is None else value


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _joined(column: Column) -> str:
    return f"{column.head}: {column.title}" if column.head else column.title


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _marked(text: str, bold: bool) -> str:
    return f"<b>{html.escape(text)}</b>" if bold else html.escape(text)
