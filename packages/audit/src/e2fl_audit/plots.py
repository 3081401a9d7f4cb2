"""Static SVG plots: every group named, sorted, with its interval and size.

They are readable in grey and on a phone. Each plot is drawn wide and narrow, and the style sheet
shows the one that fits, so that text keeps its size. What stands where is computed here;
plots.svg.j2 draws it.
"""

import math
from functools import cache
from typing import Any

import jinja2
import numpy as np

from e2fl_audit import wording
from e2fl_audit.clients import ClientSpread
from e2fl_audit.names import safe
from e2fl_audit.rates import FOUR_FIFTHS, RateTable
from e2fl_audit.wording import noun, ratio, shown, whole

MOST_ROWS = 400
TOP, BOTTOM = 34, 30
WIDE, NARROW = 700, 330  # widths
HEIGHTS = {WIDE: 30, NARROW: 46}  # of a row


@cache
def environment() -> jinja2.Environment:
    """Return the templates of the package, which escape what is inserted."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("e2fl_audit", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["name"] = safe
    for name in ("percent", "whole", "p_value", "ratio"):
        templates.filters[name] = getattr(wording, name)
    for name in ("shown", "interval", "signed"):
        templates.globals[name] = getattr(wording, name)
    templates.globals |= {"nan": math.nan, "isnan": math.isnan, "TOP": TOP, "BOTTOM": BOTTOM}
    return templates


def in_order(table: RateTable) -> list[int]:
    """Return the positions of the groups, most favourable first; those without a value are last."""
    values = (-1 if table.rate.better < 0 else 1) * table.frame["value"].to_numpy()
    return [int(position) for position in np.argsort(-values, kind="stable")]


class _Scale:
    """Values to pixels, with round ticks."""

    def __init__(self, table: RateTable, rows: list[Any], left: float, right: float):
        ends = [end for row in rows for end in (row.value, row.low, row.high)]
        known = [value for value in (*ends, table.overall) if not math.isnan(value)]
        low, high = min(known), max(known)
        reach = (high - low) or max(abs(high), 1e-9) * 0.1
        low, high = low - 0.04 * reach, high + 0.04 * reach
        self.percent = table.unit == "%"
        if self.percent:
            low, high = max(-0.01, low), min(1.01, high)
        self.low, self.high, self.left, self.right = low, high, left, right

    def __call__(self, value: float) -> float:
        return float(round(np.interp(value, [self.low, self.high], [self.left, self.right]), 1))

    def ticks(self) -> list[tuple[float, str]]:
        """Return the position of each tick and its text."""
        least = (self.high - self.low) / (4 if self.right - self.left < 330 else 6)
        power = 10.0 ** math.floor(math.log10(least))
        step = next(part * power for part in (1, 2, 5, 10) if part * power >= least * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [multiple * step for multiple in range(first, last + 1)]
        digits = 0 if step >= 0.0099 else 1
        texts = [f"{100 * one:.{digits}f}" if self.percent else shown(one, "") for one in values]
        return list(zip(map(self, values), texts, strict=True))

    def line(self, kind: str, value: float, text: str, y: float) -> dict[str, Any]:
        """Return a vertical line and the text above it, which stays inside the plot."""
        x, half = self(value), 3.1 * len(text)
        anchor = "start" if x - half < self.left else "middle"
        anchor = "end" if anchor == "middle" and x + half > self.right + 20 else anchor
        return {"kind": kind, "x": x, "text": text, "y": y, "anchor": anchor}


def dot_plot(
    table: RateTable, kind: str = "wide", *, standalone: bool = False, most: int = MOST_ROWS
) -> str:
    """Return the plot of one rate as an SVG element, in which every name is escaped.

    kind: its classes in the style sheet. most: of more groups, the most and the least favourable
    ones are drawn.
    """
    rows = [table.rows[position] for position in in_order(table)]
    rows = [row for row in rows if not math.isnan(row.value)]
    if not rows:
        return ""
    rows = rows if len(rows) <= most else [*rows[: most // 2], *rows[-most // 2 :]]
    width = NARROW if kind == "narrow" else WIDE
    marks = [_mark(table, row, width) for row in rows]
    left = 8
    if width == WIDE:
        left = min(300, int(6.9 * max(len(mark["label"]) for mark in marks)) + 16)
    right = width - (12 if width == NARROW else 168)
    size = {"width": width, "height": HEIGHTS[width], "left": left, "right": right}
    scale = _Scale(table, rows, left + 8, right)
    drawn: Any = environment().get_template("plots.svg.j2").module
    return str(drawn.dots(table, marks, scale, _lines(table, scale), size, kind, standalone))


def _mark(table: RateTable, row: Any, width: int) -> dict[str, Any]:
    """Return a row of a plot: its kind, its label, and what stands beside it."""
    kind, note = "plain", shown(row.value, table.unit)
    sign = -1 if table.rate.better < 0 else 1
    if not row.judged:
        kind, note = "few", f"{note}, {row.status}"
    elif table.rate.four_fifths and not math.isnan(row.ratio):
        kind = "low" if row.below_four_fifths else "plain"
        note += f", ratio {ratio(row.ratio)}{', below 0.8' if row.below_four_fifths else ''}"
    elif sign * (row.value - table.overall) < 0 and row.p_holm < 0.05 and table.rate.better:
        kind = "low"
    short = note.replace("ratio ", "").replace("too few rows", "too few")
    short = short.replace("too few clients", "too few")
    size = noun(row.base, "client") if table.is_measure else f"n={whole(row.base)}"
    label = f"{safe(row.group, 34)} ({size})"
    if width == NARROW:  # a diamond says what is low; the name is cut so that the value has room
        short, size = short.replace(", below 0.8", ""), f" ({whole(row.base)})"
        room = int((NARROW - 22 - 6.3 * len(short)) / 7.0) - len(size)
        label = safe(row.group, max(8, room)) + size
    return {"row": row, "kind": kind, "note": note, "short": short, "label": label}


def _lines(table: RateTable, scale: _Scale) -> list[dict[str, Any]]:
    """Return the overall line and the four-fifths line."""
    lines = []
    if not math.isnan(table.overall):
        text = f"all {shown(table.overall, table.unit)}"
        lines.append(scale.line("overall", table.overall, text, 12))
    base = next((row.value for row in table.rows if row.group == table.reference), math.nan)
    if table.rate.four_fifths and scale.low <= FOUR_FIFTHS * base <= scale.high:
        lines.append(scale.line("fifths", FOUR_FIFTHS * base, "80 % of the reference", 25))
    return lines


def histogram(spread: ClientSpread, kind: str) -> str:
    """Return how many clients have which value, as an SVG element."""
    value = spread.frame["value"].to_numpy()
    if np.ptp(value) == 0:
        return ""
    width, bins = (NARROW, 12) if kind == "narrow" else (WIDE, 24)
    counts, edges = np.histogram(value, bins=bins)
    texts = [shown(float(edge), "%" if spread.is_rate else "") for edge in edges]
    drawn: Any = environment().get_template("plots.svg.j2").module
    return str(drawn.histogram(counts.tolist(), texts, spread.title, width, kind))
