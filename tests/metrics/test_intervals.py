"""Intervals over seeds and clients: by hand, against SciPy, and how often they hold the truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from e2fl.metrics.intervals import MIN_CLIENTS, over_clients, over_seeds, paired
from tests.report.studies import method

numbers = st.lists(st.floats(-100, 100), min_size=2, max_size=8)


def test_pairs_cancel_what_seeds_share():
    found = paired({0: 90.0, 1: 50.0, 5: 0.0}, {0: 80.0, 1: 40.0, 7: 0.0})
    assert (found.low, found.high, found.count) == (10.0, 10.0, 2)
    assert not found.may_be_chance
    assert paired({0: 1.0}, {1: 1.0}) is None


@given(numbers)
def test_the_interval_over_seeds_is_scipys(values):
    found = over_seeds(values)
    if found.high - found.low > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, found.value, stats.sem(values))
        assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
        assert found.half == pytest.approx((high - low) / 2)
    one = over_seeds(values[:1])
    assert (one.value, one.low, one.high, one.may_be_chance) == (values[0], None, None, None)


def test_the_interval_over_clients_holds_the_true_mean_about_95_times_in_100():
    rng = np.random.default_rng(3)
    for count in (8, 40):
        found = [over_clients(100 * rng.beta(8, 2, count)) for _ in range(300)]
        assert 0.91 <= np.mean([one.low <= 80 <= one.high for one in found]) <= 0.99


def test_few_or_identical_clients_have_no_interval():
    assert over_clients(np.arange(MIN_CLIENTS - 1.0)).low is None
    assert over_clients(np.full(50, 91.5)).low is None
    assert over_clients(np.arange(float(MIN_CLIENTS))).low is not None


def test_one_seed_has_intervals_over_clients_of_means_only():
    rng = np.random.default_rng(4)
    groups = {"A": rng.normal(90, 2, 20).tolist(), "B": rng.normal(70, 4, 10).tolist()}
    made = method("E2FL", groups)
    group, worst = made.interval("groups/B/accuracy"), made.interval("group/worst10")
    assert group.low < group.value < group.high
    assert (worst.value, worst.low) == (pytest.approx(group.value), pytest.approx(group.low))
    assert made.interval("clients/mean").low is not None
    for path in ("clients/variance", "group/mean", "groups/B/loss"):
        interval = made.interval(path)
        assert interval is None or interval.low is None
    assert made.minus(method("other", groups), "clients/mean").low is None
