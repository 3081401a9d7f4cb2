"""The differences of two groups that the E2FL paper reports; fairlearn has those of many groups."""

import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from e2fl.metrics.accuracy import variance

KINDS = ("true_positive", "false_positive", "false_negative")


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
    first, second = _rates(unprivileged), _rates(privileged)
    return {name: first[name] - second[name] for name in first}


def _rates(counts: Mapping[str, float]) -> dict[str, float]:
    hits, false_alarms, missed = (counts[name] for name in KINDS)
    positives, n = hits + missed, counts["n"]
    return {
        "eod": hits / positives if positives else math.nan,
        "di": f1(hits, false_alarms, missed),
        "spd": (hits + false_alarms) / n if n else math.nan,
    }


def eod_std(clients: Iterable[tuple[Mapping[str, float], Mapping[str, float]]]) -> float | None:
    """Return the standard deviation of `eod` over clients; None for fewer than two.

    clients: of each client that has both groups, their counts as in `protected`. Clients without
    positives in a group are left out.
    """
    values = [protected(*groups)["eod"] for groups in clients]
    defined = [value for value in values if not np.isnan(value)]
    return math.sqrt(variance(defined)) if len(defined) > 1 else None


def signed_differences(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: ArrayLike
) -> dict[str, float]:
    """Return `protected` of 0/1 labels and predictions: rows with feature 0 minus those with 1."""
    truth, predicted, feature = (
        np.asarray(values).reshape(-1) for values in (y_true, y_pred, sensitive_features)
    )
    if not len(truth) == len(predicted) == len(feature):
        raise ValueError("labels, predictions and features need the same number of rows")
    if not np.isin(np.concatenate([truth, predicted, feature]), (0, 1)).all():
        raise ValueError("labels, predictions and features must hold 0 and 1 only")
    counts = []
    for rows in (feature == 0, feature == 1):
        actual, guess = truth[rows] == 1, predicted[rows] == 1
        kinds = zip(KINDS, (actual & guess, ~actual & guess, actual & ~guess), strict=True)
        counts.append({"n": len(actual)} | {name: int(kind.sum()) for name, kind in kinds})
    return protected(*counts)
