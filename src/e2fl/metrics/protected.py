"""Rates of predictions by group, and the differences of two groups that the E2FL paper reports.

Rates have the names of fairlearn, which has the largest gap between any number of groups.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from e2fl.metrics.accuracy import Labels, Positions, codes
from e2fl.metrics.inequality import std

COUNTS = ("n", "true_positive", "false_positive", "false_negative")


def f1(true_positive: float, false_positive: float, false_negative: float) -> float:
    """Return F1 of the positive class; 0 where there are no positives and none are predicted."""
    whole = 2 * true_positive + false_positive + false_negative
    return 2 * true_positive / whole if whole else 0.0


def protected(
    unprivileged: Mapping[str, float], privileged: Mapping[str, float]
) -> dict[str, float]:
    """Return differences between two groups, unprivileged minus privileged.

    Each group is given by its counts: n, true_positive, false_positive, false_negative. Negative is
    a disadvantage of the first. `eod` is the difference in true positive rate, `spd` in selection
    rate. `di` is the F1 gap, which the E2FL paper calls DI; it is not the ratio that "disparate
    impact" usually means. Undefined differences are NaN: `eod` without positives in a group, `spd`
    without examples.
    """
    groups = (unprivileged, privileged)
    first, second = (_rates(*(group[name] for name in COUNTS)) for group in groups)
    names = {"eod": "true_positive_rate", "di": "f1", "spd": "selection_rate"}
    return {key: first[name] - second[name] for key, name in names.items()}


def eod_std(
    clients: Iterable[tuple[Mapping[str, float], Mapping[str, float]]],
) -> float | None:
    """Return how far `eod` varies over clients: its standard deviation; None for fewer than two.

    clients: of each client that has both groups, their counts as in `protected`. Clients without
    positives in a group are left out.
    """
    values = [protected(*groups)["eod"] for groups in clients]
    known = [value for value in values if not np.isnan(value)]
    return std(known) if len(known) > 1 else None


def signed_differences(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: ArrayLike
) -> dict[str, float]:
    """Return `protected` of 0/1 labels and predictions: rows with feature 0 minus those with 1."""
    counts = _counts(y_true, y_pred, _binary(sensitive_features, "sensitive_features"), 2)
    first, second = (dict(zip(COUNTS, row, strict=True)) for row in counts)
    return protected(first, second)


def rates_by_group(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Labels
) -> dict[Any, dict[str, float]]:
    """Return n, positives, F1 and five rates of each group, as fractions, for any number of groups.

    The rates are accuracy, selection rate, true positive rate, false positive rate, and predictive
    value (precision, PPV). A rate without rows to compute it from is NaN.
    """
    names, positions = codes(sensitive_features, "group")
    counts = _counts(y_true, y_pred, positions, len(names))
    return {name: _rates(*row) for name, row in zip(names.tolist(), counts, strict=True)}


def _rates(n: float, hits: float, false_alarms: float, missed: float) -> dict[str, float]:
    positives, selected = hits + missed, hits + false_alarms
    shares = {
        "accuracy": (n - false_alarms - missed, n),
        "selection_rate": (selected, n),
        "true_positive_rate": (hits, positives),
        "false_positive_rate": (false_alarms, n - positives),
        "predictive_value": (hits, selected),
    }
    rates = {name: part / whole if whole else np.nan for name, (part, whole) in shares.items()}
    return {"n": n, "positives": positives, **rates, "f1": f1(hits, false_alarms, missed)}


def _counts(y_true: ArrayLike, y_pred: ArrayLike, groups: Positions, count: int) -> list[list[int]]:
    """Return `COUNTS` for each group."""
    truth, predicted = _binary(y_true, "y_true"), _binary(y_pred, "y_pred")
    lengths = [len(truth), len(predicted), len(groups)]
    if len({*lengths}) > 1:
        raise ValueError("{} labels, {} predictions and {} groups".format(*lengths))
    cells = np.bincount(4 * groups + 2 * truth + predicted, minlength=4 * count).reshape(-1, 4)
    return [[sum(row), row[3], row[1], row[2]] for row in cells.tolist()]


def _binary(values: ArrayLike, name: str) -> Positions:
    array = np.asarray(values).reshape(-1)
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold 0 and 1 only")
    return array.astype(np.int64)
