"""Partitioners: rules that assign rows to clients, with the argument names of Flower Datasets.

A partitioner is given a `dataset` and then returns each of its partitions. Any object with this interface works:
`partition_rows` accepts ours and others, and only asks which rows are in which partition. Flower's partitioners need a
`Dataset` of the Hugging Face package `datasets`, and get one.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import ConfigError, DataError
from e2fl.randomness import stream

Rows = NDArray[np.int64]

ATTEMPTS = 100  # draws of a Dirichlet partition
LARGEST_ALPHA = 1e9  # all clients are alike long before; sums of far larger numbers overflow
ROW = " row"  # start of the name of the column that numbers the rows; messages do not mention it


class Columns:
    """Named columns of equal length, with the part of a Hugging Face `Dataset` that partitioners use."""

    def __init__(self, columns: Mapping[str, Any]):
        self.columns = {name: np.asarray(values) for name, values in columns.items()}
        if len({len(values) for values in self.columns.values()}) > 1:
            raise DataError("all columns must have the same length")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def num_rows(self) -> int:
        return len(self)

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, str):
            if key not in self.columns:
                known = ", ".join(name for name in self.columns if not name.startswith(ROW))
                raise ConfigError(f"there is no column '{key}' to partition by; known: {known}")
            return self.columns[key]
        return {name: values[key] for name, values in self.columns.items()}

    def unique(self, column: str) -> list[Any]:
        """Return the distinct values of a column, in order of appearance."""
        values, first = np.unique(self[column], return_index=True)
        found: list[Any] = values[np.argsort(first)].tolist()
        return found

    def select(self, indices: Sequence[int] | Rows) -> "Columns":
        """Return only these rows."""
        rows = np.asarray(indices, dtype=np.int64)
        return Columns({name: values[rows] for name, values in self.columns.items()})

    def shard(self, num_shards: int, index: int, contiguous: bool = True) -> "Columns":
        """Return one of `num_shards` even parts."""
        rows = np.arange(len(self))
        return self.select(np.array_split(rows, num_shards)[index] if contiguous else rows[index::num_shards])

    def shuffle(self, seed: int | None = None) -> "Columns":
        """Return the rows in random order."""
        return self.select(np.random.default_rng(seed).permutation(len(self)))

    def sort(self, column: str, reverse: bool = False) -> "Columns":
        """Return the rows sorted by one column."""
        order = np.argsort(self[column], kind="stable")
        return self.select(order[::-1] if reverse else order)


class Partitioner(Protocol):
    """The interface of a partitioner; `dataset` is assigned once, before anything else."""

    dataset: Any

    @property
    def num_partitions(self) -> int: ...

    def load_partition(self, partition_id: int, /) -> Any: ...


def partition_rows(partitioner: Partitioner, columns: Mapping[str, Any]) -> list[Rows]:
    """Return the rows of each partition. columns: what a partitioner may partition by, such as the label."""
    if not callable(getattr(partitioner, "load_partition", None)):
        raise ConfigError(f"a {type(partitioner).__name__} is not a partitioner: it has no load_partition")
    table = Columns(columns)
    row = ROW
    while row in table.columns:
        row += "_"
    _assign(partitioner, Columns({**table.columns, row: np.arange(len(table))}))
    count = partitioner.num_partitions
    if count < 1:
        raise ConfigError(f"num_partitions must be at least 1, not {count}")
    parts = [np.asarray(partitioner.load_partition(number)[row], dtype=np.int64) for number in range(count)]
    every = np.concatenate(parts)
    if len(np.unique(every)) != len(every):
        raise DataError(f"{type(partitioner).__name__} gave some rows to more than one client")
    for number, rows in enumerate(parts):
        if not len(rows):
            raise DataError(f"{type(partitioner).__name__} left partition {number} empty; ask for fewer partitions")
    return parts


def _assign(partitioner: Partitioner, table: Columns) -> None:
    """Assign the dataset: `Columns`, or a Hugging Face `Dataset` if the partitioner accepts nothing else."""
    kind = type(partitioner).__name__
    try:
        try:
            partitioner.dataset = table
        except TypeError:
            datasets = importlib.import_module("datasets")
            lists = {name: values.tolist() for name, values in table.columns.items()}
            partitioner.dataset = datasets.Dataset.from_dict(lists)
    except ImportError as error:
        raise ConfigError(f"a {kind} needs a Hugging Face Dataset: pip install datasets") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the {kind} rejected the rows; if it was used before, create a new one: {error}") from error


class BasePartitioner(ABC):
    """Base of this package's partitioners: the partitions are computed once for each dataset."""

    num_partitions: int
    _dataset: Any = None

    @property
    def dataset(self) -> Any:
        return self._dataset

    @dataset.setter
    def dataset(self, value: Any) -> None:
        self._dataset = value
        self.__dict__.pop("parts", None)  # computed for the previous dataset

    @abstractmethod
    def divide(self) -> list[Rows]:
        """Return the rows of each partition."""

    @cached_property
    def parts(self) -> list[Rows]:
        if self.dataset is None:
            raise ConfigError(f"{type(self).__name__} has no dataset yet: assign one first")
        return self.divide()

    def load_partition(self, partition_id: int, /) -> Any:
        """Return the rows of one partition, in the type of the dataset."""
        return self.dataset.select(self.parts[partition_id])


