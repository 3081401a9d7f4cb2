"""Sentences and key figures say no more than the numbers do, and pass over nothing."""

import re

import numpy as np
import pandas as pd
import pytest

from e2fl_audit import AuditError, audit
from e2fl_audit.wording import p_value
from tests.audit.tables import clients, exact, figures, people, said

HIRING = {
    "White": (300, 100, 300, 1300),
    "Asian": (150, 20, 45, 785),
    "Black": (160, 40, 74, 726),
    "Other": (200, 40, 80, 680),
}
PLAIN = exact({"a": (40, 10, 10, 40), "b": (40, 10, 10, 40)})
TINY = exact({"a": (40, 40, 40, 40), "b": (45, 35, 40, 40), "tiny": (2, 0, 0, 2)})
LEFT_OUT = PLAIN.astype({"y": object})
LEFT_OUT.loc[LEFT_OUT.index[LEFT_OUT.group == "b"][:30], "y"] = None
RARE = pd.DataFrame({"group": list("ab") * 150, "y": list("abc") * 100})
RARE["y_hat"] = [*RARE["y"][:7], "d", *RARE["y"][8:]]
VISITS = people(600).assign(score=np.random.default_rng(0).random(600))


@pytest.mark.parametrize(
    ("frame", "words", "absent"),
    [
        (  # 20 % of 1000 are found, and 90 % of 1000; both are right 8700 times of 10,000
            exact({"Female": (200, 800, 500, 8500), "Male": (900, 100, 1200, 7800)}),
            "finds 20.0 % in Female and 90.0 % in Male: 70 percentage points fewer"
            "|Both groups have about the same accuracy|They differ in who is missed",
            "",
        ),
        (  # base rates differ, error rates do not
            exact({"A": (720, 80, 20, 180), "B": (180, 20, 80, 720)}),
            "Both groups have about the same accuracy (90.0 % in A and 90.0 % in B)"
            "|They differ in selection rate and positive predictive value.",
            "who is missed",
        ),
        (exact({"A": (30, 0, 10, 0), "B": (1, 10, 0, 29)}), "", "about the same"),  # hardly known
        (exact(HIRING), "Asian (0.65) and Black (0.78) are below four fifths of the selection", ""),
        (
            exact({"a": (10, 25, 6, 29), "b": (7, 28, 5, 30)}),
            "b (0.70) is below four fifths of the true positive rate of a, the reference. This may",
            "",
        ),
        (  # differ from a small group only
            exact({"A": (100, 0, 0, 100), "B": (100, 0, 0, 100), "tiny": (0, 10, 10, 0)}),
            "Accuracy is the same number in both groups compared, 100.0 %, but not in the",
            "0.0 percentage points",
        ),
        (
            exact({"A": (500_000, 0, 0, 9), "B": (499_850, 150, 0, 9)}),
            "finds 99.97 % in B and 100.00 % in A: less than 0.1 percentage points",
            "0.0 percentage points",
        ),
        (
            exact({"a": (20, 20, 20, 20), "b": (22, 18, 20, 20)}),
            "by more than chance explains. Differences of up to",
            "This is more than chance",
        ),
        (
            exact(dict.fromkeys("ABC", (50, 50, 50, 50))),
            "Every measured rate is the same number in all 3 groups compared.|cannot be ruled out",
            "",
        ),
        (exact({"a": (0, 0, 10, 90), "b": (40, 10, 10, 90)}), "a (undefined true positive", ""),
        (TINY, "Too few rows to judge, by group: tiny", ""),
        (exact({"A": (500, 500, 500, 500)}), "Every known row is in one group", ""),
        (PLAIN.drop(columns="group"), "names no groups|accuracy 80.0 %", ""),
        (clients([0.8] * 40, group=list("ab") * 20), "All 40 clients have the same accuracy", ""),
        (RARE, "1 predictions are of classes that never occur in 'y' ('d')", ""),
        (people(600), "", "repeat"),
        (pd.concat([people(600)] * 2), "Every row occurs 2 times", ""),
        (people().assign(sample_weight=1.5), "Column 'sample_weight' is not used: every row", ""),
        (
            PLAIN.replace({1: ">50K", 0: "<=50K"}),
            "selection rates and true and false positive rates are not shown",
            "",
        ),
    ],
)
def test_what_is_said_of_a_table(frame, words, absent):
    text = said(audit(frame))
    assert all(part in text for part in words.split("|"))
    assert not absent or absent not in text


