"""The tables that `run` and `compare` print, one row for each algorithm."""

from collections.abc import Sequence

from e2fl.runs.measure import divergence_warnings
from e2fl.runs.records import Json
from e2fl.terminal import aligned


def all_tables(summaries: Sequence[Json], first: str | None = None) -> str:
    """Return the comparison, the differences between two protected groups if there are any, and warnings.

    first: printed in place of the comparison.
    """
    warnings = "\n".join(
        f"{summary['label']}, seed {summary['seed']}: {warning}"
        for summary in summaries
        for warning in divergence_warnings(summary)
    )
    return "\n\n".join(part for part in (first or comparison(summaries), protected(summaries), warnings) if part)


def comparison(summaries: Sequence[Json]) -> str:
    """Return the paper's table: groups, clients and bytes. Runs that differ only in their seed share a row of means."""
    most = max(summary["bytes"][f"{way}_per_client_round"] for summary in summaries for way in ("up", "down"))
    unit, size = ("MiB", 2**20) if most >= 0.1 * 2**20 else ("KiB", 2**10)  # small models would show 0.00 MiB
    head = ("", "groups", "", "", "", "clients", "", "", "", f"{unit} / client / round", "")
    names = ("algorithm", "mean", "worst", "best", "variance", "mean", "worst", "best", "variance", "up", "down")
    rows = []
    for label, runs in _by_label(summaries).items():
        rows.append(_row(label, [_values(run, None, size) for run in runs]))
        rows += [
            _row(_title(label, view), [_values(run, view, size) for run in runs]) for view in runs[0].get("views", {})
        ]
    return aligned([names, *rows], head)


def protected(summaries: Sequence[Json]) -> str:
    """Return accuracy and the differences between two groups, unprivileged minus privileged; empty if not defined."""
    names = ("algorithm", "accuracy", "EOD", "DI", "SPD")
    rows = []
    for label, runs in _by_label([summary for summary in summaries if "protected" in summary]).items():
        rows.append(_difference_row(label, runs))
        views = runs[0].get("views", {})
        rows += [_difference_row(_title(label, view), [run["views"][view] for run in runs]) for view in views]
    return aligned([names, *rows]) if rows else ""


def _by_label(summaries: Sequence[Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for summary in summaries:
        found.setdefault(summary["label"], []).append(summary)
    return found


def _title(label: str, view: str) -> str:
    return f"{label} ({'GM' if view == 'global' else view})"


def _difference_row(label: str, parts: Sequence[Json]) -> tuple[str, ...]:
    """Return a row of means over seeds; a dash where a difference is undefined."""
    cells = [f"{sum(part['user']['mean'] for part in parts) / len(parts):.2f}"]
    for name in ("eod", "di", "spd"):
        values = [part["protected"][name] for part in parts]
        known = [value for value in values if value is not None and value == value]
        cells.append(f"{sum(known) / len(known):+.4f}" if len(known) == len(values) else "-")
    return (label, *cells)


def _values(summary: Json, view: str | None, size: int) -> list[float | None]:
    part = summary if view is None else summary["views"][view]
    values: list[float | None] = []
    for level in ("group", "user"):
        found = part[level] or {}
        values += [found.get(name) for name in ("mean", "worst10", "best10", "variance")]
    return values + [summary["bytes"][f"{way}_per_client_round"] / size for way in ("up", "down")]


def _row(label: str, runs: list[list[float | None]]) -> tuple[str, ...]:
    cells = []
    for column in zip(*runs, strict=True):
        known = [value for value in column if value is not None]
        cells.append(f"{sum(known) / len(known):.2f}" if len(known) == len(column) else "-")
    return (label, *cells)
