"""A data set as an SVG picture: samples and labels of each group, and the labels of each client.

The SVG is written directly: a run draws it in milliseconds. Long names are clipped by the inner
`<svg>` that holds them, and shown whole as a tooltip.
"""

import base64
import colorsys
import struct
import zlib
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from e2fl.data.describe import DataSummary

WIDTH = 900
PIXEL = 44  # side of a sample
ROW = 20
MARGIN = 24
NAMES = 176  # beside the bars
LEFT, RIGHT = MARGIN + NAMES + 10, WIDTH - MARGIN  # of the bars
LEGEND = (5, 70)  # names beside each other, and names in all
INK, FAINT = "#222", "#666"

Counts = Sequence[int] | NDArray[np.int64]


def draw(summary: DataSummary) -> str:
    """Return the picture as an SVG document."""
    picture = _Picture()
    some = summary.part(len(summary.shown))
    groups, labels = summary.clients_per_group, summary.labels
    picture.text(MARGIN, 32, summary.name, size=18)
    picture.text(MARGIN, 52, summary.headline, colour=FAINT)
    if summary.samples:
        picture.samples(summary.samples)
    picture.heading(f"Clients and labels of each group{some}: shares of its examples")
    for name, counts in summary.label_mix.items():
        beside = f"{name}: {groups.get(name, 0)} clients"
        picture.bar(ROW, beside, name, counts, labels, 1 / max(1, sum(counts)))
    picture.legend(labels)
    if summary.inside:
        mixes = [[client.groups.get(group, 0) for group in groups] for client in summary.shown]
        picture.clients(f"Groups inside each client{some}", summary, mixes, tuple(groups))
    mix = [client.labels for client in summary.shown]
    picture.clients(f"Labels of each client{some}", summary, mix, labels)
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

    def heading(self, text: str) -> None:
        self.text(MARGIN, self.y, text, size=14)
        self.y += 10

    def samples(self, samples: Mapping[str, Sequence[NDArray[np.uint8]]]) -> None:
        self.heading("Samples of each group")
        for group, images in samples.items():
            self.text(MARGIN, self.y + PIXEL // 2 + 4, group, width=NAMES)
            for position, image in enumerate(images):
                data = base64.b64encode(png(image)).decode()
                self.parts.append(
                    f'<image x="{LEFT + position * (PIXEL + 6)}" y="{self.y}" width="{PIXEL}" '
                    f'height="{PIXEL}" style="image-rendering:pixelated" '
                    f'href="data:image/png;base64,{data}"/>'
                )
            self.y += PIXEL + 6
        self.y += 24

    def clients(
        self, title: str, summary: DataSummary, mixes: Sequence[Counts], kinds: Sequence[str]
    ) -> None:
        """Draw a bar for each client, as long as its examples; those of a group are adjacent."""
        self.heading(f"{title}: length is the number of examples")
        unit = 1 / max([1, *(sum(counts) for counts in mixes)])
        height = max(7, min(ROW, 480 // max(1, len(mixes))))
        order = [*summary.clients_per_group, None]
        bars = sorted(
            zip(summary.shown, mixes, strict=True), key=lambda bar: order.index(bar[0].group)
        )
        group: str | None = None
        for client, counts in bars:
            name = client.name if client.group is None else f"{client.group}, {client.name}"
            first = client.group != group
            group = client.group
            self.y += 8 * first  # names of groups do not touch
            beside = name if height > 14 else group if first else None
            self.bar(height, beside or "", name, counts, kinds, unit)
        self.y += 8
        self.legend(kinds)

    def bar(
        self, height: int, beside: str, name: str, counts: Counts, kinds: Sequence[str], unit: float
    ) -> None:
        """Draw one bar, divided by kind; unit: the share of the width for an example."""
        if beside:
            self.text(MARGIN, self.y + 13, beside, width=NAMES)
        x, unit = float(LEFT), (RIGHT - LEFT) * unit
        for kind, colour, count in zip(kinds, _colours(len(kinds)), counts, strict=True):
            if count:
                hint = f"<title>{_escaped(f'{name}: {count} of {kind}')}</title>"
                size = f'width="{unit * count:.2f}" height="{height - 2}"'
                self.parts.append(
                    f'<rect x="{x:.2f}" y="{self.y + 2}" {size} fill="{colour}">{hint}</rect>'
                )
            x += unit * count
        self.y += height

    def legend(self, kinds: Sequence[str]) -> None:
        """Draw the meaning of the colours in columns."""
        columns, most = LEGEND
        width = (RIGHT - MARGIN) // columns
        self.y += 8
        for position, colour in enumerate(_colours(len(kinds))[:most]):
            x, y = MARGIN + position % columns * width, self.y + position // columns * 18
            self.parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
            self.text(x + 16, y + 11, kinds[position], colour=FAINT, width=width - 24)
        self.y += -(-min(most, len(kinds)) // columns) * 18
        if len(kinds) > most:
            self.text(MARGIN, self.y + 11, f"and {len(kinds) - most} more", colour=FAINT)
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
