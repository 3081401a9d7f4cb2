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
def test_rates_and_differences_agree_with_fairlearn(seed):
    """Same names, same signs, same arguments."""
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
    group = rng.choice(["a", "b", "c"], len(y))
    gaps = [f"{kind}_difference" for kind in ("equal_opportunity", "equalized_odds")]
    for name in (*gaps, "demographic_parity_difference", "demographic_parity_ratio"):
        mine, theirs = (getattr(one, name) for one in (metrics, fairlearn))
        expected = theirs(y, y_hat, sensitive_features=group)
        assert mine(y, y_hat, sensitive_features=group) == pytest.approx(expected)


def test_row_metrics_by_hand():
    #    women: 2 positives, 1 found, 1 false alarm   men: 2 positives, both found, no false alarm
    y, y_hat, a = [1, 1, 0, 0, 1, 1, 0], [1, 0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1]
    expected = {"eod": 0.5 - 1, "di": 2 / 4 - 1, "spd": 1 / 2 - 2 / 3}
    assert metrics.signed_differences(y, y_hat, sensitive_features=a) == pytest.approx(expected)
    assert opportunity(y, y_hat, a) == 0.5
    # Rates without positives or rows are undefined, not 0.
    assert math.isnan(opportunity([0, 0, 1], [0, 1, 1], [0, 0, 1]))
    signed = metrics.signed_differences([1, 1], [1, 1], sensitive_features=[1, 1])
    assert math.isnan(signed["spd"])
    assert signed["di"] == -1


def opportunity(y, y_hat, groups):
    return metrics.equal_opportunity_difference(y, y_hat, sensitive_features=groups)


@pytest.mark.parametrize(
    ("measure", "reason"),
    [
        (lambda: opportunity([0, 1], [0, 2], [0, 0]), "y_pred must hold 0 and 1 only"),
        (
            lambda: metrics.signed_differences([0, 1], [0, 1], sensitive_features=[1, 2]),
            "sensitive_features must hold 0 and 1 only",
        ),
        (lambda: opportunity([0, 1], [0], [0, 0]), "2 labels, 1 predictions and 2 groups"),
    ],
)
def test_what_cannot_be_measured_is_refused(measure, reason):
    with pytest.raises(ValueError, match=reason):
        measure()
