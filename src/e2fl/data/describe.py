"""A data set at a glance: sample inputs, clients of each group, labels of clients.

`describe` gives it as JSON, `summarise` as text, `draw` as a picture. The SVG is written directly:
a run draws it in milliseconds. Long names are clipped by the inner `<svg>` that holds them, and
shown whole as a tooltip.
"""

import base64
import colorsys
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl.data.federated import ClientId, Examples, FederatedData, GroupId

ALL_CLIENTS = "all clients"  # the name of the one group if there are none
SHOWN = 40  # clients whose labels are counted
SECONDS = 5.0  # for counting all clients; what is not counted by then is left out

WIDTH = 900
PIXEL = 44  # side of a sample
ROW = 16  # height of a bar
MARGIN = 24
NAMES = 176  # beside the bars
LEFT, RIGHT = MARGIN + NAMES + 10, WIDTH - MARGIN  # of the bars
LEGEND = (5, 70)  # names beside each other, and names in all
INK, FAINT = "#222", "#666"


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
    mix: pd.DataFrame  # training examples of each class, by client and group, of clients shown
    shown: Mapping[ClientId, str]  # names of all clients, or of an even choice of them
    sizes: tuple[int, ...]  # training examples of every client, or of those shown
    inside: bool  # groups lie inside clients; then `clients_per_group` counts the clients shown

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
        return "\n".join(
            [
                f"{self.name}: {self.headline}",
                f"groups{some}:",
                *groups,
                f"training examples of a client{self.part(len(self.sizes))}: {min(self.sizes)} to "
                f"{max(self.sizes)}, median {sorted(self.sizes)[len(self.sizes) // 2]}",
            ]
        )


def summarise(data: FederatedData, *, samples: int = 5, clients: int = SHOWN) -> DataSummary:
    """Summarise a data set; at most `clients` clients are built, one of each group at least."""
    mix: dict[tuple[ClientId, str], NDArray[np.int64]] = {}
    images: dict[str, tuple[NDArray[np.uint8], ...]] = {}
    shown: dict[ClientId, str] = {}
    inside = False
    for client_id in _picked(data, clients):
        client = data.client(client_id)
        inside |= client.train.group is not None
        shown[client_id] = data.client_name(client_id)
        if client.group is not None:
            shown[client_id] = f"{data.group_name(client.group)}, {shown[client_id]}"
        for name, rows in rows_by_group(data, client.train, client.group).items():
            mix[client_id, name] = np.bincount(client.train.y[rows], minlength=data.classes)
            if _is_image(data.shape) and name not in images:
                images[name] = _samples(client.train, rows, samples)
    members = Counter(_group_of(data, group) for group in data.population.declared.values())
    if inside:
        members = Counter(name for _, name in mix)
    counts = pd.DataFrame(list(mix.values()), index=pd.MultiIndex.from_tuples(list(mix)))
    return DataSummary(
        name=data.name,
        clients=len(data.population),
        unseen_clients=len(data.unseen()),
        labels=_label_names(data),
        shape=data.shape,
        clients_per_group={name: members[name] for name in _in_order(data, members)},
        samples={name: images[name] for name in _in_order(data, images)},
        mix=counts,
        shown=shown,
        sizes=data.train_sizes() or tuple(counts.sum(axis=1).groupby(level=0).sum()),
        inside=inside,
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
    ordered = [groups[name] for name in _in_order(data, groups)]
    return {
        "clients": len(data.population),
        "examples": {"train": train, "test": test},
        "labels": list(_label_names(data)),
        "groups": [group | {"labels": group["labels"].tolist()} for group in ordered],
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


def draw(summary: DataSummary) -> str:
    """Return the picture as an SVG document."""
    mix, groups, labels = summary.mix, tuple(summary.clients_per_group), summary.labels
    some = summary.part(len(summary.shown))
    picture = _Picture()
    picture.text(MARGIN, 32, summary.name, size=18)
    picture.text(MARGIN, 52, summary.headline, colour=FAINT)
    if summary.samples:
        picture.samples(summary.samples)
    by_group = mix.groupby(level=1).sum()
    by_group = by_group.loc[[group for group in groups if group in by_group.index]]
    names = [f"{group}: {summary.clients_per_group[group]} clients" for group in by_group.index]
    title = f"Clients and labels of each group{some}: shares of its examples"
    picture.bars(title, names, by_group, labels, by_group.sum(axis=1))
    # Clients of a group are adjacent.
    order = sorted(summary.shown, key=lambda client: groups.index(mix.loc[client].index[0]))
    names = [summary.shown[client] for client in order]
    tables = {"Labels of": (mix.groupby(level=0).sum(), labels)}
    if summary.inside:
        inside = mix.sum(axis=1).unstack(fill_value=0)[list(groups)]
        tables = {"Groups inside": (inside, groups)} | tables
    for what, (counts, kinds) in tables.items():
        title = f"{what} each client{some}: length is the number of examples"
        longest = pd.Series(counts.sum(axis=1).max(), order)
        picture.bars(title, names, counts.loc[order], kinds, longest)
    height = picture.y + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="{INK}">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(picture.parts)}</svg>\n'
    )


def png(grey: NDArray[np.uint8]) -> bytes:
    """Return a grey image [height, width] as a PNG file."""
    height, width = grey.shape
    lines = np.hstack([np.zeros((height, 1), dtype=np.uint8), grey]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


class _Picture:
    """The parts drawn so far, from top to bottom; the next one starts at `y`."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.y = 76

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

    def samples(self, samples: Mapping[str, Sequence[NDArray[np.uint8]]]) -> None:
        self.text(MARGIN, self.y, "Samples of each group", size=14)
        self.y += 10
        for group, images in samples.items():
            self.text(MARGIN, self.y + PIXEL // 2 + 4, group, width=NAMES)
            for position, image in enumerate(images):
                self.parts.append(
                    f'<image x="{LEFT + position * (PIXEL + 6)}" y="{self.y}" width="{PIXEL}" '
                    f'height="{PIXEL}" style="image-rendering:pixelated" '
                    f'href="data:image/png;base64,{base64.b64encode(png(image)).decode()}"/>'
                )
            self.y += PIXEL + 6
        self.y += 24

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
        colours = _colours(len(kinds))
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
        columns, limit = LEGEND
        width = (RIGHT - MARGIN) // columns
        self.y += 16
        for position, colour in enumerate(colours[:limit]):
            x, y = MARGIN + position % columns * width, self.y + position // columns * 18
            self.parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
            self.text(x + 16, y + 11, kinds[position], colour=FAINT, width=width - 24)
        self.y += -(-min(limit, len(kinds)) // columns) * 18
        if len(kinds) > limit:
            self.text(MARGIN, self.y + 11, f"and {len(kinds) - limit} more", colour=FAINT)
        self.y += 30


def _colours(count: int) -> list[str]:
    """Return distinguishable colours, light and dark in turn."""
    colours = []
    for position in range(count):
        parts = colorsys.hls_to_rgb(position / count, 0.45 + 0.2 * (position % 2), 0.6)
        colours.append("#" + "".join(f"{round(part * 255):02x}" for part in parts))
    return colours


def _escaped(text: str) -> str:
    """Return the text for XML, without characters that it does not allow."""
    return escape("".join(sign if sign.isprintable() else " " for sign in text))
