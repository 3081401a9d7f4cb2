"""The data of a federation: examples, clients, and the population of clients."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

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
        return Examples(self.x[rows], self.y[rows], group, self.scale, self.shift)

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
