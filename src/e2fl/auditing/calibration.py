"""Whether predicted probabilities mean the same in every group."""

from typing import Any

import numpy as np

from e2fl.auditing.judging import MIN_ROWS, Judging
from e2fl.auditing.suppression import hidden_groups
from e2fl.auditing.table import Predictions, Table


def calibration(table: Table, judging: Judging) -> list[dict[str, Any]]:
    """Return for each group the mean score, the share of positives and the expected calibration error."""
    data = table.data
    if not isinstance(data, Predictions) or data.calibration is None:
        return []
    few = MIN_ROWS if judging.min_n is None else judging.min_n
    found = []
    for grouping, hidden in zip(table.groupings, hidden_groups(table, judging.suppress_below), strict=True):
        size = len(grouping.groups)
        sums = np.zeros((3, size, data.calibration.shape[2]))
        for part in range(3):
            np.add.at(sums[part], grouping.of_combo, data.calibration[part])
        for place, name in enumerate(grouping.groups):
            rows, scores, positives = sums[:, place]
            n = float(rows.sum())
            if not n or place in hidden.parts:
                continue
            found.append(
                {
                    "grouping": grouping.name,
                    "group": name,
                    "n": n,
                    "mean_score": float(scores.sum() / n),
                    "positive_rate": float(positives.sum() / n),
                    "difference": float((scores.sum() - positives.sum()) / n),
                    "ece": float(np.abs(scores - positives).sum() / n),
                    "status": "too few rows" if n < few else "judged",
                }
            )
    return found
