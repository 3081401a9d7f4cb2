"""Sentences and key figures say no more than the numbers do, and nothing that is not so."""

import numpy as np
import pandas as pd
import pytest

from e2fl_audit import AuditError, audit
from e2fl_audit.wording import p_value
from tests.audit.tables import clients, exact, figures, said


def accuracy(found):
    return found.rates.query("rate == 'accuracy'").set_index("group")


def test_equal_accuracy_does_not_hide_who_is_missed():
    # 20 % of 1000 are found, and 90 % of 1000; both are right 8700 times of 10,000
    found = audit(exact({"Female": (200, 800, 500, 8500), "Male": (900, 100, 1200, 7800)}))
    words = "finds 20.0 % in Female and 90.0 % in Male: 70 percentage points fewer"
    assert words in said(found)
    assert "Both groups have about the same accuracy" in said(found)
    assert "They differ in who is missed" in said(found)
    assert figures(found)["Largest gap"].startswith("70 percentage points")


@pytest.mark.parametrize(
    ("yes", "no"),
    [("1.0", "0.0"), ("True", "False"), ("true", "false"), ("0.93", "0.07"), (" 1 ", "0")],
)
def test_labels_are_compared_as_values_not_as_text(yes, no):
    frame = exact({"a": (40, 10, 10, 40), "b": (40, 10, 10, 40)})
    frame["y_hat"] = frame["y_hat"].map({1: yes, 0: no})
    assert accuracy(audit(frame)).value["a"] == pytest.approx(0.8)


def test_rates_are_those_of_rows_and_means_over_clients_stand_beside_them():
    rng = np.random.default_rng(1)
    n = 20_000
    frame = pd.DataFrame({"client": rng.integers(0, 60, n)})
    frame["sex"] = rng.choice(["Female", "Male"], n)
    frame["race"] = rng.choice(["White", "Black", "Other"], n, p=[0.7, 0.295, 0.005])
    frame["y"] = (rng.random(n) < 0.25).astype(int)
    black_women = (frame.sex == "Female") & (frame.race == "Black")
    share = np.where(frame.y == 1, np.where(black_women, 0.24, 0.5), 0.05)
    frame["y_hat"] = (rng.random(n) < share).astype(int)
    found = audit(frame)
    mine = frame.query("sex == 'Female' and race == 'Other'")
    row = found.rates.query("rate == 'accuracy' and group == 'Female · Other'").iloc[0]
    assert row.value == pytest.approx((mine.y == mine.y_hat).mean())
    assert row.client_mean != pytest.approx(row.value, abs=1e-6)
    assert "Female · Black" in found.sentences[0]


def test_many_small_groups_from_one_distribution_show_nothing():
    rng = np.random.default_rng(3)
    groups = [f"g{number}" for number in range(30) for _ in range(rng.integers(1, 6))]
    found = audit(clients(rng.normal(80, 6, len(groups)), group=groups))
    assert "Chance alone could explain this" in said(found)
    assert "Too few clients to judge" in said(found)
    assert "This is more than chance" not in said(found)


def test_impact_ratios_of_a_hiring_table():
    white_asian = {"White": (300, 100, 300, 1300), "Asian": (150, 20, 45, 785)}
    found = audit(exact(white_asian | {"Black": (160, 40, 74, 726), "Other": (200, 40, 80, 680)}))
    rows = found.rates.query("rate == 'selection_rate'").set_index("group")
    ratios = {"White": 1.0, "Asian": 0.65, "Black": 0.78, "Other": 0.93}
    assert rows.ratio.round(2).to_dict() == ratios
    words = "Asian (0.65) and Black (0.78) are below four fifths of the selection rate of White"
    assert words in said(found)
    assert figures(found)["Below four fifths"].startswith("2 of 4 groups")


