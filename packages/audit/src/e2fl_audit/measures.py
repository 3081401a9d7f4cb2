"""One value per client: accuracies in percent or as fractions, or any other measure."""

import numpy as np

from e2fl_audit.columns import ALIASES, plain
from e2fl_audit.files import Column, Numbers
from e2fl_audit.table import Measure, Rows

ERRORS = {
    "loss",
    "error",
    "rmse",
    "mse",
    "mae",
    "mape",
    "brier",
    "perplexity",
    "wer",
    "cer",
    "regret",
}


def build_measure(rows: Rows) -> Measure:
    """Return the values of a table with one row per client, or per client and group."""
    column = rows.columns.get("accuracy") or rows.columns["score"]
    is_rate = plain(column.title) in ALIASES["accuracy"].split()
    value = _fractions(rows, column) if is_rate else column.numbers
    lower = rows.settings.lower_is_better
    if not lower and ERRORS & set(plain(column.title).split("_")):
        lower = True
        rows.notes.append(f"'{column.title}' is read as an error: lower is better.")
    cells = rows.frame.assign(value=value)
    if "n" in rows.columns:
        cells["weight"] = rows.columns["n"].numbers
    if rows.clients is None:
        cells["client"] = np.arange(len(cells))
    else:
        _require_single(rows)
    rows.mistakes.stop()
    return Measure(column.title, cells, is_rate, not lower)


def _require_single(rows: Rows) -> None:
    """Require one row for each client, or for each of its groups."""
    numbered = rows.frame.assign(row=np.arange(len(rows.frame)))
    first = numbered.groupby(["client", *rows.keys])["row"].transform("first").to_numpy()
    for position in np.flatnonzero(first != numbered["row"]):
        row, client = int(first[position]), (rows.clients or [])[rows.frame["client"][position]]
        rows.mistakes.add(
            f"rows {row + 1} and {position + 1} are both of client '{client}' in the same group; "
            "give one row per client, or one row per person with y and y_hat"
        )


def _fractions(rows: Rows, column: Column) -> Numbers:
    """Return accuracies as fractions, and reject a mixture of fractions and percentages."""
    value, mistakes, title = column.numbers, rows.mistakes, column.title
    with_sign = np.array([text.rstrip().endswith("%") for text in column.values])[column.codes]
    if with_sign.any() and (~with_sign & (value != 0)).any():
        what = "has values with and without a percent sign; write all of them alike"
        mistakes.add(f"column '{title}' {what}")
        return value
    unit = "fraction" if with_sign.any() else rows.settings.unit
    small, large = (value > 0) & (value <= 1), value > 1
    if unit is None and small.any() and large.any():
        one, other = int(np.flatnonzero(small)[0]), int(np.flatnonzero(large)[0])
        mistakes.add(
            f"column '{title}' mixes fractions and percentages: row {one + 1} has {value[one]:g}, "
            f"row {other + 1} has {value[other]:g}; write all of them alike, or pass --unit percent"
        )
        return value
    if unit is None:
        unit = "percent" if large.any() else "fraction"
        if unit == "fraction" and small.any():
            rows.notes.append("No accuracy is above 1, so they are read as fractions.")
    limit = 100.0 if unit == "percent" else 1.0
    wrong = (value < 0) | (value > limit)
    mistakes.rows(
        wrong, lambda row: f"has {value[row]:g} in column '{title}'; it must be 0 to {limit:g}"
    )
    return value / limit
