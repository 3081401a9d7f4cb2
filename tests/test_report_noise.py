"""Noise over seeds: intervals by hand, and pairs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from e2fl.report.intervals import interval, paired

numbers = st.lists(st.floats(-100, 100), min_size=2, max_size=8)


def test_the_interval_of_three_values():
    found = interval([1.0, 2.0, 3.0])  # deviation 1, error 1 / sqrt(3), t(2) = 4.302653
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


def test_one_value_has_no_interval():
    found = interval([5.0])
    assert (found.mean, found.half, found.within_noise) == (5.0, None, None)


def test_pairs_cancel_what_seeds_share():
    assert paired({0: 90.0, 1: 50.0}, {0: 80.0, 1: 40.0}).half == 0.0
    assert not paired({0: 90.0, 1: 50.0}, {0: 80.0, 1: 40.0}).within_noise


def test_only_shared_seeds_are_paired():
    found = paired({0: 3.0, 1: 9.0, 5: 0.0}, {0: 1.0, 1: 5.0, 7: 0.0})
    assert (found.mean, found.count) == (3.0, 2)
    assert paired({0: 1.0}, {1: 1.0}) is None


@given(numbers)
def test_the_interval_is_scipys(values):
    found = interval(values)
    if found.half > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, found.mean, stats.sem(values))
        assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


@given(numbers)
def test_within_noise_means_that_zero_is_inside(values):
    found = interval(values)
    assert found.within_noise == (found.low <= 0 <= found.high)
