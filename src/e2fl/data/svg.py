"""A data set as an SVG picture: samples of each group, clients per group, and the labels of each client.

The SVG is written directly, so that no plotting library is needed.
"""

import base64
import colorsys
import itertools
import math
import struct
import unicodedata
import zlib
from collections.abc import Sequence
from functools import cache
from html import escape

import numpy as np
from numpy.typing import NDArray

from e2fl.data.summary import DataSummary

WIDTH = 900
PIXEL = 44  # side of a sample
ROW = 20
MARGIN = 24
NAMES = 176  # beside the bars
LEFT, RIGHT = MARGIN + NAMES + 10, WIDTH - MARGIN  # of the bars
LEGEND_LINES = 8
INK, FAINT, BAR = "#222", "#666", "#3b6fb6"


def draw(summary: DataSummary) -> str:
    """Return the picture as an SVG document."""
    picture = _Picture(summary)
    picture.title()
    if summary.samples:
        picture.samples()
    picture.clients_per_group()
    picture.mixes()
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

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


class _Picture:
    """The parts drawn so far, from top to bottom; the next one starts at `y`."""

    def __init__(self, summary: DataSummary):
        self.summary = summary
        self.parts: list[str] = []
        self.y = 0
        some = len(summary.shown) < summary.clients
        self.few = f" ({len(summary.shown)} of {summary.clients})" if some else ""

    def text(self, x: float, y: float, text: str, *, size: int = 12, colour: str = INK, width: float = RIGHT) -> None:
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}">{escape(_short(text, width))}</text>'
        )

    def rect(self, x: float, y: float, width: float, height: float, colour: str, hint: str = "") -> None:
        title = f"<title>{escape(_printable(hint))}</title>" if hint else ""
        size = f'width="{width:.2f}" height="{height}"'
        self.parts.append(f'<rect x="{x:.2f}" y="{y}" {size} fill="{colour}">{title}</rect>')

    def heading(self, text: str, below: int) -> None:
        self.text(MARGIN, self.y, text, size=14)
        self.y += below

    def title(self) -> None:
        summary = self.summary
        unseen = f", {summary.unseen_clients} more kept out of training" if summary.unseen_clients else ""
        shape = " x ".join(map(str, summary.shape))
        self.text(MARGIN, 32, summary.name, size=18)
        words = f"{summary.clients} clients{unseen}, {summary.classes} classes, inputs {shape}"
        self.text(MARGIN, 52, words, colour=FAINT)
        self.y = 76

    def samples(self) -> None:
        self.heading("Samples of each group", 12)
        for group, images in self.summary.samples.items():
            self.text(MARGIN, self.y + PIXEL // 2 + 4, group, width=NAMES)
            for place, image in enumerate(images):
                data = base64.b64encode(png(image)).decode()
                self.parts.append(
                    f'<image x="{LEFT + place * (PIXEL + 6)}" y="{self.y}" width="{PIXEL}" height="{PIXEL}" '
                    f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
                )
            self.y += PIXEL + 6
        self.y += 24

    def clients_per_group(self) -> None:
        counts = self.summary.clients_per_group
        self.heading(f"Clients per group{self.few if self.summary.inside else ''}", 10)
        for group, count in counts.items():
            length = round((RIGHT - LEFT - 60) * count / max(counts.values()))
            self.text(MARGIN, self.y + 14, group, width=NAMES)
            self.rect(LEFT, self.y + 3, max(1, length), ROW - 6, BAR)
            self.text(LEFT + 6 + length, self.y + 14, str(count), colour=FAINT)
            self.y += ROW
        self.y += 28

    def mixes(self) -> None:
        summary, groups = self.summary, tuple(self.summary.clients_per_group)
        if summary.inside:
            mixes = [tuple(client.groups.get(group, 0) for group in groups) for client in summary.shown]
            self.clients(f"Groups inside each client{self.few}", mixes, groups)
        if len(summary.label_mix) > 1:
            self.shares()
        self.clients(f"Labels of each client{self.few}", [client.labels for client in summary.shown], summary.labels)

    def shares(self) -> None:
        """Draw a bar for each group, all of one length, divided by label."""
        self.heading(f"Labels in each group{self.few}: shares of its examples", 10)
        for group, counts in self.summary.label_mix.items():
            self.text(MARGIN, self.y + 14, group, width=NAMES)
            each = (RIGHT - LEFT) / max(1, sum(counts))
            self.stack(self.y + 3, ROW - 6, group, counts, self.summary.labels, each)
            self.y += ROW
        self.y += 28

    def clients(self, title: str, mixes: Sequence[Sequence[int]], kinds: Sequence[str]) -> None:
        """Draw a bar for each client, as long as its number of examples; clients of one group are adjacent."""
        self.heading(f"{title}: length is the number of examples", 10)
        each = (RIGHT - LEFT) / max([1, *(sum(counts) for counts in mixes)])
        height = max(5, min(ROW - 6, 480 // max(1, len(mixes))))
        together: dict[str | None, list[tuple[str, Sequence[int]]]] = {g: [] for g in self.summary.clients_per_group}
        for client, counts in zip(self.summary.shown, mixes, strict=True):
            together.setdefault(client.group, []).append((client.name, counts))
        named = height > 10
        for group, members in together.items():
            top, width = self.y, NAMES if group is None else NAMES // 2
            for name, counts in members:
                if named:
                    self.text(LEFT - width - 10, self.y + height - 3, name, width=width)
                called = name if group is None else f"{name}, {group}"
                self.stack(self.y, height - 1, called, counts, kinds, each)
                self.y += height + 1
            if group is not None and members:
                end = LEFT - 8 - (width + 10 if named else 0)  # of the column of groups
                self.text(MARGIN, top + 11, group, width=end - MARGIN - 4)
                self.rect(end, top, 2, self.y - top - 2, FAINT)
                self.y = max(self.y, top + 14) + 4
        self.y += 16
        self.legend(kinds)

    def stack(
        self, y: float, height: float, name: str, counts: Sequence[int], kinds: Sequence[str], each: float
    ) -> None:
        """Draw one bar, divided by kind; `each` is the length of an example."""
        x = float(LEFT)
        for kind, colour, count in zip(kinds, _colours(len(kinds)), counts, strict=True):
            if count:
                self.rect(x, y, each * count, height, colour, f"{name}: {count} of {kind}")
            x += each * count

    def legend(self, kinds: Sequence[str]) -> None:
        """Draw the meaning of the colours, on at most `LEGEND_LINES` lines."""
        x, line = MARGIN, 1
        for place, (kind, colour) in enumerate(zip(kinds, _colours(len(kinds)), strict=True)):
            short = _short(kind, NAMES)
            width = 30 + math.ceil(_breadth(short))
            if x + width > RIGHT - (90 if line == LEGEND_LINES else 0):
                if line == LEGEND_LINES:
                    self.text(x, self.y + 11, f"and {len(kinds) - place} more", colour=FAINT)
                    break
                x, self.y, line = MARGIN, self.y + 18, line + 1
            self.rect(x, self.y, 12, 12, colour)
            self.text(x + 16, self.y + 11, short, colour=FAINT)
            x += width
        self.y += 48


@cache
def _colours(count: int) -> list[str]:
    """Return distinguishable colours, light and dark in turn."""
    found = []
    for place in range(count):
        red, green, blue = colorsys.hls_to_rgb(place / count, 0.45 + 0.2 * (place % 2), 0.6)
        found.append(f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}")
    return found


def _short(text: str, width: float) -> str:
    """Return the string, cut to a width in pixels."""
    shown = _printable(text)
    if _breadth(shown) <= width:
        return shown
    ends = itertools.accumulate(_breadth(sign) for sign in shown)
    return "".join(sign for sign, end in zip(shown, ends, strict=True) if end <= width - 12) + "…"


def _breadth(text: str) -> float:
    """Return an upper estimate of the width of a string at 12 points, in pixels."""
    wide = sum(sign in "mwMW%@…" or unicodedata.east_asian_width(sign) in "WF" for sign in text)
    upper = sum(sign.isupper() and sign not in "MW" for sign in text)
    return 12.0 * wide + 9.5 * upper + 7.5 * (len(text) - wide - upper)


def _printable(text: str) -> str:
    """Return the string without characters that XML does not allow."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
