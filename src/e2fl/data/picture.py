"""A data set as a picture: samples of each group, clients per group, and the labels of each client.

Drawn as SVG by hand, so that nothing needs to be installed for it.
"""

import base64
import colorsys
import struct
import zlib
from html import escape

import numpy as np
from numpy.typing import NDArray

from e2fl.data.facts import DataFacts

WIDTH = 900
PIXEL = 44  # side of a sample
ROW = 20
MARGIN = 24
INK, FAINT, BAR = "#222", "#666", "#3b6fb6"


def draw(facts: DataFacts) -> str:
    """The picture, as the text of an SVG file."""
    parts: list[str] = []
    y = _title(parts, facts)
    if facts.samples:
        y = _samples(parts, facts, y)
    y = _bars(parts, facts, y)
    y = _mixes(parts, facts, y)
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


def _title(parts: list[str], facts: DataFacts) -> int:
    unseen = f", {facts.unseen_clients} more kept out of training" if facts.unseen_clients else ""
    shape = " x ".join(map(str, facts.shape))
    parts.append(_text(MARGIN, 32, facts.name, size=18))
    parts.append(
        _text(MARGIN, 52, f"{facts.clients} clients{unseen}, {facts.classes} classes, inputs {shape}", colour=FAINT)
    )
    return 76


def _samples(parts: list[str], facts: DataFacts, y: int) -> int:
    parts.append(_text(MARGIN, y, "Samples of each group", size=14))
    y += 12
    for group, images in facts.samples.items():
        parts.append(_text(MARGIN, y + PIXEL // 2 + 4, group))
        for place, image in enumerate(images):
            data = base64.b64encode(png(image)).decode()
            parts.append(
                f'<image x="{MARGIN + 110 + place * (PIXEL + 6)}" y="{y}" width="{PIXEL}" height="{PIXEL}" '
                f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
            )
        y += PIXEL + 6
    return y + 24


def _bars(parts: list[str], facts: DataFacts, y: int) -> int:
    parts.append(_text(MARGIN, y, f"Clients per group{_few(facts) if facts.inside else ''}", size=14))
    y += 10
    most = max(facts.clients_per_group.values(), default=1)
    for group, count in facts.clients_per_group.items():
        length = round((WIDTH - 2 * MARGIN - 180) * count / most)
        parts.append(_text(MARGIN, y + 14, group))
        parts.append(_rect(MARGIN + 110, y + 3, max(1, length), ROW - 6, BAR))
        parts.append(_text(MARGIN + 116 + length, y + 14, str(count), colour=FAINT))
        y += ROW
    return y + 28


def _few(facts: DataFacts) -> str:
    return "" if len(facts.shown) == facts.clients else f" ({len(facts.shown)} of {facts.clients})"


def _mixes(parts: list[str], facts: DataFacts, y: int) -> int:
    few = _few(facts)
    groups = list(facts.clients_per_group)
    if facts.inside:
        rows = [(client.name, [client.groups.get(group, 0) for group in groups]) for client in facts.shown]
        y = _stacks(parts, f"Groups inside each client{few}", rows, groups, y)
    rows = [
        (client.name if client.group is None else f"{client.name} {client.group}", list(client.labels))
        for client in facts.shown
    ]
    return _stacks(parts, f"Labels of each client{few}", rows, [str(label) for label in range(facts.classes)], y)


def _stacks(parts: list[str], title: str, rows: list[tuple[str, list[int]]], kinds: list[str], y: int) -> int:
    """A bar for each row, as long as it has examples, divided by kind."""
    parts.append(_text(MARGIN, y, f"{title}: length is the number of examples", size=14))
    y += 10
    most = max((sum(counts) for _, counts in rows), default=1)
    height = max(5, min(ROW - 6, 480 // max(1, len(rows))))
    colours = _colours(len(kinds))
    for name, counts in rows:
        if height > 10:
            parts.append(_text(MARGIN, y + height - 3, name))
        x = float(MARGIN + 110)
        for kind, colour, count in zip(kinds, colours, counts, strict=True):
            length = (WIDTH - 2 * MARGIN - 110) * count / most
            if count:
                parts.append(_rect(x, y, length, height - 1, colour, f"{name}: {count} of {kind}"))
            x += length
        y += height + 1
    y += 16
    step = max(42, 26 + 7 * max(len(kind) for kind in kinds))
    for place, (kind, colour) in enumerate(zip(kinds, colours, strict=True)):
        if MARGIN + (place + 1) * step < WIDTH:
            parts.append(_rect(MARGIN + place * step, y, 12, 12, colour))
            parts.append(_text(MARGIN + 16 + place * step, y + 11, kind, colour=FAINT))
    return y + 40


def _colours(count: int) -> list[str]:
    """Colours that can be told apart, light and dark in turn."""
    found = []
    for place in range(count):
        red, green, blue = colorsys.hls_to_rgb(place / count, 0.45 + 0.2 * (place % 2), 0.6)
        found.append(f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}")
    return found


def _text(x: float, y: float, text: str, *, size: int = 12, colour: str = INK) -> str:
    short = text if len(text) <= 100 else text[:99] + "…"
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}">{escape(short)}</text>'


def _rect(x: float, y: float, width: float, height: float, colour: str, hint: str = "") -> str:
    title = f"<title>{escape(hint)}</title>" if hint else ""
    return f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" fill="{colour}">{title}</rect>'
