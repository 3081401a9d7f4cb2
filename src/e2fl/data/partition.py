"""Partitioners: rules that assign rows to clients, with the argument names of Flower Datasets."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import ConfigError, DataError, require_setting
from e2fl.randomness import stream

Rows = NDArray[np.int64]
Columns = Mapping[str, NDArray[Any]]  # what to partition by, such as the label

ATTEMPTS = 100  # draws of a Dirichlet partition
LARGEST_ALPHA = 1e9  # all clients are alike long before; sums of far larger numbers overflow


class BasePartitioner(ABC):
    """Base of this package's partitioners; its settings are the fields of a dataclass."""

    @abstractmethod
    def divide(self, columns: Columns) -> list[Rows]:
        """Return the rows of each partition."""

    def clients(self, columns: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return the client of each row; columns: what to partition by, such as the label."""
        table = {name: np.asarray(values) for name, values in columns.items()}
        by = getattr(self, "partition_by", next(iter(table)))
        if by not in table:
            known = ", ".join(table)
            raise ConfigError(f"there is no column '{by}' to partition by; known: {known}")
        client = np.full(len(table[by]), -1)
        wanted, least = getattr(self, "num_partitions", 1), getattr(self, "min_partition_size", 1)
        rule = f"1 to {len(client) // least}: {len(client)} rows, {least} or more for each"
        require_setting(
            wanted >= 1 and wanted * least <= len(client), "num_partitions", rule, wanted
        )
        sizes = []
        for number, rows in enumerate(self.divide(table)):
            client[rows] = number
            sizes.append(len(rows))
        if (client < 0).any() or 0 in sizes or sizes != np.bincount(client).tolist():
            kind = type(self).__name__
            raise DataError(f"{kind} must give each row to one client, and some to every client")
        return client


@dataclass
class Iid(BasePartitioner):
    """A partitioner that shuffles the rows and splits them evenly."""

    num_partitions: int
    seed: int = 0

    def divide(self, columns: Columns) -> list[Rows]:
        rows = len(next(iter(columns.values())))
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
        rule = f"above 0 and at most {LARGEST_ALPHA:g}"
        require_setting(0 < self.alpha <= LARGEST_ALPHA, "alpha", rule, self.alpha)
        values = columns[self.partition_by]
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
        values, counts = np.unique(group, return_counts=True)
        rule = f"at least {len(values)}, the number of groups"
        require_setting(
            self.num_partitions >= len(values), "num_partitions", rule, self.num_partitions
        )
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
