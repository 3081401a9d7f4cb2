"""One value per client: accuracies in percent or as fractions, or any other measure."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from e2fl.auditing.columns import ALIASES, plain
from e2fl.auditing.table import Codes, Measure, Numbers, Options
from e2fl.auditing.values import Mistakes

ERRORS = ("loss", "error", "rmse", "mse", "mae", "mape", "brier", "perplexity", "wer", "cer", "regret")


class NumberColumn(Protocol):
    """A column of numbers that was read."""

    title: str
    percent_signs: bool
    plain_numbers: bool

    def as_numbers(self) -> Numbers: ...


def build_measure(
    table: str,
    texts: Mapping[str, NumberColumn],
    keep: NDArray[np.bool_],
    client: Codes | None,
    combo: Codes,
    options: Options,
    notes: list[str],
    mistakes: Mistakes,
) -> Measure:
    """Return the values of a table with one row per client."""
    column = texts["accuracy"] if "accuracy" in texts else texts["score"]
    value = column.as_numbers()[keep]
    is_rate = plain(column.title) in ALIASES["accuracy"]
    if is_rate:
        value = _fractions(table, column, value, options, notes, mistakes)
    lower = options.lower_is_better or any(word in plain(column.title).split("_") for word in ERRORS)
    if lower and not options.lower_is_better:
        notes.append(f"'{column.title}' is read as an error: lower is better.")
    return Measure(
        name=column.title,
        client=np.arange(len(value)) if client is None else client,
        combo=combo,
        value=value,
        weight=texts["n"].as_numbers()[keep] if "n" in texts else None,
        is_rate=is_rate,
        higher_is_better=not lower,
    )


def _fractions(
    table: str, column: NumberColumn, value: Numbers, options: Options, notes: list[str], mistakes: Mistakes
) -> Numbers:
    """Return accuracies as fractions, and reject a mixture of fractions and percentages."""
    if column.percent_signs and column.plain_numbers:
        mistakes.add(f"column '{column.title}' has values with and without a percent sign; write all of them alike")
        return value
    unit = "fraction" if column.percent_signs else options.unit
    small, large = (value > 0) & (value <= 1), value > 1
    if unit is None and small.any() and large.any():
        one, other = int(np.flatnonzero(small)[0]), int(np.flatnonzero(large)[0])
        mistakes.add(
            f"column '{column.title}' mixes fractions and percentages: row {one + 1} has {value[one]:g}, row "
            f"{other + 1} has {value[other]:g}; write all of them alike, or pass --unit percent"
        )
        return value
    if unit is None:
        unit = "percent" if large.any() else "fraction"
        if unit == "fraction" and small.any():
            notes.append("No accuracy is above 1, so they are read as fractions, not as percentages.")
    limit = 100.0 if unit == "percent" else 1.0
    wrong = (value < 0) | (value > limit)
    mistakes.rows(wrong, 0, lambda row: f"has {value[row]:g} in column '{column.title}'; it must be 0 to {limit:g}")
    return value / limit
