"""Rates, intervals and tests agree with fairlearn, statsmodels and SciPy, on random and on degenerate tables."""

import math
import time

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import e2fl
from e2fl.auditing.uncertainty import holm, newcombe, permutation_test, wilson
from e2fl.metrics.student import mean_interval, welch

RATES = {
    "accuracy": "accuracy_score",
    "selection_rate": "selection_rate",
    "true_positive_rate": "true_positive_rate",
    "false_positive_rate": "false_positive_rate",
    "predictive_value": "precision_score",
}


def people(seed, n=900, groups=5):
    rng = np.random.default_rng(seed)
    group = rng.choice([f"g{number}" for number in range(groups)], n)
    y = (rng.random(n) < rng.random(groups)[[int(name[1:]) for name in group]]).astype(int)
    return pd.DataFrame({"group": group, "y": y, "y_hat": np.where(rng.random(n) < 0.75, y, 1 - y)})


def degenerate():
    """One group of one row, one without positives, one that is never selected, one that is always right."""
    rows = [("single", 1, 0)] + [("negative", 0, k % 2) for k in range(40)] + [("never", k % 2, 0) for k in range(40)]
    return pd.DataFrame(rows + [("right", k % 2, k % 2) for k in range(40)], columns=["group", "y", "y_hat"])


@pytest.mark.parametrize("frame", [*(people(seed) for seed in range(4)), degenerate()], ids=lambda frame: len(frame))
def test_rates_differences_and_ratios_agree_with_fairlearn(frame):
    metrics = pytest.importorskip("fairlearn.metrics")
    sklearn = pytest.importorskip("sklearn.metrics")
    functions = {ours: getattr(metrics, theirs, None) or getattr(sklearn, theirs) for ours, theirs in RATES.items()}
    functions["predictive_value"] = lambda y, p: sklearn.precision_score(y, p, zero_division=np.nan)
    theirs = metrics.MetricFrame(metrics=functions, y_true=frame.y, y_pred=frame.y_hat, sensitive_features=frame.group)
    found = e2fl.audit(y_true=frame.y, y_pred=frame.y_hat, sensitive_features=frame.group, min_n=1)
    ours = found.by_group.loc["group"]
    for rate in RATES:
        for group in theirs.by_group.index:
            expected = theirs.by_group.loc[group, rate]
            mine = found.rates.query("rate == @rate and group == @group").iloc[0]
            if mine.base:
                assert ours.loc[group, rate] == pytest.approx(expected), (rate, group)
            else:
                assert math.isnan(ours.loc[group, rate])  # fairlearn says 0 for a share of nothing
        assert found.overall[rate] == pytest.approx(theirs.overall[rate])
    if len(frame) == 900:
        for rate in RATES:
            rows = found.rates.query("rate == @rate")
            assert rows.value.max() - rows.value.min() == pytest.approx(theirs.difference()[rate])
            if rate != "false_positive_rate":  # ours is the ratio to the most favourable group, the lowest rate
                assert rows.ratio.min() == pytest.approx(theirs.ratio()[rate])
        assert rows.difference.abs().max() <= theirs.difference()[rate] + 1e-12


def test_wilson_intervals_agree_with_statsmodels():
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    rng = np.random.default_rng(0)
    count = rng.integers(1, 400, 200)
    hits = rng.integers(0, count + 1)
    low, high = wilson(hits.astype(float), count.astype(float))
    expected = proportion.proportion_confint(hits, count, method="wilson")
    np.testing.assert_allclose(low, expected[0], atol=1e-12)
    np.testing.assert_allclose(high, expected[1], atol=1e-12)
    assert np.isnan(wilson(np.zeros(1), np.zeros(1))[0]).all()
    frame = people(3)
    found = e2fl.audit(frame).rates.query("rate == 'accuracy'")
    expected = proportion.proportion_confint(found.hits, found.base, method="wilson")
    np.testing.assert_allclose(found.low, expected[0])


def test_holm_newcombe_and_welch_agree_with_statsmodels_and_scipy():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 40):
        p = rng.random(size) ** 3
        np.testing.assert_allclose(holm(list(p)), multitest.multipletests(p, method="holm")[1])
    for _ in range(50):
        n = rng.integers(5, 200, 2)
        k = rng.integers(0, n + 1)
        low, high = wilson(k.astype(float), n.astype(float))
        ours = newcombe(*((k[place] / n[place], low[place], high[place]) for place in range(2)))
        expected = proportion.confint_proportions_2indep(k[0], n[0], k[1], n[1], method="newcomb", compare="diff")
        assert ours == pytest.approx(expected, abs=1e-9)
        one, other = rng.normal(0, 1, 8), rng.normal(0.5, 2, 13)
        assert welch(one, other) == pytest.approx(stats.ttest_ind(one, other, equal_var=False).pvalue)
        assert mean_interval(one) == pytest.approx(stats.ttest_1samp(one, 0).confidence_interval())


