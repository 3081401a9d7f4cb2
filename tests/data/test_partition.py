"""Partitioners: ours, and others' with the interface of Flower's data sets."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.data.partition import (
    ByGroup,
    Dirichlet,
    Iid,
    apportion,
    partition_rows,
    split_rows,
)
from e2fl.errors import ConfigError, DataError

LABELS = np.repeat([0, 1, 2], [50, 30, 20])


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
        parts = partition_rows(partitioner, {"label": labels})
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


def test_equal_seeds_deal_equally_and_others_do_not():
    first, again, other = (
        partition_rows(Dirichlet(4, "label", 1.0, 5, seed), {"label": LABELS}) for seed in (3, 3, 4)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    sizes = [len(rows) for rows in partition_rows(Iid(7), {"label": LABELS})]
    assert sorted(sizes) == [14] * 5 + [15] * 2


def test_alpha_decides_how_much_clients_differ():
    labels = np.repeat([0, 1], [6000, 2000])
    for rows in partition_rows(Dirichlet(5, "label", alpha=5000.0), {"label": labels}):
        assert labels[rows].mean() == pytest.approx(0.25, abs=0.02)
        assert len(rows) == pytest.approx(1600, rel=0.06)
    labels = np.repeat([0, 1], 1000)
    for rows in partition_rows(Dirichlet(2, "label", 0.01, 1, seed=2), {"label": labels}):
        assert np.bincount(labels[rows]).max() / len(rows) > 0.9


def test_dirichlet_draws_again_until_nobody_has_too_few():
    partitioner = Dirichlet(5, "label", alpha=0.3, min_partition_size=12, seed=0)
    assert min(map(len, partition_rows(partitioner, {"label": LABELS}))) >= 12


@pytest.mark.parametrize(
    ("partitioner", "word"),
    [
        (Dirichlet(10, "label", alpha=0.001, min_partition_size=10), "larger alpha"),
        (Dirichlet(11, "label", alpha=1.0, min_partition_size=10), "too few for 11 partitions"),
        (Dirichlet(3, "label", alpha=0.0), "alpha"),
        (Dirichlet(3, "label", alpha=float("inf")), "alpha"),
        (Iid(0), "num_partitions"),
        (Iid(101), "too few"),
        (Dirichlet(-2, "label", 1.0), "num_partitions"),
        (ByGroup(0, "label"), "num_partitions"),
        (ByGroup(2, "label"), "3 groups"),
        (ByGroup(4, "sex"), "no column 'sex' to partition by; known: label$"),
        (object(), "object is no partitioner"),
    ],
)
def test_what_cannot_be_partitioned_is_refused(partitioner, word):
    with pytest.raises((ConfigError, DataError), match=word):
        partition_rows(partitioner, {"label": LABELS})


def test_clients_of_one_group_each_in_proportion_to_its_rows():
    parts = partition_rows(ByGroup(6, "label"), {"label": LABELS})
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


class Foreign:
    """A partitioner as Flower writes them: it accepts one data set, of Hugging Face's only."""

    num_partitions = 4

    def __init__(self, deal=None):
        self._dataset, self.deal = None, deal

    @property
    def dataset(self):
        return self._dataset

    @dataset.setter
    def dataset(self, value):
        if self._dataset is not None:
            raise ValueError("assigned twice")
        self._dataset = value

    def load_partition(self, partition_id):
        order = np.argsort(np.array(self.dataset["label"]), kind="stable").tolist()
        rows = order[partition_id::4] if self.deal is None else self.deal
        return {name: [values[row] for row in rows] for name, values in self.dataset.items()}


def test_flowers_partitioners_are_accepted_once_each(monkeypatch):
    datasets = SimpleNamespace(Dataset=SimpleNamespace(from_dict=lambda columns: columns))
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    once = Foreign()
    assert [len(rows) for rows in partition_rows(once, {"label": LABELS})] == [25] * 4
    with pytest.raises(ConfigError, match=r"was used before.*assigned twice"):
        partition_rows(once, {"label": LABELS})
    with pytest.raises(DataError, match="more than one client"):
        partition_rows(Foreign([0, 1]), {"label": LABELS})
    with pytest.raises(DataError, match="left a partition empty"):
        partition_rows(Foreign([]), {"label": LABELS})
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"Foreign .* `pip install datasets`"):
        partition_rows(Foreign(), {"label": LABELS})


def test_real_partitioners_of_flower_are_accepted():
    flower = pytest.importorskip("flwr_datasets.partitioner")
    writer = [f"writer {row % 5}" for row in range(100)]
    for partitioner in (
        flower.IidPartitioner(num_partitions=4),
        flower.NaturalIdPartitioner(partition_by="writer"),
        flower.PathologicalPartitioner(3, partition_by="label", num_classes_per_partition=2),
    ):
        parts = partition_rows(partitioner, {"label": LABELS, "writer": writer})
        assert sorted(np.concatenate(parts).tolist()) == list(range(100))
