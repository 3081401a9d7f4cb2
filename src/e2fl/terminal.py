"""Tables for a terminal."""

from collections.abc import Sequence

from e2fl.runs.folder import Json, astray

MIB = 2**20


def comparison(summaries: Sequence[Json]) -> str:
    """The table of the paper: groups, clients, and bytes; one row a run, or a row of means for several seeds."""
    head = ("", "groups", "", "", "", "clients", "", "", "", "MiB / client / round", "")
    names = ("algorithm", "mean", "worst", "best", "variance", "mean", "worst", "best", "variance", "up", "down")
    by_label: dict[str, list[Json]] = {}
    for summary in summaries:
        by_label.setdefault(summary["label"], []).append(summary)
    rows = []
    for label, runs in by_label.items():
        rows.append(_row(label, [_values(run, None) for run in runs]))
        rows += [
            _row(f"{label} ({'GM' if view == 'global' else view})", [_values(run, view) for run in runs])
            for view in runs[0].get("views", {})
        ]
    return aligned([names, *rows], head)


def all_tables(summaries: Sequence[Json]) -> str:
    """The comparison, what two protected groups differ by, where there are such, and what cannot be believed."""
    doubts = "\n".join(
        f"{summary['label']}, seed {summary['seed']}: {doubt}" for summary in summaries for doubt in astray(summary)
    )
    return "\n\n".join(part for part in (comparison(summaries), protected(summaries), doubts) if part)


def protected(summaries: Sequence[Json]) -> str:
    """Accuracy and the differences between two groups, unprivileged minus privileged; empty where there are none."""
    names = ("algorithm", "accuracy", "EOD", "DI", "SPD")
    rows = []
    by_label: dict[str, list[Json]] = {}
    for summary in summaries:
        if "protected" in summary:
            by_label.setdefault(summary["label"], []).append(summary)
    for label, runs in by_label.items():
        rows.append(_difference_row(label, runs))
        for view in runs[0].get("views", {}):
            title = f"{label} ({'GM' if view == 'global' else view})"
            rows.append(_difference_row(title, [run["views"][view] for run in runs]))
    return aligned([names, *rows]) if rows else ""


def _difference_row(label: str, parts: Sequence[Json]) -> tuple[str, ...]:
    """A row of means over seeds; a dash where a difference is undefined."""
    cells = [f"{sum(part['user']['mean'] for part in parts) / len(parts):.2f}"]
    for name in ("eod", "di", "spd"):
        values = [part["protected"][name] for part in parts]
        known = [value for value in values if value is not None and value == value]
        cells.append(f"{sum(known) / len(known):+.4f}" if len(known) == len(values) else "-")
    return (label, *cells)


def _values(summary: Json, view: str | None) -> list[float | None]:
    part = summary if view is None else summary["views"][view]
    values: list[float | None] = []
    for level in ("group", "user"):
        found = part[level] or {}
        values += [found.get(name) for name in ("mean", "worst10", "best10", "variance")]
    return values + [summary["bytes"][f"{way}_per_client_round"] / MIB for way in ("up", "down")]


def _row(label: str, runs: list[list[float | None]]) -> tuple[str, ...]:
    cells = []
    for column in zip(*runs, strict=True):
        known = [value for value in column if value is not None]
        cells.append(f"{sum(known) / len(known):.2f}" if len(known) == len(column) else "-")
    return (label, *cells)


def aligned(rows: Sequence[Sequence[str]], head: Sequence[str] | None = None) -> str:
    """Columns side by side: the first to the left, the others to the right; a head may span columns."""
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
