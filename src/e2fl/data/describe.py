"""A data set at a glance: sample inputs, clients of each group, labels of clients; also as JSON."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.data.federated import ClientId, Examples, FederatedData, GroupId

ALL_CLIENTS = "all clients"  # the name of the one group if there are none
SHOWN = 60  # clients whose labels are counted
SECONDS = 5.0  # for counting all clients; what is not counted by then is left out


@dataclass(frozen=True)
class ClientSummary:
    """The training examples of one client."""

    name: str
    group: str | None  # the one it declares
    labels: NDArray[np.int64]  # examples of each class
    groups: Mapping[str, int]  # examples of each group, if groups lie inside it


@dataclass(frozen=True)
class DataSummary:
    """A data set at a glance."""

    name: str
    clients: int
    unseen_clients: int
    labels: tuple[str, ...]  # names of the classes
    shape: tuple[int, ...]
    clients_per_group: Mapping[str, int]  # a client with rows of several groups counts in each
    samples: Mapping[str, tuple[NDArray[np.uint8], ...]]  # grey images of each group, if any
    label_mix: Mapping[str, NDArray[np.int64]]  # examples of each class, by group, of `shown`
    shown: tuple[ClientSummary, ...]  # all clients, or an even choice of them
    sizes: tuple[int, ...]  # training examples of every client, or of those shown

    @property
    def inside(self) -> bool:
        """Whether groups lie inside clients; then `clients_per_group` counts the clients shown."""
        return any(client.groups for client in self.shown)

    @property
    def headline(self) -> str:
        """The numbers of clients and classes, and the shape of an input."""
        more = f" ({self.unseen_clients} more kept out of training)" if self.unseen_clients else ""
        shape = " x ".join(map(str, self.shape))
        return f"{self.clients} clients{more}, {len(self.labels)} classes, inputs {shape}"

    def part(self, count: int) -> str:
        """Return "of how many", if not all clients are counted."""
        return f" ({count} of {self.clients} clients)" if count < self.clients else ""

    def __str__(self) -> str:
        some = self.part(len(self.shown)) if self.inside else ""
        groups = [f"  {name}: {count} clients" for name, count in self.clients_per_group.items()]
        lines = [f"{self.name}: {self.headline}", f"groups{some}:", *groups]
        if self.sizes:
            lines.append(
                f"training examples of a client{self.part(len(self.sizes))}: {min(self.sizes)} to "
                f"{max(self.sizes)}, median {sorted(self.sizes)[len(self.sizes) // 2]}"
            )
        return "\n".join(lines)


def summarise(data: FederatedData, *, samples: int = 5, clients: int = SHOWN) -> DataSummary:
    """Summarise a data set; at most `clients` clients are built, one of each group at least."""
    shown: list[ClientSummary] = []
    mix: dict[str, NDArray[np.int64]] = {}
    images: dict[str, tuple[NDArray[np.uint8], ...]] = {}
    for client_id in _picked(data, clients):
        client = data.client(client_id)
        y, groups = client.train.y, rows_by_group(data, client.train, client.group)
        for name, rows in groups.items():
            mix[name] = mix.get(name, 0) + np.bincount(y[rows], minlength=data.classes)
            if _is_image(data.shape) and name not in images and len(rows):
                images[name] = _samples(client.train, rows, samples)
        inside = {} if client.train.group is None else {n: len(rows) for n, rows in groups.items()}
        declared = None if client.group is None else data.group_name(client.group)
        labels = np.bincount(y, minlength=data.classes)
        shown.append(ClientSummary(data.client_name(client_id), declared, labels, inside))
    members = Counter(_group_of(data, group) for group in data.population.declared.values())
    if any(client.groups for client in shown):
        members = Counter(name for client in shown for name in client.groups)
    return DataSummary(
        name=data.name,
        clients=len(data.population),
        unseen_clients=len(data.unseen()),
        labels=_label_names(data),
        shape=data.shape,
        clients_per_group={name: members[name] for name in _in_order(data, members)},
        samples={name: images[name] for name in _in_order(data, images)},
        label_mix={name: mix[name] for name in _in_order(data, mix)},
        shown=tuple(shown),
        sizes=data.train_sizes() or tuple(int(client.labels.sum()) for client in shown),
    )


def describe(data: FederatedData, seconds: float = SECONDS) -> dict[str, Any]:
    """Return sizes and label counts, in total and for each group, as data.json holds them.

    {"clients", "examples": {"train", "test"}, "labels", "groups": [{"name", "clients", "train",
    "test", "labels"}], "looked_at"}: over the clients that were looked at, all if time allows.
    """
    deadline = time.monotonic() + seconds
    groups: dict[str, dict[str, Any]] = {}
    shared: dict[GroupId | None, Examples] = {}  # a test set of several clients counts once
    train = test = looked_at = 0
    for client_id in data.population.ids:
        client = data.client(client_id)
        tested = rows_by_group(data, client.test, client.group)
        for name, rows in rows_by_group(data, client.train, client.group).items():
            empty = {"name": name, "clients": 0, "train": 0, "test": 0, "labels": 0}
            group = groups.setdefault(name, empty)
            group["clients"] += 1
            group["train"] += len(rows)
            group["test"] += len(client.test if client.test.group is None else tested.get(name, ()))
            group["labels"] += np.bincount(client.train.y[rows], minlength=data.classes)
        train += len(client.train)
        if not any(client.test is other for other in shared.values()):
            shared.setdefault(client.group, client.test)
            test += len(client.test)
        looked_at += 1
        if time.monotonic() > deadline:
            break
    found = [groups[name] for name in _in_order(data, groups)]
    return {
        "clients": len(data.population),
        "examples": {"train": train, "test": test},
        "labels": list(_label_names(data)),
        "groups": [group | {"labels": group["labels"].tolist()} for group in found],
        "looked_at": looked_at,
    }


def rows_by_group(
    data: FederatedData, examples: Examples, declared: GroupId | None
) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each group; all are of the declared one unless groups lie inside."""
    if examples.group is None:
        return {_group_of(data, declared): np.arange(len(examples))}
    return {
        data.group_name(int(group)): np.flatnonzero(examples.group == group)
        for group in np.unique(examples.group)
    }


