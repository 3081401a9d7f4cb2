"""A data set at a glance: clients of each group, labels of groups and clients.

`summarise` counts; the summary is text, data.json of a run, and a picture. The SVG is a template:
a run draws it in milliseconds. Long names are clipped by the inner `<svg>` that holds them, and
shown whole as a tooltip.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl.data.federated import ClientId, Examples, FederatedData, GroupId

ALL_CLIENTS = "all clients"  # the name of the one group if there are none
SHOWN, COUNTED = 40, 300  # bars of clients in the picture, and clients in the counts, at most


@dataclass(frozen=True)
class DataSummary:
    """A data set at a glance."""

    name: str
    clients: int
    unseen_clients: int
    labels: tuple[str, ...]  # names of the classes
    shape: tuple[int, ...]
    mix: pd.DataFrame  # training examples of each class, by client and group, of those counted
    names: Mapping[ClientId, str]  # of the clients that were counted
    groups: Mapping[str, int]  # clients of each group; one with rows of several counts in each
    tested: Mapping[str, int]  # test examples, by group; those that clients share count once
    test: int  # test examples in all, counted in the same way
    sizes: tuple[int, ...]  # training examples of every client, or of those counted

    @property
    def headline(self) -> str:
        """The numbers of clients and classes, and the shape of an input."""
        more = f" ({self.unseen_clients} more kept out of training)" if self.unseen_clients else ""
        shape = " x ".join(map(str, self.shape))
        return f"{self.clients} clients{more}, {len(self.labels)} classes, inputs {shape}"

    def __str__(self) -> str:
        sizes = sorted(self.sizes)
        lines = [f"{self.name}: {self.headline}", "groups:"]
        lines += [f"  {name}: {count} clients" for name, count in self.groups.items()]
        spread = f"{sizes[0]} to {sizes[-1]}, median {sizes[len(sizes) // 2]}"
        return "\n".join([*lines, f"training examples of a client: {spread}"])

    def to_json(self) -> dict[str, Any]:
        """Return sizes and label counts, in total and for each group, as data.json holds them."""
        members = Counter(group for _, group in self.mix.index)
        labels = self.mix.groupby(level=1).sum()
        return {
            "clients": self.clients,
            "examples": {"train": int(self.mix.to_numpy().sum()), "test": self.test},
            "labels": list(self.labels),
            "groups": [
                {
                    "name": name,
                    "clients": members[name],
                    "train": int(labels.loc[name].to_numpy().sum()),
                    "test": self.tested[name],
                    "labels": labels.loc[name].to_numpy().tolist(),
                }
                for name in self.groups
                if name in members
            ],
            "looked_at": len(self.names),
        }

    def draw(self) -> str:
        """Return the picture as an SVG document: a bar for each group, and for some clients."""
        order = list(self.groups)
        groups = self.mix.groupby(level=1).sum().reindex(order).dropna()
        shown = _even_choice({key: key[1] for key in self.mix.index}, SHOWN)
        shown.sort(key=lambda key: order.index(key[1]))  # those of a group together
        clients, names = self.mix.loc[shown], self.names
        longest = clients.sum(axis=1).max()
        # A bar: its title, its examples of each label, and the examples of a bar of full width.
        of_groups = [
            (f"{group}: {self.groups[group]} clients", counts, counts.sum())
            for group, counts in zip(groups.index, groups.to_numpy(), strict=True)
        ]
        of_clients = [
            (names[key] if group == ALL_CLIENTS else f"{group}, {names[key]}", counts, longest)
            for (key, group), counts in zip(shown, clients.to_numpy(), strict=True)
        ]
        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("e2fl.data", ""),
            autoescape=True,
            trim_blocks=True,
            finalize=lambda value: _printable(value) if type(value) is str else value,
        )
        return environment.get_template("picture.svg.j2").render(
            data=self, groups=of_groups, clients=of_clients
        )


def summarise(data: FederatedData) -> DataSummary:
    """Summarise a data set; of many clients, some of each group are counted."""
    mix: dict[tuple[ClientId, str], NDArray[np.int64]] = {}
    tested: Counter[str] = Counter()
    tests: dict[int, Examples] = {}  # a test set of several clients counts once
    counted_tests: set[tuple[str, int]] = set()
    inside = False
    counted = _even_choice(data.population.declared, COUNTED)
    for client_id in counted:
        client = data.client(client_id)
        inside |= client.train.group is not None
        of_tests = rows_by_group(data, client.test, client.group)
        for group, rows in rows_by_group(data, client.train, client.group).items():
            mix[client_id, group] = np.bincount(client.train.y[rows], minlength=data.classes)
            whole = client.test.group is None
            if (group, id(client.test)) not in counted_tests:
                tested[group] += len(client.test if whole else of_tests.get(group, ()))
            counted_tests.add((group, id(client.test)))
        tests[id(client.test)] = client.test
    members = Counter(group for _, group in mix)
    if not inside:
        members = Counter(_group_name(data, group) for group in data.population.declared.values())
    order = [data.group_name(group) for group in range(data.population.groups)]
    counts = pd.DataFrame(list(mix.values()), index=pd.MultiIndex.from_tuples(list(mix)))
    return DataSummary(
        name=data.name,
        clients=len(data.population),
        unseen_clients=len(data.unseen()),
        labels=tuple(data.label_names or map(str, range(data.classes))),
        shape=data.shape,
        mix=counts,
        names={client_id: data.client_name(client_id) for client_id in counted},
        groups={name: members[name] for name in dict.fromkeys((*order, *members)) if members[name]},
        tested=tested,
        test=sum(map(len, tests.values())),
        sizes=data.train_sizes() or tuple(counts.sum(axis=1).groupby(level=0).sum()),
    )


def rows_by_group(
    data: FederatedData, examples: Examples, declared: GroupId | None
) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each group; all are of the declared one unless groups lie inside."""
    if examples.group is None:
        return {_group_name(data, declared): np.arange(len(examples))}
    return {
        data.group_name(int(group)): np.flatnonzero(examples.group == group)
        for group in np.unique(examples.group)
    }


def _group_name(data: FederatedData, group: GroupId | None) -> str:
    return ALL_CLIENTS if group is None else data.group_name(group)


def _even_choice(groups: Mapping[Any, Any], limit: int) -> list[Any]:
    """Return all keys, or the first one of each group and others at even distances."""
    keys = sorted(groups)
    if len(keys) <= limit:
        return keys
    first = {groups[key]: key for key in reversed(keys)}
    even = np.linspace(0, len(keys) - 1, max(1, limit - len(first))).astype(int)
    return sorted({*first.values(), *(keys[index] for index in even)})


def _printable(text: str) -> str:
    """Return the text without characters that XML does not allow."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