def test_the_test_against_the_rest_is_the_chi_square_test():
    frame = people(1)
    found = e2fl.audit(frame).rates.query("rate == 'accuracy'")
    right = frame.y == frame.y_hat
    for _, row in found.iterrows():
        mine = frame.group == row.group
        table = [[(right & mine).sum(), (~right & mine).sum()], [(right & ~mine).sum(), (~right & ~mine).sum()]]
        assert row.p == pytest.approx(stats.chi2_contingency(table, correction=False).pvalue)
    everything = e2fl.audit(frame).rates
    np.testing.assert_allclose(everything.p_holm, holm(everything.p.tolist()))  # over the whole page


def test_permutation_finds_a_difference_and_no_difference():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(4), 10)
    values = rng.normal(0, 1, 40)
    p = permutation_test(values, group)
    assert p == pytest.approx(stats.f_oneway(*(values[group == g] for g in range(4))).pvalue, abs=0.05)
    assert permutation_test(values + 3 * (group == 2), group) < 0.001


def test_intervals_over_clients_cover_the_truth():
    """95 % of intervals hold the true rate where clients differ; intervals for independent rows would not."""
    rng = np.random.default_rng(11)
    covered = naive = 0
    for _ in range(60):
        skill = rng.beta(8, 4, 40)  # the accuracy of each client; its mean is 2 / 3
        client = np.repeat(np.arange(40), 60)
        right = rng.random(2400) < skill[client]
        y = rng.integers(0, 2, 2400)
        frame = pd.DataFrame({"client": client, "group": "all of it", "y": y, "y_hat": np.where(right, y, 1 - y)})
        row = e2fl.audit(frame, resamples=150).rates.iloc[0]
        covered += row.low < 2 / 3 < row.high
        low, high = wilson(np.array([right.sum()], float), np.array([2400.0]))
        naive += low[0] < 2 / 3 < high[0]
    assert covered >= 54
    assert naive <= 45


def test_groups_of_few_clients_and_rows_without_clustering_are_told_apart():
    rng = np.random.default_rng(0)
    client = rng.integers(0, 20, 2000)
    y = rng.integers(0, 2, 2000)
    group = np.where(client < 3, "few clients", "many clients")
    frame = pd.DataFrame({"client": client, "group": group, "y": y, "y_hat": y})
    found = e2fl.audit(frame).rates.set_index("group").query("rate == 'accuracy'")
    assert found.status["few clients"] == "too few clients"
    assert found.judged["many clients"]
    frame["group"] = client  # every group is one client
    alone = e2fl.audit(frame)
    assert alone.rates.query("rate == 'accuracy'").judged.all()
    assert any("Rows are taken as independent" in note for note in alone.tables[0].notes)


def test_several_classes_have_accuracy_and_recall_of_each():
    rng = np.random.default_rng(0)
    y = rng.choice(["cat", "dog", "cow"], 600)
    frame = pd.DataFrame(
        {"group": rng.choice(["a", "b"], 600), "y": y, "y_hat": np.where(rng.random(600) < 0.7, y, "cat")}
    )
    found = e2fl.audit(frame)
    assert set(found.rates.rate) == {"accuracy", "recall: cat", "recall: dog", "recall: cow"}
    mine = frame.query("group == 'a' and y == 'dog'")
    value = found.rates.query("group == 'a' and rate == 'recall: dog'").value.item()
    assert value == pytest.approx((mine.y_hat == "dog").mean())
    binary = e2fl.audit(frame, positive="dog")
    assert binary.rates.query("group == 'a' and rate == 'true_positive_rate'").value.item() == pytest.approx(value)


def test_the_reference_may_be_best_largest_or_named():
    frame = people(2, groups=3)
    largest = frame.group.value_counts().idxmax()
    assert set(e2fl.audit(frame, reference="largest").rates.reference) == {largest}
    assert set(e2fl.audit(frame, reference="g1").rates.reference) == {"g1"}
    best = e2fl.audit(frame).rates.query("rate == 'false_positive_rate'")
    assert best.reference.iloc[0] == best.loc[best.value.idxmin(), "group"]  # the lowest is best
    with pytest.raises(e2fl.DataError, match="no group 'g9'"):
        e2fl.audit(frame, reference="g9")