def test_repeated_rows_and_persons_are_mentioned():
    again = pd.concat([VISITS, VISITS.head(25)])
    assert "25 rows of 625 are exact repeats of another row." in said(audit(again, y_pred="y_hat"))
    ages = people(600).assign(age=np.random.default_rng(0).integers(0, 2000, 600) / 25)
    once = ages.drop(columns="client").drop_duplicates()
    assert "exact repeats" not in said(audit(once))
    assert "40 rows of" in said(audit(pd.concat([once, once.head(40)])))
    found = said(audit(VISITS.assign(patient_id=np.arange(600) // 3), y_pred="y_hat"))
    assert "'patient_id' looks like an identifier of persons: 600 rows are of 200 persons" in found


def test_rows_left_out_are_counted_by_group():
    found = said(audit(LEFT_OUT, drop_missing=True))
    assert "30 of 200 rows have no label or prediction and were left out." in found
    assert "Left out by group: b 30 (30.0 %)." in found
    assert "Left out by group" not in said(audit(LEFT_OUT, drop_missing=True, suppress_below=5))


def test_key_figures_agree_with_the_sentences():
    assert figures(audit(exact(HIRING)))["Below four fifths"].startswith("2 of 4 groups")
    same = audit(exact(dict.fromkeys("ABC", (50, 50, 50, 50))))
    assert "Lowest accuracy" not in figures(same)
    assert "1.00, B against A. Of" in figures(same)["Below four fifths"]
    few = figures(audit(exact({"a": (10, 5, 40, 45), "b": (30, 20, 40, 45)})))["Too few to judge"]
    assert "large enough" not in few
    assert "Too few for some of the rates: a." in few


def test_the_headline_speaks_of_all_groupings_worst_first():
    """A column with many values must not hide a difference by another column."""
    rng = np.random.default_rng(0)
    frame = exact({"f": (150, 350, 100, 400), "m": (400, 100, 100, 400)}, ("sex", "y", "y_hat"))
    frame["race"] = rng.choice([f"r{number}" for number in range(40)], len(frame))
    found = audit(frame)
    assert "No group differs" not in said(found)
    words = "Of the rows labelled 1, the model finds 30.0 % in f and 80.0 % in m"
    assert found.sentences[0].startswith(words)
    assert "By race, no difference is larger than chance explains." in said(found)
    words = "by sex: 30.0 % in f, 80.0 % in m. More than chance explains."
    assert words in figures(found)["Largest gap"]


def test_a_difference_that_turns_inside_every_client_is_mentioned():
    """Simpson's paradox: b is ahead over all rows, a is ahead inside each of six clients."""
    rows = []
    for client in range(6):
        easy = client < 3
        for group, share in (("a", 0.25 if easy else 0.75), ("b", 0.75 if easy else 0.25)):
            n = int(1000 * share)
            right = round(n * ((0.9 if easy else 0.4) + (0.08 if group == "a" else 0.0)))
            rows += [(f"c{client}", group, 1, int(place < right)) for place in range(n)]
    found = said(audit(pd.DataFrame(rows, columns=["client", "group", "y", "y_hat"])))
    assert "points the other way inside every client with both groups (Simpson's" in found
    assert "Simpson" not in said(audit(people(2000)))


@pytest.mark.parametrize(
    ("y", "y_hat"), [([0, 1], [-1, 1]), (["no", "yes"], ["yes", "nein"]), (range(1, 11), range(10))]
)
def test_classes_that_never_occur_among_the_labels_are_refused(y, y_hat):
    frame = pd.DataFrame({"group": list("ab") * 50, "y": [*y] * (100 // len(y))})
    frame["y_hat"] = [*y_hat] * (100 // len(y))
    with pytest.raises(AuditError, match="Use the same labels"):
        audit(frame)


def test_many_small_groups_from_one_distribution_show_nothing():
    rng = np.random.default_rng(3)
    groups = [f"g{number}" for number in range(30) for _ in range(rng.integers(1, 6))]
    text = said(audit(clients(rng.normal(80, 6, len(groups)), group=groups)))
    assert "Too few clients to judge" in text
    assert "This is more than chance" not in text


def test_names_are_trimmed_look_alikes_are_one_and_missing_ones_are_unknown():
    names = ["Zu\u0308rich", "Z\u00fcrich", " Zürich\u200b", "Bern", "be\u00adrn", "Ｂern", "NA"]
    found = audit(exact(dict.fromkeys(names, (20, 20, 20, 20))))
    rows = found.rates.query("rate == 'accuracy'").set_index("group")
    counts = {"Bern": 80, "Zürich": 240, "bern": 80, "Ｂern": 80, "unknown": 80}
    assert rows.n.to_dict() == counts
    notes = " ".join(found.notes)
    assert "'Bern', 'bern', 'Ｂern' are counted apart; are they one?" in notes
    assert "80 of 560 rows have no known group and are shown as unknown." in said(found)


def test_groups_that_are_too_small_are_not_judged_unless_asked_for():
    for options, judged in (({}, False), ({"min_n": 3}, True)):
        rows = audit(TINY, **options).rates.query("rate == 'accuracy'").set_index("group")
        assert rows.judged["tiny"] == judged
        assert judged or set(rows.reference) <= {"a", "b"}


def test_two_models_are_compared_by_the_change_of_each_client():
    rng = np.random.default_rng(5)
    change = rng.normal(-0.67, 2.4, 500)
    frame = pd.DataFrame({"client": range(500), "group": list("ab") * 250, "change": change})
    found = audit(frame, score="change")
    half = 1.9647 * change.std(ddof=1) / np.sqrt(500)  # t with 499 degrees of freedom
    row = found.all_rows[0].rows[0]
    assert [row.low, row.high] == pytest.approx(
        [change.mean() - half, change.mean() + half], abs=1e-4
    )
    assert set(found.rates.group) == {"a", "b"}


def test_identical_scores_have_no_interval():
    rows = audit(clients([0.8] * 20 + [0.7] * 20, group=["a"] * 20 + ["b"] * 20)).rates
    assert rows[["low", "high"]].isna().all().all()
    assert "no interval" in audit(clients([0.8] * 9, group=list("abc") * 3))._repr_html_()


def test_a_p_value_beside_the_limit_is_not_rounded_onto_it():
    shown = [p_value(value) for value in (0.0499, 0.0503, 0.047)]
    assert shown == ["p just below 0.05", "p just above 0.05", "p = 0.047"]


@pytest.mark.parametrize(
    "given",
    [{"threshold": float("nan")}, {"min_n": 0}, {"suppress_below": -1}, {"resamples": 10**9}],
)
def test_numbers_that_make_no_sense_are_refused(given):
    with pytest.raises(AuditError, match=next(iter(given))):
        audit(PLAIN, **given)


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


def test_printed_pages_of_many_groups_are_cut_with_a_note():
    page = audit(people(30_000, groups=[f"g{number}" for number in range(300)])).to_html()
    assert "Printed: 40 of 300 groups" in page
    short = re.findall(r'<svg class="dots short".*?</svg>', page, re.S)
    assert len(short) == 5
    assert all(plot.count('<g class="row"') == 40 for plot in short)
    assert 'class="beyond"' in page
    assert 'class="beyond"' not in audit(people(500)).to_html()
