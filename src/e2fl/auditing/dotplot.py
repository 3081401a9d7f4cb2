"""Static SVG plots: every group named, sorted, with its interval and size. Readable in grey and on a phone.

Each plot is drawn twice, wide and narrow; the style sheet shows the one that fits. Text keeps its size that way. What
stands where is computed here; plots.svg.j2 draws it.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from e2fl.auditing.clients import ClientSpread
from e2fl.auditing.judging import FOUR_FIFTHS, GroupRate, RateTable
from e2fl.auditing.wording import noun, plain, ratio, shown, whole
from e2fl.templates import asset, environment, round_step

MOST_ROWS = 400
ROW, NARROW_ROW, TOP, BOTTOM = 30, 46, 34, 30
WIDE, NARROW = 700, 330


def safe(name: str, most: int = 200) -> str:
    """Return a name without control characters and direction overrides, cut to a length that fits."""
    clean = "".join(letter if unicodedata.category(letter) not in ("Cc", "Cf", "Cs") else "\ufffd" for letter in name)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


@dataclass(frozen=True)
class Mark:
    """A row of a plot."""

    row: GroupRate
    kind: str  # plain, low or few
    note: str

    def short(self, narrow: bool) -> str:
        text = self.note.replace("ratio ", "").replace("too few rows", "too few").replace("too few clients", "too few")
        return text.replace(", below 0.8", "") if narrow else text  # on a phone, the diamond has to do

    def label(self, table: RateTable) -> str:
        of_clients = table.rate.hits == table.rate.base  # a measure: its rows are clients
        count = noun(self.row.base, "client") if of_clients else f"n={whole(self.row.base)}"
        return f"{safe(self.row.group, 34)} ({count})"

    def narrow_label(self) -> str:
        """Return the name and the size, cut so that the value beside them has room."""
        count = f" ({whole(self.row.base)})"
        room = (NARROW - 22 - 6.3 * len(self.short(narrow=True))) / 7.0
        return safe(self.row.group, max(8, int(room) - len(count))) + count


def marks(table: RateTable) -> list[Mark]:
    """Return the rows with a value, most favourable first; rows that are not judged are marked as such."""
    sign = -1 if table.rate.better < 0 else 1
    found = []
    for row in sorted((row for row in table.rows if not math.isnan(row.value)), key=lambda row: -sign * row.value):
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


class _Scale:
    """Values to pixels, with round ticks."""

    def __init__(self, table: RateTable, rows: Sequence[Mark], left: float, right: float):
        values = [end for mark in rows for end in (mark.row.value, mark.row.low, mark.row.high)]
        known = [value for value in (*values, table.overall.value) if not math.isnan(value)]
        low, high = min(known), max(known)
        reach = (high - low) or max(abs(high), 1e-9) * 0.1
        low, high = low - 0.04 * reach, high + 0.04 * reach
        if table.unit == "%":
            low, high = max(-0.01, low), min(1.01, high)
        self.low, self.high, self.left, self.right = low, high, left, right
        self.step = round_step((high - low) / (4 if right - left < 330 else 6))

    def __call__(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.left + share * (self.right - self.left), 1)

    def ticks(self, unit: str) -> list[tuple[float, str]]:
        """Return the place of each tick and its text."""
        digits = 0 if self.step >= 0.0099 else 1
        places = range(math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9) + 1)
        values = [place * self.step for place in places]
        return [(self(value), f"{100 * value:.{digits}f}" if unit == "%" else plain(value)) for value in values]

    def line(self, kind: str, value: float, text: str, y: float) -> dict[str, Any]:
        """Return a vertical line and the text above it, which stays inside the plot."""
        x, half = self(value), 3.1 * len(text)
        anchor = "start" if x - half < self.left else "end" if x + half > self.right + 20 else "middle"
        return {"kind": kind, "x": x, "text": text, "y": y, "anchor": anchor}


def dot_plot(table: RateTable, *, narrow: bool = False, standalone: bool = False) -> str:
    """Return the plot of one rate as an SVG element, in which every name is escaped."""
    rows = marks(table)
    if not rows:
        return ""
    rows = rows if len(rows) <= MOST_ROWS else [*rows[: MOST_ROWS // 2], *rows[-MOST_ROWS // 2 :]]
    width, height = (NARROW, NARROW_ROW) if narrow else (WIDE, ROW)
    left = 8 if narrow else min(300, int(6.9 * max(len(mark.label(table)) for mark in rows)) + 16)
    right = width - (12 if narrow else 168)
    scale = _Scale(table, rows, left + 8, right)
    plot: str = _template().dots(
        table=table,
        rows=rows,
        scale=scale,
        lines=_lines(table, scale),
        width=width,
        height=height,
        left=left,
        right=right,
        narrow=narrow,
        standalone=standalone,
    )
    return plot


def _lines(table: RateTable, scale: _Scale) -> list[dict[str, Any]]:
    """Return the overall line and the four-fifths line."""
    overall = table.overall.value
    lines = [] if math.isnan(overall) else [scale.line("overall", overall, f"all {shown(overall, table.unit)}", 12)]
    base = next((row.value for row in table.rows if row.group == table.reference), math.nan)
    if table.rate.four_fifths and scale.low <= FOUR_FIFTHS * base <= scale.high:
        lines.append(scale.line("fifths", FOUR_FIFTHS * base, "80 % of the reference", 25))
    return lines


def histogram(spread: ClientSpread, *, narrow: bool = False) -> str:
    """Return how many clients have which value, as an SVG element."""
    if np.ptp(spread.value) == 0:
        return ""
    counts, edges = np.histogram(spread.value, bins=12 if narrow else 24)
    texts = [shown(float(edge), "%" if spread.is_rate else "") for edge in edges]
    width = NARROW if narrow else WIDE
    plot: str = _template().histogram(counts.tolist(), texts, spread.title, width, narrow)
    return plot


@cache
def _template() -> Any:
    plots = environment()
    plots.filters["safe_name"] = safe
    plots.globals |= {"isnan": math.isnan, "TOP": TOP, "BOTTOM": BOTTOM}
    return plots.from_string(asset("e2fl.auditing", "plots.svg.j2")).module
