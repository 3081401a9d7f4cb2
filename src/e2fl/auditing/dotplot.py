"""Static SVG plots: every group named, sorted, with its interval and size. Readable in grey and on a phone.

Each plot is drawn twice, wide and narrow; the style sheet shows the one that fits. Text keeps its size that way.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from e2fl.auditing.clients import ClientSpread
from e2fl.auditing.judging import FOUR_FIFTHS, GroupRate, RateTable
from e2fl.auditing.wording import plain, ratio, shown, whole

MOST_ROWS = 400
ROW, TOP, BOTTOM = 30, 34, 30
WIDE, NARROW = 700, 330
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2127; } .small { font-size: 11.5px; fill: #535d69; }
.grid { stroke: #d9dde2; } .axis { stroke: #535d69; } .line { stroke-width: 2.5; }
.plain { stroke: #0072b2; fill: #0072b2; } .low { stroke: #b54700; fill: #b54700; }
.few { stroke: #5b6470; fill: #ffffff; stroke-width: 2; } .overall { stroke: #535d69; stroke-dasharray: 5 3; }
.fifths { stroke: #b54700; stroke-dasharray: 2 3; stroke-width: 1.6; } .bar { fill: #0072b2; }
"""


def safe(name: str, most: int = 200) -> str:
    """Return a name without control characters and direction overrides, cut to a bearable length."""
    clean = "".join(letter if unicodedata.category(letter) not in ("Cc", "Cf", "Cs") else "\ufffd" for letter in name)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


@dataclass(frozen=True)
class Mark:
    """A row of a plot."""

    row: GroupRate
    kind: str  # plain, low or few
    note: str


def marks(table: RateTable) -> list[Mark]:
    """Return the rows with a value, most favourable first; rows that are not judged are marked as such."""
    sign = -1 if table.rate.better < 0 else 1
    found = []
    for row in sorted(table.rows, key=lambda row: -sign * row.value if not math.isnan(row.value) else math.inf):
        if math.isnan(row.value):
            continue
        value = shown(row.value, table.unit)
        if row.status:
            found.append(Mark(row, "few", f"{value}, {row.status}"))
        elif table.rate.four_fifths and not math.isnan(row.ratio):
            below = row.ratio < FOUR_FIFTHS
            text = f"ratio {ratio(row.ratio)}{', below 0.8' if below else ''}"
            found.append(Mark(row, "low" if below else "plain", f"{value}, {text}"))
        else:
            worse = sign * (row.value - table.overall.value) < 0 and row.p_holm < 0.05 and table.rate.better != 0
            found.append(Mark(row, "low" if worse else "plain", value))
    return found


