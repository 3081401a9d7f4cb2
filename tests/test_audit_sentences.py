"""Sentences and key figures say no more than the numbers do."""

import numpy as np
import pandas as pd
import pytest

import e2fl
from e2fl.auditing.wording import p_value
from e2fl.errors import ConfigError


def exact(groups):
    """A table with exactly these counts of each group: tp, fn, fp, tn."""
    rows = []
    for name, (tp, fn, fp, tn) in groups.items():
        rows += [(name, 1, 1)] * tp + [(name, 1, 0)] * fn + [(name, 0, 1)] * fp + [(name, 0, 0)] * tn
    return pd.DataFrame(rows, columns=["group", "y", "y_hat"])


def figures(found):
    return {figure.title: f"{figure.value}. {figure.text}" for figure in found.tables[0].findings.figures}


def test_of_equal_groups_none_is_called_the_lowest():
    found = e2fl.audit(exact(dict.fromkeys("ABC", (50, 50, 50, 50))))
    said = " ".join(found.sentences)
    assert "Every measured rate is the same number in all 3 groups compared." in said
    assert "in A and" not in said
    assert "0.0 percentage points fewer" not in said
    assert "cannot be ruled out" in said
    assert "Lowest accuracy" not in figures(found)
    assert figures(found)["Largest gap"].endswith("No measured rate differs.")


def test_the_rate_that_differs_is_described_not_one_that_does_not():
    found = e2fl.audit(exact({"A": (0, 50, 0, 150), "B": (0, 60, 0, 140)}))
    assert "The model is right for 70.0 % of B and 75.0 % of A" in found.sentences[0]


def test_one_large_group_is_not_too_few_to_judge():
    found = e2fl.audit(exact({"A": (500, 500, 500, 500)}))
    assert found.sentences[0] == "Every known row is in one group, so there is nothing to compare."
    assert "too few" not in " ".join(found.sentences)


def test_nobody_is_said_to_be_missed_more_often_where_labels_are_found_equally_often():
    """Base rates differ, error rates do not."""
    found = e2fl.audit(exact({"A": (720, 80, 20, 180), "B": (180, 20, 80, 720)}))
    said = " ".join(found.sentences)
    assert "Both groups have about the same accuracy (90.0 % in A and 90.0 % in B)" in said
    assert "who is missed" not in said
    assert "They differ in selection rate and positive predictive value." in said


def test_accuracies_that_are_hardly_known_are_not_about_the_same():
    found = e2fl.audit(exact({"A": (30, 0, 10, 0), "B": (1, 10, 0, 29)}))
    assert found.rates.query("rate == 'accuracy'").value.tolist() == [0.75, 0.75]
    assert "about the same" not in " ".join(found.sentences)


def test_categories_under_two_percent_are_named_and_not_large_enough():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sex": rng.choice(["F", "M"], 2000), "race": ["rare"] * 10 + ["a", "b"] * 995})
    frame["selected"] = rng.integers(0, 2, 2000)
    found = e2fl.audit(frame, profile="ll144")
    assert "Under 2 % of the rows and not judged, by race: rare." in found.sentences
    assert "large enough" not in found.to_html()


def test_suppressed_groups_are_not_called_large_enough():
    frame = exact({"A": (50, 50, 50, 50), "B": (50, 50, 50, 50), "C": (60, 50, 50, 50), "D": (1, 1, 1, 0)})
    assert "large enough" not in e2fl.audit(frame, suppress_below=5).to_html()


def test_clients_are_not_reassured_where_their_groups_differ():
    rng = np.random.default_rng(3)
    group = np.repeat(["a", "b"], 100)
    frame = pd.DataFrame({"client": [f"c{n}" for n in range(200)], "group": group, "n": 40})
    frame["accuracy"] = np.clip(0.8 - 0.04 * (group == "b") + rng.normal(0, 0.055, 200), 0, 1)
    found = e2fl.audit(frame)
    said = " ".join(found.sentences)
    assert "This is more than chance explains" in said
    assert found.tables[0].spread.chance["p"] >= 0.05
    assert "this alone does not show that clients differ, but their groups do" in said


def test_groups_of_rows_say_nothing_about_clients():
    frame = exact({"F": (200, 200, 200, 200), "M": (400, 0, 0, 400)}).sample(frac=1, random_state=0)
    said = " ".join(e2fl.audit(frame.assign(client=np.arange(len(frame)) % 20)).sentences)
    assert "This is more than chance explains" in said
    assert "chance alone could explain this" in said
    assert "their groups do" not in said


