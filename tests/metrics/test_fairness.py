"""`metrics.fairness` on any arrays: the worked example, and the same as a run's own summary."""

import numpy as np
import pytest

from e2fl.metrics import accuracies, fairness
from e2fl.runs.runner import run_experiment
from tests.metrics.test_functions import ACCURACIES, GROUPS


def test_twenty_clients_in_four_groups():
    found = fairness(ACCURACIES, GROUPS, loss=np.linspace(1, 0, 20))
    assert found["clients"] == pytest.approx(
        {"mean": 94.85, "worst10": 81.0, "best10": 100.0, "variance": 29.9275}
    )
    assert found["group"]["variance"] == pytest.approx(46.895833)
    assert found["groups"]["A"] == pytest.approx(
        {"clients": 2, "accuracy": 81.0, "loss": 1 - 0.5 / 19}
    )


def test_without_groups_there_is_no_group_level():
    found = fairness([80, 90])
    assert found["group"] is None
    assert found["groups"] == {}


def test_groups_inside_a_client_weigh_by_their_examples():
    found = fairness([100, 50, 70], ["x", "y", "x"], client=["a", "a", "b"], n=[30, 10, 5])
    # a: (100 * 30 + 50 * 10) / 40 = 87.5; b: 70; groups: x (100 + 70) / 2, y 50
    assert found["clients"]["mean"] == pytest.approx((87.5 + 70) / 2)
    assert {name: group["accuracy"] for name, group in found["groups"].items()} == {
        "x": 85.0,
        "y": 50.0,
    }


def test_predictions_are_counted_for_each_client():
    found = accuracies(
        [1, 0, 1, 1],
        [1, 1, 1, 0],
        client=["a", "a", "b", "b"],
        sensitive_features=["x", "x", "x", "y"],
    )
    assert found["client"].tolist() == ["a", "b", "b"]
    assert found["accuracy"].tolist() == [50, 100, 0]
    assert fairness(**found)["clients"]["mean"] == pytest.approx(50.0)
    assert accuracies([1, 0], [1, 1], client=["a", "a"])["accuracy"].tolist() == [50]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"accuracy": []}, "nothing to measure"),
        ({"accuracy": [1.0, np.nan]}, "accuracy is not a number in row 1"),
        ({"accuracy": [1.0], "sensitive_features": ["a", "b"]}, "2 of sensitive"),
        ({"accuracy": [1.0], "n": [0]}, "above 0"),
        ({"accuracy": [1.0], "loss": [np.inf]}, "loss is not a number in row 0"),
    ],
)
def test_impossible_arrays_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        fairness(**arguments)


def test_it_gives_what_a_run_says_of_itself(toy):
    run = run_experiment(toy)
    columns = {
        name: [row[name] for row in run.clients]
        for name in ("client", "group", "n", "accuracy", "loss")
    }
    found = fairness(sensitive_features=columns.pop("group"), **columns)
    for level in ("clients", "group"):
        assert found[level] == pytest.approx(run.summary[level])
    for name, group in run.summary["groups"].items():
        assert found["groups"][name] == pytest.approx(group)
