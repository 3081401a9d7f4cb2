"""Rates by group: by hand, undefined where they are, and as fairlearn has them."""

import math

import numpy as np
import pytest

from e2fl import metrics
from e2fl.metrics import f1, protected


def counts(n, true_positive, false_positive, false_negative):
    names = ("n", "true_positive", "false_positive", "false_negative")
    return dict(zip(names, (n, true_positive, false_positive, false_negative), strict=True))


WOMEN, MEN = counts(100, 6, 4, 4), counts(200, 45, 15, 15)


def test_differences_between_two_groups():
    expected = {"eod": 0.6 - 0.75, "spd": 0.10 - 0.30, "di": 12 / 20 - 90 / 120}
    assert protected(WOMEN, MEN) == pytest.approx(expected)
    undefined = protected(counts(10, 0, 1, 0), counts(10, 2, 1, 1))  # no positives: not 0
    assert math.isnan(undefined["eod"])
    assert not math.isnan(undefined["spd"])
    assert f1(0, 0, 0) == 0
    assert f1(3, 1, 2) == pytest.approx(6 / 9)


def test_equal_opportunity_varies_over_clients():
    even, no_positives = (MEN, MEN), (counts(10, 0, 1, 0), MEN)
    assert metrics.eod_std([(WOMEN, MEN), even, no_positives]) == pytest.approx(0.15 / 2)
    assert metrics.eod_std([(WOMEN, MEN), no_positives]) is None


@pytest.mark.parametrize("seed", range(3))
def test_rates_agree_with_fairlearn(seed):
    """Same names, same arguments; differences follow from the rates."""
    fairlearn = pytest.importorskip("fairlearn.metrics")
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, 400)
    y = (rng.random(400) < 0.2 + 0.2 * a).astype(int)
    y_hat = np.where(rng.random(400) < 0.8, y, 1 - y)
    measures = {
        "accuracy": sklearn.accuracy_score,
        "true_positive_rate": fairlearn.true_positive_rate,
        "selection_rate": fairlearn.selection_rate,
        "predictive_value": sklearn.precision_score,
        "f1": sklearn.f1_score,
    }
    frame = fairlearn.MetricFrame(metrics=measures, y_true=y, y_pred=y_hat, sensitive_features=a)
    ours = metrics.rates_by_group(y, y_hat, sensitive_features=a)
    for group in (0, 1):
        for name in measures:
            assert ours[group][name] == pytest.approx(frame.by_group.loc[group, name])
    signed = metrics.signed_differences(y, y_hat, sensitive_features=a)
    differences = frame.by_group.loc[0] - frame.by_group.loc[1]
    names = {"eod": "true_positive_rate", "di": "f1", "spd": "selection_rate"}
    assert signed == pytest.approx({key: differences[name] for key, name in names.items()})


def test_row_metrics_by_hand():
    #    women: 2 positives, 1 found, 1 false alarm   men: 2 positives, both found, no false alarm
    y, y_hat, a = [1, 1, 0, 0, 1, 1, 0], [1, 0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1]
    expected = {"eod": 0.5 - 1, "di": 2 / 4 - 1, "spd": 1 / 2 - 2 / 3}
    assert metrics.signed_differences(y, y_hat, sensitive_features=a) == pytest.approx(expected)
    # Rates without positives or rows are undefined, not 0.
    rates = metrics.rates_by_group([0, 0, 1], [0, 1, 1], sensitive_features=["a", "a", "b"])
    assert math.isnan(rates["a"]["true_positive_rate"])
    assert rates["b"]["true_positive_rate"] == 1
    signed = metrics.signed_differences([1, 1], [1, 1], sensitive_features=[1, 1])
    assert math.isnan(signed["spd"])
    assert signed["di"] == -1


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (([0, 1], [0, 2], [0, 0]), "y_pred must hold 0 and 1"),
        (([0, 1], [0, 1], [1, 2]), "sensitive_features must hold 0 and 1"),
        (([0, 1], [0], [0, 0]), "2 labels, 1 predictions and 2 groups"),
    ],
)
def test_what_cannot_be_measured_is_refused(rows, reason):
    y_true, y_pred, groups = rows
    with pytest.raises(ValueError, match=reason):
        metrics.signed_differences(y_true, y_pred, sensitive_features=groups)
