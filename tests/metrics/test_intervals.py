"""Intervals over seeds and clients: by hand, against SciPy, and how often they hold the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from e2fl.metrics.intervals import (
    FEW,
    over_clients,
    over_seeds,
    paired,
    row_worst10,
)
from tests.report.studies import method

numbers = st.lists(st.floats(-100, 100), min_size=2, max_size=8)


def test_the_interval_of_three_values():
    found = over_seeds([1.0, 2.0, 3.0])  # deviation 1, error 1 / sqrt(3), t(2) = 4.302653
    assert found.value == 2.0
    assert found.high - found.value == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


def test_one_seed_has_no_interval_over_seeds():
    found = over_seeds([5.0])
    assert (found.value, found.low, found.high, found.may_be_chance) == (5.0, None, None, None)


def test_pairs_cancel_what_seeds_share():
    found = paired({0: 90.0, 1: 50.0}, {0: 80.0, 1: 40.0})
    assert (found.low, found.high) == (10.0, 10.0)
    assert not found.may_be_chance


def test_only_shared_seeds_are_paired():
    found = paired({0: 3.0, 1: 9.0, 5: 0.0}, {0: 1.0, 1: 5.0, 7: 0.0})
    assert (found.value, found.count) == (3.0, 2)
    assert paired({0: 1.0}, {1: 1.0}) is None


@given(numbers)
def test_the_interval_over_seeds_is_scipys(values):
    found = over_seeds(values)
    if found.high - found.low > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, found.value, stats.sem(values))
        assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("count", [8, 40])
def test_the_bootstrap_holds_the_true_mean_about_95_times_in_100(count):
    rng = np.random.default_rng(3)
    samples = [rng.normal(80, 5, count) for _ in range(300)]
    held = [
        found.low <= 80 <= found.high for found in (over_clients([sample]) for sample in samples)
    ]
    assert 0.91 <= np.mean(held) <= 0.99


def test_the_bootstrap_agrees_with_scipys_for_many_clients():
    values = np.random.default_rng(0).beta(8, 2, 400) * 100
    found = over_clients([values])
    theirs = stats.bootstrap([values], np.mean, method="percentile", rng=1).confidence_interval
    assert (found.low, found.high) == (
        pytest.approx(theirs.low, abs=0.15),
        pytest.approx(theirs.high, abs=0.15),
    )
    worst = over_clients([values], row_worst10)
    assert worst.value == pytest.approx(np.sort(values)[:40].mean())
    assert worst.low < worst.value < worst.high


def test_strata_are_redrawn_apart():
    rng = np.random.default_rng(5)
    one, two = rng.normal(40, 3, 60), rng.normal(40, 3, 60)
    both, single = over_clients([one, two]), over_clients([one])
    # Independent errors add up in squares: the same draws for both strata would add the widths
    # themselves.
    width = math.hypot(single.high - single.low, over_clients([two]).high - over_clients([two]).low)
    assert both.high - both.low == pytest.approx(width, rel=0.1)


def test_few_or_identical_clients_have_no_interval():
    assert over_clients([np.arange(FEW - 1.0)]).low is None
    assert over_clients([np.full(50, 91.5)]).low is None
    assert over_clients([np.arange(float(FEW))]).low is not None


def test_the_same_values_give_the_same_interval():
    values = np.random.default_rng(2).normal(80, 5, 30)
    assert over_clients([values]) == over_clients([values])


def test_one_seed_has_intervals_over_clients():
    rng = np.random.default_rng(4)
    made = method(
        "E2FL", {"A": rng.normal(90, 2, 20).tolist(), "B": rng.normal(70, 4, 10).tolist()}
    )
    group, worst = made.interval("groups/B/accuracy"), made.interval("group/worst10")
    assert group.over == "clients"
    assert group.low < group.value < group.high
    assert (worst.value, worst.low) == (pytest.approx(group.value), pytest.approx(group.low))
    assert made.interval("clients/mean").low is not None
    assert made.interval("clients/variance").low is None


def test_differences_over_clients_are_paired():
    rng = np.random.default_rng(6)
    base = rng.normal(70, 10, 30)
    one = method("A", {"x": (base + 1 + 0.1 * rng.standard_normal(30)).tolist()})
    found = one.interval("clients/mean", method("B", {"x": base.tolist()}))
    assert found.over == "clients"
    assert found.high - found.low < 0.2
    assert not found.may_be_chance
