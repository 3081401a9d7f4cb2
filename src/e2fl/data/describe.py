"""A data set at a glance: clients of each group, labels of groups and clients.

`summarise` counts; the summary is text, data.json of a run, and a picture. The SVG is written
directly: a run draws it in milliseconds. Long names are clipped by the inner `<svg>` that holds
them, and shown whole as a tooltip.
"""

import colorsys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl.data.federated import ClientId, Examples, FederatedData, GroupId

ALL_CLIENTS = "all clients"  # the name of the one group if there are none
SHOWN = 40  # clients in the picture
SECONDS = 5.0  # for counting; clients that are not counted by then are left out

WIDTH = 900
ROW = 16  # height of a bar
MARGIN = 24
NAMES = 176  # beside the bars
LEFT, RIGHT = MARGIN + NAMES + 10, WIDTH - MARGIN  # of the bars
COLUMNS, LEGEND = 5, 70  # names of a legend beside each other, and in all
INK, FAINT = "#222", "#666"


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
    shown: tuple[ClientId, ...]  # the clients in the picture
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
        mix, groups = self.mix.loc[list(self.shown)], list(self.groups)
        some = self.part(len(self.shown))
        picture = _Picture()
        picture.text(MARGIN, 32, self.name, size=18)
        picture.text(MARGIN, 52, self.headline, colour=FAINT)
        by_group = mix.groupby(level=1).sum()
        by_group = by_group.loc[[group for group in groups if group in by_group.index]]
        names = [f"{group}: {self.groups[group]} clients" for group in by_group.index]
        title = f"Clients and labels of each group{some}: shares of its examples"
        picture.bars(title, names, by_group, self.labels, by_group.sum(axis=1))
        # Clients of a group are adjacent.
        order = sorted(self.shown, key=lambda client: groups.index(mix.loc[client].index[0]))
        tables = {"Labels of": (mix.groupby(level=0).sum(), self.labels)}
        if self.inside:
            counts = mix.sum(axis=1).unstack(fill_value=0).reindex(columns=groups, fill_value=0)
            tables = {"Groups inside": (counts, tuple(groups))} | tables
        for what, (counts, kinds) in tables.items():
            title = f"{what} each client{some}: length is the number of examples"
            longest = pd.Series(counts.sum(axis=1).max(), order)
            names = [self.names[client] for client in order]
            picture.bars(title, names, counts.loc[order], kinds, longest)
        return picture.document()


def summarise(
    data: FederatedData, *, clients: int = SHOWN, seconds: float = SECONDS
) -> DataSummary:
    """Summarise a data set; clients: how many are drawn. All are counted, if the time allows."""
    deadline = time.monotonic() + seconds
    shown = _even_choice(data, clients)
    mix: dict[tuple[ClientId, str], NDArray[np.int64]] = {}
    names: dict[ClientId, str] = {}
    tested: Counter[str] = Counter()
    shared: dict[GroupId | None, Examples] = {}  # a test set of several clients counts once
    test, inside = 0, False
    for client_id in dict.fromkeys((*shown, *data.population.ids)):
        if time.monotonic() > deadline and len(names) >= len(shown):
            break
        client = data.client(client_id)
        inside |= client.train.group is not None
        names[client_id] = data.client_name(client_id)
        if client.group is not None:
            names[client_id] = f"{data.group_name(client.group)}, {names[client_id]}"
        for group, rows in rows_by_group(data, client.train, client.group).items():
            mix[client_id, group] = np.bincount(client.train.y[rows], minlength=data.classes)
            rows_tested = rows_by_group(data, client.test, client.group).get(group, ())
            tested[group] += len(client.test if client.test.group is None else rows_tested)
        if not any(client.test is other for other in shared.values()):
            shared.setdefault(client.group, client.test)
            test += len(client.test)
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
        mix=counts.sort_index(level=0, sort_remaining=False),
        names=names,
        shown=tuple(shown),
        groups={name: members[name] for name in dict.fromkeys((*order, *members)) if members[name]},
        tested=tested,
        test=test,
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


def _even_choice(data: FederatedData, limit: int) -> list[ClientId]:
    """Return all clients, or the first one of each group and others at even distances."""
    ids = list(data.population.ids)
    if len(ids) <= limit:
        return ids
    first = {data.population.declared[client_id]: client_id for client_id in reversed(ids)}
    even = np.linspace(0, len(ids) - 1, max(1, limit - len(first))).astype(int)
    return sorted({*first.values(), *(ids[index] for index in even)})


class _Picture:
    """The parts drawn so far, from top to bottom; the next one starts at `y`."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.y = 76

    def document(self) -> str:
        height = self.y + MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12" '
            f'fill="{INK}"><rect width="100%" height="100%" fill="white"/>'
            f"{''.join(self.parts)}</svg>\n"
        )

    def text(
        self, x: int, y: int, text: str, *, size: int = 12, colour: str = INK, width: int = RIGHT
    ) -> None:
        """Write a text on the baseline y, clipped to a width."""
        shown = _escaped(text)
        self.parts.append(
            f'<svg x="{x}" y="{y - size}" width="{width}" height="{size + 6}">'
            f"<title>{shown}</title>"
            f'<text y="{size}" font-size="{size}" fill="{colour}">{shown}</text></svg>'
        )

    def bars(
        self,
        title: str,
        names: Sequence[str],
        table: pd.DataFrame,
        kinds: Sequence[str],
        whole: pd.Series,
    ) -> None:
        """Draw a bar for each row, divided by kind, and a legend; whole: examples of full width."""
        self.text(MARGIN, self.y, title, size=14)
        self.y += 10
        colours = [_colour(position, len(kinds)) for position in range(len(kinds))]
        for name, counts, most in zip(names, table.to_numpy(), whole, strict=True):
            self.text(MARGIN, self.y + 13, name, width=NAMES)
            widths = counts * (RIGHT - LEFT) / max(1, most)
            starts = LEFT + np.cumsum(widths) - widths
            for kind in np.flatnonzero(counts).tolist():
                hint = _escaped(f"{name}: {counts[kind]} of {kinds[kind]}")
                self.parts.append(
                    f'<rect x="{starts[kind]:.2f}" y="{self.y + 2}" width="{widths[kind]:.2f}" '
                    f'height="{ROW - 2}" fill="{colours[kind]}"><title>{hint}</title></rect>'
                )
            self.y += ROW
        self.y += 16
        width = (RIGHT - MARGIN) // COLUMNS
        more = [f"and {len(kinds) - LEGEND} more"] if len(kinds) > LEGEND else []
        for position, text in enumerate([*kinds[:LEGEND], *more]):
            x, y = MARGIN + position % COLUMNS * width, self.y + position // COLUMNS * 18
            colour = colours[position] if position < LEGEND else "none"
            self.parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
            self.text(x + 16, y + 11, text, colour=FAINT, width=width - 24)
        self.y += (min(LEGEND, len(kinds)) // COLUMNS + 1) * 18 + 30


def _colour(position: int, count: int) -> str:
    """Return one of so many distinguishable colours, light and dark in turn."""
    parts = colorsys.hls_to_rgb(position / count, 0.45 + 0.2 * (position % 2), 0.6)
    return "#" + "".join(f"{round(part * 255):02x}" for part in parts)


def _escaped(text: str) -> str:
    """Return the text for XML, without characters that it does not allow."""
    return escape("".join(sign if sign.isprintable() else " " for sign in text))