def test_two_tables_of_the_same_clients_are_paired():
    rng = np.random.default_rng(5)
    first, change = rng.normal(70, 10, 500).clip(5, 95), rng.normal(-0.67, 2.4, 500)
    second = clients(first + change).sample(frac=1, random_state=0)
    found = audit([clients(first), second])
    comparison = found.comparisons[0]
    half = 1.9647 * change.std(ddof=1) / np.sqrt(500)  # t with 499 degrees of freedom
    ends = [100 * comparison.low, 100 * comparison.high]
    assert ends == pytest.approx([change.mean() - half, change.mean() + half], abs=1e-3)
    assert "paired over 500 clients" in found.sentences[0]
    assert "more than chance explains" in found.sentences[0]


def test_tables_with_the_same_values_differ_in_no_client():
    rng = np.random.default_rng(0)
    first = clients(rng.uniform(0.5, 0.9, 50), n=rng.integers(1, 100, 50))
    found = audit([first, first.drop(columns="n").iloc[::-1]])
    words = "accuracy is the same number for each of the 50 clients in both."
    assert words in found.sentences[0]


def test_two_clients_are_too_few_to_compare_tables_and_none_cannot_be():
    first, second = clients([0.5, 0.6]), clients([0.51, 0.62])
    assert "Too few clients to judge." in audit([first, second]).sentences[0]
    rows = exact({"A": (40, 10, 20, 30), "B": (40, 10, 20, 30)})
    for pair in ([rows, rows], [first, second.assign(client=["x", "y"])]):
        assert "Not compared with DataFrame" in said(audit(pair))


def test_the_f1_gap_is_not_called_di_and_undefined_rates_are_said_to_be_so():
    page = audit(exact({"Female": (200, 300, 100, 400), "Male": (400, 100, 100, 400)})).to_html()
    ours = 2 * 200 / (500 + 300) - 2 * 400 / (500 + 500)
    assert f"{ours:+.3f}" in page.split("F1 gap")[1]
    found = audit(exact({"a": (0, 0, 10, 90), "b": (40, 10, 10, 90)}))
    assert "a (undefined true positive rate" in said(found)
    for name in ("Equal opportunity", "Equalized odds"):
        assert "undefined" in found.to_html().split(f"{name} difference")[1].split("</tr>")[0]


def test_names_are_trimmed_and_missing_ones_are_unknown():
    groups = {" Military": (20, 20, 20, 20), "Military": (20, 20, 20, 20), "NA": (5, 5, 5, 5)}
    found = audit(exact(groups | {"b": (30, 9, 9, 40)}))
    assert accuracy(found).n.to_dict() == {"Military": 160, "b": 88, "unknown": 20}
    assert "20 of 268 rows have no known group and are shown as unknown." in said(found)


def test_groups_that_are_too_small_are_not_judged():
    frame = exact({"a": (40, 40, 40, 40), "b": (45, 35, 40, 40), "tiny": (2, 0, 0, 2)})
    assert "Too few rows to judge, by group: tiny" in said(audit(frame))
    assert not accuracy(audit(frame)).judged["tiny"]
    assert set(accuracy(audit(frame)).reference) <= {"a", "b"}
    assert accuracy(audit(frame, min_n=3)).judged["tiny"]


def test_nothing_is_claimed_equal_beyond_what_the_interval_allows():
    words = said(audit(exact({"a": (20, 20, 20, 20), "b": (22, 18, 20, 20)})))
    assert "by more than chance explains. Differences of up to" in words
    same = audit(exact(dict.fromkeys("ABC", (50, 50, 50, 50))))
    assert "Every measured rate is the same number in all 3 groups compared." in said(same)
    assert "cannot be ruled out" in said(same)
    assert "Lowest accuracy" not in figures(same)


def test_ratios_below_four_fifths_by_chance_are_said_to_be_so():
    found = audit(exact({"a": (10, 25, 6, 29), "b": (7, 28, 5, 30)}))
    words = (
        "b (0.70) is below four fifths of the true positive rate of a, the reference. This may be"
    )
    assert words in said(found)


