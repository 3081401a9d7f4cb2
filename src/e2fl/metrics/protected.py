"""Rates of predictions by group, and how groups differ in them.

Names and signs of differences are those of fairlearn: the largest gap between any two groups, 0 or
more. `signed_differences` has the signed differences of two groups that the E2FL paper reports.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from e2fl.metrics.arrays import Labels, binary, codes, finite, rate


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

    def opportunity(group: Mapping[str, float]) -> float:
        return rate(group["true_positive"], group["true_positive"] + group["false_negative"])

    def selection(group: Mapping[str, float]) -> float:
        return rate(group["true_positive"] + group["false_positive"], group["n"])

    def score(group: Mapping[str, float]) -> float:
        return f1(group["true_positive"], group["false_positive"], group["false_negative"])

    return {
        "eod": opportunity(unprivileged) - opportunity(privileged),
        "di": score(unprivileged) - score(privileged),
        "spd": selection(unprivileged) - selection(privileged),
    }


def signed_differences(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: ArrayLike
) -> dict[str, float]:
    """Return `protected` of 0/1 labels and predictions: rows with feature 0 minus those with 1."""
    group = binary(sensitive_features, "sensitive_features")
    truth, predicted = _same_length(y_true, y_pred, group)
    counts = [_confusion(truth[rows], predicted[rows]) for rows in (~group, group)]
    return protected(counts[0], counts[1])


def rates_by_group(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Labels
) -> dict[Any, dict[str, float]]:
    """Return n, positives, F1 and five rates of each group, as fractions, for any number of groups.

    The rates are accuracy, selection rate, true positive rate, false positive rate, and predictive
    value (precision, PPV). A rate without rows to compute it from is NaN.
    """
    names, places = codes(sensitive_features, "group")
    truth, predicted = _same_length(y_true, y_pred, places)
    found = {}
    for place, name in enumerate(names):
        rows = places == place
        counts = _confusion(truth[rows], predicted[rows])
        n, hits = counts["n"], counts["true_positive"]
        positives = hits + counts["false_negative"]
        selected = hits + counts["false_positive"]
        found[name] = {
            "n": n,
            "positives": positives,
            "accuracy": rate(n - counts["false_positive"] - counts["false_negative"], n),
            "selection_rate": rate(selected, n),
            "true_positive_rate": rate(hits, positives),
            "false_positive_rate": rate(counts["false_positive"], n - positives),
            "predictive_value": rate(hits, selected),
            "f1": f1(hits, counts["false_positive"], counts["false_negative"]),
        }
    return found


def equal_opportunity_difference(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Labels
) -> float:
    """Return the largest gap between groups in true positive rate; NaN without positives in one."""
    return _largest_gap(y_true, y_pred, sensitive_features, "true_positive_rate")


def demographic_parity_difference(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Labels
) -> float:
    """Return the largest gap between groups in selection rate; `y_true` is not used."""
    return _largest_gap(y_true, y_pred, sensitive_features, "selection_rate")


def equalized_odds_difference(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Labels
) -> float:
    """Return the larger of the gaps between groups in true and in false positive rate."""
    kinds = ("true_positive_rate", "false_positive_rate")
    return _largest_gap(y_true, y_pred, sensitive_features, *kinds)


def predictive_parity_difference(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Labels
) -> float:
    """Return the largest gap between groups in how often a positive prediction is right."""
    return _largest_gap(y_true, y_pred, sensitive_features, "predictive_value")


def calibration_by_group(
    y_true: ArrayLike, y_score: ArrayLike, *, sensitive_features: Labels, bins: int = 10
) -> dict[Any, dict[str, Any]]:
    """Compare predicted probabilities with what happened, for each group.

    y_score: [rows], probabilities from 0 to 1. Returns n, mean_score, positive_rate, their
    difference and `ece`, the expected calibration error over bins of equal width.
    """
    probability = finite(y_score, "y_score")
    if probability.min() < 0 or probability.max() > 1:
        raise ValueError("y_score must hold probabilities from 0 to 1")
    names, places = codes(sensitive_features, "group")
    truth = binary(y_true, "y_true")
    if not len(truth) == len(probability) == len(places):
        raise ValueError(f"{len(truth)} labels, {len(probability)} scores and {len(places)} groups")
    found = {}
    for place, name in enumerate(names):
        rows = places == place
        cell = np.minimum((probability[rows] * bins).astype(np.int64), bins - 1)
        count = len(cell)
        scores = np.bincount(cell, weights=probability[rows], minlength=bins)
        positives = np.bincount(cell, weights=truth[rows], minlength=bins)
        found[name] = {
            "n": count,
            "mean_score": float(scores.sum() / count),
            "positive_rate": float(positives.sum() / count),
            "difference": float((scores.sum() - positives.sum()) / count),
            "ece": float(np.abs(scores - positives).sum() / count),
        }
    return found


def _largest_gap(
    y_true: ArrayLike, y_pred: ArrayLike, sensitive_features: Labels, *kinds: str
) -> float:
    """Return the largest gap in these rates over the groups; NaN where a group has no value."""
    rates = rates_by_group(y_true, y_pred, sensitive_features=sensitive_features).values()
    columns = [[group[kind] for group in rates] for kind in kinds]
    if any(math.isnan(value) for column in columns for value in column):
        return math.nan
    return max(max(column) - min(column) for column in columns)


def _same_length(
    y_true: ArrayLike, y_pred: ArrayLike, group: NDArray[Any]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    truth, predicted = binary(y_true, "y_true"), binary(y_pred, "y_pred")
    if not len(truth) == len(predicted) == len(group):
        raise ValueError(
            f"{len(truth)} labels, {len(predicted)} predictions and {len(group)} groups"
        )
    return truth, predicted


def _confusion(truth: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> dict[str, int]:
    return {
        "n": len(truth),
        "true_positive": int(np.count_nonzero(truth & predicted)),
        "false_positive": int(np.count_nonzero(~truth & predicted)),
        "false_negative": int(np.count_nonzero(truth & ~predicted)),
    }
