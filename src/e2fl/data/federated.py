"""What a federation holds: examples, clients, and the population of who is there."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e2fl.models import Params

ClientId = int
GroupId = int
Memory = MutableMapping[str, Params]


@dataclass(frozen=True)
class Population:
    """Who is there, and the group each client declares, if it does."""

    declared: Mapping[ClientId, GroupId | None]
    groups: int = 0  # how many groups there are, declared by clients or lying inside them; 0: not known

    @cached_property
    def ids(self) -> tuple[ClientId, ...]:
        """Everybody, in rising order."""
        return tuple(sorted(self.declared))

    def __len__(self) -> int:
        return len(self.declared)


@dataclass(frozen=True)
class Examples:
    """Inputs and labels; images may stay bytes until they are used."""

    x: NDArray[np.uint8] | NDArray[np.float32]  # [examples, *shape]
    y: NDArray[np.int64]  # [examples]
    group: NDArray[np.int64] | None = None  # [examples], where groups lie inside a client
    scale: float = 1.0  # what a network sees is x * scale + shift
    shift: float = 0.0

    def __len__(self) -> int:
        return len(self.y)

    def inputs(self, rows: NDArray[np.int64] | slice = slice(None)) -> Tensor:
        """What a network sees of these rows, as float32."""
        x = self.x[rows].astype(np.float32)  # always a copy: the examples are shared
        if self.scale != 1.0:
            x *= np.float32(self.scale)
        if self.shift != 0.0:
            x += np.float32(self.shift)
        return torch.from_numpy(x)

    def labels(self, rows: NDArray[np.int64] | slice = slice(None)) -> Tensor:
        return torch.from_numpy(self.y[rows].astype(np.int64))

    def take(self, rows: NDArray[np.int64]) -> "Examples":
        """The same rows only."""
        group = None if self.group is None else self.group[rows]
        return Examples(self.x[rows], self.y[rows], group, self.scale, self.shift)

    def of_group(self, group: GroupId) -> "Examples":
        """The rows of one group that lies inside the client."""
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

    def groups(self) -> list[GroupId]:
        """The groups this client has training rows of; one, none, or several inside it."""
        if self.train.group is not None:
            return [int(group) for group in np.unique(self.train.group)]
        return [] if self.group is None else [self.group]


class FederatedData(ABC):
    """A data set dealt out to clients; a client is made when it is asked for.

    Clients that share a test set share the very object, so that it need be scored only once.
    """

    name: str
    classes: int
    shape: tuple[int, ...]  # of one input
    group_names: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()  # what people call the classes; default: their numbers
    population: Population

    @abstractmethod
    def client(self, number: ClientId) -> Client:
        """The client of this number, with an empty memory."""

    def client_name(self, number: ClientId) -> str:
        """What people call this client."""
        return str(number)

    def group_name(self, number: GroupId) -> str:
        """What people call this group."""
        return self.group_names[number] if 0 <= number < len(self.group_names) else f"G{number + 1}"

    def unseen(self) -> Mapping[ClientId, Client]:
        """Clients kept out of training, to see how a newcomer fares; mostly there are none."""
        return {}

    def about(self) -> dict[str, object]:
        """Facts for the record: sizes, sources, angles, whatever tells this data from other data."""
        return {}
