"""The data of a federation: examples, clients, and the population of clients.

`FederatedData` is a data set split into clients; `PartitionedData` is one that is a single array of
rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.construct import fields_of, fit
from e2fl.data.partition import Rows, held_out, split_rows
from e2fl.errors import DataError, require_setting
from e2fl.randomness import stream

if TYPE_CHECKING:  # commands that train nothing do without torch
    from torch import Tensor

ClientId = int
GroupId = int
# By name: a model, a tensor, a number, a boolean or a string.
Memory = MutableMapping[str, Any]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Lazy(Mapping[ClientId, Value]):
    """A value of each client, read on access: all of them may not fit into memory."""

    clients: Collection[ClientId]
    read: Callable[[ClientId], Value]

    def __getitem__(self, client: ClientId) -> Value:
        if client not in self.clients:
            raise KeyError(client)
        return self.read(client)

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.clients)

    def __len__(self) -> int:
        return len(self.clients)


@dataclass(frozen=True)
class Population:
    """The ids of all clients, and the group each of them declares, if any."""

    declared: Mapping[ClientId, GroupId | None]
    groups: int = 0  # number of groups, declared by clients or inside them; 0: unknown
    most_examples: int = 0  # training rows of the largest client; 0: unknown

    @cached_property
    def ids(self) -> tuple[ClientId, ...]:
        """All client ids, in ascending order."""
        return tuple(sorted(self.declared))

    @cached_property
    def declared_groups(self) -> Mapping[ClientId, GroupId]:
        """The groups of the clients that declare one."""
        return {client: group for client, group in self.declared.items() if group is not None}

    def __len__(self) -> int:
        return len(self.declared)


@dataclass(frozen=True)
class Examples:
    """Inputs and labels. Images may stay bytes until a network reads them."""

    x: NDArray[np.uint8] | NDArray[np.float32]  # [examples, *shape]
    y: NDArray[np.int64]  # [examples]
    group: NDArray[np.int64] | None = None  # [examples], if groups lie inside a client
    scale: float = 1.0  # the network reads x * scale + shift
    shift: float = 0.0

    def __len__(self) -> int:
        return len(self.y)

    def inputs(self, rows: NDArray[np.int64] | slice = slice(None)) -> "Tensor":
        """Return the inputs of these rows as the network reads them, in float32."""
        import torch

        x = self.x[rows].astype(np.float32)  # always a copy: the examples are shared
        if self.scale != 1.0:
            x *= np.float32(self.scale)
        if self.shift != 0.0:
            x += np.float32(self.shift)
        return torch.from_numpy(x)

    def labels(self, rows: NDArray[np.int64] | slice = slice(None)) -> "Tensor":
        """Return the labels of these rows."""
        import torch

        return torch.from_numpy(self.y[rows].astype(np.int64))

    def take(self, rows: NDArray[np.int64]) -> "Examples":
        """Return a copy with only these rows."""
        group = None if self.group is None else self.group[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], group=group)

    def of_group(self, group: GroupId) -> "Examples":
        """Return the rows of one group inside the client."""
        assert self.group is not None
        return self.take(np.flatnonzero(self.group == group))


@dataclass(frozen=True)
class Client:
    """One participant: its data, the group it declares, and what it keeps between rounds."""

    id: ClientId
    train: Examples
    test: Examples
    group: GroupId | None = None
    memory: Memory = field(default_factory=dict)  # never sent
    validation: Examples | None = None  # split off the training rows by `validation_share`

    def groups(self) -> list[GroupId]:
        """Return the groups of this client's training rows: none, one, or several inside it."""
        if self.train.group is not None:
            return [int(group) for group in np.unique(self.train.group)]
        return [] if self.group is None else [self.group]


