"""Rates, intervals and tests agree with fairlearn, statsmodels and SciPy, also where degenerate."""

import math

import numpy as np
import pandas as pd
import pytest
from fairlearn import metrics
from scipy import stats
from sklearn import metrics as sklearn
from statsmodels.stats import multitest, proportion

import e2fl
from e2fl_audit import AuditError, audit
from e2fl_audit.rates import overall
from e2fl_audit.reader import read_table
from e2fl_audit.settings import Settings
from e2fl_audit.statistics import holm, mean_half, newcombe, wilson
from tests.audit.tables import exact

RATES = {
    "accuracy": "accuracy_score",
    "selection_rate": "selection_rate",
    "true_positive_rate": "true_positive_rate",
    "false_positive_rate": "false_positive_rate",
    "predictive_value": "precision_score",
}


def people(seed, n=900, groups=5):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, groups, n)
    y = (rng.random(n) < rng.random(groups)[codes]).astype(int)
    frame = pd.DataFrame({"group": [f"g{code}" for code in codes], "y": y})
    return frame.assign(y_hat=np.where(rng.random(n) < 0.75, y, 1 - y))


def degenerate():
    """One group of one row, one without positives, one never selected, one always right."""
    rows = [("single", 1, 0)] + [("negative", 0, k % 2) for k in range(40)]
    rows += [("never", k % 2, 0) for k in range(40)] + [("right", k % 2, k % 2) for k in range(40)]
    return pd.DataFrame(rows, columns=["group", "y", "y_hat"])


@pytest.mark.parametrize("frame", [people(0), people(1), degenerate()], ids=len)
def test_rates_differences_and_ratios_agree_with_fairlearn(frame):
    functions = {
        ours: getattr(metrics, theirs, None) or getattr(sklearn, theirs)
        for ours, theirs in RATES.items()
    }
    functions["predictive_value"] = lambda y, p: sklearn.precision_score(y, p, zero_division=np.nan)
    theirs = metrics.MetricFrame(
        metrics=functions, y_true=frame.y, y_pred=frame.y_hat, sensitive_features=frame.group
    )
    found = audit(y_true=frame.y, y_pred=frame.y_hat, sensitive_features=frame.group, min_n=1)
    ours = found.by_group.loc["group"]
    for rate in RATES:
        rows = found.rates.query("rate == @rate").set_index("group")
        for group in theirs.by_group.index:
            expected = theirs.by_group.loc[group, rate] if rows.base[group] else math.nan
            assert ours.loc[group, rate] == pytest.approx(expected, nan_ok=True), (rate, group)
        assert found.overall[rate] == pytest.approx(theirs.overall[rate])
        if len(frame) == 900:
            assert np.ptp(rows.value) == pytest.approx(theirs.difference()[rate])
            if rate != "false_positive_rate":  # ours is the ratio to the lowest of these rates
                assert rows.ratio.min() == pytest.approx(theirs.ratio()[rate])


def test_wilson_holm_and_newcombe_agree_with_statsmodels():
    rng = np.random.default_rng(0)
    count = rng.integers(1, 400, 200)
    hits = rng.integers(0, count + 1)
    low, high = wilson(hits.astype(float), count.astype(float))
    expected = proportion.proportion_confint(hits, count, method="wilson")
    np.testing.assert_allclose([low, high], expected, atol=1e-12)
    assert np.isnan(wilson(np.zeros(1), np.zeros(1))[0]).all()
    for size in (1, 2, 7, 40):
        p = rng.random(size) ** 3
        np.testing.assert_allclose(holm(p), multitest.multipletests(p, method="holm")[1])
    for one in range(0, 100, 2):
        value, bounds = hits / count, (low[[one]], high[[one]])
        base = value[one + 1], (low[one + 1], high[one + 1])
        ours = [float(end[0]) for end in newcombe(value[[one]], bounds, *base)]
        pairs = hits[one], count[one], hits[one + 1], count[one + 1]
        theirs = proportion.confint_proportions_2indep(*pairs, method="newcomb", compare="diff")
        assert ours == pytest.approx(theirs, abs=1e-9)


