"""Text for terminals and spreadsheets."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # how a formula begins


def aligned(rows: Sequence[Sequence[str]], head: Sequence[str] | None = None) -> str:
    """Return columns side by side: the first aligned left, the others right.

    The first row has the titles. head: titles above them, which may span several columns.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    if head is not None:
        starts = [column for column, title in enumerate(head) if title]
        for start, stop in pairwise(starts):  # a long head must not run into the next one
            span = sum(widths[start:stop]) + 2 * (stop - start - 1)
            widths[stop - 1] += max(0, len(head[start]) - span)
        spans = ""
        for column, title in enumerate(head):
            if title:
                spans = spans.ljust(sum(widths[:column]) + 2 * column) + title
        lines.append(spans)
    for row in rows:
        cells = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
        if row is rows[0]:
            lines.append("-" * len(lines[-1]))
    return "\n".join(lines)


def neutral(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula: '=1+1' gets an apostrophe in front.

    Numbers, and strings that are numbers, stay as they are. `plain` undoes it.
    """
    if not isinstance(value, str) or not _begins_formula(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def plain(text: str) -> str:
    """Return the string that `neutral` changed."""
    return text[1:] if text.startswith("'") and _begins_formula(text) else text


def _begins_formula(text: str) -> bool:
    return text.lstrip("'").startswith(FORMULA)