@dataclass
class Iid(BasePartitioner):
    """A partitioner that shuffles the rows and splits them evenly."""

    num_partitions: int
    seed: int = 0

    def divide(self) -> list[Rows]:
        _enough(self.num_partitions, len(self.dataset))
        order = stream(self.seed, "partition").permutation(len(self.dataset))
        return [np.sort(rows) for rows in np.array_split(order, self.num_partitions)]


@dataclass
class Dirichlet(BasePartitioner):
    """A partitioner that splits the rows of each value of a column in proportions drawn from a Dirichlet distribution.

    With a large `alpha` all clients have the same mix; with a small one a few clients have nearly all rows of a value.
    The draw is repeated while a client has fewer than `min_partition_size` rows.
    """

    num_partitions: int
    partition_by: str
    alpha: float
    min_partition_size: int = 10
    seed: int = 0

    def divide(self) -> list[Rows]:
        if not 0 < self.alpha <= LARGEST_ALPHA:
            raise ConfigError(f"alpha must be above 0 and at most {LARGEST_ALPHA:g}, not {self.alpha}")
        values = np.asarray(self.dataset[self.partition_by])
        _enough(self.num_partitions, len(values), self.min_partition_size)
        for attempt in range(ATTEMPTS):
            parts = self._draw(values, stream(self.seed, "partition", attempt))
            if min(len(rows) for rows in parts) >= self.min_partition_size:
                return parts
        raise ConfigError(
            f"all {ATTEMPTS} draws with alpha = {self.alpha} left a client with fewer than min_partition_size = "
            f"{self.min_partition_size} of {len(values)} rows; choose a larger alpha, fewer clients, or a smaller size"
        )

    def _draw(self, values: NDArray[Any], rng: np.random.Generator) -> list[Rows]:
        parts: list[list[Rows]] = [[] for _ in range(self.num_partitions)]
        for value in np.unique(values):
            rows = rng.permutation(np.flatnonzero(values == value))
            shares = rng.dirichlet(np.full(self.num_partitions, self.alpha))
            cuts = (np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
            for part, chosen in zip(parts, np.split(rows, cuts), strict=True):
                part.append(chosen)
        return [np.sort(np.concatenate(part)) for part in parts]


@dataclass
class NaturalId(BasePartitioner):
    """One partition for each value of a column, such as a writer or a hospital."""

    partition_by: str
    min_partition_size: int = 1  # values with fewer rows are left out

    @property
    def num_partitions(self) -> int:  # type: ignore[override]  # a result here, a setting elsewhere
        return len(self.parts)

    def divide(self) -> list[Rows]:
        values = np.asarray(self.dataset[self.partition_by])
        order = np.argsort(values, kind="stable")
        _, starts = np.unique(values[order], return_index=True)
        parts = [rows for rows in np.split(order, starts[1:]) if len(rows) >= self.min_partition_size]
        if not parts:
            raise ConfigError(f"no value of '{self.partition_by}' has {self.min_partition_size} rows")
        return parts


@dataclass
class ByGroup(BasePartitioner):
    """Clients of a single group: each value of a column gets clients in proportion to its rows, all of one size."""

    num_partitions: int
    partition_by: str
    seed: int = 0

    def divide(self) -> list[Rows]:
        values, counts = np.unique(np.asarray(self.dataset[self.partition_by]), return_counts=True)
        if self.num_partitions < len(values):
            raise ConfigError(f"{len(values)} groups need at least as many clients, not {self.num_partitions}")
        if self.num_partitions > counts.sum():
            _enough(self.num_partitions, int(counts.sum()))
        clients = apportion(tuple(counts.tolist()), self.num_partitions)
        parts: list[Rows] = []
        for place, (value, count) in enumerate(zip(values, clients, strict=True)):
            rows = np.flatnonzero(np.asarray(self.dataset[self.partition_by]) == value)
            order = stream(self.seed, "partition", place).permutation(rows)
            parts += [np.sort(chosen) for chosen in np.array_split(order, count)]
        return parts


PARTITIONERS: dict[str, type[BasePartitioner]] = {
    "iid": Iid,
    "dirichlet": Dirichlet,
    "natural_id": NaturalId,
    "by_group": ByGroup,
}


def apportion(sizes: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Return integers that sum to `total`, in proportion to `sizes` (largest remainder), each at least 1."""
    quotas = [total * size / sum(sizes) for size in sizes]
    seats = [max(1, int(quota)) for quota in quotas]
    while sum(seats) != total:
        step = 1 if sum(seats) < total else -1
        able = [place for place in range(len(sizes)) if step > 0 or seats[place] > 1]
        seats[max(able, key=lambda place: step * (quotas[place] - seats[place]))] += step
    return tuple(seats)


def held_out(rows: int, share: float) -> int:
    """Return how many of two or more rows make up a share; at least one on each side."""
    return min(max(1, round(rows * share)), rows - 1)


def split_rows(rows: Rows, share: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Split two or more rows at random into the rest and a share, such as training and test rows."""
    count = held_out(len(rows), share)
    order = rng.permutation(rows)
    return np.sort(order[count:]), np.sort(order[:count])


def _enough(num_partitions: int, rows: int, each: int = 1) -> None:
    if num_partitions < 1:
        raise ConfigError(f"num_partitions must be at least 1, not {num_partitions}")
    if num_partitions * each > rows:
        raise ConfigError(
            f"{rows} rows are too few for {num_partitions} partitions of at least {each}; ask for fewer or smaller ones"
        )
