"""Static SVG plots: every group named, sorted, with its interval and size.

They are readable in grey and on a phone. Each plot is drawn wide and narrow, and the style sheet
shows the one that fits, so that text keeps its size. What stands where is computed here;
plots.svg.j2 draws it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np

from e2fl_audit.clients import ClientSpread
from e2fl_audit.names import safe
from e2fl_audit.ratetable import FOUR_FIFTHS, RateTable
from e2fl_audit.wording import noun, plain, ratio, shown, whole

MOST_ROWS = 400
ROW, NARROW_ROW, TOP, BOTTOM = 30, 46, 34, 30
WIDE, NARROW = 700, 330


@cache
def asset(name: str) -> str:
    """Return the text of a file that comes with the package."""
    return (files("e2fl_audit") / name).read_text(encoding="utf-8")


def environment() -> jinja2.Environment:
    """Return an environment that escapes what is inserted."""
    return jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


@dataclass(frozen=True)
class Mark:
    """A row of a plot."""

    row: Any
    kind: str  # plain, low or few
    note: str

    def short(self, narrow: bool) -> str:
        text = self.note.replace("ratio ", "")
        for words in ("too few rows", "too few clients"):
            text = text.replace(words, "too few")
        return text.replace(", below 0.8", "") if narrow else text  # a diamond says it on a phone

    def label(self, table: RateTable) -> str:
        size = noun(self.row.base, "client") if table.is_measure else f"n={whole(self.row.base)}"
        return f"{safe(self.row.group, 34)} ({size})"

    def narrow_label(self) -> str:
        """Return the name and the size, cut so that the value beside them has room."""
        size = f" ({whole(self.row.base)})"
        room = (NARROW - 22 - 6.3 * len(self.short(narrow=True))) / 7.0
        return safe(self.row.group, max(8, int(room) - len(size))) + size


def marks(table: RateTable) -> list[Mark]:
    """Return the rows with a value, most favourable first; those not judged are marked as such."""
    sign = -1 if table.rate.better < 0 else 1
    rows = [row for row in table.rows if not math.isnan(row.value)]
    return [_mark(table, row, sign) for row in sorted(rows, key=lambda row: -sign * row.value)]


def _mark(table: RateTable, row: Any, sign: int) -> Mark:
    value = shown(row.value, table.unit)
    if not row.judged:
        return Mark(row, "few", f"{value}, {row.status}")
    if table.rate.four_fifths and not math.isnan(row.ratio):
        below = row.ratio < FOUR_FIFTHS
        text = f"ratio {ratio(row.ratio)}{', below 0.8' if below else ''}"
        return Mark(row, "low" if below else "plain", f"{value}, {text}")
    worse = sign * (row.value - table.overall) < 0 and row.p_holm < 0.05 and table.rate.better != 0
    return Mark(row, "low" if worse else "plain", value)


class Scale:
    """Values to pixels, with round ticks."""

    def __init__(self, table: RateTable, rows: Sequence[Mark], left: float, right: float):
        ends = [end for mark in rows for end in (mark.row.value, mark.row.low, mark.row.high)]
        known = [value for value in (*ends, table.overall) if not math.isnan(value)]
        low, high = min(known), max(known)
        reach = (high - low) or max(abs(high), 1e-9) * 0.1
        low, high = low - 0.04 * reach, high + 0.04 * reach
        if table.unit == "%":
            low, high = max(-0.01, low), min(1.01, high)
        self.low, self.high, self.left, self.right = low, high, left, right
        least = (high - low) / (4 if right - left < 330 else 6)
        power = 10.0 ** math.floor(math.log10(least))
        self.step = next(part * power for part in (1, 2, 5, 10) if part * power >= least * 0.999)

    def __call__(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return float(round(self.left + share * (self.right - self.left), 1))

    def ticks(self, unit: str) -> list[tuple[float, str]]:
        """Return the position of each tick and its text."""
        digits = 0 if self.step >= 0.0099 else 1
        first = math.ceil(self.low / self.step - 1e-9)
        last = math.floor(self.high / self.step + 1e-9)
        values = [number * self.step for number in range(first, last + 1)]
        percents = unit == "%"
        return [
            (self(one), f"{100 * one:.{digits}f}" if percents else plain(one)) for one in values
        ]

    def line(self, kind: str, value: float, text: str, y: float) -> dict[str, Any]:
        """Return a vertical line and the text above it, which stays inside the plot."""
        x, half = self(value), 3.1 * len(text)
        anchor = "middle"
        if x - half < self.left:
            anchor = "start"
        elif x + half > self.right + 20:
            anchor = "end"
        return {"kind": kind, "x": x, "text": text, "y": y, "anchor": anchor}


def dot_plot(
    table: RateTable, *, narrow: bool = False, standalone: bool = False, most: int = MOST_ROWS
) -> str:
    """Return the plot of one rate as an SVG element, in which every name is escaped.

    most: of more groups, the most and the least favourable ones are drawn.
    """
    rows = marks(table)
    if not rows:
        return ""
    rows = rows if len(rows) <= most else [*rows[: most // 2], *rows[-most // 2 :]]
    width, height = (NARROW, NARROW_ROW) if narrow else (WIDE, ROW)
    longest = max(len(mark.label(table)) for mark in rows)
    left = 8 if narrow else min(300, int(6.9 * longest) + 16)
    right = width - (12 if narrow else 168)
    scale = Scale(table, rows, left + 8, right)
    size = {"width": width, "height": height, "left": left, "right": right}
    lines = _lines(table, scale)
    return str(_template().dots(table, rows, scale, lines, size, narrow, standalone))


def _lines(table: RateTable, scale: Scale) -> list[dict[str, Any]]:
    """Return the overall line and the four-fifths line."""
    lines = []
    if not math.isnan(table.overall):
        text = f"all {shown(table.overall, table.unit)}"
        lines.append(scale.line("overall", table.overall, text, 12))
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
    return str(_template().histogram(counts.tolist(), texts, spread.title, width, narrow))


@cache
def _template() -> Any:
    plots = environment()
    plots.filters["safe_name"] = safe
    plots.globals |= {"isnan": math.isnan, "TOP": TOP, "BOTTOM": BOTTOM}
    return plots.from_string(asset("plots.svg.j2")).module
