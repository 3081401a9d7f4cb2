"""Metrics: the worked example, what must hold for any scores, and agreement with fairlearn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl import metrics
from e2fl.metrics import f1, group_means, protected, spread, tenth

ACCURACIES = [80, 82, 90, 91, 92, 93, 94, 95, 96, 97, 97, 98, 98, 98, 99, 99, 99, 99, 100, 100]
GROUPS = ["A"] * 2 + ["B"] * 4 + ["C"] * 6 + ["D"] * 8


def test_spreads_of_twenty_clients_and_of_four_groups():
    keys = ("mean", "worst10", "best10", "variance")
    expected = dict(zip(keys, (94.85, 81.0, 100.0, 29.9275), strict=True))
    assert spread(ACCURACIES) == pytest.approx(expected)
    means = group_means(ACCURACIES, GROUPS)
    assert means == pytest.approx({"A": 81, "B": 91.5, "C": 96.166667, "D": 99})
    expected = dict(zip(keys, (91.916667, 81, 99, 46.895833), strict=True))
    assert spread(list(means.values())) == pytest.approx(expected)
    # The variance is of the population, as in the paper's table.
    assert spread([85.65, 90.60])["variance"] == pytest.approx(6.13, abs=0.01)
    assert all(math.isnan(value) for value in spread([1, math.nan, 3]).values())


@pytest.mark.parametrize(
    ("count", "part"), [(1, 1), (9, 1), (10, 1), (19, 1), (20, 2), (1000, 100), (3400, 340)]
)
def test_a_tenth_is_at_least_one(count, part):
    assert tenth(count) == part


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_worst_is_below_mean_is_below_best(values):
    measured = spread(values)
    assert measured["worst10"] <= measured["mean"] + 1e-9
    assert measured["mean"] <= measured["best10"] + 1e-9
    assert measured["variance"] >= 0
    assert spread(values[:1] * 30)["variance"] == pytest.approx(0, abs=1e-9)


def counts(n, true_positive, false_positive, false_negative):
    return {
        "n": n,
        "true_positive": true_positive,
        "false_positive": false_positive,
        "false_negative": false_negative,
    }


def test_differences_between_two_groups():
    women, men = counts(100, 6, 4, 4), counts(200, 45, 15, 15)
    expected = {"eod": 0.6 - 0.75, "spd": 0.10 - 0.30, "di": 12 / 20 - 90 / 120}
    assert protected(women, men) == pytest.approx(expected)
    undefined = protected(counts(10, 0, 1, 0), counts(10, 2, 1, 1))  # no positives: not 0
    assert math.isnan(undefined["eod"])
    assert not math.isnan(undefined["spd"])
    assert f1(0, 0, 0) == 0
    assert f1(3, 1, 2) == pytest.approx(6 / 9)


@pytest.mark.parametrize("seed", range(5))
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
    for kind in ("equal_opportunity", "demographic_parity", "equalized_odds"):
        mine, theirs = (getattr(one, f"{kind}_difference") for one in (metrics, fairlearn))
        expected = theirs(y, y_hat, sensitive_features=group)
        assert mine(y, y_hat, sensitive_features=group) == pytest.approx(expected)
    precision = fairlearn.MetricFrame(
        metrics=sklearn.precision_score, y_true=y, y_pred=y_hat, sensitive_features=group
    )
    gap = metrics.predictive_parity_difference(y, y_hat, sensitive_features=group)
    assert gap == pytest.approx(precision.difference())


def test_row_metrics_by_hand():
    #    women: 2 positives, 1 found, 1 false alarm   men: 2 positives, both found, no false alarm
    y, y_hat, a = [1, 1, 0, 0, 1, 1, 0], [1, 0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1]
    expected = {"eod": 0.5 - 1, "di": 2 / 4 - 1, "spd": 1 / 2 - 2 / 3}
    assert metrics.signed_differences(y, y_hat, sensitive_features=a) == pytest.approx(expected)
    assert metrics.equal_opportunity_difference(y, y_hat, sensitive_features=a) == 0.5
    # Rates without positives or rows are undefined, not 0.
    undefined = metrics.equal_opportunity_difference(
        [0, 0, 1], [0, 1, 1], sensitive_features=[0, 0, 1]
    )
    assert math.isnan(undefined)
    signed = metrics.signed_differences([1, 1], [1, 1], sensitive_features=[1, 1])
    assert math.isnan(signed["spd"])
    assert signed["di"] == -1


def opportunity(y, y_hat, groups):
    return metrics.equal_opportunity_difference(y, y_hat, sensitive_features=groups)


@pytest.mark.parametrize(
    ("measure", "reason"),
    [
        (lambda: spread(np.array([])), "nothing to measure"),
        (lambda: opportunity([0, 1], [0, 2], [0, 0]), "y_pred must hold 0 and 1 only"),
        (
            lambda: metrics.signed_differences([0, 1], [0, 1], sensitive_features=[1, 2]),
            "sensitive_features must hold 0 and 1 only",
        ),
        (lambda: opportunity([0, 1], [0, 1, 1], [0, 1]), "2 labels, 3 predictions and 2 groups"),
        (lambda: metrics.accuracies([1, 1, 1], [1], client=["a", "a", "b"]), "each example"),
        (lambda: metrics.accuracies([1, 1], [1, 1], client=["a"]), "each example"),
        (lambda: metrics.accuracies([[1], [1]], [[1], [1]], client=["a", "b"]), "each example"),
        (lambda: metrics.accuracies([], [], client=[]), "nothing to measure"),
        (lambda: metrics.accuracies([1, 1], [1, 1], client=["a", None]), "row 1 has no client"),
        (lambda: metrics.fairness([1, 2], [0, math.nan]), "row 1 has no group"),
        (lambda: metrics.fairness([1, 2], client=np.array([np.nan, 1])), "row 0 has no client"),
        (lambda: metrics.group_means([1, 2], [math.nan, 0]), "row 0 has no group"),
        (lambda: metrics.gini([1, -2]), "row 1 is below 0"),
        (lambda: metrics.cvar([1, 2], 0), "alpha"),
        (lambda: metrics.atkinson([1, 2], 0), "epsilon"),
        (lambda: metrics.objective_std([0.2, math.nan]), "loss is not a number in row 1"),
        (
            lambda: metrics.calibration_by_group([1], [1.5], sensitive_features=["a"]),
            "probabilities",
        ),
        (lambda: metrics.bootstrap(np.mean, {"a": [1.0]}, by="site"), "no column 'site'"),
    ],
)
def test_what_cannot_be_measured_is_refused(measure, reason):
    with pytest.raises(ValueError, match=reason):
        measure()


def test_measures_of_inequality_by_hand():
    values = [1.0, 2.0, 3.0, 4.0]
    shares = np.array(values) / 10
    pairs = {
        metrics.gap(values): 3,
        metrics.std(values): math.sqrt(1.25),
        metrics.p10(values): 1.3,
        metrics.p90(values): 3.7,
        metrics.gini(values): 0.25,
        metrics.jain(values): 100 / (4 * 30),
        metrics.atkinson(values): 1 - 24**0.25 / 2.5,
        metrics.atkinson(values, 0.5): 1 - (sum(v**0.5 for v in values) / 4) ** 2 / 2.5,
        metrics.generalized_entropy(values, 2): 1.25 / (2 * 2.5**2),
        metrics.theil(values): sum(v / 2.5 * math.log(v / 2.5) for v in values) / 4,
        metrics.entropy(values): -(shares * np.log(shares)).sum() / math.log(4),
        metrics.cvar(values, 0.25): 1.0,
        metrics.cvar(values, 0.5): 1.5,
        metrics.cvar(values, 0.375): (1 + 0.5 * 2) / 1.5,
        metrics.cvar([3, 1], 1): 2.0,
        metrics.atkinson([0, 1]): 1,
        metrics.generalized_entropy([0, 1], 0): math.inf,
    }
    for ours, expected in pairs.items():
        assert ours == pytest.approx(expected)
    values = np.random.default_rng(0).random(30)
    difference = np.abs(values[:, None] - values[None, :]).mean()
    assert metrics.gini(values) == pytest.approx(difference / (2 * values.mean()))


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=30), st.floats(0.1, 50))
def test_measures_of_inequality_do_not_depend_on_the_unit(values, factor):
    scaled = [factor * value for value in values]
    for measure in (metrics.gini, metrics.jain, metrics.entropy, metrics.atkinson, metrics.theil):
        assert measure(scaled) == pytest.approx(measure(values), abs=1e-9)
    equal = [values[0]] * len(values)
    for measure in (metrics.gini, metrics.atkinson, metrics.theil, metrics.std, metrics.gap):
        assert measure(equal) == pytest.approx(0, abs=1e-9)
    assert metrics.jain(equal) == pytest.approx(1)
    assert metrics.entropy(equal) == pytest.approx(1)


@given(st.lists(st.tuples(st.floats(0.1, 100), st.sampled_from("abc")), min_size=2, max_size=30))
def test_the_between_group_part_is_no_more_than_the_whole(rows):
    values, groups = [value for value, _ in rows], [group for _, group in rows]
    for alpha in (0.0, 1.0, 2.0):
        whole = metrics.generalized_entropy(values, alpha)
        assert -1e-9 <= metrics.between_group_entropy(values, groups, alpha) <= whole + 1e-9
    alone = metrics.between_group_entropy(values, range(len(values)))
    assert alone == pytest.approx(metrics.generalized_entropy(values))


def test_the_objective_varies_over_clients_and_over_groups():
    """Definitions 1 and 2 of the paper: the standard deviation of the loss."""
    measured = metrics.objective_std([0.2, 0.4, 1.0, 1.4], ["a", "a", "b", "b"])
    assert measured["clients"] == pytest.approx(np.std([0.2, 0.4, 1.0, 1.4]))
    assert measured["group"] == pytest.approx(np.std([0.3, 1.2]))
    assert metrics.objective_std([0.2, 0.4])["group"] is None


def test_calibration_is_the_distance_of_scores_from_what_happened():
    measured = metrics.calibration_by_group(
        [1, 0, 1, 1], [0.9, 0.9, 0.25, 0.75], sensitive_features=["a", "a", "b", "b"]
    )
    assert measured["a"]["difference"] == pytest.approx(0.4)
    assert measured["a"]["ece"] == pytest.approx(0.4)
    assert measured["b"]["ece"] == pytest.approx((0.75 + 0.25) / 2)


def test_the_bootstrap_draws_whole_clients():
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(40), 50)
    value = rng.normal(0, 1, 40)[client] + rng.normal(0, 0.1, 2000)
    columns = {"value": value, "client": client}
    drawn = metrics.bootstrap(lambda value: value.mean(), columns, by="client")
    error = np.std([value[client == name].mean() for name in range(40)], ddof=1) / np.sqrt(40)
    assert drawn.value == pytest.approx(value.mean())
    assert drawn.high - drawn.low == pytest.approx(2 * 1.96 * error, rel=0.25)
    rows = metrics.bootstrap(lambda value: value.mean(), {"value": value})
    assert rows.high - rows.low < (drawn.high - drawn.low) / 3
    assert metrics.bootstrap(lambda value: value.mean(), columns, by="client") == drawn
