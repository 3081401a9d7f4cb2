"""A data set at a glance: sample inputs, clients of each group, labels of clients; also as JSON."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.data.federated import Client, ClientId, Examples, FederatedData, GroupId

ALL_CLIENTS = "all clients"  # the name of the one group if there are none
SHOWN = 60  # clients whose labels are counted
SECONDS = 5.0  # for counting all clients; what is not counted by then is left out


@dataclass(frozen=True)
class ClientSummary:
    """The training examples of one client."""

    name: str
    group: str | None  # the one it declares
    labels: tuple[int, ...]  # examples of each class
    groups: Mapping[str, int]  # examples of each group, if groups lie inside it


@dataclass(frozen=True)
class DataSummary:
    """A data set at a glance."""

    name: str
    clients: int
    unseen_clients: int
    classes: int
    labels: tuple[str, ...]  # names of the classes
    shape: tuple[int, ...]
    clients_per_group: Mapping[str, int]  # a client with rows of several groups counts in each
    samples: Mapping[str, tuple[NDArray[np.uint8], ...]]  # grey images of each group, if any
    label_mix: Mapping[str, tuple[int, ...]]  # examples of each class, by group, of `shown`
    shown: tuple[ClientSummary, ...]  # all clients, or an even choice of them
    sizes: tuple[int, ...]  # training examples of every client, or of those shown

    @property
    def inside(self) -> bool:
        """Whether groups lie inside clients; then `clients_per_group` counts the clients shown."""
        return any(client.groups for client in self.shown)

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        lines = [f"{self.name}: {self.clients} clients, {self.classes} classes, inputs {shape}"]
        if self.unseen_clients:
            lines.append(f"{self.unseen_clients} more clients are kept out of training")
        few = len(self.shown) < self.clients
        some = f" of {len(self.shown)} shown" if self.inside and few else ""
        for group, count in self.clients_per_group.items():
            lines.append(f"  {group}: {count} clients{some}")
        if self.sizes:
            sizes = sorted(self.sizes)
            few = len(sizes) < self.clients
            some = f" ({len(sizes)} of {self.clients} clients)" if few else ""
            lines.append(
                f"training examples of a client{some}: {sizes[0]} to {sizes[-1]}, "
                f"median {sizes[len(sizes) // 2]}"
            )
        return "\n".join(lines)


def summarise(data: FederatedData, *, samples: int = 5, clients: int = SHOWN) -> DataSummary:
    """Summarise a data set; at most `clients` clients are built, one of each group at least."""
    opened = {client_id: data.client(client_id) for client_id in _picked(data, clients)}
    mix: dict[str, NDArray[np.int64]] = {}
    for client in opened.values():
        for group, rows in rows_by_group(data, client.train, client.group).items():
            counts = np.bincount(client.train.y[rows], minlength=data.classes)
            mix[group] = mix.get(group, 0) + counts
    return DataSummary(
        name=data.name,
        clients=len(data.population),
        unseen_clients=len(data.unseen()),
        classes=data.classes,
        labels=_labels(data),
        shape=data.shape,
        clients_per_group=_clients_per_group(data, opened),
        samples=_samples(data, opened, samples) if _is_image(data.shape) else {},
        label_mix={group: tuple(mix[group].tolist()) for group in _in_order(data, mix)},
        shown=tuple(_client_summary(data, client) for client in opened.values()),
        sizes=data.train_sizes() or tuple(len(client.train) for client in opened.values()),
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
        _count(groups, client, data)
        train += len(client.train)
        if not any(client.test is other for other in shared.values()):
            shared.setdefault(client.group, client.test)
            test += len(client.test)
        looked_at += 1
        if time.monotonic() > deadline:
            break
    return {
        "clients": len(data.population),
        "examples": {"train": train, "test": test},
        "labels": list(_labels(data)),
        "groups": [groups[name] for name in _in_order(data, groups)],
        "looked_at": looked_at,
    }


def _count(groups: dict[str, dict[str, Any]], client: Client, data: FederatedData) -> None:
    """Add one client to the groups it belongs to, or that lie inside it."""
    tested = rows_by_group(data, client.test, client.group)
    for name, rows in rows_by_group(data, client.train, client.group).items():
        blank = {"name": name, "clients": 0, "train": 0, "test": 0, "labels": [0] * data.classes}
        group = groups.setdefault(name, blank)
        counts = np.bincount(client.train.y[rows], minlength=data.classes)
        group["clients"] += 1
        group["train"] += len(rows)
        group["labels"] = (np.array(group["labels"]) + counts).tolist()
        group["test"] += len(client.test if client.test.group is None else tested.get(name, ()))


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


def _labels(data: FederatedData) -> tuple[str, ...]:
    return tuple(data.label_names or map(str, range(data.classes)))


def _picked(data: FederatedData, limit: int) -> list[ClientId]:
    """Return the first client of each group, and others at even distances."""
    ids = list(data.population.ids)
    if len(ids) <= limit:
        return ids
    first = {data.population.declared[client_id]: client_id for client_id in reversed(ids)}
    even = np.linspace(0, len(ids) - 1, max(1, limit - len(first))).astype(int)
    return sorted({*first.values(), *(ids[index] for index in even)})


def _group_of(data: FederatedData, group: GroupId | None) -> str:
    return ALL_CLIENTS if group is None else data.group_name(group)


def _client_summary(data: FederatedData, client: Client) -> ClientSummary:
    counts = np.bincount(client.train.y, minlength=data.classes)
    groups = {} if client.train.group is None else rows_by_group(data, client.train, client.group)
    return ClientSummary(
        data.client_name(client.id),
        None if client.group is None else data.group_name(client.group),
        tuple(counts.tolist()),
        {group: len(rows) for group, rows in groups.items()},
    )


def _clients_per_group(data: FederatedData, opened: Mapping[ClientId, Client]) -> dict[str, int]:
    if any(client.train.group is not None for client in opened.values()):
        names = [
            group
            for client in opened.values()
            for group in rows_by_group(data, client.train, client.group)
        ]
    else:
        names = [_group_of(data, declared) for declared in data.population.declared.values()]
    return {group: names.count(group) for group in _in_order(data, dict.fromkeys(names))}


def _in_order(data: FederatedData, groups: Mapping[str, object]) -> list[str]:
    """Return group names in the order of their numbers."""
    known = [data.group_name(number) for number in range(data.population.groups)]
    return [group for group in dict.fromkeys([*known, *groups]) if group in groups]


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= 4


def _samples(
    data: FederatedData, opened: Mapping[ClientId, Client], count: int
) -> dict[str, tuple[NDArray[np.uint8], ...]]:
    """Return a few images of each group, of different classes if possible."""
    chosen: dict[str, tuple[NDArray[np.uint8], ...]] = {}
    for client in opened.values():
        for group, rows in rows_by_group(data, client.train, client.group).items():
            if group in chosen or not len(rows):
                continue
            _, first = np.unique(client.train.y[rows], return_index=True)
            # One of each class first, then the others.
            order = np.concatenate([rows[first], np.setdiff1d(rows, rows[first])])[:count]
            chosen[group] = tuple(_grey(image) for image in client.train.inputs(order).numpy())
    return {group: chosen[group] for group in _in_order(data, chosen)}


def _grey(image: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return an image [channels, height, width] as bytes, from its darkest to its brightest."""
    flat = image.mean(axis=0)
    low, high = float(flat.min()), float(flat.max())
    scaled: NDArray[np.uint8] = np.rint((flat - low) / ((high - low) or 1.0) * 255).astype(np.uint8)
    return scaled