def dot_plot(table: RateTable, *, narrow: bool = False, standalone: bool = False) -> str:
    """Return the plot of one rate as an SVG element."""
    rows = marks(table)
    if not rows:
        return ""
    rows = rows if len(rows) <= MOST_ROWS else [*rows[: MOST_ROWS // 2], *rows[-MOST_ROWS // 2 :]]
    width = NARROW if narrow else WIDE
    height = 46 if narrow else ROW
    longest = max(len(_label(mark, table, 34)) for mark in rows)
    left = 8 if narrow else min(300, int(6.9 * longest) + 16)
    right = width - (12 if narrow else 168)
    scale = _Scale(table, rows, left + 8, right)
    fifths = _fifths(table)
    bottom = TOP + height * len(rows)
    parts = [_axis(scale, bottom, table.unit), _lines(table, scale, fifths, bottom)]
    for place, mark in enumerate(rows):
        parts.append(_row(mark, table, scale, TOP + height * place, height, left, right, narrow))
    title = f"{table.rate.title} by {table.grouping}: {len(rows)} groups, sorted, with 95 % intervals"
    style = f"<style>{STYLE}</style>" if standalone else ""
    space = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    size = f'width="{width}" height="{bottom + BOTTOM}" viewBox="0 0 {width} {bottom + BOTTOM}"'
    kind = "narrow" if narrow else "wide"
    name = escape(safe(title, 300), quote=True)
    return f'<svg{space} class="dots {kind}" role="img" aria-label="{name}" {size}>{style}{"".join(parts)}</svg>'


class _Scale:
    """Values to pixels, with round ticks."""

    def __init__(self, table: RateTable, rows: Sequence[Mark], left: float, right: float):
        values = [mark.row.value for mark in rows]
        for mark in rows:
            values += [limit for limit in (mark.row.low, mark.row.high) if not math.isnan(limit)]
        if not math.isnan(table.overall.value):
            values.append(table.overall.value)
        low, high = min(values), max(values)
        reach = (high - low) or max(abs(high), 1e-9) * 0.1
        low, high = low - 0.04 * reach, high + 0.04 * reach
        if table.unit == "%":
            low, high = max(-0.01, low), min(1.01, high)
        self.low, self.high, self.left, self.right = low, high, left, right
        self.step = _step((high - low) / (4 if right - left < 330 else 6))

    def __call__(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.left + share * (self.right - self.left), 1)

    def ticks(self) -> list[float]:
        first = math.ceil(self.low / self.step - 1e-9)
        last = math.floor(self.high / self.step + 1e-9)
        return [place * self.step for place in range(first, last + 1)]


def _step(wish: float) -> float:
    power = 10 ** math.floor(math.log10(wish)) if wish > 0 else 1.0
    return next((factor * power for factor in (1, 2, 5) if factor * power >= wish * 0.999), 10 * power)


def _axis(scale: _Scale, bottom: float, unit: str) -> str:
    parts = []
    digits = 0 if scale.step >= 0.0099 else 1
    for value in scale.ticks():
        x = scale(value)
        text = f"{100 * value:.{digits}f}" if unit == "%" else plain(value)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{bottom}"/>')
        parts.append(f'<text class="small" x="{x}" y="{bottom + 16}" text-anchor="middle">{text}</text>')
    parts.append(f'<line class="axis" x1="{scale.left}" x2="{scale.right}" y1="{bottom}" y2="{bottom}"/>')
    return "".join(parts)


def _fifths(table: RateTable) -> float:
    base = next((row.value for row in table.rows if row.group == table.reference), math.nan)
    return FOUR_FIFTHS * base if table.rate.four_fifths else math.nan


def _lines(table: RateTable, scale: _Scale, fifths: float, bottom: float) -> str:
    """Return the overall line and the four-fifths line, each with its name above."""
    parts = []
    overall = table.overall.value
    if not math.isnan(overall):
        x = scale(overall)
        text = f"all {shown(overall, table.unit)}"
        parts.append(f'<line class="overall" x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{bottom}"/>')
        parts.append(_above(text, x, 12, scale))
    if not math.isnan(fifths) and scale.low <= fifths <= scale.high:
        x = scale(fifths)
        parts.append(f'<line class="fifths" x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{bottom}"/>')
        parts.append(_above("80 % of the reference", x, 25, scale))
    return "".join(parts)


def _above(text: str, x: float, y: float, scale: _Scale) -> str:
    """Return a text above the plot that stays inside it."""
    half = 3.1 * len(text)
    anchor = "start" if x - half < scale.left else "end" if x + half > scale.right + 20 else "middle"
    return f'<text class="small" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _label(mark: Mark, table: RateTable, most: int) -> str:
    of_clients = table.rate.hits == table.rate.base  # a measure: its rows are clients
    count = (
        f"{whole(mark.row.base)} client{'' if mark.row.base == 1 else 's'}"
        if of_clients
        else f"n={whole(mark.row.base)}"
    )
    return f"{safe(mark.row.group, most)} ({count})"


def _narrow_label(mark: Mark) -> str:
    """Return the name and the size, cut so that the value beside them has room."""
    count = f" ({whole(mark.row.base)})"
    room = (NARROW - 22 - 6.3 * len(_short(mark, narrow=True))) / 7.0
    return safe(mark.row.group, max(8, int(room) - len(count))) + count


def _row(
    mark: Mark, table: RateTable, scale: _Scale, top: float, height: float, left: float, right: float, narrow: bool
) -> str:
    row = mark.row
    y = 34 if narrow else height / 2
    x = scale(row.value)
    label = escape(_narrow_label(mark) if narrow else _label(mark, table, 34))
    spoken = escape(f"{safe(row.group)}: {mark.note}")
    parts = [f"<title>{spoken}</title>"]
    if narrow:
        parts.append(f'<text x="{left}" y="17">{label}</text>')
        parts.append(
            f'<text class="small" x="{NARROW - 6}" y="17" text-anchor="end">{escape(_short(mark, narrow=True))}</text>'
        )
    else:
        parts.append(f'<text x="{left}" y="{y + 4}" text-anchor="end">{label}</text>')
        parts.append(f'<text class="small" x="{right + 14}" y="{y + 4}">{escape(_short(mark))}</text>')
    if not math.isnan(row.low) and not math.isnan(row.high):
        ends = f'x1="{scale(row.low)}" x2="{scale(row.high)}"'
        parts.append(f'<line class="line {mark.kind}" {ends} y1="{y}" y2="{y}"/>')
    if mark.kind == "low":  # a diamond: the shape tells it apart without colour
        parts.append(f'<path class="low" d="M{x - 6} {y}L{x} {y - 6}L{x + 6} {y}L{x} {y + 6}Z"/>')
    else:
        parts.append(f'<circle class="{mark.kind}" cx="{x}" cy="{y}" r="5.2"/>')
    data = f'data-value="{row.value:.6g}" data-n="{row.n:.6g}" data-name="{escape(safe(row.group), quote=True)}"'
    return f'<g class="row" {data} transform="translate(0 {top})">{"".join(parts)}</g>'


def _short(mark: Mark, narrow: bool = False) -> str:
    text = mark.note.replace("ratio ", "").replace("too few rows", "too few").replace("too few clients", "too few")
    return text.replace(", below 0.8", "") if narrow else text  # on a phone, the diamond has to do


def histogram(spread: ClientSpread, *, narrow: bool = False) -> str:
    """Return how many clients have which value, as an SVG element."""
    low, high = float(spread.value.min()), float(spread.value.max())
    if high <= low:
        return ""
    bins = 12 if narrow else 24
    width, height = (NARROW if narrow else WIDE), 190
    edges = [low + (high - low) * place / bins for place in range(bins + 1)]
    counts = [0] * bins
    for value in spread.value.tolist():
        counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
    left, right, top, bottom = 40, width - 12, 12, height - 28
    most = max(counts)
    parts = []
    step = (right - left) / bins
    for place, number in enumerate(counts):
        tall = (bottom - top) * number / most
        unit = "%" if spread.is_rate else ""
        title = f"{shown(edges[place], unit)} to {shown(edges[place + 1], unit)}: {number:,} clients"
        x, y = round(left + place * step + 1, 1), round(bottom - tall, 1)
        size = f'x="{x}" y="{y}" width="{step - 2:.1f}" height="{tall:.1f}"'
        parts.append(f'<rect class="bar" {size}><title>{title}</title></rect>')
    for place in (0, bins // 2, bins):
        anchor = "start" if place == 0 else "end" if place == bins else "middle"
        text = shown(edges[place], "%" if spread.is_rate else "")
        x = left + place * step
        parts.append(f'<text class="small" x="{x:.1f}" y="{bottom + 18}" text-anchor="{anchor}">{text}</text>')
    parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text class="small" x="{left - 6}" y="{top + 8}" text-anchor="end">{most:,}</text>')
    name = escape(f"Number of clients by {safe(spread.title).lower()}", quote=True)
    kind = "narrow" if narrow else "wide"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg class="dots {kind}" role="img" aria-label="{name}" {size}>{"".join(parts)}</svg>'
