"""Hidden groups stay hidden: no number on the page, in the JSON or in the CSV gives them away."""

import numpy as np
import pandas as pd

from e2fl_audit import audit
from tests.audit.tables import exact


def people(cells):
    """Exactly these numbers of rows for each sex and race; half have label 1, all are found."""
    rows = [(*key, place % 2, place % 2) for key, n in cells.items() for place in range(n)]
    return pd.DataFrame(rows, columns=["sex", "race", "y", "y_hat"])


def hidden(found, grouping, rate="accuracy"):
    rows = found.rates.query("grouping == @grouping and rate == @rate and status == 'suppressed'")
    return set(rows.group)


def test_small_groups_are_hidden_everywhere_and_never_alone():
    frame = exact({"a": (50, 50, 50, 50), "b": (40, 50, 50, 50), "rare": (1, 1, 1, 0)})
    found = audit(frame, suppress_below=5)
    assert hidden(found, "group") == {"rare", "b"}  # one alone is the total less the others
    rows = found.rates.query("rate == 'accuracy' and status == 'suppressed'")
    assert rows[["n", "value", "low", "hits", "ratio", "p"]].isna().all().all()
    text = found.to_json() + found.to_html()
    assert '"n": 3.0' not in text
    assert "group is large enough" not in text


def test_a_hidden_group_is_never_the_reference():
    """The next smallest group is hidden with a small one; ratios to it would tell its rate."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"group": ["rare"] * 3 + ["top"] * 40 + ["a"] * 300 + ["b"] * 300})
    frame["y"] = rng.integers(0, 2, len(frame))
    wrong = frame.group.isin(["a", "b"]) & (rng.random(len(frame)) < 0.3)
    frame["y_hat"] = np.where(wrong, 1 - frame.y, frame.y)
    found = audit(frame, suppress_below=5)
    assert hidden(found, "group") == {"rare", "top"}
    assert set(found.rates.reference) <= {"a", "b"}
    assert not any("top" in sentence for sentence in found.sentences)
    named = audit(frame, suppress_below=5, reference="top")
    assert named.rates.query("rate == 'accuracy'").ratio.isna().all()


def test_cells_are_not_shown_beside_a_hidden_group():
    """A hidden cell would be its sex less the other races, a hidden race the sum of its cells."""
    cells = {("F", "w"): 200, ("M", "w"): 200, ("F", "b"): 90, ("M", "b"): 100}
    assert "sex and race" in set(audit(people(cells), suppress_below=5).rates.grouping)
    for small in ({("F", "p"): 3, ("M", "p"): 120}, {("F", "p"): 2, ("M", "p"): 2}):
        found = audit(people(cells | small), suppress_below=5)
        assert set(found.rates.grouping) == {"sex", "race"}
        assert any("by sex and race are not shown" in sentence for sentence in found.sentences)
    assert hidden(found, "race") == {"p", "b"}


def test_the_positives_of_a_group_are_not_the_rest_of_its_negatives():
    frame = exact({"a": (50, 50, 50, 50), "b": (100, 0, 100, 0), "c": (2, 1, 28, 29)})
    found = audit(frame, suppress_below=5)
    for rate in ("true_positive_rate", "false_positive_rate", "predictive_value"):
        assert "c" in hidden(found, "group", rate)
    assert hidden(found, "group", "accuracy") == set()
    two = audit(exact({"A": (2, 1, 50, 50), "B": (70, 30, 20, 80)}), suppress_below=5).to_html()
    assert "undefined" in two.split("Equalized odds difference")[1].split("</tr>")[0]


def test_a_small_client_is_never_hidden_alone():
    """Its rows would be those of the table less those of all other clients."""
    sizes = {"tiny": 3, "next": 20, "a": 60, "b": 60}
    rows = [(name, place % 2, place % 3 % 2) for name, n in sizes.items() for place in range(n)]
    frame = pd.DataFrame(rows, columns=["client", "y", "y_hat"])
    assert set(audit(frame, suppress_below=5).clients["client"]) == {"a", "b"}
    assert len(audit(frame, suppress_below=3).clients) == 4
    of_clients = pd.DataFrame({"client": list(sizes), "accuracy": 0.5, "n": sizes.values()})
    assert set(audit(of_clients, suppress_below=5).clients["client"]) == {"a", "b"}
    assert audit(frame[frame["client"] != "b"], suppress_below=5).clients.empty