def test_the_test_of_independent_rows_is_the_chi_square_test():
    frame = people(1)
    found = audit(frame).rates
    right = frame.y == frame.y_hat
    for row in found.query("rate == 'accuracy'").itertuples():
        mine = frame.group == row.group
        counts = [[(right & side).sum(), (~right & side).sum()] for side in (mine, ~mine)]
        assert row.p == pytest.approx(stats.chi2_contingency(counts, correction=False).pvalue)
    np.testing.assert_allclose(found.p_holm, holm(found.p.tolist()))  # over the whole page


def test_tests_and_intervals_of_means_agree_with_scipy():
    rng = np.random.default_rng(0)
    group, values = np.repeat(np.arange(4), 10), rng.normal(0, 1, 40)
    members = [values[group == g] for g in range(4)]
    interval = stats.ttest_1samp(members[0], 0).confidence_interval()
    assert 2 * mean_half(members[0]) == pytest.approx(interval.high - interval.low)
    welch = stats.ttest_ind(*members[:2], equal_var=False).confidence_interval()
    assert mean_half(*members[:2]) == pytest.approx((welch.high - welch.low) / 2)


def test_intervals_over_clients_cover_the_truth():
    """95 % of intervals hold the true rate where clients differ; those of independent rows not."""
    rng = np.random.default_rng(11)
    covered, naive, settings = 0, 0, Settings(resamples=100)
    for _ in range(40):
        skill = rng.beta(8, 4, 40)  # the accuracy of each client; its mean is 2 / 3
        client = np.repeat(np.arange(40), 60)
        right = rng.random(2400) < skill[client]
        y = rng.integers(0, 2, 2400)
        frame = pd.DataFrame({"client": client, "y": y, "y_hat": np.where(right, y, 1 - y)})
        row = overall(read_table(frame, settings), settings)[0].rows[0]
        covered += row.low < 2 / 3 < row.high
        low, high = wilson(np.array([right.sum()], float), np.array([2400.0]))
        naive += low[0] < 2 / 3 < high[0]
    assert covered >= 36
    assert naive <= 30


def test_several_classes_have_accuracy_and_recall_of_each():
    rng = np.random.default_rng(0)
    y = rng.choice(["cat", "dog", "cow"], 600)
    frame = pd.DataFrame({"group": rng.choice(["a", "b"], 600), "y": y})
    frame["y_hat"] = np.where(rng.random(600) < 0.7, y, "cat")
    found = audit(frame)
    assert set(found.rates.rate) == {"accuracy", "recall: cat", "recall: dog", "recall: cow"}
    mine = frame.query("group == 'a' and y == 'dog'")
    value = found.rates.query("group == 'a' and rate == 'recall: dog'").value.item()
    assert value == pytest.approx((mine.y_hat == "dog").mean())
    binary = audit(frame, positive="dog").rates
    positive = binary.query("group == 'a' and rate == 'true_positive_rate'").value.item()
    assert positive == pytest.approx(value)


def test_of_labels_1_and_2_none_is_taken_as_the_positive_one():
    frame = exact({"A": (40, 10, 20, 30), "B": (40, 10, 20, 30)}).replace({1: 2, 0: 1})
    assert set(audit(frame).rates.rate) == {"accuracy", "recall: 1", "recall: 2"}
    named = audit(frame, positive=2).rates
    assert named.query("rate == 'true_positive_rate'").value.tolist() == [0.8, 0.8]


def test_the_reference_may_be_best_largest_or_named():
    frame = people(2, groups=3)
    largest = frame.group.value_counts().idxmax()
    assert set(audit(frame, reference="largest").rates.reference) == {largest}
    assert set(audit(frame, reference="g1").rates.reference) == {"g1"}
    best = audit(frame).rates.query("rate == 'false_positive_rate'")
    assert best.reference.iloc[0] == best.loc[best.value.idxmin(), "group"]  # the lowest is best
    with pytest.raises(AuditError, match="no group 'g9'"):
        audit(frame, reference="g9")


