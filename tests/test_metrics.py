"""Metrics: the worked example, and what must hold for any scores."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.metrics import f1, group_means, protected, spread, tenth

ACCURACIES = [80, 82, 90, 91, 92, 93, 94, 95, 96, 97, 97, 98, 98, 98, 99, 99, 99, 99, 100, 100]
GROUPS = ["A"] * 2 + ["B"] * 4 + ["C"] * 6 + ["D"] * 8


def test_spread_of_twenty_clients():
    assert spread(ACCURACIES) == pytest.approx({"mean": 94.85, "worst10": 81.0, "best10": 100.0, "variance": 29.9275})


def test_spread_of_four_groups():
    means = group_means(ACCURACIES, GROUPS)
    assert means == pytest.approx({"A": 81, "B": 91.5, "C": 96.166667, "D": 99})
    assert spread(list(means.values())) == pytest.approx(
        {"mean": 91.916667, "worst10": 81, "best10": 99, "variance": 46.895833}
    )


def test_variance_is_of_the_population_as_in_the_papers_table():
    assert spread([85.65, 90.60])["variance"] == pytest.approx(6.13, abs=0.01)


@pytest.mark.parametrize(("count", "part"), [(1, 1), (9, 1), (10, 1), (19, 1), (20, 2), (1000, 100), (3400, 340)])
def test_a_tenth_is_at_least_one(count, part):
    assert tenth(count) == part


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_worst_is_below_mean_is_below_best(values):
    found = spread(values)
    assert found["worst10"] <= found["mean"] + 1e-9
    assert found["mean"] <= found["best10"] + 1e-9
    assert found["variance"] >= 0


@given(st.floats(0, 100), st.integers(1, 30))
def test_equal_service_has_no_variance(value, count):
    assert spread([value] * count)["variance"] == pytest.approx(0, abs=1e-9)


def test_differences_between_two_groups():
    women = {"n": 100, "true_positive": 6, "false_positive": 4, "false_negative": 4}
    men = {"n": 200, "true_positive": 45, "false_positive": 15, "false_negative": 15}
    found = protected(women, men)
    assert found["eod"] == pytest.approx(0.6 - 0.75)
    assert found["spd"] == pytest.approx(0.10 - 0.30)
    assert found["di"] == pytest.approx(12 / 20 - 90 / 120)


def test_equal_opportunity_without_positives_is_undefined_not_zero():
    none = {"n": 10, "true_positive": 0, "false_positive": 1, "false_negative": 0}
    some = {"n": 10, "true_positive": 2, "false_positive": 1, "false_negative": 1}
    assert math.isnan(protected(none, some)["eod"])
    assert not math.isnan(protected(none, some)["spd"])


def test_f1_of_nothing_is_zero():
    assert f1(0, 0, 0) == 0
    assert f1(3, 1, 2) == pytest.approx(6 / 9)


def test_nothing_to_measure_is_an_error():
    with pytest.raises(ValueError, match="nothing to measure"):
        spread(np.array([]))
