"""Spreads by hand and in general, and `metrics.fairness`: a worked example, and as a run has it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl import metrics
from e2fl.metrics import METRICS, fairness, group_means, spread, tenth
from e2fl.runs.runner import run_experiment

ACCURACIES = [80, 82, 90, 91, 92, 93, 94, 95, 96, 97, 97, 98, 98, 98, 99, 99, 99, 99, 100, 100]
GROUPS = ["A"] * 2 + ["B"] * 4 + ["C"] * 6 + ["D"] * 8


def test_spreads_by_hand():
    expected = {
        "mean": 2.5,
        "worst10": 1.0,
        "best10": 4.0,
        "variance": 1.25,
        "std": math.sqrt(1.25),
        "gap": 3.0,
        "p10": 1.3,
        "p90": 3.7,
        "gini": 0.25,
        "gini_errors": 2.5 * 0.25 / 97.5,
        "jain": 100 / (4 * 30),
        "jain_errors": 390**2 / (4 * (99**2 + 98**2 + 97**2 + 96**2)),
    }
    assert spread([1.0, 2.0, 3.0, 4.0]) == pytest.approx(expected)
    values = np.random.default_rng(0).random(30)
    difference = np.abs(values[:, None] - values[None, :]).mean()
    assert metrics.gini(values) == pytest.approx(difference / (2 * values.mean()))
    assert [tenth(count) for count in (1, 19, 20, 3400)] == [1, 1, 2, 340]


def test_what_is_not_defined_is_not_a_number():
    assert all(math.isnan(value) for value in spread([1, math.nan, 3]).values())
    assert math.isnan(metrics.gini([1, -2]))
    assert math.isnan(metrics.jain([1, -2]))


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=50), st.floats(0.1, 50))
def test_spreads_are_ordered_and_shares_do_not_depend_on_the_unit(values, factor):
    measured = spread(values)
    assert measured["worst10"] <= measured["mean"] + 1e-9
    assert measured["mean"] <= measured["best10"] + 1e-9
    assert measured["p10"] <= measured["p90"]
    assert all(math.isfinite(measured[name]) for name in METRICS)
    equal = spread(values[:1] * 30)
    for name in ("variance", "std", "gap", "gini", "gini_errors"):
        assert equal[name] == pytest.approx(0, abs=1e-9)
    assert equal["jain"] == pytest.approx(1)
    for measure in (metrics.gini, metrics.jain):
        assert measure([factor * v for v in values]) == pytest.approx(measure(values), abs=1e-9)


def test_twenty_clients_in_four_groups():
    measured = fairness(ACCURACIES, GROUPS, loss=np.linspace(1, 0, 20))
    levels = {"clients": (94.85, 81.0, 100.0, 29.9275), "group": (91.916667, 81, 99, 46.895833)}
    for level, values in levels.items():
        for kind, value in zip(("mean", "worst10", "best10", "variance"), values, strict=True):
            assert measured[level][kind] == pytest.approx(value)
        assert measured[level].keys() == METRICS.keys()
    means = {name: group["accuracy"] for name, group in measured["groups"].items()}
    assert means == pytest.approx({"A": 81, "B": 91.5, "C": 96.166667, "D": 99})
    assert group_means(ACCURACIES, GROUPS) == means
    assert measured["groups"]["A"]["loss"] == pytest.approx(1 - 0.5 / 19)
    alone = fairness([80, 90])
    assert (alone["group"], alone["groups"]) == (None, {})


def test_groups_inside_a_client_weigh_by_their_examples():
    measured = fairness([100, 50, 70], ["x", "y", "x"], client=["a", "a", "b"], n=[30, 10, 5])
    # a: (100 * 30 + 50 * 10) / 40 = 87.5; b: 70; groups: x (100 + 70) / 2, y 50
    assert measured["clients"]["mean"] == pytest.approx((87.5 + 70) / 2)
    assert [group["accuracy"] for group in measured["groups"].values()] == [85.0, 50.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"accuracy": []}, "nothing to measure"),
        ({"accuracy": [1.0, np.nan]}, "accuracy is not a number in row 1"),
        ({"accuracy": [1.0], "sensitive_features": ["a", "b"]}, "2 of sensitive"),
        ({"accuracy": [1.0, 2.0], "sensitive_features": [0, math.nan]}, "row 1 has no group"),
        ({"accuracy": [1.0, 2.0], "client": [None, 1]}, "row 0 has no client"),
        ({"accuracy": [1.0], "n": [0]}, "above 0"),
        ({"accuracy": [1.0], "loss": [np.inf]}, "loss is not a number in row 0"),
    ],
)
def test_impossible_arrays_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        fairness(**arguments)


def test_it_gives_what_a_run_says_of_itself(toy):
    run = run_experiment(toy)
    names = ("client", "group", "n", "accuracy", "loss")
    columns = {name: [row[name] for row in run.clients] for name in names}
    measured = fairness(sensitive_features=columns.pop("group"), **columns)
    for level in ("clients", "group"):
        assert measured[level] == pytest.approx(run.summary[level])
    for name, group in run.summary["groups"].items():
        assert measured["groups"][name] == pytest.approx(group)
    losses = columns["loss"], [group["loss"] for group in run.summary["groups"].values()]
    for level, own in zip(("clients", "group"), losses, strict=True):
        expected = {"mean": pytest.approx(np.mean(own)), "std": pytest.approx(np.std(own))}
        assert run.summary["loss"][level] == run.history[-1]["loss"][level] == expected