def test_crossed_groups_count_unknown_once():
    columns = {"sex": ["f", "m", None, "f"] * 50, "race": ["a", "b", "a", None] * 50}
    frame = pd.DataFrame(columns | {"y": [0, 1] * 100, "y_hat": [1] * 200})
    rates = audit(frame, sensitive_features=["sex", "race"]).rates
    rows = rates.query("rate == 'accuracy' and grouping == 'sex and race'").set_index("group")
    assert rows.n.to_dict() == {"f · a": 50, "m · b": 50, "unknown": 100}
    assert math.isnan(rows.p["unknown"])


def test_local_law_144_has_selection_rates_impact_ratios_and_unknowns():
    rng = np.random.default_rng(0)
    n = 2000
    frame = pd.DataFrame({"gender": rng.choice(["Female", "Male", ""], n, p=[0.48, 0.5, 0.02])})
    races = ["White", "Black", "Asian", "Other"]
    frame["ethnicity"] = rng.choice(races, n, p=[0.6, 0.25, 0.14, 0.01])
    frame["score"] = rng.normal(50, 10, n)
    found = audit(frame, profile="ll144")
    assert set(found.rates.rate) == {"selection_rate"}
    names = ["gender", "ethnicity", "gender and ethnicity"]
    assert found.rates.grouping.unique().tolist() == names
    above = frame.score > frame.score.median()
    rates = above.groupby(frame.ethnicity).mean().drop("Other")
    rows = found.rates.query("grouping == 'ethnicity'").set_index("group")
    for name, value in rates.items():
        assert rows.ratio[name] == pytest.approx(value / rates.max())
    assert rows.status["Other"] == "under 2 %"
    assert "Under 2 % of the rows and not judged, by ethnicity: Other." in found.sentences
    assert "Impact ratio" in found.to_html()
    unknown = found.rates.query("group == 'unknown' and grouping == 'gender'").n.item()
    assert unknown == (frame.gender == "").sum()


def test_calibration_by_group_by_hand():
    rows = [("a", 0.9, 1), ("a", 0.9, 0), ("b", 0.25, 1), ("b", 0.75, 1)] * 50
    frame = pd.DataFrame(rows, columns=["group", "p", "y"])
    found = audit(frame, y_pred="p").calibration.set_index("group").T
    for name, n, score, positive, error in (
        ("a", 100, 0.9, 0.5, 0.4),
        ("b", 100, 0.5, 1.0, (0.75 + 0.25) / 2),
    ):
        expected = {"n": n, "mean_score": score, "positive_rate": positive, "ece": error}
        assert {key: found[name][key] for key in expected} == pytest.approx(expected)


def test_measures_of_inequality_are_those_of_e2fl():
    values = np.random.default_rng(0).gamma(2, 10, 37)
    frame = pd.DataFrame({"client": range(37), "auroc": values})
    found = dict(audit(frame, score="auroc").spread.measures)
    expected = e2fl.metrics.spread(values)
    assert found == pytest.approx({name: expected[name] for name in found})


def test_chance_alone_explains_the_spread_of_equal_clients():
    rng = np.random.default_rng(0)
    n = rng.integers(10, 80, 300)
    equal = pd.DataFrame({"client": range(300), "accuracy": 100 * rng.binomial(n, 0.8) / n, "n": n})
    spread = audit(equal).spread
    assert spread.chance["p"] > 0.05
    for name in ("std", "variance", "worst10", "best10", "gap"):
        assert spread.chance[name] == pytest.approx(spread.measures[name], rel=0.3)
    assert spread.below == ()
    share = np.where(np.arange(300) < 5, 0.3, 0.8)
    uneven = audit(equal.assign(accuracy=100 * rng.binomial(n, share) / n)).spread
    assert uneven.chance["p"] < 0.01
    assert uneven.below
    assert set(uneven.below) <= set("01234")
