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
    """The picture, as the text of an SVG file."""
    parts: list[str] = []
    y = _title(parts, summary)
    if summary.samples:
        y = _samples(parts, summary, y)
    y = _bars(parts, summary, y)
    y = _mixes(parts, summary, y)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + MARGIN}" width="{WIDTH}" '
        f'height="{y + MARGIN}" font-family="sans-serif" font-size="12" fill="{INK}">'
        f'<rect width="100%" height="100%" fill="white"/>'
    )
    return head + "".join(parts) + "</svg>\n"


def png(grey: NDArray[np.uint8]) -> bytes:
    """A grey image [height, width] as a PNG file."""
    height, width = grey.shape
    lines = np.hstack([np.zeros((height, 1), dtype=np.uint8), grey]).tobytes()

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


def _title(parts: list[str], summary: DataSummary) -> int:
    unseen = f", {summary.unseen_clients} more kept out of training" if summary.unseen_clients else ""
    shape = " x ".join(map(str, summary.shape))
    parts.append(_text(MARGIN, 32, summary.name, size=18))
    parts.append(
        _text(MARGIN, 52, f"{summary.clients} clients{unseen}, {summary.classes} classes, inputs {shape}", colour=FAINT)
    )
    return 76


def _samples(parts: list[str], summary: DataSummary, y: int) -> int:
    parts.append(_text(MARGIN, y, "Samples of each group", size=14))
    y += 12
    for group, images in summary.samples.items():
        parts.append(_text(MARGIN, y + PIXEL // 2 + 4, group, width=NAMES))
        for place, image in enumerate(images):
            data = base64.b64encode(png(image)).decode()
            parts.append(
                f'<image x="{LEFT + place * (PIXEL + 6)}" y="{y}" width="{PIXEL}" height="{PIXEL}" '
                f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
            )
        y += PIXEL + 6
    return y + 24


def _bars(parts: list[str], summary: DataSummary, y: int) -> int:
    parts.append(_text(MARGIN, y, f"Clients per group{_few(summary) if summary.inside else ''}", size=14))
    y += 10
    most = max(summary.clients_per_group.values(), default=1)
    for group, count in summary.clients_per_group.items():
        length = round((RIGHT - LEFT - 60) * count / most)
        parts.append(_text(MARGIN, y + 14, group, width=NAMES))
        parts.append(_rect(LEFT, y + 3, max(1, length), ROW - 6, BAR))
        parts.append(_text(LEFT + 6 + length, y + 14, str(count), colour=FAINT))
        y += ROW
    return y + 28


def _few(summary: DataSummary) -> str:
    return "" if len(summary.shown) == summary.clients else f" ({len(summary.shown)} of {summary.clients})"


def _mixes(parts: list[str], summary: DataSummary, y: int) -> int:
    few = _few(summary)
    groups = tuple(summary.clients_per_group)
    if summary.inside:
        mixes = [tuple(client.groups.get(group, 0) for group in groups) for client in summary.shown]
        y = _clients(parts, f"Groups inside each client{few}", summary, mixes, groups, y)
        y = _legend(parts, groups, y)
    if len(summary.label_mix) > 1:
        y = _shares(parts, f"Labels in each group{few}: shares of its examples", summary, y)
    y = _clients(
        parts, f"Labels of each client{few}", summary, [client.labels for client in summary.shown], summary.labels, y
    )
    return _legend(parts, summary.labels, y)


def _shares(parts: list[str], title: str, summary: DataSummary, y: int) -> int:
    """A bar for each group, all of one length, divided by label."""
    parts.append(_text(MARGIN, y, title, size=14))
    y += 10
    for group, counts in summary.label_mix.items():
        parts.append(_text(MARGIN, y + 14, group, width=NAMES))
        _stack(parts, y + 3, ROW - 6, group, counts, summary.labels, (RIGHT - LEFT) / max(1, sum(counts)))
        y += ROW
    return y + 28


def _clients(
    parts: list[str], title: str, summary: DataSummary, mixes: Sequence[Sequence[int]], kinds: Sequence[str], y: int
) -> int:
    """A bar for each client, with the number of its examples as length; clients of one group stand together."""
    parts.append(_text(MARGIN, y, f"{title}: length is the number of examples", size=14))
    y += 10
    each = (RIGHT - LEFT) / max([1, *(sum(counts) for counts in mixes)])
    height = max(5, min(ROW - 6, 480 // max(1, len(mixes))))
    together: dict[str | None, list[tuple[str, Sequence[int]]]] = {group: [] for group in summary.clients_per_group}
    for client, counts in zip(summary.shown, mixes, strict=True):
        together.setdefault(client.group, []).append((client.name, counts))
    named = height > 10
    for group, members in together.items():
        top, width = y, NAMES if group is None else NAMES // 2
        for name, counts in members:
            if named:
                parts.append(_text(LEFT - width - 10, y + height - 3, name, width=width))
            called = name if group is None else f"{name}, {group}"
            _stack(parts, y, height - 1, called, counts, kinds, each)
            y += height + 1
        if group is not None and members:
            end = LEFT - 8 - (width + 10 if named else 0)  # of the column of groups
            parts.append(_text(MARGIN, top + 11, group, width=end - MARGIN - 4))
            parts.append(_rect(end, top, 2, y - top - 2, FAINT))
            y = max(y, top + 14) + 4
    return y + 16


def _stack(
    parts: list[str], y: float, height: float, name: str, counts: Sequence[int], kinds: Sequence[str], each: float
) -> None:
    """One bar, divided by kind; `each` is the length of an example."""
    x = float(LEFT)
    for kind, colour, count in zip(kinds, _colours(len(kinds)), counts, strict=True):
        if count:
            parts.append(_rect(x, y, each * count, height, colour, f"{name}: {count} of {kind}"))
        x += each * count


def _legend(parts: list[str], kinds: Sequence[str], y: int) -> int:
    """The meaning of the colours, on at most `LEGEND_LINES` lines."""
    x, line = MARGIN, 1
    for place, (kind, colour) in enumerate(zip(kinds, _colours(len(kinds)), strict=True)):
        short = _short(kind, NAMES)
        width = 30 + math.ceil(_breadth(short))
        if x + width > RIGHT - (90 if line == LEGEND_LINES else 0):
            if line == LEGEND_LINES:
                parts.append(_text(x, y + 11, f"and {len(kinds) - place} more", colour=FAINT))
                break
            x, y, line = MARGIN, y + 18, line + 1
        parts.append(_rect(x, y, 12, 12, colour))
        parts.append(_text(x + 16, y + 11, short, colour=FAINT))
        x += width
    return y + 48


@cache
def _colours(count: int) -> list[str]:
    """Distinguishable colours, light and dark in turn."""
    found = []
    for place in range(count):
        red, green, blue = colorsys.hls_to_rgb(place / count, 0.45 + 0.2 * (place % 2), 0.6)
        found.append(f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}")
    return found


def _text(x: float, y: float, text: str, *, size: int = 12, colour: str = INK, width: float = RIGHT) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}">{escape(_short(text, width))}</text>'


def _rect(x: float, y: float, width: float, height: float, colour: str, hint: str = "") -> str:
    title = f"<title>{escape(_printable(hint))}</title>" if hint else ""
    return f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" fill="{colour}">{title}</rect>'


def _short(text: str, width: float) -> str:
    """A text, cut to a width in pixels."""
    shown = _printable(text)
    if _breadth(shown) <= width:
        return shown
    ends = itertools.accumulate(_breadth(sign) for sign in shown)
    return "".join(sign for sign, end in zip(shown, ends, strict=True) if end <= width - 12) + "…"


def _breadth(text: str) -> float:
    """An upper estimate of the width of a text at 12 points, in pixels."""
    wide = sum(sign in "mwMW%@…" or unicodedata.east_asian_width(sign) in "WF" for sign in text)
    upper = sum(sign.isupper() and sign not in "MW" for sign in text)
    return 12.0 * wide + 9.5 * upper + 7.5 * (len(text) - wide - upper)


def _printable(text: str) -> str:
    """A text without characters that XML does not allow."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
