"""One value per client: accuracies in percent or as fractions, or any other measure."""

import numpy as np

from e2fl.auditing.columns import ALIASES, plain
from e2fl.auditing.table import Measure, Numbers
from e2fl.auditing.values import Rows, Texts

ERRORS = ("loss", "error", "rmse", "mse", "mae", "mape", "brier", "perplexity", "wer", "cer", "regret")


def build_measure(rows: Rows) -> Measure:
    """Return the values of a table with one row per client."""
    role = "accuracy" if "accuracy" in rows.texts else "score"
    title, value = rows.texts[role].title, rows.numbers(role)
    is_rate = plain(title) in ALIASES["accuracy"]
    if is_rate:
        value = _fractions(rows, rows.texts[role], value)
    lower = rows.options.lower_is_better or any(word in plain(title).split("_") for word in ERRORS)
    if lower and not rows.options.lower_is_better:
        rows.notes.append(f"'{title}' is read as an error: lower is better.")
    return Measure(
        name=title,
        client=np.arange(len(value)) if rows.client is None else rows.client,
        combo=rows.combo,
        value=value,
        weight=rows.numbers("n") if "n" in rows.texts else None,
        is_rate=is_rate,
        higher_is_better=not lower,
    )


def _fractions(rows: Rows, column: Texts, value: Numbers) -> Numbers:
    """Return accuracies as fractions, and reject a mixture of fractions and percentages."""
    if column.percent_signs and column.plain_numbers:
        rows.mistakes.add(
            f"column '{column.title}' has values with and without a percent sign; write all of them alike"
        )
        return value
    unit = "fraction" if column.percent_signs else rows.options.unit
    small, large = (value > 0) & (value <= 1), value > 1
    if unit is None and small.any() and large.any():
        one, other = int(np.flatnonzero(small)[0]), int(np.flatnonzero(large)[0])
        rows.mistakes.add(
            f"column '{column.title}' mixes fractions and percentages: row {one + 1} has {value[one]:g}, row "
            f"{other + 1} has {value[other]:g}; write all of them alike, or pass --unit percent"
        )
        return value
    if unit is None:
        unit = "percent" if large.any() else "fraction"
        if unit == "fraction" and small.any():
            rows.notes.append("No accuracy is above 1, so they are read as fractions, not as percentages.")
    limit = 100.0 if unit == "percent" else 1.0
    wrong = (value < 0) | (value > limit)
    rows.mistakes.rows(
        wrong, 0, lambda row: f"has {value[row]:g} in column '{column.title}'; it must be 0 to {limit:g}"
    )
    return value / limit