class FederatedData(ABC):
    """A data set split into clients; a client is built when it is asked for.

    Clients with a common test set must share one `Examples` object, so that it is scored only once.
    """

    name: str
    classes: int
    shape: tuple[int, ...]  # of one input
    group_names: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()  # names of the classes; default: their numbers
    population: Population
    encoding: Any = None  # an `Encoding`, if the cells of a table became inputs

    @abstractmethod
    def client(self, client_id: ClientId) -> Client:
        """Return the client with this id, with an empty memory."""

    def client_name(self, client_id: ClientId) -> str:
        """Return the display name of a client."""
        return str(client_id)

    def group_name(self, group: GroupId) -> str:
        """Return the display name of a group."""
        return self.group_names[group] if 0 <= group < len(self.group_names) else f"G{group + 1}"

    def unseen(self) -> Mapping[ClientId, Client]:
        """Return the unseen clients: they never train, and show how others are served."""
        return {}

    def for_seed(self, seed: int) -> "FederatedData":
        """Return the data that a run with this seed uses; the same unless rows are split at random.

        Data made in Python without a seed of its own is split anew, as a configuration splits it.
        """
        return self

    def train_sizes(self) -> tuple[int, ...]:
        """Return the training rows of every client; () if unknown until the clients are built."""
        return ()

    def sized_population(self) -> Population:
        """Return the population with the size of the largest client, where it is known."""
        return replace(self.population, most_examples=max(self.train_sizes(), default=0))

    def about(self) -> dict[str, object]:
        """Return metadata for the record of a run: sizes, sources, angles."""
        return {}


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

    def about(self) -> dict[str, object]:
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
    client: NDArray[np.int64],
    *,
    seed: int,
    test_share: float,
    split: NDArray[np.int64] | None = None,
    names: Sequence[str] | None = None,
    group: NDArray[np.int64] | None = None,
    min_samples: int = 2,
) -> tuple[list[ClientRows], list[ClientRows], list[ClientRows]]:
    """Return the clients, the unseen clients, and the clients without test rows, by their numbers.

    client: of each row; -1 for rows that are not used. Undecided rows are split at random, client
    by client. A client with test rows but no training rows becomes an unseen client: half of its
    rows are used to find its group, the other half to test; a single row is a test row. A client
    with fewer than `min_samples` rows is unseen too, and then keeps the test rows of the source.
    group: that clients declare, of each row.
    """
    clients: list[ClientRows] = []
    unseen: list[ClientRows] = []
    untested: list[ClientRows] = []
    split = np.full(len(client), UNDECIDED) if split is None else split
    used = np.flatnonzero(client >= 0)
    order = used[np.argsort(client[used], kind="stable")]
    numbers, starts = np.unique(client[order], return_index=True)
    for position, own in enumerate(np.split(order, starts[1:])):
        train, given, undecided = (own[split[own] == part] for part in (TRAIN, TEST, UNDECIDED))
        draw = stream(seed, "client test", position)
        more_train, more_test = split_rows(undecided, test_share, draw)
        train, test = np.concatenate([train, more_train]), np.concatenate([given, more_test])
        kind = clients if len(train) and len(own) >= min_samples else unseen
        if not len(test):
            kind = untested
        elif kind is unseen and not (len(train) and len(given)):
            # The stream is older than the word "unseen"; another name would draw other rows.
            draw = stream(seed, "newcomer", position)
            train, test = split_rows(np.concatenate([train, test]), 0.5, draw)
        name = str(numbers[position]) if names is None else names[numbers[position]]
        kind.append(ClientRows(name, train, test, None if group is None else int(group[own[0]])))
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
        if kind in (int, int | None) and name != "seed" and value is not None:
            least = 2 if name in ("min_samples", "rows_per_client") else 1
            require_setting(value >= least, f"data.{name}", f"at least {least}", value)
        if name.endswith("_share"):
            require_share(value, name, zero="validation" in name)


def require_share(share: float, setting: str, *, zero: bool = False) -> None:
    """Raise `ConfigError` unless a share lies between 0 and 1; zero: whether 0 is allowed."""
    rule = "at least 0 and below 1" if zero else "between 0 and 1"
    require_setting(0 < share < 1 or (zero and share == 0), f"data.{setting}", rule, share)


def with_validation(
    data: FederatedData, share: float, *, seed: int | None = None, run_seed: int = 0
) -> FederatedData:
    """Return the data with a share of each client's training rows as `client.validation`.

    They are drawn for each client by the seed and its id; without a seed, by that of the run. A
    client with a single training row keeps it. What a data set learns from its training rows, such
    as means and categories of columns, it learns before this split.
    """
    require_share(share, "validation_share", zero=True)
    if not share:
        return data

    def client(client_id: ClientId) -> Client:
        whole = data.client(client_id)
        if len(whole.train) < 2:
            return whole
        draw = stream(run_seed if seed is None else seed, "validation rows", client_id)
        rows, held = split_rows(np.arange(len(whole.train)), share, draw)
        return replace(whole, train=whole.train.take(rows), validation=whole.train.take(held))

    def train_sizes() -> tuple[int, ...]:
        sizes = data.train_sizes()
        return tuple(size - held_out(size, share) if size > 1 else size for size in sizes)

    population = data.population  # whatever has to be read for it is read once
    split = copy(data)
    vars(split).update(
        population=population,
        client=client,
        train_sizes=train_sizes,
        unseen=data.unseen,
        for_seed=lambda new: with_validation(data.for_seed(new), share, seed=seed, run_seed=new),
        about=lambda: data.about() | {"validation_share": share},
    )
    return split
