"""A data set at a glance: clients of each group, labels of groups and clients.

`summarise` counts; the summary is text, data.json of a run, and a picture. The SVG is a template:
a run draws it in milliseconds. Long names are clipped by the inner `<svg>` that holds them, and
shown whole as a tooltip.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl.data.federated import ClientId, Examples, FederatedData, GroupId

ALL_CLIENTS = "all clients"  # the name of the one group if there are none
SHOWN, COUNTED = 40, 300  # clients in the picture, and in the counts, at most
WIDTH, LEFT, RIGHT = 900, 210, 876  # of the picture; ends of its bars
LEGEND = 70  # names of a legend


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
    tested: Mapping[str, int]  # test examples, by group
    test: int  # test examples in all; those that clients share count once
    sizes: tuple[int, ...]  # training examples of every client, or of those counted
    inside: bool  # groups lie inside clients; then `groups` is of the clients that were counted

    @property
    def headline(self) -> str:
        """The numbers of clients and classes, and the shape of an input."""
        more = f" ({self.unseen_clients} more kept out of training)" if self.unseen_clients else ""
        shape = " x ".join(map(str, self.shape))
        return f"{self.clients} clients{more}, {len(self.labels)} classes, inputs {shape}"

    def part(self, count: int) -> str:
        """Return "of how many", if not all clients are meant."""
        return f" ({count} of {self.clients} clients)" if count < self.clients else ""

    def __str__(self) -> str:
        some = self.part(len(self.names)) if self.inside else ""
        return "\n".join(
            [
                f"{self.name}: {self.headline}",
                f"groups{some}:",
                *(f"  {name}: {count} clients" for name, count in self.groups.items()),
                f"training examples of a client{self.part(len(self.sizes))}: {min(self.sizes)} to "
                f"{max(self.sizes)}, median {sorted(self.sizes)[len(self.sizes) // 2]}",
            ]
        )

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
        """Return the picture as an SVG document."""
        first = dict(reversed(list(self.mix.index)))
        shown = _even_choice(first, SHOWN)
        mix, groups = self.mix.loc[shown], list(self.groups)
        some = self.part(len(shown))
        by_group = self.mix.groupby(level=1).sum()
        by_group = by_group.loc[[group for group in groups if group in by_group.index]]
        names = [f"{group}: {self.groups[group]} clients" for group in by_group.index]
        counted = self.part(len(self.names))
        title = f"Clients and labels of each group{counted}: shares of its examples"
        charts = [_bars(title, names, by_group, self.labels, by_group.sum(axis=1))]
        tables = {"Labels of": (mix.groupby(level=0).sum(), self.labels)}
        if self.inside:
            counts = mix.sum(axis=1).unstack(fill_value=0).reindex(columns=groups, fill_value=0)
            tables = {"Groups inside": (counts, tuple(groups))} | tables
        shown.sort(key=lambda client: groups.index(first[client]))  # those of a group together
        for what, (counts, kinds) in tables.items():
            title = f"{what} each client{some}: length is the number of examples"
            longest = pd.Series(counts.sum(axis=1).max(), shown)
            names = [self.names[client] for client in shown]
            charts.append(_bars(title, names, counts.loc[shown], kinds, longest))
        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("e2fl.data", ""),
            autoescape=True,
            trim_blocks=True,
            finalize=lambda value: _printable(value) if type(value) is str else value,
        )
        template = environment.get_template("picture.svg.j2")
        return template.render(name=self.name, headline=self.headline, charts=charts, width=WIDTH)


def summarise(data: FederatedData) -> DataSummary:
    """Summarise a data set; of many clients, some of each group are counted."""
    mix: dict[tuple[ClientId, str], NDArray[np.int64]] = {}
    names: dict[ClientId, str] = {}
    tested: Counter[str] = Counter()
    tests: dict[int, Examples] = {}  # a test set of several clients counts once
    inside = False
    for client_id in _even_choice(data.population.declared, COUNTED):
        client = data.client(client_id)
        inside |= client.train.group is not None
        names[client_id] = data.client_name(client_id)
        if client.group is not None:
            names[client_id] = f"{data.group_name(client.group)}, {names[client_id]}"
        for group, rows in rows_by_group(data, client.train, client.group).items():
            mix[client_id, group] = np.bincount(client.train.y[rows], minlength=data.classes)
            rows_tested = rows_by_group(data, client.test, client.group).get(group, ())
            tested[group] += len(client.test if client.test.group is None else rows_tested)
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
        names=names,
        groups={name: members[name] for name in dict.fromkeys((*order, *members)) if members[name]},
        tested=tested,
        test=sum(map(len, tests.values())),
        sizes=data.train_sizes() or tuple(counts.sum(axis=1).groupby(level=0).sum()),
        inside=inside,
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


def _even_choice(groups: Mapping[ClientId, Any], limit: int) -> list[ClientId]:
    """Return all clients, or the first one of each group and others at even distances."""
    ids = sorted(groups)
    if len(ids) <= limit:
        return ids
    first = {groups[client_id]: client_id for client_id in reversed(ids)}
    even = np.linspace(0, len(ids) - 1, max(1, limit - len(first))).astype(int)
    return sorted({*first.values(), *(ids[index] for index in even)})


def _bars(
    title: str,
    names: Sequence[str],
    table: pd.DataFrame,
    kinds: Sequence[str],
    whole: pd.Series,
) -> dict[str, Any]:
    """Return a bar for each row, divided by kind, and a legend; whole: examples of full width."""
    # Distinguishable colours, light and dark in turn.
    colours = [
        f"hsl({360 * kind // len(kinds)}, 60%, {45 + 20 * (kind % 2)}%)"
        for kind in range(len(kinds))
    ]
    bars = []
    for name, counts, most in zip(names, table.to_numpy(), whole, strict=True):
        widths = counts * (RIGHT - LEFT) / max(1, most)
        starts = LEFT + np.cumsum(widths) - widths
        parts = [
            (f"{starts[kind]:.2f}", f"{widths[kind]:.2f}", colours[kind], counts[kind], kinds[kind])
            for kind in np.flatnonzero(counts).tolist()
        ]
        bars.append((name, parts))
    legend = list(zip(kinds, colours, strict=True))[:LEGEND]
    more = [(f"and {len(kinds) - LEGEND} more", "none")] if len(kinds) > LEGEND else []
    return {"title": title, "bars": bars, "legend": legend + more}


def _printable(text: str) -> str:
    """Return the text without characters that XML does not allow."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
