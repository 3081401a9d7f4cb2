"""Partitioners: ours, and others' with the interface of Flower's data sets."""

import sys
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.data.partition import (
    ByGroup,
    Columns,
    Dirichlet,
    Iid,
    NaturalId,
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
        NaturalId(partition_by="label"),
        ByGroup(num_partitions=6, partition_by="label", seed=1),
    ],
    ids=lambda partitioner: type(partitioner).__name__,
)
def test_every_row_goes_to_one_client(partitioner):
    parts = partition_rows(partitioner, {"label": LABELS})
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))


def test_equal_seeds_deal_equally_and_others_do_not():
    first, again, other = (
        partition_rows(Dirichlet(4, "label", 1.0, 5, seed), {"label": LABELS}) for seed in (3, 3, 4)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_iid_parts_differ_by_at_most_one_row():
    assert (
        sorted(len(rows) for rows in partition_rows(Iid(7), {"label": LABELS}))
        == [14] * 5 + [15] * 2
    )


def test_a_large_alpha_gives_everybody_the_same_mix():
    labels = np.repeat([0, 1], [6000, 2000])
    for rows in partition_rows(Dirichlet(5, "label", alpha=5000.0), {"label": labels}):
        assert labels[rows].mean() == pytest.approx(0.25, abs=0.02)
        assert len(rows) == pytest.approx(1600, rel=0.06)


def test_a_small_alpha_gives_clients_of_nearly_one_label():
    labels = np.repeat([0, 1], 1000)
    parts = partition_rows(
        Dirichlet(2, "label", alpha=0.01, min_partition_size=1, seed=2), {"label": labels}
    )
    assert all(np.bincount(labels[rows]).max() / len(rows) > 0.9 for rows in parts)


def test_dirichlet_draws_again_until_nobody_has_too_few():
    parts = partition_rows(
        Dirichlet(5, "label", alpha=0.3, min_partition_size=12, seed=0), {"label": LABELS}
    )
    assert min(len(rows) for rows in parts) >= 12


def test_a_partition_that_cannot_be_drawn_says_so_and_ends():
    with pytest.raises(ConfigError, match="choose a larger alpha"):
        partition_rows(
            Dirichlet(10, "label", alpha=0.001, min_partition_size=10), {"label": LABELS}
        )
    with pytest.raises(ConfigError, match="too few for 11 partitions"):
        partition_rows(Dirichlet(11, "label", alpha=1.0, min_partition_size=10), {"label": LABELS})


@pytest.mark.parametrize("count", [0, -2])
def test_fewer_partitions_than_one_are_refused(count):
    for partitioner in (Iid(count), Dirichlet(count, "label", 1.0), ByGroup(count, "label")):
        with pytest.raises(ConfigError, match=f"num_partitions must be at least 1, not {count}"):
            partition_rows(partitioner, {"label": LABELS})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("alpha", [0.0, -1.0, float("inf"), float("nan"), 1e308])
def test_an_alpha_that_cannot_be_drawn_with_is_refused(alpha):
    with pytest.raises(ConfigError, match="alpha must be above 0 and at most"):
        partition_rows(Dirichlet(3, "label", alpha), {"label": LABELS})


def test_natural_ids_follow_the_order_of_their_values():
    parts = partition_rows(NaturalId("writer"), {"writer": np.array(["b", "a", "b", "c"])})
    assert [rows.tolist() for rows in parts] == [[1], [0, 2], [3]]
    few = partition_rows(
        NaturalId("writer", min_partition_size=2), {"writer": np.array(["b", "a", "b", "c"])}
    )
    assert [rows.tolist() for rows in few] == [[0, 2]]


def test_clients_of_one_group_only():
    parts = partition_rows(ByGroup(5, "sex"), {"sex": np.repeat([0, 1], [325, 675])})
    assert [rows.max() < 325 for rows in parts] == [True, True, False, False, False]
    assert sorted(len(rows) for rows in parts) == [162, 163, 225, 225, 225]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(0, 50))
def test_shares_add_up_and_leave_nobody_out(sizes, more):
    whole = len(sizes) + more
    assert sum(apportion(tuple(sizes), whole)) == whole
    assert min(apportion(tuple(sizes), whole)) >= 1


@given(st.integers(2, 60), st.floats(0.01, 0.99))
def test_a_split_leaves_something_on_both_sides(count, share):
    train, test = split_rows(np.arange(count), share, np.random.default_rng(0))
    assert len(train) >= 1
    assert len(test) >= 1
    assert sorted([*train, *test]) == list(range(count))


class Dataset(Columns):
    """Stands for a data set of Hugging Face's."""

    @classmethod
    def from_dict(cls, columns):
        assert all(isinstance(values, list) for values in columns.values())
        return cls(columns)


@pytest.fixture
def datasets(monkeypatch):
    """Hugging Face's package, or as much of it as is needed."""
    module = ModuleType("datasets")
    module.Dataset = Dataset
    monkeypatch.setitem(sys.modules, "datasets", module)


