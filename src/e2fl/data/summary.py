"""A summary of any `FederatedData`: sample inputs, clients of each group, and the labels of clients."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from e2fl.data.federated import Client, ClientId, Examples, FederatedData, GroupId

ALL_CLIENTS = "all clients"  # the name of the one group if there are none
SHOWN = 60  # clients whose labels are counted


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
    samples: Mapping[str, tuple[NDArray[np.uint8], ...]]  # grey images of each group; none if inputs are not images
    label_mix: Mapping[str, tuple[int, ...]]  # examples of each class, by group, of the clients below
    shown: tuple[ClientSummary, ...]  # all clients, or an even choice of them
    sizes: tuple[int, ...]  # training examples of every client, or of those shown

    @property
    def inside(self) -> bool:
        """Whether groups lie inside clients; then `clients_per_group` counts the clients shown."""
        return any(client.groups for client in self.shown)


def summarise(data: FederatedData, *, samples: int = 5, clients: int = SHOWN) -> DataSummary:
    """Summarise a data set. At most `clients` clients are built, at least one of each declared group."""
    opened = {number: data.client(number) for number in _picked(data, clients)}
    shown = tuple(_client_summary(data, client) for client in opened.values())
    inside = any(client.train.group is not None for client in opened.values())
    mix: dict[str, NDArray[np.int64]] = {}
    for client in opened.values():
        for group, rows in rows_by_group(data, client.train, client.group).items():
            counts = np.bincount(client.train.y[rows], minlength=data.classes)
            mix[group] = mix.get(group, np.zeros(data.classes, dtype=np.int64)) + counts
    return DataSummary(
        name=data.name,
        clients=len(data.population),
        unseen_clients=len(data.unseen()),
        classes=data.classes,
        labels=data.label_names or tuple(str(number) for number in range(data.classes)),
        shape=data.shape,
        clients_per_group=_clients_per_group(data, opened, inside),
        samples=_samples(data, opened, samples) if _is_image(data.shape) else {},
        label_mix={group: tuple(mix[group].tolist()) for group in _in_order(data, mix)},
        shown=shown,
        sizes=data.train_sizes() or tuple(len(client.train) for client in opened.values()),
    )


def _picked(data: FederatedData, limit: int) -> list[ClientId]:
    """Return the first client of each group, and others at even distances."""
    ids = list(data.population.ids)
    if len(ids) <= limit:
        return ids
    first = {data.population.declared[number]: number for number in reversed(ids)}
    even = [ids[place] for place in np.linspace(0, len(ids) - 1, max(1, limit - len(first))).astype(int)]
    return sorted({*first.values(), *even})


def _group_of(data: FederatedData, group: GroupId | None) -> str:
    return ALL_CLIENTS if group is None else data.group_name(group)


def rows_by_group(data: FederatedData, examples: Examples, declared: GroupId | None) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each group; all are of the declared one unless groups lie inside the client."""
    if examples.group is None:
        return {_group_of(data, declared): np.arange(len(examples))}
    return {data.group_name(int(group)): np.flatnonzero(examples.group == group) for group in np.unique(examples.group)}


def _client_summary(data: FederatedData, client: Client) -> ClientSummary:
    counts = np.bincount(client.train.y, minlength=data.classes)
    groups = {} if client.train.group is None else rows_by_group(data, client.train, client.group)
    return ClientSummary(
        data.client_name(client.id),
        None if client.group is None else data.group_name(client.group),
        tuple(counts.tolist()),
        {group: len(rows) for group, rows in groups.items()},
    )


def _clients_per_group(data: FederatedData, opened: Mapping[ClientId, Client], inside: bool) -> dict[str, int]:
    found: dict[str, int] = {}
    if inside:
        for client in opened.values():
            for group in rows_by_group(data, client.train, client.group):
                found[group] = found.get(group, 0) + 1
    else:
        for declared in data.population.declared.values():
            found[_group_of(data, declared)] = found.get(_group_of(data, declared), 0) + 1
    return {group: found[group] for group in _in_order(data, found)}


def _in_order(data: FederatedData, groups: Mapping[str, object]) -> list[str]:
    """Return group names in the order of their numbers."""
    known = [data.group_name(number) for number in range(data.population.groups)]
    return [group for group in known if group in groups] + [group for group in groups if group not in known]


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
    """Return an image [channels, height, width] as bytes [height, width], scaled from its darkest to its brightest."""
    flat = image.mean(axis=0)
    low, high = float(flat.min()), float(flat.max())
    scaled: NDArray[np.uint8] = np.rint((flat - low) / ((high - low) or 1.0) * 255).astype(np.uint8)
    return scaled
