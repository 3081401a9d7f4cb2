"""Metrics: the worked example, and what must hold for any scores."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl import metrics
from e2fl.metrics import (
    f1,
    group_means,
    protected,
    spread,
    tenth,
)

ACCURACIES = [80, 82, 90, 91, 92, 93, 94, 95, 96, 97, 97, 98, 98, 98, 99, 99, 99, 99, 100, 100]
GROUPS = ["A"] * 2 + ["B"] * 4 + ["C"] * 6 + ["D"] * 8


def test_spread_of_twenty_clients():
    assert spread(ACCURACIES) == pytest.approx(
        {"mean": 94.85, "worst10": 81.0, "best10": 100.0, "variance": 29.9275}
    )


def test_spread_of_four_groups():
    means = group_means(ACCURACIES, GROUPS)
    assert means == pytest.approx({"A": 81, "B": 91.5, "C": 96.166667, "D": 99})
    assert spread(list(means.values())) == pytest.approx(
        {"mean": 91.916667, "worst10": 81, "best10": 99, "variance": 46.895833}
    )


def test_variance_is_of_the_population_as_in_the_papers_table():
    assert spread([85.65, 90.60])["variance"] == pytest.approx(6.13, abs=0.01)


@pytest.mark.parametrize(
    ("count", "part"), [(1, 1), (9, 1), (10, 1), (19, 1), (20, 2), (1000, 100), (3400, 340)]
)
def test_a_tenth_is_at_least_one(count, part):
    assert tenth(count) == part


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_worst_is_below_mean_is_below_best(values):
    found = spread(values)
    assert found["worst10"] <= found["mean"] + 1e-9
    assert found["mean"] <= found["best10"] + 1e-9
    assert found["variance"] >= 0


@given(st.floats(0, 100), st.integers(1, 30))
def test_equal_service_has_no_variance(value, count):
    assert spread([value] * count)["variance"] == pytest.approx(0, abs=1e-9)


def test_differences_between_two_groups():
    women = {"n": 100, "true_positive": 6, "false_positive": 4, "false_negative": 4}
    men = {"n": 200, "true_positive": 45, "false_positive": 15, "false_negative": 15}
    found = protected(women, men)
    assert found["eod"] == pytest.approx(0.6 - 0.75)
    assert found["spd"] == pytest.approx(0.10 - 0.30)
    assert found["di"] == pytest.approx(12 / 20 - 90 / 120)


def test_equal_opportunity_without_positives_is_undefined_not_zero():
    none = {"n": 10, "true_positive": 0, "false_positive": 1, "false_negative": 0}
    some = {"n": 10, "true_positive": 2, "false_positive": 1, "false_negative": 1}
    assert math.isnan(protected(none, some)["eod"])
    assert not math.isnan(protected(none, some)["spd"])


def test_f1_of_nothing_is_zero():
    assert f1(0, 0, 0) == 0
    assert f1(3, 1, 2) == pytest.approx(6 / 9)


def test_nothing_to_measure_is_an_error():
    with pytest.raises(ValueError, match="nothing to measure"):
        spread(np.array([]))


def rows(seed, n=400):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    y = (rng.random(n) < 0.2 + 0.2 * a).astype(int)
    y_hat = np.where(rng.random(n) < 0.8, y, 1 - y)
    return y, y_hat, a


@pytest.mark.parametrize("seed", range(5))
def test_rates_and_differences_agree_with_fairlearn(seed):
    """Same names, same signs, same arguments."""
    fairlearn = pytest.importorskip("fairlearn.metrics")
    sklearn = pytest.importorskip("sklearn.metrics")
    y, y_hat, a = rows(seed)
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
    group = np.random.default_rng(seed).choice(["a", "b", "c"], len(y))
    for name in (
        "equal_opportunity_difference",
        "demographic_parity_difference",
        "equalized_odds_difference",
    ):
        mine, theirs = getattr(metrics, name), getattr(fairlearn, name)
        assert mine(y, y_hat, sensitive_features=group) == pytest.approx(
            theirs(y, y_hat, sensitive_features=group)
        )
    precision = fairlearn.MetricFrame(
        metrics=sklearn.precision_score, y_true=y, y_pred=y_hat, sensitive_features=group
    )
    assert metrics.predictive_parity_difference(
        y, y_hat, sensitive_features=group
    ) == pytest.approx(precision.difference())


def test_row_metrics_by_hand():
    #    women: 2 positives, 1 found, 1 false alarm   men: 2 positives, both found, no false alarm
    y, y_hat, a = [1, 1, 0, 0, 1, 1, 0], [1, 0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1]
    assert metrics.signed_differences(y, y_hat, sensitive_features=a) == pytest.approx(
        {"eod": 0.5 - 1, "di": 2 / 4 - 1, "spd": 1 / 2 - 2 / 3}
    )
    assert metrics.equal_opportunity_difference(y, y_hat, sensitive_features=a) == 0.5


def test_rates_without_positives_or_rows_are_undefined_not_zero():
    nothing_found = ([0, 0, 1], [0, 1, 1])
    assert math.isnan(
        metrics.equal_opportunity_difference(*nothing_found, sensitive_features=[0, 0, 1])
    )
    signed = metrics.signed_differences([1, 1], [1, 1], sensitive_features=[1, 1])
    assert math.isnan(signed["spd"])
    assert signed["di"] == -1


def test_row_metrics_refuse_what_is_not_two_classes():
    with pytest.raises(ValueError, match="y_pred must hold 0 and 1 only"):
        metrics.equal_opportunity_difference([0, 1], [0, 2], sensitive_features=[0, 0])
    with pytest.raises(ValueError, match="sensitive_features must hold 0 and 1 only"):
        metrics.signed_differences([0, 1], [0, 1], sensitive_features=[1, 2])
    with pytest.raises(ValueError, match="2 labels, 3 predictions and 2 groups"):
        metrics.rates_by_group([0, 1], [0, 1, 1], sensitive_features=[0, 1])


@pytest.mark.parametrize(
    ("measure", "reason"),
    [
        (
            lambda: metrics.accuracies([1, 1, 1], [1], client=["a", "a", "b"]),
            "one value for each example",
        ),
        (lambda: metrics.accuracies([1, 1], [1, 1], client=["a"]), "one value for each example"),
        (
            lambda: metrics.accuracies([1, 1], [1, 1], client=["a", "b"], sensitive_features=[1]),
            "one value for each example",
        ),
        (
            lambda: metrics.accuracies([[1], [1]], [[1], [1]], client=["a", "b"]),
            "one value for each example",
        ),
        (lambda: metrics.accuracies([], [], client=[]), "nothing to measure"),
        (lambda: metrics.accuracies([1, 1], [1, 1], client=["a", None]), "row 1 has no client"),
        (lambda: metrics.fairness([1, 2], [0, math.nan]), "row 1 has no group"),
        (lambda: metrics.fairness([1, 2], ["a", None]), "row 1 has no group"),
        (lambda: metrics.fairness([1, 2], client=np.array([np.nan, 1])), "row 0 has no client"),
        (lambda: metrics.group_means([1, 2], [math.nan, 0]), "row 0 has no group"),
    ],
)
def test_rows_that_do_not_belong_together_are_refused(measure, reason):
    with pytest.raises(ValueError, match=reason):
        measure()


def test_one_value_that_is_not_a_number_spoils_every_measure():
    assert all(math.isnan(value) for value in metrics.spread([1, math.nan, 3]).values())


def test_measures_of_inequality_by_hand():
    values = [1.0, 2.0, 3.0, 4.0]
    assert metrics.gap(values) == 3
    assert metrics.std(values) == pytest.approx(math.sqrt(1.25))
    assert metrics.p10(values) == pytest.approx(1.3)
    assert metrics.p90(values) == pytest.approx(3.7)
    assert metrics.gini(values) == pytest.approx(0.25)
    assert metrics.jain(values) == pytest.approx(100 / (4 * 30))
    assert metrics.atkinson(values) == pytest.approx(1 - 24**0.25 / 2.5)
    assert metrics.atkinson(values, 0.5) == pytest.approx(
        1 - (sum(v**0.5 for v in values) / 4) ** 2 / 2.5
    )
    assert metrics.generalized_entropy(values, 2) == pytest.approx(1.25 / (2 * 2.5**2))
    assert metrics.theil(values) == pytest.approx(
        sum(v / 2.5 * math.log(v / 2.5) for v in values) / 4
    )
    shares = np.array(values) / 10
    assert metrics.entropy(values) == pytest.approx(-(shares * np.log(shares)).sum() / math.log(4))


def test_the_gini_coefficient_is_the_mean_difference():
    rng = np.random.default_rng(0)
    values = rng.random(30)
    pairs = np.abs(values[:, None] - values[None, :]).mean()
    assert metrics.gini(values) == pytest.approx(pairs / (2 * values.mean()))


@pytest.mark.parametrize(
    ("values", "alpha", "expected"),
    [
        ([1, 2, 3, 4], 0.25, 1.0),
        ([1, 2, 3, 4], 0.5, 1.5),
        ([1, 2, 3, 4], 0.375, (1 + 0.5 * 2) / 1.5),
        ([3, 1], 1, 2.0),
    ],
)
def test_cvar_is_the_mean_of_the_lowest_share(values, alpha, expected):
    assert metrics.cvar(values, alpha) == pytest.approx(expected)


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
    assert metrics.between_group_entropy(values, range(len(values))) == pytest.approx(
        metrics.generalized_entropy(values)
    )


def test_inequality_of_negative_values_is_refused():
    with pytest.raises(ValueError, match="row 1 is below 0"):
        metrics.gini([1, -2])
    with pytest.raises(ValueError, match="alpha"):
        metrics.cvar([1, 2], 0)
    with pytest.raises(ValueError, match="epsilon"):
        metrics.atkinson([1, 2], 0)
    assert metrics.atkinson([0, 1]) == 1
    assert metrics.generalized_entropy([0, 1], 0) == math.inf


def test_the_objective_varies_over_clients_and_over_groups():
    """Definitions 1 and 2 of the paper: the standard deviation of the loss over clients, and over groups."""
    found = metrics.objective_std([0.2, 0.4, 1.0, 1.4], ["a", "a", "b", "b"])
    assert found["clients"] == pytest.approx(np.std([0.2, 0.4, 1.0, 1.4]))
    assert found["group"] == pytest.approx(np.std([0.3, 1.2]))
    assert metrics.objective_std([0.2, 0.4])["group"] is None
    with pytest.raises(ValueError, match="loss is not a number in row 1"):
        metrics.objective_std([0.2, math.nan])


def test_calibration_is_the_distance_of_scores_from_what_happened():
    found = metrics.calibration_by_group(
        [1, 0, 1, 1], [0.9, 0.9, 0.25, 0.75], sensitive_features=["a", "a", "b", "b"]
    )
    assert found["a"]["difference"] == pytest.approx(0.4)
    assert found["a"]["ece"] == pytest.approx(0.4)
    assert found["b"]["ece"] == pytest.approx((0.75 + 0.25) / 2)
    with pytest.raises(ValueError, match="probabilities"):
        metrics.calibration_by_group([1], [1.5], sensitive_features=["a"])


def test_the_bootstrap_draws_whole_clients():
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(40), 50)
    value = rng.normal(0, 1, 40)[client] + rng.normal(0, 0.1, 2000)
    found = metrics.bootstrap(
        lambda value: value.mean(), {"value": value, "client": client}, by="client"
    )
    spread = np.std([value[client == name].mean() for name in range(40)], ddof=1) / np.sqrt(40)
    assert found.value == pytest.approx(value.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.25)
    alone = metrics.bootstrap(lambda value: value.mean(), {"value": value})
    assert alone.high - alone.low < (found.high - found.low) / 3
    again = metrics.bootstrap(
        lambda value: value.mean(), {"value": value, "client": client}, by="client"
    )
    assert again == found
    with pytest.raises(ValueError, match="no column 'site'"):
        metrics.bootstrap(np.mean, {"a": value}, by="site")
