"""Colours and marks: one of each per method, the same in every plot, safe for colour blindness."""

from dataclasses import dataclass
from typing import Any

# At least 3:1 against the page; the style sheet has light colours for dark pages in the same order.
LIGHT = ("#0072b2", "#c44e00", "#00815e", "#a6467f", "#5b6470", "#8a6800", "#2f86bd", "#7a1f4f")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 2], [1, 3], [10, 4], [3, 3, 8, 3])
MARKS = {  # Vega's names, and the same shapes as paths in a box of 16 by 16
    "circle": "M8 2a6 6 0 1 1 0 12a6 6 0 1 1 0-12z",
    "square": "M2.5 2.5h11v11h-11z",
    "triangle-up": "M8 1.5 15 14H1z",
    "diamond": "M8 .5 15 8 8 15.5 1 8z",
    "cross": "M5.5 1h5v4.5H15v5h-4.5V15h-5v-4.5H1v-5h4.5z",
    "triangle-down": "M1 2h14L8 14.5z",
    "triangle-right": "M2 1v14l12.5-7z",
    "triangle-left": "M14 1v14L1.5 8z",
}
SHADE = 0.5  # of the colour, the rest ink: the second eight colours are shades of the first
INK = "#1c2127"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"


def shape_of(place: int) -> str:
    """Return the mark of a method; marks are shifted where colours repeat: no two look alike."""
    return list(MARKS)[(place + place // (2 * len(LIGHT))) % len(MARKS)]


def _mixed(colour: str, other: str) -> str:
    """Return a shade between two colours such as #0072b2, as the style sheet mixes them."""
    parts = ((int(colour[k : k + 2], 16), int(other[k : k + 2], 16)) for k in (1, 3, 5))
    return "#" + "".join(f"{round(SHADE * one + (1 - SHADE) * two):02x}" for one, two in parts)


@dataclass(frozen=True)
class Theme:
    """The look of plots: on the page, where the style sheet decides, or in a file of their own."""

    colours: tuple[str, ...]
    ink: str
    muted: str
    line: str
    background: str
    font: str
    legend: bool
    width: int | str

    def colour(self, place: int) -> str:
        return self.colours[place % len(self.colours)]

    def config(self) -> dict[str, Any]:
        """Return the configuration of all plots; screen readers read the alternative text only."""
        return {
            "background": self.background,
            "font": self.font,
            "view": {"stroke": None},
            "mark": {"aria": False},
            "axis": {
                "aria": False,
                "labelColor": self.muted,
                "titleColor": self.muted,
                "labelFontSize": 12,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "gridColor": self.line,
                "domainColor": self.line,
                "tickColor": self.line,
                "labelLimit": 220,
            },
            "axisX": {"grid": False, "labelOverlap": True, "labelSeparation": 8},
            "text": {"color": self.ink, "fontSize": 12},
            "legend": {
                "labelColor": self.ink,
                "symbolOpacity": 1,
                "labelLimit": 300,
                "orient": "bottom",
                "title": None,
            },
        }


ON_PAGE = Theme(
    colours=(
        *(f"var(--c{place})" for place in range(len(LIGHT))),
        *(
            f"color-mix(in srgb, var(--c{place}) {SHADE:.0%}, var(--ink))"
            for place in range(len(LIGHT))
        ),
    ),
    ink="var(--ink)",
    muted="var(--muted)",
    line="var(--line)",
    background="transparent",
    font=FONT,
    legend=False,
    width="container",
)

IN_FILE = Theme(
    colours=(*LIGHT, *(_mixed(colour, INK) for colour in LIGHT)),
    ink=INK,
    muted="#4c5560",
    line="#d9dde2",
    background="#ffffff",
    font="Liberation Sans, Arial, sans-serif",
    legend=True,
    width=640,
)
