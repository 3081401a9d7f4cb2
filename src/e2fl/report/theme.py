"""Colours and marks: one for each contender, the same in every plot; safe for colour-blind eyes, with shapes beside."""

from dataclasses import dataclass
from typing import Any

# At least 3:1 against the page behind them; dark ones for light pages and light ones for dark pages, in the same order.
LIGHT = ("#0072b2", "#c44e00", "#00815e", "#a6467f", "#5b6470", "#8a6800", "#2f86bd", "#7a1f4f")
DARK = ("#5aaeea", "#f0905a", "#35c79f", "#e08fc3", "#aab4bf", "#dfb63c", "#9cd6f7", "#d97a9b")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 2], [1, 3], [10, 4], [3, 3, 8, 3])


def shape_of(place: int) -> str:
    """The mark of a contender; where colours repeat, marks are shifted, so that no two contenders look alike."""
    return SHAPES[(place + place // (2 * len(LIGHT))) % len(SHAPES)]


def _mixed(colour: str, other: str) -> str:
    """A shade between two colours such as #0072b2, as the style sheet mixes them."""
    parts = ((int(colour[k : k + 2], 16), int(other[k : k + 2], 16)) for k in (1, 3, 5))
    return "#" + "".join(f"{round(SHADE * one + (1 - SHADE) * two):02x}" for one, two in parts)


SHADE = 0.5  # of the colour, the rest ink: the second eight are shades of the first
INK = "#1c2127"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"


@dataclass(frozen=True)
class Paint:
    """How plots are painted: on the page, where the style sheet decides, or in a file of its own."""

    colours: tuple[str, ...]
    ink: str
    muted: str
    line: str
    accent: str
    background: str | None
    font: str
    legend: bool
    width: int | str

    def colour(self, place: int) -> str:
        return self.colours[place % len(self.colours)]

    def config(self) -> dict[str, Any]:
        """What all plots share."""
        return {
            "background": self.background,
            "font": self.font,
            "view": {"stroke": None},
            "axis": {
                "labelColor": self.muted,
                "titleColor": self.muted,
                "labelFontSize": 12,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "gridColor": self.line,
                "domainColor": self.line,
                "tickColor": self.line,
                "labelLimit": 120,
            },
            "axisX": {"grid": False, "labelOverlap": True, "labelSeparation": 8},
            "text": {"color": self.ink, "fontSize": 12},
            "legend": {
                "labelColor": self.ink,
                "symbolOpacity": 1,
                "titleColor": self.muted,
                "labelLimit": 300,
                "orient": "bottom",
                "title": None,
            },
        }


ON_PAGE = Paint(
    colours=(
        *(f"var(--c{place})" for place in range(len(LIGHT))),
        *(f"color-mix(in srgb, var(--c{place}) {SHADE:.0%}, var(--ink))" for place in range(len(LIGHT))),
    ),
    ink="var(--ink)",
    muted="var(--muted)",
    line="var(--line)",
    accent="var(--accent)",
    background="transparent",
    font=FONT,
    legend=False,
    width="container",
)

IN_FILE = Paint(
    colours=(*LIGHT, *(_mixed(colour, INK) for colour in LIGHT)),
    ink=INK,
    muted="#4c5560",
    line="#d9dde2",
    accent="#0072b2",
    background="#ffffff",
    font="Liberation Sans, Arial, sans-serif",
    legend=True,
    width=640,
)
