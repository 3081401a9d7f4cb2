"""Data sets that are one array of rows: the rows of each client, for training, test, validation.

`validation_share` in the section `data`, or `with_validation` in Python, splits a share off each
client's training rows when the client is built. Each client draws its own rows from the seed and
its id. A client with a single training row keeps it. Whatever a data set learns from its training
rows, such as means and categories of columns, it learns before this split.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.construct import fields_of, fit
from e2fl.data.federated import Client, ClientId, Examples, FederatedData, GroupId, Population
from e2fl.data.partition import Rows, held_out, split_rows
from e2fl.errors import ConfigError, DataError
from e2fl.randomness import stream

# Settings that several data sets have.
Directory = Annotated[
    str | None, Doc("where the files are; default: E2FL_DATA, or the user's cache")
]
TestShare = Annotated[float, Doc("of each client's rows, if there is no split")]
MinSamples = Annotated[int, Doc("a client with fewer rows is an unseen client")]

TRAIN, TEST, UNDECIDED = 0, 1, 2  # the part a row belongs to; undecided if the source has no split


@dataclass(frozen=True)
class ClientRows:
    """The rows of one client."""

    name: str
    train: Rows
    test: Rows
    group: GroupId | None = None

    def all(self) -> Rows:
        """Return the training and test rows."""
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

    def __post_init__(self) -> None:
        check_settings(self)

    @cached_property
    def population(self) -> Population:  # type: ignore[override]  # known once the data is read
        declared = {number: rows.group for number, rows in enumerate(self.partitioned.clients)}
        return Population(declared, self.partitioned.groups)

    def client(self, client_id: ClientId) -> Client:
        return self._client(client_id, self.partitioned.clients[client_id])

    def client_name(self, client_id: ClientId) -> str:
        return (self.partitioned.clients + self.partitioned.unseen)[client_id].name

    def unseen(self) -> Mapping[ClientId, Client]:
        first = len(self.partitioned.clients)
        return {
            client_id: self._client(client_id, rows)
            for client_id, rows in enumerate(self.partitioned.unseen, first)
        }

    def train_sizes(self) -> tuple[int, ...]:
        return tuple(len(rows.train) for rows in self.partitioned.clients)

    def image_counts(self) -> dict[str, object]:
        """Return metadata of a data set whose clients are writers."""
        clients = self.partitioned.clients
        return {
            "train_images": sum(len(rows.train) for rows in clients),
            "test_images": sum(len(rows.test) for rows in clients),
            "writers": len(clients),
            "unseen_writers": len(self.partitioned.unseen),
        }

    @cached_property
    def _pooled_test(self) -> Examples | None:
        rows = self.partitioned.pooled_test
        return None if rows is None else self.partitioned.examples.take(rows)

    def _client(self, client_id: ClientId, rows: ClientRows) -> Client:
        examples = self.partitioned.examples
        test = examples.take(rows.test) if self._pooled_test is None else self._pooled_test
        return Client(client_id, examples.take(rows.train), test, rows.group)


def split_clients(
    client: NDArray[Any],
    split: NDArray[Any],
    *,
    test_share: float,
    seed: int,
    min_samples: int = 2,
    rows: Rows | None = None,
) -> tuple[list[ClientRows], list[ClientRows], list[ClientRows]]:
    """Return the clients, the unseen clients, and the clients without test rows, by their values.

    Undecided rows are split at random, client by client. A client with test rows but no training
    rows becomes an unseen client: half of its rows are used to find its group, the other half to
    test; a single row is a test row. A client with fewer than `min_samples` rows is unseen too, and
    then keeps the test rows of the source. rows: those to use; default: all.
    """
    clients, unseen, untested = [], [], []
    used = np.arange(len(client)) if rows is None else rows
    order = used[np.argsort(client[used], kind="stable")]
    values, starts = np.unique(client[order], return_index=True)
    for position, own in enumerate(np.split(order, starts[1:])):
        name = str(values[position])
        train, given, undecided = (own[split[own] == part] for part in (TRAIN, TEST, UNDECIDED))
        draw = stream(seed, "client test", position)
        more_train, more_test = split_rows(undecided, test_share, draw)
        train, test = np.concatenate([train, more_train]), np.concatenate([given, more_test])
        if not len(test):
            untested.append(ClientRows(name, train, test))
        elif len(train) and len(own) >= min_samples:
            clients.append(ClientRows(name, train, test))
        else:
            if not (len(train) and len(given)):
                # The stream is older than the word "unseen"; another name would draw other rows.
                draw = stream(seed, "newcomer", position)
                train, test = split_rows(np.concatenate([train, test]), 0.5, draw)
            unseen.append(ClientRows(name, train, test))
    if not clients and not untested:
        raise DataError("no client has both training and test rows")
    return clients, unseen, untested


def largest(clients: Sequence[ClientRows], count: int | None) -> tuple[ClientRows, ...]:
    """Return the clients with most rows, in their order; on ties the earlier ones."""
    by_size = sorted(clients, key=lambda rows: -len(rows.all()))
    kept = {rows.name for rows in by_size[:count]}
    return tuple(rows for rows in clients if rows.name in kept)


def check_settings(settings: Any) -> None:
    """Raise `ConfigError` unless the fields of a dataclass are of their types and in their ranges.

    A share lies between 0 and 1. An integer other than the seed is at least 1, and where one
    training and one test row are needed, 2.
    """
    for name, kind in fields_of(type(settings)).items():
        value = fit(getattr(settings, name), kind, f"data.{name}")
        least = 2 if name in ("min_samples", "rows_per_client") else 1
        if kind in (int, int | None) and name != "seed" and value is not None and value < least:
            raise ConfigError(f"data.{name} must be at least {least}, not {value}")
        if name.endswith("_share"):
            require_share(value, name, zero="validation" in name)


def require_share(share: float, setting: str, *, zero: bool = False) -> None:
    """Raise `ConfigError` unless a share lies between 0 and 1; zero: whether 0 is allowed."""
    if not (0 < share < 1 or (zero and share == 0)):
        low = "at least 0 and below 1" if zero else "between 0 and 1"
        raise ConfigError(f"data.{setting} must be {low}, not {share}")


def with_validation(data: FederatedData, share: float, *, seed: int | None = None) -> FederatedData:
    """Return the data with a share of each client's training rows as `client.validation`.

    Without a seed, the rows follow the seed of the run, and that of a single data set is 0.
    """
    require_share(share, "validation_share", zero=True)
    return ValidationSplit(data, share, seed) if share else data


@dataclass(frozen=True, eq=False)
class ValidationSplit(FederatedData):
    """A data set whose clients have validation rows. Everything else is the same as in `data`."""

    data: FederatedData
    share: float
    seed: int | None = None
    run_seed: int = 0

    def __post_init__(self) -> None:
        same = "name classes shape group_names label_names population encoding"
        for name in (*same.split(), "client_name", "group_name", "unseen"):
            vars(self)[name] = getattr(self.data, name)

    def __getattr__(self, name: str) -> Any:
        """Return attributes that only some data sets have, such as `encode` of a table."""
        if name.startswith("__") or name == "data":
            raise AttributeError(name)
        return getattr(self.data, name)

    def client(self, client_id: ClientId) -> Client:
        client = self.data.client(client_id)
        if len(client.train) < 2:
            return client
        draw = stream(
            self.run_seed if self.seed is None else self.seed, "validation rows", client_id
        )
        train, validation = split_rows(np.arange(len(client.train)), self.share, draw)
        return replace(
            client, train=client.train.take(train), validation=client.train.take(validation)
        )

    def for_seed(self, seed: int) -> FederatedData:
        return ValidationSplit(self.data.for_seed(seed), self.share, self.seed, seed)

    def train_sizes(self) -> tuple[int, ...]:
        return tuple(
            size - held_out(size, self.share) if size > 1 else size
            for size in self.data.train_sizes()
        )

    def about(self) -> dict[str, object]:
        return self.data.about() | {"validation_share": self.share}
