"""Dot plots: a row per group, a dot with its interval per method; rows are named at every width.

On the page they are HTML and small SVG strips whose positions are percentages, so they need no
script and fit every screen; in files they are Altair charts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from e2fl.report.chart import Channels, Plot, bright, draw, marks, shape
from e2fl.report.study import Study
from e2fl.report.theme import Theme
from e2fl.templates import round_step

LINE = 16  # pixels of a row for each dot


@dataclass(frozen=True)
class Dot:
    """The value of one method in one row."""

    place: int  # of the method
    label: str
    value: float
    low: float | None
    high: float | None
    hollow: bool  # too few clients to judge

    @property
    def words(self) -> str:
        ends = (
            "" if self.low is None or self.high is None else f" ({self.low:.1f} to {self.high:.1f})"
        )
        return f"{self.value:.1f}{ends}"


@dataclass(frozen=True)
class DotRow:
    """A group: its name, its size, and a dot for each method."""

    name: str
    size: float | None
    dots: tuple[Dot, ...]
    pinned: bool = False  # stays first in every order
    sort: float = 0.0

    @property
    def note(self) -> str:
        if self.size is None:
            return ""
        return "1 client" if self.size == 1 else f"{self.size:,.0f} clients"


@dataclass(frozen=True)
class DotPlot:
    """A plot of rows."""

    key: str
    title: str
    caption: str
    alt: str
    axis: str
    rows: tuple[DotRow, ...]
    ticks: tuple[float, ...]
    reference: float | None = None  # a dashed line

    @property
    def sortable(self) -> bool:
        return sum(not row.pinned for row in self.rows) > 1

    def at(self, value: float) -> float:
        """Return the position of a value, in percent of the width."""
        low, high = self.ticks[0], self.ticks[-1]
        return round(100 * (min(max(value, low), high) - low) / (high - low), 3)

    def plot(self, study: Study, theme: Theme) -> Plot:
        """Return the same plot for a file."""
        values = [
            {
                "row": f"{row.name} ({row.note})" if row.note else row.name,
                "label": dot.label,
                "value": dot.value,
            }
            | {"low": dot.low, "high": dot.high, "at": number}
            for row in self.rows
            for number, dot in enumerate(row.dots)
        ]
        across: Channels = {
            "scale": alt.Scale(domain=[self.ticks[0], self.ticks[-1]]),
            "axis": alt.Axis(grid=True),
        }
        chart = marks(values, study, theme).encode(
            y=alt.Y("row:N", sort=None, title=None),
            yOffset=alt.YOffset("label:N", sort=None),
            opacity=bright(),
        )
        layers = [
            chart.mark_rule(strokeWidth=2).encode(
                x=alt.X("low:Q", title=self.axis, **across), x2="high:Q"
            ),
            chart.mark_point(filled=True, size=60).encode(
                x=alt.X("value:Q", **across), shape=shape(study, theme)
            ),
        ]
        height = sum(8 + LINE * max(1, len(row.dots)) for row in self.rows)
        return draw(self.key, self.title, self.caption, self.alt, layers, theme, height)


def ticks(values: Sequence[float], most: int = 6) -> tuple[float, ...]:
    """Return round numbers that span these values, about `most` of them."""
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 1, high + 1
    step = round_step((high - low) / most)
    first, last = math.floor(low / step), math.ceil(high / step)
    return tuple(round(place * step, 10) for place in range(first, last + 1))