def _group_of(data: FederatedData, group: GroupId | None) -> str:
    return ALL_CLIENTS if group is None else data.group_name(group)


def _in_order(data: FederatedData, names: Iterable[str]) -> list[str]:
    """Return group names in the order of their numbers."""
    known = [data.group_name(group) for group in range(data.population.groups)]
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


def _label_names(data: FederatedData) -> tuple[str, ...]:
    return tuple(data.label_names or map(str, range(data.classes)))


def _picked(data: FederatedData, limit: int) -> list[ClientId]:
    """Return all clients, or the first one of each group and others at even distances."""
    ids = list(data.population.ids)
    if len(ids) <= limit:
        return ids
    first = {data.population.declared[client_id]: client_id for client_id in reversed(ids)}
    even = np.linspace(0, len(ids) - 1, max(1, limit - len(first))).astype(int)
    return sorted({*first.values(), *(ids[index] for index in even)})


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= 4


def _samples(
    examples: Examples, rows: NDArray[np.int64], count: int
) -> tuple[NDArray[np.uint8], ...]:
    """Return a few images as bytes, one of each class first, from darkest to brightest."""
    _, first = np.unique(examples.y[rows], return_index=True)
    order = np.concatenate([rows[first], np.setdiff1d(rows, rows[first])])[:count]
    grey = examples.inputs(order).numpy().mean(axis=1)
    grey -= grey.min(axis=(1, 2), keepdims=True)
    grey /= np.maximum(grey.max(axis=(1, 2), keepdims=True), 1e-9)
    return tuple(np.rint(grey * 255).astype(np.uint8))