def test_crossed_groups_count_unknown_once():
    frame = pd.DataFrame(
        {"sex": ["f", "m", None, "f"] * 50, "race": ["a", "b", "a", None] * 50, "y": [0, 1] * 100, "y_hat": [1] * 200}
    )
    found = e2fl.audit(frame, sensitive_features=["sex", "race"])
    rows = found.rates.query("rate == 'accuracy' and grouping == 'sex and race'").set_index("group")
    assert rows.n.to_dict() == {"f · a": 50, "m · b": 50, "unknown": 100}
    assert math.isnan(rows.p["unknown"])


def test_small_cells_are_suppressed_everywhere():
    frame = pd.concat([people(0, groups=3), pd.DataFrame({"group": ["rare"] * 3, "y": [1, 0, 1], "y_hat": [1, 1, 0]})])
    found = e2fl.audit(frame, suppress_below=5)
    rows = found.rates.query("rate == 'accuracy'").set_index("group")
    hidden = rows[rows.status == "suppressed"]
    assert "rare" in hidden.index
    assert len(hidden) == 2  # one alone could be computed from the total
    assert hidden[["n", "value", "low", "hits", "ratio", "p"]].isna().all().all()
    text = found.to_json() + found.to_html()
    assert '"n": 3.0' not in text
    assert "suppressed" in text


def test_local_law_144_has_selection_rates_impact_ratios_and_unknowns():
    rng = np.random.default_rng(0)
    n = 2000
    frame = pd.DataFrame(
        {
            "gender": rng.choice(["Female", "Male", ""], n, p=[0.48, 0.5, 0.02]),
            "ethnicity": rng.choice(["White", "Black", "Asian", "Other"], n, p=[0.6, 0.25, 0.14, 0.01]),
            "score": rng.normal(50, 10, n),
        }
    )
    found = e2fl.audit(frame, profile="ll144")
    assert set(found.rates.rate) == {"selection_rate"}
    assert found.rates.grouping.unique().tolist() == ["gender", "ethnicity", "gender and ethnicity"]
    above = frame.score > frame.score.median()
    rates = above.groupby(frame.ethnicity).mean().drop("Other")
    rows = found.rates.query("grouping == 'ethnicity'").set_index("group")
    for name, value in rates.items():
        assert rows.ratio[name] == pytest.approx(value / rates.max())
    assert rows.status["Other"] == "under 2 %"
    assert "Impact ratio" in found.to_html()
    assert found.rates.query("group == 'unknown' and grouping == 'gender'").n.item() == (frame.gender == "").sum()


def test_calibration_by_group_agrees_with_metrics():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"group": rng.choice(["a", "b"], 500), "p": rng.random(500)})
    frame["y"] = (rng.random(500) < frame.p**2).astype(int)
    found = {row["group"]: row for row in e2fl.audit(frame, y_pred="p").tables[0].calibration}
    for name, row in e2fl.metrics.calibration_by_group(frame.y, frame.p, frame.group).items():
        for key in ("n", "mean_score", "positive_rate", "ece"):
            assert found[name][key] == pytest.approx(row[key])


def test_chance_alone_explains_the_spread_of_equal_clients():
    rng = np.random.default_rng(0)
    n = rng.integers(10, 80, 300)
    equal = pd.DataFrame({"client": range(300), "accuracy": 100 * rng.binomial(n, 0.8) / n, "n": n})
    spread = e2fl.audit(equal).tables[0].spread
    assert spread.chance["p"] > 0.05
    assert spread.chance["std"] == pytest.approx(spread.measures["std"], rel=0.15)
    assert spread.below == []
    share = np.where(np.arange(300) < 5, 0.3, 0.8)
    uneven = equal.assign(accuracy=100 * rng.binomial(n, share) / n)
    found = e2fl.audit(uneven).tables[0].spread
    assert found.chance["p"] < 0.01
    assert set(found.below) <= set("01234")
    assert found.below


def test_200_resamples_of_200_000_rows_take_seconds():
    rng = np.random.default_rng(0)
    n = 200_000
    frame = pd.DataFrame(
        {"client": rng.integers(0, 5000, n), "group": rng.integers(0, 12, n), "y": rng.integers(0, 2, n)}
    )
    frame["y_hat"] = rng.integers(0, 2, n)
    begun = time.process_time()
    e2fl.audit(frame, resamples=200)
    assert time.process_time() - begun < 8
