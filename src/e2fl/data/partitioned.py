"""Data sets that are one array of rows, split into clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.data.federated import Client, ClientId, Examples, FederatedData, GroupId, Population
from e2fl.data.partitioners import Rows, split_rows
from e2fl.errors import DataError
from e2fl.randomness import stream

TRAIN, TEST, UNDECIDED = 0, 1, 2  # the part a row belongs to; undecided if the source has no split


@dataclass(frozen=True)
class ClientRows:
    """The rows of one client."""

    name: str
    train: Rows
    test: Rows
    group: GroupId | None = None

    def all(self) -> Rows:
        return np.concatenate([self.train, self.test])


@dataclass(frozen=True)
class Partition:
    """All rows, and the client each of them belongs to."""

    examples: Examples
    clients: tuple[ClientRows, ...]  # indexed by client id
    unseen: tuple[ClientRows, ...] = ()  # kept out of training; their ids follow those of `clients`
    groups: int = 0  # number of groups, of clients or inside them; 0: unknown
    pooled_test: Rows | None = None  # the test rows of all clients, if they share them


class PartitionedData(FederatedData):
    """A data set that is a `Partition`; the rows of a client are copied when it is asked for."""

    partitioned: Partition

    @cached_property
    def population(self) -> Population:  # type: ignore[override]  # known only once the data has been read
        declared = {client_id: rows.group for client_id, rows in enumerate(self.partitioned.clients)}
        return Population(declared, self.partitioned.groups)

    def client(self, client_id: ClientId) -> Client:
        return self._client(client_id, self.partitioned.clients[client_id])

    def client_name(self, client_id: ClientId) -> str:
        return (self.partitioned.clients + self.partitioned.unseen)[client_id].name

    def unseen(self) -> Mapping[ClientId, Client]:
        first = len(self.partitioned.clients)
        return {
            client_id: self._client(client_id, rows) for client_id, rows in enumerate(self.partitioned.unseen, first)
        }

    def train_sizes(self) -> tuple[int, ...]:
        return tuple(len(rows.train) for rows in self.partitioned.clients)

    @cached_property
    def _pooled_test(self) -> Examples | None:
        rows = self.partitioned.pooled_test
        return None if rows is None else self.partitioned.examples.take(rows)

    def _client(self, client_id: ClientId, rows: ClientRows) -> Client:
        examples = self.partitioned.examples
        test = examples.take(rows.test) if self._pooled_test is None else self._pooled_test
        return Client(client_id, examples.take(rows.train), test, rows.group)


@dataclass(frozen=True)
class SourceRows:
    """The rows of one client as the source splits them."""

    name: str
    parts: Mapping[int, Rows]  # by TRAIN, TEST and UNDECIDED

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.parts.values())


def rows_by_client(
    client: NDArray[Any], split: NDArray[Any], names: Mapping[Any, str] | None = None
) -> list[SourceRows]:
    """Return the rows of each client, ordered by the clients' values."""
    order = np.argsort(client, kind="stable")
    values, starts = np.unique(client[order], return_index=True)
    found = []
    for value, rows in zip(values.tolist(), np.split(order, starts[1:]), strict=True):
        parts = {part: rows[split[rows] == part] for part in (TRAIN, TEST, UNDECIDED)}
        found.append(SourceRows(str(value) if names is None else names[value], parts))
    return found


def split_clients(
    sources: Sequence[SourceRows], *, test_share: float, seed: int, min_samples: int = 2
) -> tuple[list[ClientRows], list[ClientRows], list[str]]:
    """Return the clients, the unseen clients, and the names of clients without test rows.

    Undecided rows are split at random, client by client. A client with test rows but no training rows becomes an unseen
    client: half of its rows are used to find its group, the other half to test; a single row is a test row. A client
    with fewer than `min_samples` rows is unseen too, and then keeps the test rows of the source.
    """
    clients, unseen, untested = [], [], []
    for place, source in enumerate(sources):
        train, test, undecided = (source.parts[part] for part in (TRAIN, TEST, UNDECIDED))
        if len(undecided) == 1:
            test = np.concatenate([test, undecided])
        elif len(undecided):
            more_train, more_test = split_rows(undecided, test_share, stream(seed, "client test", place))
            train, test = np.concatenate([train, more_train]), np.concatenate([test, more_test])
        if not len(test):
            untested.append(source.name)
        elif not len(train) or len(source) < min_samples:
            if not (len(train) and len(source.parts[TEST])):
                # The name of the stream is older than the word "unseen"; another one would draw other rows.
                rows, rng = np.concatenate([train, test]), stream(seed, "newcomer", place)
                train, test = split_rows(rows, 0.5, rng) if len(rows) > 1 else (rows[:0], rows)
            unseen.append(ClientRows(source.name, train, test))
        else:
            clients.append(ClientRows(source.name, train, test))
    if not clients and not untested:
        raise DataError("no client has both training and test rows")
    return clients, unseen, untested


def largest(clients: Sequence[ClientRows], count: int | None) -> tuple[ClientRows, ...]:
    """Return the clients with most rows, in their order; on ties the earlier ones."""
    by_size = sorted(clients, key=lambda rows: -len(rows.train) - len(rows.test))
    kept = {rows.name for rows in by_size[:count]}
    return tuple(rows for rows in clients if rows.name in kept)
