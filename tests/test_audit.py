"""No false statement: tables on which an audit once said what is not so, and what it must say instead."""

import json

import numpy as np
import pandas as pd
import pytest

import e2fl
from e2fl.cli import main


@pytest.fixture
def audited(tmp_path, capsys):
    """Run `e2fl audit` on tables; return what it printed, and its JSON."""

    def run(*frames, options=()):
        paths = []
        for number, frame in enumerate(frames):
            paths.append(tmp_path / f"table{number + 1}.csv")
            frame.to_csv(paths[-1], index=False)
        target = tmp_path / "found.json"
        assert main(["audit", *map(str, paths), "--json", str(target), *options]) == 0
        return capsys.readouterr().out, json.loads(target.read_text())

    return run


def rates(found, grouping=-1, table=0):
    """Of one grouping: rate -> group -> row."""
    listed = found["tables"][table]["groupings"][grouping]["rates"]
    return {rate["key"]: {row["group"]: row for row in rate["groups"]} for rate in listed}


def exact(groups, columns=("group", "y", "y_hat")):
    """A table with exactly these counts of each group: tp, fn, fp, tn."""
    rows = []
    for name, (tp, fn, fp, tn) in groups.items():
        rows += [(name, 1, 1)] * tp + [(name, 1, 0)] * fn + [(name, 0, 1)] * fp + [(name, 0, 0)] * tn
    return pd.DataFrame(rows, columns=columns)


def test_equal_accuracy_does_not_hide_who_is_missed(audited):
    #               20 % of 1000 found, and 90 % of 1000; both are right 8700 times of 10,000
    frame = exact({"Female": (200, 800, 500, 8500), "Male": (900, 100, 1200, 7800)})
    said, found = audited(frame)
    assert rates(found)["accuracy"]["Female"]["value"] == rates(found)["accuracy"]["Male"]["value"] == 0.87
    assert "finds 20.0 % in Female and 90.0 % in Male: 70 percentage points fewer" in said
    assert "Both groups have about the same accuracy" in said
    assert "They differ in who is missed" in said
    assert "alike" not in said
    assert "-0.7" not in said
    assert found["tables"][0]["key_figures"][1]["value"] == "70 percentage points"


@pytest.mark.parametrize(
    ("yes", "no"), [("1.0", "0.0"), ("True", "False"), ("true", "false"), ("1", "0"), ("0.93", "0.07"), (" 1 ", "0")]
)
def test_labels_are_compared_as_values_not_as_text(audited, yes, no):
    frame = exact({"a": (40, 10, 10, 40), "b": (40, 10, 10, 40)})
    frame["y_hat"] = frame["y_hat"].map({1: yes, 0: no})
    _, found = audited(frame)
    assert rates(found)["accuracy"]["a"]["value"] == pytest.approx(0.8)
    assert rates(found)["true_positive_rate"]["b"]["value"] == pytest.approx(0.8)


def test_the_lowest_group_is_found_over_rows_not_over_tiny_cells(audited):
    """Two-row cells of (client, group) have a mean that is no group's accuracy."""
    rng = np.random.default_rng(1)
    n = 60_000
    sex = rng.choice(["Female", "Male"], n)
    race = rng.choice(["White", "Black", "Hispanic", "Pacific Islander"], n, p=[0.6, 0.25, 0.145, 0.005])
    y = (rng.random(n) < 0.25).astype(int)
    found_share = np.where((sex == "Female") & (race == "Black"), 0.24, np.where(race == "Hispanic", 0.55, 0.5))
    y_hat = np.where(y == 1, rng.random(n) < found_share, rng.random(n) < 0.05).astype(int)
    frame = pd.DataFrame({"client": rng.integers(0, 800, n), "sex": sex, "race": race, "y": y, "y_hat": y_hat})
    said, found = audited(frame, options=["--group", "sex,race"])
    pooled = frame[(sex == "Female") & (race == "Pacific Islander")]
    row = rates(found)["accuracy"]["Female · Pacific Islander"]
    assert row["value"] == pytest.approx((pooled.y == pooled.y_hat).mean())
    assert row["low"] < row["value"] < row["high"]
    assert row["client_mean"] != pytest.approx(row["value"], abs=1e-6)  # beside it, under its own name
    assert "finds 24" in said
    assert "Female · Black" in said.splitlines()[0]
    names = [grouping["name"] for grouping in found["tables"][0]["groupings"]]
    assert names == ["sex", "race", "sex and race"]