class Foreign:
    """A partitioner as Flower writes them: it takes Hugging Face's data sets only, and each takes one."""

    def __init__(self, num_partitions):
        self._dataset, self._count = None, num_partitions

    @property
    def dataset(self):
        return self._dataset

    @dataset.setter
    def dataset(self, value):
        if self._dataset is not None:
            raise ValueError("assigned twice")
        if not isinstance(value, Dataset):
            raise TypeError(f"should be a Dataset, but given {type(value)}")
        self._dataset = value

    @property
    def num_partitions(self):
        return self._count

    def load_partition(self, partition_id):
        assert self.dataset.num_rows == len(self.dataset)
        order = np.argsort(np.array(self.dataset["label"]), kind="stable")
        return self.dataset.select(order.tolist()[partition_id :: self._count])


@pytest.mark.usefixtures("datasets")
def test_flowers_partitioners_are_accepted():
    parts = partition_rows(Foreign(4), {"label": LABELS})
    assert [len(rows) for rows in parts] == [25] * 4


def test_without_hugging_faces_package_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        ConfigError, match=r"Foreign needs a Hugging Face Dataset: pip install datasets"
    ):
        partition_rows(Foreign(4), {"label": LABELS})


@pytest.mark.usefixtures("datasets")
def test_a_partitioner_that_serves_only_once_says_so():
    once = Foreign(4)
    partition_rows(once, {"label": LABELS})
    with pytest.raises(ConfigError, match="create a new one: assigned twice"):
        partition_rows(once, {"label": LABELS})


def test_real_partitioners_of_flower_are_accepted():
    flower = pytest.importorskip("flwr_datasets.partitioner")
    writer = [f"writer {row % 5}" for row in range(100)]
    for partitioner in (
        flower.IidPartitioner(num_partitions=4),
        flower.DirichletPartitioner(4, partition_by="label", alpha=1.0, min_partition_size=2),
        flower.NaturalIdPartitioner(partition_by="writer"),
        flower.PathologicalPartitioner(3, partition_by="label", num_classes_per_partition=2),
    ):
        parts = partition_rows(partitioner, {"label": LABELS, "writer": writer})
        assert sorted(np.concatenate(parts).tolist()) == list(range(100))


def test_anybodys_partitioner_is_accepted():
    class Simple:
        num_partitions = 2

        def load_partition(self, partition_id):
            return self.dataset.shard(2, partition_id)

    assert [len(rows) for rows in partition_rows(Simple(), {"label": LABELS})] == [50, 50]


@pytest.mark.parametrize(
    "partitioner", [Iid(3), Dirichlet(3, "label", 1.0, 2), NaturalId("label"), ByGroup(3, "label")]
)
def test_a_partitioner_used_again_deals_the_new_rows(partitioner):
    for count in (60, 120, 30):
        parts = partition_rows(partitioner, {"label": np.arange(count) % 3})
        assert sorted(np.concatenate(parts).tolist()) == list(range(count))


def test_columns_called_as_ours_are_left_alone():
    names = np.array(["b", "a", "b", "c"])
    for column in ("row", " row", " row_"):
        parts = partition_rows(NaturalId(column), {column: names, " row": names})
        assert [rows.tolist() for rows in parts] == [[1], [0, 2], [3]]
    with pytest.raises(ConfigError, match=r"no column 'sex' to partition by; known: label$"):
        partition_rows(NaturalId("sex"), {"label": names})


@pytest.mark.usefixtures("datasets")
def test_a_partitioner_that_uses_shards_is_accepted():
    class Shards(Foreign):
        def load_partition(self, partition_id):
            return self.dataset.shuffle(seed=1).shard(
                num_shards=self._count, index=partition_id, contiguous=True
            )

    assert sorted(np.concatenate(partition_rows(Shards(3), {"label": LABELS})).tolist()) == list(
        range(100)
    )


@pytest.mark.usefixtures("datasets")
def test_a_partitioner_that_deals_a_row_twice_or_nothing_is_refused():
    class Twice(Foreign):
        def load_partition(self, partition_id):
            return self.dataset.select([0, 1])

    class Nothing(Foreign):
        def load_partition(self, partition_id):
            return self.dataset.select([])

    with pytest.raises(DataError, match="more than one client"):
        partition_rows(Twice(2), {"label": LABELS})
    with pytest.raises(DataError, match="left a partition empty"):
        partition_rows(Nothing(2), {"label": LABELS})


def test_columns_answer_as_a_data_set_does():
    table = Columns({"label": [2, 1, 2, 0], "name": ["a", "b", "c", "d"]})
    assert table.unique("label") == [2, 1, 0]
    assert table.column_names == ["label", "name"]
    assert table[1] == {"label": 1, "name": "b"}
    assert table.sort("label")["name"].tolist() == ["d", "b", "a", "c"]
    with pytest.raises(ConfigError, match="no column 'sex'"):
        table["sex"]
