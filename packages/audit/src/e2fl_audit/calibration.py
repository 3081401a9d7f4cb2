"""Whether predicted probabilities mean the same in every group."""

from typing import Any

from e2fl_audit.ratetable import JUDGED
from e2fl_audit.settings import MIN_ROWS, Settings
from e2fl_audit.suppression import hidden_groups
from e2fl_audit.table import Predictions, Table


def calibration(table: Table, settings: Settings) -> list[dict[str, Any]]:
    """Return for each group the mean score, the share of positives and the calibration error."""
    bins = table.data.bins if isinstance(table.data, Predictions) else None
    if bins is None:
        return []
    few = MIN_ROWS if settings.min_n is None else settings.min_n
    rows: list[dict[str, Any]] = []
    hidden_of = hidden_groups(table, settings.suppress_below)
    for grouping, hidden in zip(table.groupings, hidden_of, strict=True):
        sums = bins.groupby([grouping.column, "bin"])[["n", "score", "positives"]].sum()
        sums["error"] = (sums["score"] - sums["positives"]).abs()
        groups: Any = sums.groupby(level=0).sum()
        rows += [
            {
                "grouping": grouping.name,
                "group": grouping.groups[row.Index],
                "n": row.n,
                "mean_score": row.score / row.n,
                "positive_rate": row.positives / row.n,
                "difference": (row.score - row.positives) / row.n,
                "ece": row.error / row.n,
                "status": "too few rows" if row.n < few else JUDGED,
            }
            for row in groups[~groups.index.isin(hidden.parts)].itertuples()
        ]
    return rows
