"""A table, and the forms it is written in: HTML for the page, CSV, LaTeX for a paper, JSON."""

import base64
import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

Value = float | int | str | None
LINKED = 200_000  # characters; a larger table is exported, not carried inside the page a second time


@dataclass(frozen=True)
class Column:
    """What stands in a column: its name in files, its title, and how its numbers are written."""

    key: str
    title: str
    digits: int = 2
    head: str = ""  # a title over several columns
    definition: str = ""  # where it is explained
    signed: bool = False


@dataclass(frozen=True)
class Cell:
    """A number with its interval, or a text."""

    value: Value
    half: float | None = None
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first column names the row."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    shown: int | None = None  # how many rows the page shows; None: all

    def html(self) -> str:
        """The table as part of the page."""
        rows = self.rows if self.shown is None else self.rows[: self.shown]
        body = "".join(
            f"<tr>{''.join(self._html_cell(place, cell) for place, cell in enumerate(r))}</tr>" for r in rows
        )
        more = len(self.rows) - len(rows)
        notes = [self.note] if self.note else []
        if more:
            notes.append(f"{more:,} more rows are in the files that e2fl report --export writes.")
        note = f'<p class="note">{escape(" ".join(notes))}</p>' if notes else ""
        return (
            f'<p class="caption" id="caption-{self.key}">{escape(self.title)}</p>'
            f'<div class="scroll" tabindex="0" role="region" aria-labelledby="caption-{self.key}">'
            f'<table id="table-{self.key}" aria-labelledby="caption-{self.key}">'
            f"<thead>{self._html_head()}</thead><tbody>{body}</tbody></table></div>"
            f'<p class="note">{self._download()}</p>{note}'
        )

    def csv(self) -> str:
        """The table with every digit; an interval stands in a column of its own."""
        wide = [any(row[place].half is not None for row in self.rows) for place in range(len(self.columns))]
        header = []
        for column, has_half in zip(self.columns, wide, strict=True):
            header += [column.key, f"{column.key}_ci95"] if has_half else [column.key]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        for row in self.rows:
            line: list[Any] = []
            for cell, has_half in zip(row, wide, strict=True):
                line.append(_plain(cell.value))
                if has_half:
                    line.append(_plain(cell.half))
            writer.writerow(line)
        return text.getvalue()

    def latex(self) -> str:
        """The table for \\usepackage{booktabs}; the best cells are bold."""
        lines = [f"% {_one_line(self.title)}", f"\\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", "\\toprule"]
        spans = _spans(self.columns)
        if any(title for title, _ in spans):
            lines.append(
                " & ".join(
                    f"\\multicolumn{{{count}}}{{c}}{{{_tex(title)}}}" if title else " & ".join([""] * count)
                    for title, count in spans
                )
                + " \\\\"
            )
            lines.append("".join(_rules(spans)))
        lines += [" & ".join(_tex(column.title) for column in self.columns) + " \\\\", "\\midrule"]
        for row in self.rows:
            cells = [_tex_cell(column, cell) for column, cell in zip(self.columns, row, strict=True)]
            lines.append(" & ".join(cells) + " \\\\")
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])

    def json(self) -> dict[str, Any]:
        """The table as plain values."""
        rows = []
        for row in self.rows:
            found: dict[str, Any] = {}
            for column, cell in zip(self.columns, row, strict=True):
                found[column.key] = _finite(cell.value)
                if cell.half is not None:
                    found[f"{column.key}_ci95"] = _finite(cell.half)
            rows.append(found)
        return {"title": self.title, "rows": rows}

    def _html_head(self) -> str:
        spans = _spans(self.columns)
        top = ""
        if any(title for title, _ in spans):
            cells = (f'<th colspan="{count}" scope="colgroup">{escape(title)}</th>' for title, count in spans)
            top = f'<tr class="over">{"".join(cells)}</tr>'
        titles = "".join(
            f'<th scope="col"{self._kind(place)}>{_explained(column)}</th>' for place, column in enumerate(self.columns)
        )
        return f"{top}<tr>{titles}</tr>"

    def _kind(self, place: int) -> str:
        if place == 0:
            return ' class="name"'
        return ' class="text"' if any(isinstance(row[place].value, str) for row in self.rows) else ""

    def _html_cell(self, place: int, cell: Cell) -> str:
        if place == 0:
            return f'<th scope="row">{escape(str(cell.value))}</th>'
        column = self.columns[place]
        text = escape(written(cell.value, column))
        if _has_width(column, cell):
            text += f' <span class="half">± {cell.half:.{column.digits}f}</span>'
        if cell.best:
            text = f'<strong>{text}<span class="aloud"> (best)</span></strong>'
        exact = ""
        if isinstance(cell.value, int | float) and math.isfinite(cell.value):
            exact = f' data-key="{escape(column.key)}" data-value="{cell.value!r}"'
        kind = ' class="text"' if isinstance(cell.value, str) else ""
        return f"<td{kind}{exact}>{text}</td>"

    def _download(self) -> str:
        text = self.csv()
        if len(text) > LINKED:
            return "This table is too long to carry a copy of itself: e2fl report --export writes it as CSV."
        coded = base64.b64encode(text.encode()).decode()
        name = f"{self.key}.csv"
        return f'<a class="get" download="{name}" href="data:text/csv;base64,{coded}">Save as {name}</a>'


def text_cells(values: Iterable[Value]) -> tuple[Cell, ...]:
    """Plain cells."""
    return tuple(Cell(value) for value in values)


def written(value: Value, column: Column) -> str:
    """A value as people read it; a dash where there is none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    signed = column.signed and round(value, column.digits) != 0
    text = f"{value:+.{column.digits}f}" if signed else f"{value:,.{column.digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def _explained(column: Column) -> str:
    title = escape(column.title)
    return f'<a class="def" href="#def-{column.definition}">{title}</a>' if column.definition else title


def _spans(columns: Sequence[Column]) -> list[tuple[str, int]]:
    spans: list[tuple[str, int]] = []
    for column in columns:
        if spans and spans[-1][0] == column.head:
            spans[-1] = (column.head, spans[-1][1] + 1)
        else:
            spans.append((column.head, 1))
    return spans


def _rules(spans: Sequence[tuple[str, int]]) -> Iterable[str]:
    """A line under each title that spans columns."""
    first = 1
    for title, count in spans:
        if title:
            yield f"\\cmidrule(lr){{{first}-{first + count - 1}}}"
        first += count


TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\N{MINUS SIGN}": "$-$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def _tex(text: str) -> str:
    return "".join(TEX.get(letter, letter) for letter in _one_line(text))


def _one_line(text: str) -> str:
    """Without breaks: a name must not end a comment or a row of LaTeX."""
    return " ".join(text.split())


def _tex_cell(column: Column, cell: Cell) -> str:
    text = _tex(written(cell.value, column))
    if cell.best:
        text = f"\\textbf{{{text}}}"
    if _has_width(column, cell):
        text += f" $\\pm$ {cell.half:.{column.digits}f}"
    return text


def _has_width(column: Column, cell: Cell) -> bool:
    """Whether there is an interval to show."""
    if cell.half is None or cell.value is None or not math.isfinite(cell.half):
        return False
    return round(cell.half, column.digits) != 0


def _plain(value: Value) -> Any:
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else value


def _finite(value: Value) -> Value:
    return None if isinstance(value, float) and not math.isfinite(value) else value