def test_without_groups_or_with_one_there_is_nothing_to_compare():
    alone = audit(exact({"a": (40, 10, 10, 40)}).drop(columns="group"))
    assert "names no groups" in said(alone)
    assert "accuracy 80.0 %" in said(alone)
    one = audit(exact({"A": (500, 500, 500, 500)}))
    assert one.sentences[0] == "Every known row is in one group, so there is nothing to compare."


def test_nobody_is_said_to_be_missed_where_labels_are_found_equally_often():
    """Base rates differ, error rates do not."""
    words = said(audit(exact({"A": (720, 80, 20, 180), "B": (180, 20, 80, 720)})))
    assert "Both groups have about the same accuracy (90.0 % in A and 90.0 % in B)" in words
    assert "They differ in selection rate and positive predictive value." in words
    unsure = audit(exact({"A": (30, 0, 10, 0), "B": (1, 10, 0, 29)}))
    assert accuracy(unsure).value.tolist() == [0.75, 0.75]
    assert "about the same" not in said(unsure)  # hardly known


def test_clients_are_not_reassured_where_their_groups_differ():
    rng = np.random.default_rng(3)
    group = np.repeat(["a", "b"], 100)
    value = np.clip(0.8 - 0.04 * (group == "b") + rng.normal(0, 0.055, 200), 0, 1)
    found = audit(clients(value, group=group, n=40))
    assert "This is more than chance explains" in said(found)
    assert "this alone does not show that clients differ, but their groups do" in said(found)


def test_few_clients_and_equal_clients_are_described_as_they_are():
    few = said(audit(clients([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])))
    assert "The accuracy of 6 clients is between 50.0 % and 95.0 %." in few
    same = said(audit(clients([0.8] * 40, group=list("ab") * 20)))
    assert "All 40 clients have the same accuracy, 80.0 %." in same
    assert "Accuracy is the same number in both groups compared." in same


def test_a_p_value_beside_the_limit_is_not_rounded_onto_it():
    shown = [p_value(value) for value in (0.0499, 0.0503, 0.047)]
    assert shown == ["p just below 0.05", "p just above 0.05", "p = 0.047"]


def test_a_noisy_small_group_does_not_take_the_headline():
    """The gap of a cell of 42 rows may be chance; that of the sexes is not."""
    cells = {("F", "a"): (300, 300, 100, 700), ("M", "a"): (480, 120, 100, 700)}
    cells |= {("F", "b"): (16, 19, 4, 31), ("M", "b"): (30, 5, 4, 31)}
    parts = [
        exact({key[0]: one}, ("sex", "y", "y_hat")).assign(race=key[1])
        for key, one in cells.items()
    ]
    found = audit(pd.concat(parts))
    assert found.sentences[0].startswith("Of the rows labelled 1, the model finds")
    assert "in F and" in found.sentences[0]
    assert "More than chance explains." in figures(found)["Largest gap"]


@pytest.mark.parametrize(
    "given",
    [{"threshold": float("nan")}, {"min_n": 0}, {"suppress_below": -1}, {"resamples": 10**9}],
)
def test_numbers_that_make_no_sense_are_refused(given):
    with pytest.raises(AuditError, match=next(iter(given))):
        audit(exact({"A": (40, 10, 20, 30), "B": (40, 10, 20, 30)}), **given)


def test_chance_is_rarely_called_a_finding():
    """Tables without any difference, with two attributes and their crossing: 5 % at most."""
    rng = np.random.default_rng(100)
    false = 0
    for _ in range(30):
        frame = pd.DataFrame({"sex": rng.choice(["f", "m"], 2000)})
        frame["race"] = rng.choice(["a", "b", "c"], 2000)
        frame["y"], frame["y_hat"] = rng.integers(0, 2, (2, 2000))
        found = audit(frame)
        false += found.rates["p_holm"].min() < 0.05
        assert ("This is more than" in said(found)) <= (found.rates["p_holm"].min() < 0.05)
    assert false <= 3
