"""What an auditor must not overlook: each of these was once passed over in silence."""

import re

import numpy as np
import pandas as pd
import pytest

from e2fl_audit import AuditError, audit
from tests.audit.tables import clients, exact, figures, people, said


def test_the_headline_speaks_of_all_groupings_worst_first():
    """A column with many values must not hide a difference by another column."""
    rng = np.random.default_rng(0)
    frame = exact({"f": (150, 350, 100, 400), "m": (400, 100, 100, 400)}, ("sex", "y", "y_hat"))
    frame["race"] = rng.choice([f"r{number}" for number in range(40)], len(frame))
    found = audit(frame)
    assert "No group differs" not in said(found)
    assert found.sentences[0].startswith(
        "Of the rows labelled 1, the model finds 30.0 % in f and 80.0 % in m"
    )
    assert "By race, no difference is larger than chance explains." in said(found)
    words = "by sex: 30.0 % in f, 80.0 % in m. More than chance explains."
    assert words in figures(found)["Largest gap"]


def test_without_a_finding_the_headline_names_every_grouping():
    rng = np.random.default_rng(1)
    frame = people(3000).drop(columns="client").assign(race=rng.choice(list("abc"), 3000))
    words = "by more than chance explains, by sex and race, race and sex."
    assert words in said(audit(frame))


def test_groups_that_only_differ_from_small_ones_are_not_said_to_differ_from_each_other():
    """'100.0 % of A and 100.0 % of A: 0.0 percentage points less' was said to be no chance."""
    groups = {"A": (100, 0, 0, 100), "B": (100, 0, 0, 100), "tiny": (0, 10, 10, 0)}
    found = audit(exact(groups))
    assert "0.0 percentage points" not in said(found)
    assert "Accuracy is the same number in both groups compared, 100.0 %, but not in the" in said(
        found
    )


def test_a_difference_that_rounds_to_nothing_is_shown_with_more_digits():
    found = audit(exact({"A": (500_000, 0, 0, 9), "B": (499_850, 150, 0, 9)}))
    assert "finds 99.97 % in B and 100.00 % in A: less than 0.1 percentage points" in said(found)
    assert "0.0 percentage points" not in said(found)


