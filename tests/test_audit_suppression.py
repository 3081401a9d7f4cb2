"""Hidden groups stay hidden: no number on the page, in the JSON or in the CSV gives them away."""

import numpy as np
import pandas as pd

import e2fl


def people(cells):
    """A table with exactly these numbers of rows for each sex and race; half have label 1, and all are found."""
    rows = [(sex, race, place % 2, place % 2) for (sex, race), n in cells.items() for place in range(n)]
    return pd.DataFrame(rows, columns=["sex", "race", "y", "y_hat"])


def hidden(found, grouping, rate="accuracy"):
    rows = found.rates.query("grouping == @grouping and rate == @rate and status == 'suppressed'")
    return set(rows.group)


def test_a_hidden_group_is_never_the_reference():
    """The next smallest group is hidden with a small one. It may be the best, but ratios to it would tell its rate."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"group": ["rare"] * 3 + ["top"] * 40 + ["a"] * 300 + ["b"] * 300})
    frame["y"] = rng.integers(0, 2, len(frame))
    wrong = frame.group.isin(["a", "b"]) & (rng.random(len(frame)) < 0.3)
    frame["y_hat"] = np.where(wrong, 1 - frame.y, frame.y)
    found = e2fl.audit(frame, suppress_below=5)
    assert hidden(found, "group") == {"rare", "top"}
    assert set(found.rates.reference) <= {"a", "b"}
    assert not any("top" in sentence for sentence in found.sentences)
    named = e2fl.audit(frame, suppress_below=5, reference="top")
    assert named.rates.query("rate == 'accuracy'").ratio.isna().all()


def test_a_hidden_cell_cannot_be_computed_from_its_row_or_column():
    cells = {("F", "w"): 200, ("M", "w"): 200, ("F", "b"): 90, ("M", "b"): 100, ("F", "p"): 3, ("M", "p"): 120}
    found = e2fl.audit(people(cells), suppress_below=5)
    gone = hidden(found, "sex and race")
    assert "F · p" in gone
    assert "M · p" in gone  # else 123 people of race p, less those shown, are the three
    for sex in "FM":
        assert sum(name.startswith(sex) for name in gone) != 1
    for race in "wbp":
        assert sum(name.endswith(race) for name in gone) != 1


def test_a_hidden_attribute_is_not_the_sum_of_cells_that_are_shown():
    cells = {("F", "w"): 200, ("M", "w"): 200, ("F", "b"): 90, ("M", "b"): 100, ("F", "p"): 2, ("M", "p"): 2}
    found = e2fl.audit(people(cells), suppress_below=5)
    assert hidden(found, "race") == {"p", "b"}
    assert {"F · b", "M · b"} <= hidden(found, "sex and race")


def test_the_positives_of_a_group_are_not_the_rest_of_its_negatives():
    rows = [("a", place % 2, place % 3 % 2) for place in range(200)] + [("b", place % 2, 1) for place in range(200)]
    rows += [("c", int(place < 3), place % 2) for place in range(60)]  # three positives
    found = e2fl.audit(pd.DataFrame(rows, columns=["group", "y", "y_hat"]), suppress_below=5)
    for rate in ("true_positive_rate", "false_positive_rate", "predictive_value"):
        assert "c" in hidden(found, "group", rate)
    assert hidden(found, "group", "accuracy") == set()