def test_many_small_groups_from_one_distribution_show_nothing(audited):
    rng = np.random.default_rng(3)
    groups = [f"g{number}" for number in range(30) for _ in range(rng.integers(1, 6))]
    frame = pd.DataFrame({"client": range(len(groups)), "group": groups, "accuracy": rng.normal(80, 6, len(groups))})
    said, found = audited(frame)
    assert "Chance alone could explain this" in said
    assert "No group differs from the others in accuracy by more than chance explains" in said
    assert "Too few clients to judge" in said
    assert "This is more than chance" not in said
    assert found["tables"][0]["groupings"][0]["rates"][0]["p_any"] > 0.05


def test_impact_ratios_of_a_hiring_table(audited):
    frame = exact(
        {
            "White": (300, 100, 300, 1300),  # 600 of 2000 selected
            "Asian": (150, 20, 45, 785),  # 195 of 1000
            "Black": (160, 40, 74, 726),  # 234 of 1000
            "Hispanic": (200, 40, 80, 680),  # 280 of 1000
        }
    )
    said, found = audited(frame)
    ratios = {name: round(row["ratio"], 2) for name, row in rates(found)["selection_rate"].items()}
    assert ratios == {"White": 1.0, "Asian": 0.65, "Black": 0.78, "Hispanic": 0.93}
    assert "Asian (0.65) and Black (0.78) are below four fifths of the selection rate of White" in said
    assert "worst White" not in said
    fifths = next(figure for figure in found["tables"][0]["key_figures"] if figure["title"] == "Below four fifths")
    assert fifths["value"] == "2 of 4 groups"


def test_two_tables_of_the_same_clients_are_paired(audited):
    rng = np.random.default_rng(5)
    first = rng.normal(70, 10, 500).clip(5, 95)
    change = rng.normal(-0.67, 2.4, 500)
    one = pd.DataFrame({"client": np.arange(500), "accuracy": first})
    two = pd.DataFrame({"client": np.arange(500), "accuracy": first + change}).sample(frac=1, random_state=0)
    said, found = audited(one, two)
    comparison = found["comparisons"][0]
    assert comparison["paired"]
    assert 100 * comparison["difference"] == pytest.approx(change.mean())
    half = 1.9647 * change.std(ddof=1) / np.sqrt(500)  # t with 499 degrees of freedom
    assert 100 * comparison["low"] == pytest.approx(change.mean() - half, abs=1e-3)
    assert 100 * comparison["high"] == pytest.approx(change.mean() + half, abs=1e-3)
    assert "paired over 500 clients" in said
    assert "more than chance explains" in said.splitlines()[0]
    assert "cannot tell" not in said


def test_one_definition_of_the_lowest_group_with_many_groups(audited):
    rng = np.random.default_rng(7)
    groups = [f"g{number:02}" for number in range(25) for _ in range(8)]
    frame = pd.DataFrame({"client": range(200), "group": groups, "accuracy": rng.normal(70, 8, 200).clip(1, 99)})
    said, found = audited(frame)
    means = frame.groupby("group").accuracy.mean()
    lowest = found["tables"][0]["key_figures"][0]
    assert lowest["title"] == "Lowest accuracy"
    assert lowest["value"] == f"{means.idxmin()}: {means.min():.1f} %"
    assert f"{means.idxmin()} have a mean accuracy of {means.min():.1f} %" in said
    assert "worst" not in said.lower()


def test_the_f1_gap_is_not_called_di(audited, tmp_path):
    frame = exact({"Female": (200, 300, 100, 400), "Male": (400, 100, 100, 400)})
    audited(frame)
    page = (tmp_path / "table1-audit.html").read_text()
    assert "F1 gap" in page
    ours = 2 * 200 / (500 + 300) - 2 * 400 / (500 + 500)
    assert f"{ours:+.3f}" in page
    assert "The E2FL paper calls it DI" in page


def test_an_undefined_rate_is_said_to_be_undefined(audited, tmp_path):
    said, found = audited(exact({"a": (0, 0, 10, 90), "b": (40, 10, 10, 90)}))
    assert rates(found)["true_positive_rate"]["a"]["status"] == "undefined"
    assert "a (undefined true positive rate" in said
    assert "undefined: a group has no rows" in (tmp_path / "table1-audit.html").read_text()