@pytest.mark.parametrize(
    ("y", "y_hat"), [([0, 1], [-1, 1]), (["no", "yes"], ["yes", "nein"]), (range(1, 11), range(10))]
)
def test_classes_that_never_occur_among_the_labels_are_refused(y, y_hat):
    frame = pd.DataFrame({"group": list("ab") * 50, "y": [*y] * (100 // len(y))})
    frame["y_hat"] = [*y_hat] * (100 // len(y))
    with pytest.raises(AuditError, match="Use the same labels"):
        audit(frame)


def test_a_rare_class_without_a_label_is_mentioned():
    frame = pd.DataFrame({"group": list("ab") * 150, "y": list("abc") * 100})
    frame["y_hat"] = frame["y"]
    frame.loc[7, "y_hat"] = "d"
    assert "1 predictions are of classes that never occur in 'y' ('d')" in said(audit(frame))


def test_a_difference_that_turns_inside_every_client_is_mentioned():
    """Simpson's paradox: b is ahead over all rows, a is ahead inside each of six clients."""
    rows = []
    for client in range(6):
        easy = client < 3
        for group, share in (("a", 0.25 if easy else 0.75), ("b", 0.75 if easy else 0.25)):
            n = int(1000 * share)
            right = round(n * ((0.9 if easy else 0.4) + (0.08 if group == "a" else 0.0)))
            rows += [(f"c{client}", group, 1, int(place < right)) for place in range(n)]
    found = audit(pd.DataFrame(rows, columns=["client", "group", "y", "y_hat"]))
    assert "points the other way inside every client with both groups (Simpson's paradox)" in said(
        found
    )
    assert "Simpson" not in said(audit(people(2000)))


def test_repeated_rows_and_persons_are_mentioned():
    frame = people(600)
    assert "repeat" not in said(audit(frame))
    assert "Every row occurs 2 times" in said(audit(pd.concat([frame, frame])))
    frame["score"] = np.random.default_rng(0).random(600)
    again = pd.concat([frame, frame.head(25)])
    assert "25 rows of 625 are exact repeats of another row." in said(audit(again, y_pred="y_hat"))
    frame["patient_id"] = np.arange(600) // 3
    found = said(audit(frame, y_pred="y_hat"))
    assert "'patient_id' looks like an identifier of persons: 600 rows are of 200 persons" in found


def test_rows_left_out_are_counted_by_group():
    frame = exact({"a": (40, 10, 10, 40), "b": (40, 10, 10, 40)}).astype({"y": object})
    frame.loc[frame.index[frame.group == "b"][:30], "y"] = None
    found = said(audit(frame, drop_missing=True))
    assert "30 of 200 rows have no label or prediction and were left out." in found
    assert "Left out by group: b 30 (30.0 %)." in found
    hidden = said(audit(frame, drop_missing=True, suppress_below=5))
    assert "Left out by group" not in hidden


def test_selection_rates_that_are_not_shown_are_said_to_be_so():
    frame = exact({"a": (40, 10, 10, 40), "b": (40, 10, 10, 40)})
    income = frame.assign(
        **{name: frame[name].map({1: ">50K", 0: "<=50K"}) for name in ("y", "y_hat")}
    )
    assert "selection rates and true and false positive rates are not shown" in said(audit(income))
    assert "selection_rate" in set(audit(income, positive=">50K").rates.rate)


def test_names_that_look_alike_are_one_name():
    names = ["Zu\u0308rich", "Z\u00fcrich", "Zürich\u200b", "Bern", "be\u00adrn", "Ｂern"]
    found = audit(exact(dict.fromkeys(names, (20, 20, 20, 20))))
    rows = found.rates.query("rate == 'accuracy'").set_index("group")
    assert rows.n.to_dict() == {"Bern": 80, "Zürich": 240, "bern": 80, "Ｂern": 80}
    notes = " ".join(found.tables[0].notes)
    assert "'Zürich' is written in several ways that look the same" in notes
    assert "'Bern' and 'bern' are counted as two groups; are they one?" in notes
    assert "'Bern' and 'Ｂern' are counted as two groups; are they one?" in notes


def test_a_column_of_weights_is_not_ignored_silently():
    frame = people().assign(sample_weight=1.5)
    assert "Column 'sample_weight' is not used: every row weighs the same." in said(audit(frame))


def test_identical_scores_have_no_interval():
    found = audit(clients([0.8] * 20 + [0.7] * 20, group=["a"] * 20 + ["b"] * 20))
    rows = found.rates
    assert rows[["low", "high"]].isna().all().all()
    assert "no interval" in audit(clients([0.8] * 9, group=list("abc") * 3))._repr_html_()
    step = audit([clients(np.linspace(0.5, 0.9, 20)), clients(np.linspace(0.5, 0.9, 20) + 0.0625)])
    assert "(no interval)" in step.sentences[0] or "95 %" in step.sentences[0]


def test_large_groups_with_small_rates_are_not_called_large_enough():
    found = audit(exact({"a": (10, 5, 40, 45), "b": (30, 20, 40, 45)}))
    assert "large enough" not in figures(found)["Too few to judge"]
    assert "Too few for some of the rates: a." in figures(found)["Too few to judge"]


def test_printed_pages_of_many_groups_are_cut_with_a_note():
    page = audit(people(30_000, groups=[f"g{number}" for number in range(300)])).to_html()
    assert "Printed: 40 of 300 groups" in page
    rows = re.findall(r'<tr( class="beyond")?><th scope="row"><bdi>', page)
    assert sum(not cut for cut in rows) < 300
    short = re.findall(r'<svg class="dots short".*?</svg>', page, re.S)
    assert len(short) == 5
    assert all(plot.count('<g class="row"') == 40 for plot in short)
    few = audit(people(500)).to_html()
    assert "Printed:" not in few
    assert 'class="beyond"' not in few
