"""Tables for a terminal: aligned columns of strings."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], head: Sequence[str] | None = None) -> str:
    """Return columns side by side: the first aligned left, the others right. `head` may span several columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    if head is not None:
        spans = ""
        for column, title in enumerate(head):
            start = sum(widths[:column]) + 2 * column
            if title:
                spans = spans.ljust(start) + title
        lines.append(spans)
    for number, row in enumerate(rows):
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("-" * len(lines[-1]))
    return "\n".join(lines)
