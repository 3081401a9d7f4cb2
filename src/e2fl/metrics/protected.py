"""Rates of predictions by group, and how groups differ in them."""

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


def protected(unprivileged: Mapping[str, float], privileged: Mapping[str, float]) -> dict[str, float]:
    """Return differences between two groups, unprivileged minus privileged; negative is a disadvantage of the first.

    Each group is given by its counts: n, true_positive, false_positive, false_negative. `eod` is the difference in true
    positive rate, `spd` in selection rate. `di` is the F1 gap, which the E2FL paper calls DI; it is not the ratio that
    "disparate impact" usually means. Undefined differences are NaN: `eod` without positives in a group, `spd` without
    examples.
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


def confusion(y: ArrayLike, y_hat: ArrayLike) -> dict[str, int]:
    """Return the counts of 0/1 predictions that `protected` takes."""
    truth, predicted = binary(y, "y"), binary(y_hat, "y_hat")
    if len(truth) != len(predicted):
        raise ValueError(f"{len(truth)} labels for {len(predicted)} predictions")
    return {
        "n": len(truth),
        "correct": int(np.count_nonzero(truth == predicted)),
        "true_positive": int(np.count_nonzero(truth & predicted)),
        "false_positive": int(np.count_nonzero(~truth & predicted)),
        "false_negative": int(np.count_nonzero(truth & ~predicted)),
    }


def by_group(y: ArrayLike, y_hat: ArrayLike, a: ArrayLike) -> dict[int, dict[str, float]]:
    """Return n, accuracy in percent, true positive rate, positive rate and F1 for groups 0 and 1.

    Undefined rates are NaN: the true positive rate without positives, all but F1 without rows. For more groups and
    more rates, see `rates_by_group`.
    """
    found = {}
    for group, counts in _counts(y, y_hat, a).items():
        positives = counts["true_positive"] + counts["false_negative"]
        found[group] = {
            "n": counts["n"],
            "accuracy": 100 * rate(counts["correct"], counts["n"]),
            "true_positive_rate": rate(counts["true_positive"], positives),
            "positive_rate": rate(counts["true_positive"] + counts["false_positive"], counts["n"]),
            "f1": f1(counts["true_positive"], counts["false_positive"], counts["false_negative"]),
        }
    return found


def equal_opportunity_difference(y: ArrayLike, y_hat: ArrayLike, a: ArrayLike) -> float:
    """Return EOD: the true positive rate where a = 0 minus that where a = 1; NaN without positives in a group."""
    return _differences(y, y_hat, a)["eod"]


def f1_difference(y: ArrayLike, y_hat: ArrayLike, a: ArrayLike) -> float:
    """Return the F1 gap: F1 of the rows with a = 0 minus F1 of those with a = 1. The E2FL paper calls it DI."""
    return _differences(y, y_hat, a)["di"]


def statistical_parity_difference(y_hat: ArrayLike, a: ArrayLike) -> float:
    """Return SPD: the selection rate where a = 0 minus that where a = 1; NaN without rows in a group."""
    return _differences(y_hat, y_hat, a)["spd"]


def rates_by_group(y: ArrayLike, y_hat: ArrayLike, group: Labels) -> dict[Any, dict[str, float]]:
    """Return n, positives and the five rates of each group, as fractions, for any number of groups.

    The rates are accuracy, selection rate, true positive rate, false positive rate, and predictive value (precision,
    PPV). A rate without rows to compute it from is NaN.
    """
    truth, predicted = binary(y, "y"), binary(y_hat, "y_hat")
    names, places = codes(group, "group")
    if not len(truth) == len(predicted) == len(places):
        raise ValueError(f"{len(truth)} labels, {len(predicted)} predictions and {len(places)} groups")

    def counted(rows: NDArray[np.bool_]) -> list[int]:
        return [int(count) for count in np.bincount(places[rows], minlength=len(names))]

    everything = counted(np.ones(len(truth), bool))
    columns = zip(
        everything,
        counted(truth),
        counted(predicted),
        counted(truth & predicted),
        counted(truth == predicted),
        strict=True,
    )
    return {
        name: {
            "n": n,
            "positives": positives,
            "accuracy": rate(correct, n),
            "selection_rate": rate(selected, n),
            "true_positive_rate": rate(hits, positives),
            "false_positive_rate": rate(selected - hits, n - positives),
            "predictive_value": rate(hits, selected),
        }
        for name, (n, positives, selected, hits, correct) in zip(names, columns, strict=True)
    }


def equalized_odds_difference(y: ArrayLike, y_hat: ArrayLike, group: Labels) -> float:
    """Return the larger of two gaps between groups: in true positive rate and in false positive rate. 0 is even."""
    return _larger_gap(y, y_hat, group, ("true_positive_rate", "false_positive_rate"))


def predictive_parity_difference(y: ArrayLike, y_hat: ArrayLike, group: Labels) -> float:
    """Return the gap between groups in predictive value: how often a positive prediction is right. 0 is even."""
    return _larger_gap(y, y_hat, group, ("predictive_value",))


def calibration_by_group(y: ArrayLike, score: ArrayLike, group: Labels, bins: int = 10) -> dict[Any, dict[str, Any]]:
    """Compare predicted probabilities with what happened, for each group.

    score: [rows], probabilities from 0 to 1. Returns n, mean_score, positive_rate, their difference and `ece`, the
    expected calibration error over bins of equal width.
    """
    truth, probability = binary(y, "y"), finite(score, "score")
    if probability.min() < 0 or probability.max() > 1:
        raise ValueError("score must hold probabilities from 0 to 1")
    names, places = codes(group, "group")
    if not len(truth) == len(probability) == len(places):
        raise ValueError(f"{len(truth)} labels, {len(probability)} scores and {len(places)} groups")
    cell = places * bins + np.minimum((probability * bins).astype(np.int64), bins - 1)
    size = len(names) * bins
    shape = (len(names), bins)
    count = np.bincount(cell, minlength=size).reshape(shape)
    scores = np.bincount(cell, weights=probability, minlength=size).reshape(shape)
    positives = np.bincount(cell, weights=truth, minlength=size).reshape(shape)
    return {
        name: {
            "n": int(count[row].sum()),
            "mean_score": float(scores[row].sum() / count[row].sum()),
            "positive_rate": float(positives[row].sum() / count[row].sum()),
            "difference": float((scores[row].sum() - positives[row].sum()) / count[row].sum()),
            "ece": float(np.abs(scores[row] - positives[row]).sum() / count[row].sum()),
        }
        for row, name in enumerate(names)
    }


def _larger_gap(y: ArrayLike, y_hat: ArrayLike, group: Labels, names: tuple[str, ...]) -> float:
    """Return the largest gap in these rates over the groups; NaN where a group has no value."""
    found = rates_by_group(y, y_hat, group)
    gaps = []
    for name in names:
        values = [rates[name] for rates in found.values()]
        gaps.append(math.nan if any(math.isnan(value) for value in values) else max(values) - min(values))
    return math.nan if any(math.isnan(value) for value in gaps) else max(gaps)


def _differences(y: ArrayLike, y_hat: ArrayLike, a: ArrayLike) -> dict[str, float]:
    counts = _counts(y, y_hat, a)
    return protected(counts[0], counts[1])


def _counts(y: ArrayLike, y_hat: ArrayLike, a: ArrayLike) -> dict[int, dict[str, int]]:
    truth, predicted, group = np.asarray(y).reshape(-1), np.asarray(y_hat).reshape(-1), binary(a, "a")
    if not len(truth) == len(predicted) == len(group):
        raise ValueError(f"{len(truth)} labels, {len(predicted)} predictions and {len(group)} groups")
    return {0: confusion(truth[~group], predicted[~group]), 1: confusion(truth[group], predicted[group])}
