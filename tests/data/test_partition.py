"""Partitioners: every row to one client, by the seed; what cannot be divided is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.data.partition import (
    BasePartitioner,
    ByGroup,
    Dirichlet,
    Iid,
    apportion,
    split_rows,
)
from e2fl.errors import ConfigError, DataError

LABELS = np.repeat([0, 1, 2], [50, 30, 20])


def rows_of(partitioner, labels=LABELS):
    """Return the rows of each client."""
    client = partitioner.clients({"label": labels})
    return [np.flatnonzero(client == number) for number in range(client.max() + 1)]


class Twice(BasePartitioner):
    def divide(self, columns):
        return [np.arange(100), np.arange(3)]


class Fewer(BasePartitioner):
    def divide(self, columns):
        return [np.arange(99)]


@pytest.mark.parametrize(
    "partitioner",
    [
        Iid(num_partitions=7, seed=1),
        Dirichlet(num_partitions=5, partition_by="label", alpha=0.5, min_partition_size=3, seed=1),
        ByGroup(num_partitions=6, partition_by="label", seed=1),
    ],
    ids=lambda partitioner: type(partitioner).__name__,
)
def test_every_row_goes_to_one_client_whenever_a_partitioner_is_used(partitioner):
    for labels in (LABELS, np.arange(60) % 3):
        parts = rows_of(partitioner, labels)
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


def test_equal_seeds_deal_equally_and_others_do_not():
    first, again, other = (rows_of(Dirichlet(4, "label", 1.0, 5, seed)) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    sizes = [len(rows) for rows in rows_of(Iid(7))]
    assert sorted(sizes) == [14] * 5 + [15] * 2


def test_alpha_decides_how_much_clients_differ():
    labels = np.repeat([0, 1], [6000, 2000])
    for rows in rows_of(Dirichlet(5, "label", alpha=5000.0), labels):
        assert labels[rows].mean() == pytest.approx(0.25, abs=0.02)
        assert len(rows) == pytest.approx(1600, rel=0.06)
    labels = np.repeat([0, 1], 1000)
    for rows in rows_of(Dirichlet(2, "label", 0.01, 1, seed=2), labels):
        assert np.bincount(labels[rows]).max() / len(rows) > 0.9


def test_dirichlet_draws_again_until_nobody_has_too_few():
    partitioner = Dirichlet(5, "label", alpha=0.3, min_partition_size=12, seed=0)
    assert min(map(len, rows_of(partitioner))) >= 12


@pytest.mark.parametrize(
    ("partitioner", "word"),
    [
        (Dirichlet(10, "label", alpha=0.001, min_partition_size=10), "larger alpha"),
        (Dirichlet(11, "label", alpha=1.0, min_partition_size=10), "1 to 10: 100 rows"),
        (Dirichlet(3, "label", alpha=0.0), "alpha"),
        (Dirichlet(3, "label", alpha=float("inf")), "alpha"),
        (Iid(0), "num_partitions"),
        (Iid(101), "1 to 100"),
        (Dirichlet(-2, "label", 1.0), "num_partitions"),
        (ByGroup(0, "label"), "num_partitions"),
        (ByGroup(2, "label"), "at least 3, the number of groups"),
        (ByGroup(4, "sex"), "no column 'sex' to partition by; known: label$"),
        (Twice(), "must give each row to one client"),
        (Fewer(), "must give each row to one client"),
    ],
)
def test_what_cannot_be_partitioned_is_refused(partitioner, word):
    with pytest.raises((ConfigError, DataError), match=word):
        rows_of(partitioner)


def test_clients_of_one_group_each_in_proportion_to_its_rows():
    parts = rows_of(ByGroup(6, "label"))
    assert [set(LABELS[rows].tolist()) for rows in parts] == [{0}] * 3 + [{1}] * 2 + [{2}]


@given(sizes=st.lists(st.integers(1, 500), min_size=1, max_size=12), extra=st.integers(0, 300))
def test_seats_add_up_and_nobody_is_left_out(sizes, extra):
    seats = apportion(tuple(sizes), len(sizes) + extra)
    assert sum(seats) == len(sizes) + extra
    assert min(seats) >= 1


@given(count=st.integers(2, 200), share=st.floats(0.01, 0.99))
def test_a_split_leaves_rows_on_both_sides(count, share):
    train, test = split_rows(np.arange(count), share, np.random.default_rng(0))
    assert len(train) >= 1
    assert len(test) >= 1
    assert sorted([*train, *test]) == list(range(count))
