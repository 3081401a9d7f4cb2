"""A data set as an SVG picture: samples and clients of each group, and the labels of each client.

The SVG is written directly: a run draws it in milliseconds. Long names are clipped by the inner
`<svg>` that holds them, and shown whole as a tooltip.
"""

import base64
import colorsys
import struct
import zlib
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from e2fl.data.describe import ClientSummary, DataSummary

WIDTH = 900
PIXEL = 44  # side of a sample
ROW = 20
MARGIN = 24
NAMES = 176  # beside the bars
LEFT, RIGHT = MARGIN + NAMES + 10, WIDTH - MARGIN  # of the bars
LEGEND = (5, 70)  # names beside each other, and names in all
INK, FAINT, BAR = "#222", "#666", "#3b6fb6"


def draw(summary: DataSummary) -> str:
    """Return the picture as an SVG document."""
    picture = _Picture(summary)
    picture.title()
    if summary.samples:
        picture.samples()
    picture.clients_per_group()
    if summary.inside:
        groups = tuple(summary.clients_per_group)
        mixes = [tuple(client.groups.get(group, 0) for group in groups) for client in summary.shown]
        picture.clients("Groups inside each client", mixes, groups)
    if len(summary.label_mix) > 1:
        picture.shares()
    labels = [client.labels for client in summary.shown]
    picture.clients("Labels of each client", labels, summary.labels)
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

    def __init__(self, summary: DataSummary):
        self.summary = summary
        self.parts: list[str] = []
        self.y = 76
        some = len(summary.shown) < summary.clients
        self.few = f" ({len(summary.shown)} of {summary.clients})" if some else ""

    def text(
        self, x: int, y: int, text: str, *, size: int = 12, colour: str = INK, width: int = RIGHT
    ) -> None:
        """Write a text on the baseline y, clipped to a width."""
        shown = escape(_printable(text))
        self.parts.append(
            f'<svg x="{x}" y="{y - size}" width="{width}" height="{size + 6}">'
            f"<title>{shown}</title>"
            f'<text y="{size}" font-size="{size}" fill="{colour}">{shown}</text></svg>'
        )

    def rect(
        self, x: float, y: int, width: float, height: int, colour: str, hint: str = ""
    ) -> None:
        title = f"<title>{escape(_printable(hint))}</title>" if hint else ""
        size = f'width="{width:.2f}" height="{height}"'
        self.parts.append(f'<rect x="{x:.2f}" y="{y}" {size} fill="{colour}">{title}</rect>')

    def heading(self, text: str) -> None:
        self.text(MARGIN, self.y, text, size=14)
        self.y += 10

    def title(self) -> None:
        summary = self.summary
        unseen = f", {summary.unseen_clients} more kept out of training"
        shape = " x ".join(map(str, summary.shape))
        self.text(MARGIN, 32, summary.name, size=18)
        words = (
            f"{summary.clients} clients{unseen if summary.unseen_clients else ''}, "
            f"{summary.classes} classes, inputs {shape}"
        )
        self.text(MARGIN, 52, words, colour=FAINT)

    def samples(self) -> None:
        self.heading("Samples of each group")
        for group, images in self.summary.samples.items():
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

    def clients_per_group(self) -> None:
        counts = self.summary.clients_per_group
        self.heading(f"Clients per group{self.few if self.summary.inside else ''}")
        for group, count in counts.items():
            length = max(1, round((RIGHT - LEFT - 60) * count / max(counts.values())))
            self.text(MARGIN, self.y + 14, group, width=NAMES)
            self.rect(LEFT, self.y + 3, length, ROW - 6, BAR)
            self.text(LEFT + 6 + length, self.y + 14, str(count), colour=FAINT)
            self.y += ROW
        self.y += 28

    def shares(self) -> None:
        """Draw a bar for each group, all of one length, divided by label."""
        self.heading(f"Labels in each group{self.few}: shares of its examples")
        for group, counts in self.summary.label_mix.items():
            self.text(MARGIN, self.y + 14, group, width=NAMES)
            unit = (RIGHT - LEFT) / max(1, sum(counts))
            self.stack(self.y + 3, ROW - 6, group, counts, self.summary.labels, unit)
            self.y += ROW
        self.y += 28

    def clients(self, title: str, mixes: Sequence[Sequence[int]], kinds: Sequence[str]) -> None:
        """Draw a bar for each client, as long as its examples; those of a group are adjacent."""
        self.heading(f"{title}{self.few}: length is the number of examples")
        unit = (RIGHT - LEFT) / max([1, *(sum(counts) for counts in mixes)])
        height = max(5, min(ROW - 6, 480 // max(1, len(mixes))))
        groups: dict[str | None, list[tuple[ClientSummary, Sequence[int]]]] = {
            group: [] for group in self.summary.clients_per_group
        }
        for client, counts in zip(self.summary.shown, mixes, strict=True):
            groups.setdefault(client.group, []).append((client, counts))
        for group, members in groups.items():
            top, width = self.y, NAMES if group is None else NAMES // 2
            for client, counts in members:
                if height > 10:
                    self.text(LEFT - width - 10, self.y + height - 3, client.name, width=width)
                name = client.name if group is None else f"{client.name}, {group}"
                self.stack(self.y, height - 1, name, counts, kinds, unit)
                self.y += height + 1
            if group is not None and members:
                end = LEFT - 8 - (width + 10 if height > 10 else 0)  # of the column of groups
                self.text(MARGIN, top + 11, group, width=end - MARGIN - 4)
                self.rect(end, top, 2, self.y - top - 2, FAINT)
                self.y = max(self.y, top + 14) + 4
        self.y += 16
        self.legend(kinds)

    def stack(
        self,
        y: int,
        height: int,
        name: str,
        counts: Sequence[int],
        kinds: Sequence[str],
        unit: float,
    ) -> None:
        """Draw one bar, divided by kind; unit: the length of an example."""
        x = float(LEFT)
        for kind, colour, count in zip(kinds, _colours(len(kinds)), counts, strict=True):
            if count:
                self.rect(x, y, unit * count, height, colour, f"{name}: {count} of {kind}")
            x += unit * count

    def legend(self, kinds: Sequence[str]) -> None:
        """Draw the meaning of the colours in columns."""
        columns, most = LEGEND
        width = (RIGHT - MARGIN) // columns
        for position, colour in enumerate(_colours(len(kinds))[:most]):
            x, y = MARGIN + position % columns * width, self.y + position // columns * 18
            self.rect(x, y, 12, 12, colour)
            self.text(x + 16, y + 11, kinds[position], colour=FAINT, width=width - 24)
        self.y += (min(most, len(kinds)) + columns - 1) // columns * 18
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


def _printable(text: str) -> str:
    """Return the text without characters that XML does not allow."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
