"""Spreads of values: by hand, and what must hold for any accuracies."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl import metrics
from e2fl.metrics import METRICS, spread, tenth


def test_spreads_by_hand():
    measured = spread([1.0, 2.0, 3.0, 4.0])
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
    assert {name: measured[name] for name in expected} == pytest.approx(expected)
    values = np.random.default_rng(0).random(30)
    difference = np.abs(values[:, None] - values[None, :]).mean()
    assert metrics.gini(values) == pytest.approx(difference / (2 * values.mean()))


def test_what_is_not_defined_is_not_a_number():
    assert all(math.isnan(value) for value in spread([1, math.nan, 3]).values())
    assert math.isnan(metrics.gini([1, -2]))
    assert math.isnan(metrics.jain([1, -2]))
    with pytest.raises(ValueError, match="nothing to measure"):
        spread([])


@pytest.mark.parametrize(("count", "part"), [(1, 1), (19, 1), (20, 2), (3400, 340)])
def test_a_tenth_is_at_least_one(count, part):
    assert tenth(count) == part


@given(st.lists(st.integers(0, 100), min_size=1, max_size=50))
def test_worst_is_below_mean_is_below_best(values):
    measured = spread(values)
    assert measured["worst10"] <= measured["mean"] + 1e-9
    assert measured["mean"] <= measured["best10"] + 1e-9
    assert measured["p10"] <= measured["p90"]
    assert all(math.isfinite(measured[name]) for name in METRICS)
    equal = spread(values[:1] * 30)
    for name in ("variance", "std", "gap", "gini", "gini_errors"):
        assert equal[name] == pytest.approx(0, abs=1e-9)
    assert (equal["jain"], equal["jain_errors"]) == pytest.approx((1, 1))


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=30), st.floats(0.1, 50))
def test_shares_of_a_total_do_not_depend_on_the_unit(values, factor):
    scaled = [factor * value for value in values]
    for measure in (metrics.gini, metrics.jain):
        assert measure(scaled) == pytest.approx(measure(values), abs=1e-9)
