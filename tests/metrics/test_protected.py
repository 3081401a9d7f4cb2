"""Differences of two groups: by hand, undefined where they are, and as fairlearn has them."""

import math

import numpy as np
import pytest
from fairlearn import metrics as fairlearn
from sklearn import metrics as sklearn

from e2fl import metrics
from e2fl.metrics import f1, protected


def counts(n, true_positive, false_positive, false_negative):
    names = ("n", "true_positive", "false_positive", "false_negative")
    return dict(zip(names, (n, true_positive, false_positive, false_negative), strict=True))


WOMEN, MEN = counts(100, 6, 4, 4), counts(200, 45, 15, 15)


def test_differences_of_counts_by_hand():
    expected = {"eod": 0.6 - 0.75, "spd": 0.10 - 0.30, "di": 12 / 20 - 90 / 120}
    assert protected(WOMEN, MEN) == pytest.approx(expected)
    undefined = protected(counts(10, 0, 1, 0), counts(10, 2, 1, 1))  # no positives: not 0
    assert math.isnan(undefined["eod"])
    assert not math.isnan(undefined["spd"])
    assert f1(0, 0, 0) == 0
    even, no_positives = (MEN, MEN), (counts(10, 0, 1, 0), MEN)
    assert metrics.eod_std([(WOMEN, MEN), even, no_positives]) == pytest.approx(0.15 / 2)
    assert metrics.eod_std([(WOMEN, MEN), no_positives]) is None


def test_differences_of_rows_agree_with_fairlearn():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 400)
    y = (rng.random(400) < 0.2 + 0.2 * a).astype(int)
    y_hat = np.where(rng.random(400) < 0.8, y, 1 - y)
    measures = {
        "eod": fairlearn.true_positive_rate,
        "spd": fairlearn.selection_rate,
        "di": sklearn.f1_score,
    }
    frame = fairlearn.MetricFrame(metrics=measures, y_true=y, y_pred=y_hat, sensitive_features=a)
    signed = metrics.signed_differences(y, y_hat, sensitive_features=a)
    assert signed == pytest.approx(dict(frame.by_group.loc[0] - frame.by_group.loc[1]))


def test_rows_that_are_missing_or_impossible():
    signed = metrics.signed_differences([1, 1], [1, 1], sensitive_features=[1, 1])
    assert math.isnan(signed["spd"])  # without rows undefined, not 0
    assert signed["di"] == -1
    for rows in (([0, 1], [0, 2], [0, 0]), ([0, 1], [0, 1], [1, 2]), ([0, 1], [0], [0, 0])):
        with pytest.raises(ValueError, match="labels, predictions and features"):
            metrics.signed_differences(*rows[:2], sensitive_features=rows[2])
