"""Partitioners: rules that assign rows to clients, with the argument names of Flower Datasets.

Flower's own partitioners work too, and so does any object with their interface: it is given a
`dataset`, a Hugging Face `Dataset`, and then returns each of its partitions.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import ConfigError, DataError
from e2fl.randomness import stream

Rows = NDArray[np.int64]
Columns = Mapping[str, NDArray[Any]]  # what to partition by, such as the label

ATTEMPTS = 100  # draws of a Dirichlet partition
LARGEST_ALPHA = 1e9  # all clients are alike long before; sums of far larger numbers overflow
ROW = " row"  # the column that numbers the rows for partitioners of others


class BasePartitioner(ABC):
    """Base of this package's partitioners; its settings are the fields of a dataclass."""

    @abstractmethod
    def divide(self, columns: Columns) -> list[Rows]:
        """Return the rows of each partition."""


def partition_rows(partitioner: Any, columns: Mapping[str, Any]) -> list[Rows]:
    """Return the rows of each partition, of a `BasePartitioner` or one with Flower's interface.

    columns: what to partition by, such as the label.
    """
    table = {name: np.asarray(values) for name, values in columns.items()}
    kind, by = type(partitioner).__name__, getattr(partitioner, "partition_by", None)
    if isinstance(by, str) and by not in table:
        raise ConfigError(f"there is no column '{by}' to partition by; known: {', '.join(table)}")
    own = isinstance(partitioner, BasePartitioner)
    parts = partitioner.divide(table) if own else _load(partitioner, table)
    if not parts or not all(map(len, parts)):
        raise DataError(f"{kind} left a partition empty; ask for fewer or smaller ones")
    chosen = np.concatenate(parts)
    if len(np.unique(chosen)) != len(chosen):
        raise DataError(f"{kind} gave some rows to more than one client")
    return parts


def _load(partitioner: Any, columns: Columns) -> list[Rows]:
    """Return the rows of each partition of another library's partitioner."""
    kind = type(partitioner).__name__
    lists = {name: values.tolist() for name, values in columns.items()}
    lists[ROW] = list(range(len(next(iter(lists.values()), ()))))
    try:
        partitioner.dataset = importlib.import_module("datasets").Dataset.from_dict(lists)
        partitions = [partitioner.load_partition(n) for n in range(partitioner.num_partitions)]
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{kind} is no partitioner, was used before, or needs `pip install datasets`: {error}"
        ) from error
    return [np.asarray(partition[ROW], dtype=np.int64) for partition in partitions]


def client_names(parts: Sequence[Rows]) -> list[str]:
    """Return the names of clients that a partitioner made: numbers of equal width."""
    width = len(str(len(parts) - 1))
    return [f"{position:0{width}}" for position in range(len(parts))]


@dataclass
class Iid(BasePartitioner):
    """A partitioner that shuffles the rows and splits them evenly."""

    num_partitions: int
    seed: int = 0

    def divide(self, columns: Columns) -> list[Rows]:
        rows = len(next(iter(columns.values())))
        _enough(self.num_partitions, rows)
        order = stream(self.seed, "partition").permutation(rows)
        return [np.sort(part) for part in np.array_split(order, self.num_partitions)]


@dataclass
class Dirichlet(BasePartitioner):
    """A partitioner that splits the rows of each value of a column in Dirichlet proportions.

    With a large `alpha` all clients have the same mix; with a small one a few clients have nearly
    all rows of a value. The draw is repeated while a client has fewer than `min_partition_size`
    rows.
    """

    num_partitions: int
    partition_by: str
    alpha: float
    min_partition_size: int = 10
    seed: int = 0

    def divide(self, columns: Columns) -> list[Rows]:
        if not 0 < self.alpha <= LARGEST_ALPHA:
            raise ConfigError(f"alpha must be above 0 and at most {LARGEST_ALPHA:g}")
        values = columns[self.partition_by]
        _enough(self.num_partitions, len(values), self.min_partition_size)
        for attempt in range(ATTEMPTS):
            parts = self._draw(values, stream(self.seed, "partition", attempt))
            if min(map(len, parts)) >= self.min_partition_size:
                return parts
        raise ConfigError(
            f"{ATTEMPTS} draws left a client with fewer than min_partition_size = "
            f"{self.min_partition_size} rows; choose a larger alpha, or fewer clients"
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
class ByGroup(BasePartitioner):
    """Clients of a single group: each value of a column gets clients in proportion to its rows."""

    num_partitions: int
    partition_by: str
    seed: int = 0

    def divide(self, columns: Columns) -> list[Rows]:
        group = columns[self.partition_by]
        _enough(self.num_partitions, len(group))
        values, counts = np.unique(group, return_counts=True)
        if self.num_partitions < len(values):
            raise ConfigError(f"{len(values)} groups need at least as many clients")
        clients = apportion(tuple(counts.tolist()), self.num_partitions)
        parts: list[Rows] = []
        for position, (value, count) in enumerate(zip(values, clients, strict=True)):
            rows = np.flatnonzero(group == value)
            order = stream(self.seed, "partition", position).permutation(rows)
            parts += [np.sort(chosen) for chosen in np.array_split(order, count)]
        return parts


PARTITIONERS: dict[str, type[BasePartitioner]] = {
    "iid": Iid,
    "dirichlet": Dirichlet,
    "by_group": ByGroup,
}


def apportion(sizes: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Return integers in proportion to `sizes` (largest remainder), each at least 1."""
    quotas = [total * size / sum(sizes) for size in sizes]
    seats = [max(1, int(quota)) for quota in quotas]
    while sum(seats) != total:
        step = 1 if sum(seats) < total else -1
        able = [index for index in range(len(sizes)) if step > 0 or seats[index] > 1]
        seats[max(able, key=lambda index: step * (quotas[index] - seats[index]))] += step
    return tuple(seats)


def held_out(rows: int, share: float) -> int:
    """Return how many of two or more rows make up a share; at least one on each side."""
    return min(max(1, round(rows * share)), rows - 1)


def split_rows(rows: Rows, share: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Split rows at random into the rest and a share, such as test rows; one row is the share."""
    if len(rows) < 2:
        return rows[:0], rows
    count = held_out(len(rows), share)
    order = rng.permutation(rows)
    return np.sort(order[count:]), np.sort(order[:count])


def _enough(num_partitions: int, rows: int, least: int = 1) -> None:
    if num_partitions < 1:
        raise ConfigError(f"num_partitions must be at least 1, not {num_partitions}")
    if num_partitions * least > rows:
        raise ConfigError(
            f"{rows} rows are too few for {num_partitions} partitions of at least {least}"
        )