def test_of_labels_1_and_2_none_is_taken_as_the_positive_one():
    frame = exact({"A": (40, 10, 20, 30), "B": (40, 10, 20, 30)})
    found = e2fl.audit(frame.assign(y=frame.y + 1, y_hat=frame.y_hat + 1))
    assert set(found.rates.rate) == {"accuracy", "recall: 1", "recall: 2"}
    named = e2fl.audit(frame.assign(y=frame.y + 1, y_hat=frame.y_hat + 1), positive=2)
    assert named.rates.query("rate == 'true_positive_rate'").value.tolist() == [0.8, 0.8]
    assert "true_positive_rate" in set(
        e2fl.audit(frame.assign(y=2 * frame.y - 1, y_hat=2 * frame.y_hat - 1)).rates.rate
    )


def test_a_p_value_beside_the_limit_is_not_rounded_onto_it():
    assert [p_value(value) for value in (0.0499, 0.0503, 0.047)] == [
        "p just below 0.05",
        "p just above 0.05",
        "p = 0.047",
    ]


@pytest.mark.parametrize(
    "given", [{"threshold": float("nan")}, {"min_n": 0}, {"suppress_below": -1}, {"resamples": 10**9}]
)
def test_numbers_that_make_no_sense_are_refused(given):
    frame = exact({"A": (40, 10, 20, 30), "B": (40, 10, 20, 30)})
    with pytest.raises(ConfigError, match=next(iter(given))):
        e2fl.audit(frame, **given)


def clients(values, **columns):
    frame = pd.DataFrame({"client": [f"c{place}" for place in range(len(values))], "accuracy": values})
    return frame.assign(**columns)


def test_two_tables_with_the_same_values_differ_in_no_client():
    rng = np.random.default_rng(0)
    first = clients(rng.uniform(0.5, 0.9, 50), n=rng.integers(1, 100, 50))
    found = e2fl.audit([first, first.drop(columns="n").iloc[::-1]])
    assert (found.comparisons[0].better, found.comparisons[0].worse) == (0, 0)
    assert "accuracy is the same number for each of the 50 clients in both." in found.sentences[0]


def test_two_clients_are_too_few_to_compare_tables():
    found = e2fl.audit([clients([0.5, 0.6]), clients([0.51, 0.61])])
    assert "Too few clients to judge." in found.sentences[0]
    apart = e2fl.audit([clients([0.5, 0.6]), clients([0.8, 0.81]).assign(client=["x", "y"])])
    assert "Too few clients to judge." in apart.sentences[0]


def test_a_comparison_that_is_not_made_is_said_to_be_so():
    people = exact({"A": (40, 10, 20, 30), "B": (40, 10, 20, 30)})
    found = e2fl.audit([people, people])
    assert any("Not compared with DataFrame" in sentence for sentence in found.sentences)


def test_comparisons_hide_small_groups_too():
    first = clients(np.linspace(0.5, 0.9, 63), group=["rare"] * 3 + ["a"] * 30 + ["b"] * 30)
    found = e2fl.audit([first, first.assign(accuracy=first.accuracy - 0.01)], suppress_below=5)
    assert {name for _, name, *_ in found.comparisons[0].groups} == {"b"}


def test_few_clients_and_equal_clients_are_described_as_they_are():
    few = " ".join(e2fl.audit(clients([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])).sentences)
    assert "eight in ten" not in few
    assert "The accuracy of 6 clients is between 50.0 % and 95.0 %." in few
    same = " ".join(e2fl.audit(clients([0.8] * 40, group=list("ab") * 20)).sentences)
    assert "All 40 clients have the same accuracy, 80.0 %." in same
    assert "Accuracy is the same number in both groups compared." in same
    assert "e-1" not in same


def test_equalized_odds_are_undefined_if_a_rate_is():
    page = e2fl.audit(exact({"A": (40, 60, 0, 0), "B": (70, 30, 20, 80)})).to_html()
    row = page.split("Equalized odds difference")[1].split("</tr>")[0]
    assert "undefined" in row


def test_a_group_with_suppressed_positives_has_a_page():
    page = e2fl.audit(exact({"A": (2, 1, 50, 50), "B": (70, 30, 20, 80)}), suppress_below=5).to_html()
    assert "undefined" in page.split("F1 gap")[1].split("</tr>")[0]


def test_unknown_rows_are_a_share_of_all_rows_also_if_groups_are_hidden():
    groups = {"A": (50, 50, 50, 50), "B": (10, 10, 10, 10), "C": (1, 1, 1, 0), "NA": (25, 25, 25, 25)}
    said = e2fl.audit(exact(groups), suppress_below=5).sentences
    assert "100 of 343 rows have no known group and are shown as unknown." in said