def test_names_are_trimmed_and_missing_ones_are_unknown(audited):
    frame = exact(
        {" Military": (20, 20, 20, 20), "Military": (20, 20, 20, 20), "NA": (5, 5, 5, 5), "b": (30, 9, 9, 40)}
    )
    said, found = audited(frame)
    rows = rates(found)["accuracy"]
    assert sorted(rows) == ["Military", "b", "unknown"]
    assert rows["Military"]["n"] == 160
    assert rows["unknown"]["status"] == "unknown"
    assert "20 of 268 rows have no known group" in said


def test_columns_named_sex_and_race_are_used(audited):
    frame = exact({"Female": (200, 300, 100, 400), "Male": (400, 100, 100, 400)}, ("sex", "y_true", "y_pred"))
    frame["race"] = np.where(np.arange(len(frame)) % 2, "Black", "White")
    _, found = audited(frame)
    assert [grouping["name"] for grouping in found["tables"][0]["groupings"]] == ["sex", "race", "sex and race"]


def test_groups_that_are_too_small_are_not_judged(audited):
    frame = exact({"a": (40, 40, 40, 40), "b": (45, 35, 40, 40), "tiny": (2, 0, 0, 2)})
    said, found = audited(frame)
    assert "Too few rows to judge, by group: tiny" in said
    row = rates(found)["accuracy"]["tiny"]
    assert not row["judged"]
    assert row["value"] == 1.0
    assert found["tables"][0]["groupings"][0]["rates"][0]["reference"] in ("a", "b")  # never the tiny group
    _, judged = audited(frame, options=["--min-n", "3"])
    assert rates(judged)["accuracy"]["tiny"]["judged"]


def test_nothing_is_claimed_equal_beyond_what_the_interval_allows(audited):
    said, _ = audited(exact({"a": (20, 20, 20, 20), "b": (22, 18, 20, 20)}))
    assert "by more than chance explains. Differences of up to" in said
    assert "cannot be ruled out" in said


def test_ratios_below_four_fifths_by_chance_are_said_to_be_so(audited):
    said, _ = audited(exact({"a": (10, 25, 6, 29), "b": (7, 28, 5, 30)}))
    assert "b (0.70) is below four fifths of the true positive rate of a, the reference. This may be chance" in said


def test_without_groups_the_overall_rates_are_said(audited):
    frame = exact({"a": (40, 10, 10, 40)}).drop(columns="group")
    said, _ = audited(frame)
    assert "names no groups" in said
    assert "accuracy 80.0 %" in said


def test_chance_is_rarely_called_a_finding():
    """Tables without any difference, with five rates, two attributes and their crossing each: 5 % at most."""
    rng = np.random.default_rng(100)
    n, false = 2000, 0
    for _ in range(40):
        columns = {"sex": rng.choice(["f", "m"], n), "race": rng.choice(["a", "b", "c"], n)}
        frame = pd.DataFrame(columns | {"y": rng.integers(0, 2, n), "y_hat": rng.integers(0, 2, n)})
        found = e2fl.audit(frame)
        false += found.rates["p_holm"].min() < 0.05
        assert any("This is more than chance" in each for each in found.sentences) <= (found.rates.p_holm.min() < 0.05)
    assert false <= 4


def test_rows_of_one_client_are_not_independent():
    """Clients differ, groups do not: counting rows as independent would find a difference where there is none."""
    rng = np.random.default_rng(0)
    wrong = naive = 0
    for _ in range(20):
        skill = rng.normal(0, 1.2, 40)
        client = np.repeat(np.arange(40), 100)
        right = rng.random(4000) < 1 / (1 + np.exp(-1 - skill[client]))
        y = rng.integers(0, 2, 4000)
        frame = pd.DataFrame({"group": np.where(client < 20, "a", "b"), "y": y, "y_hat": np.where(right, y, 1 - y)})
        naive += e2fl.audit(frame).rates.query("rate == 'accuracy'").p.min() < 0.05
        frame["client"] = client
        wrong += e2fl.audit(frame, resamples=200).rates.query("rate == 'accuracy'").p.min() < 0.05
    assert naive >= 8
    assert wrong <= 4
