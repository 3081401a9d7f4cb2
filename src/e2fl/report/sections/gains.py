"""Is each client better off than training on its own?"""

import math
from collections.abc import Sequence

import altair as alt
import numpy as np

from e2fl.report.chart import METHOD_TIP, Channels, Plot, Row, bright, data, draw, marks, quantity, shape, tip, tip_text
from e2fl.report.intervals import bootstrap
from e2fl.report.section import METHOD, Section
from e2fl.report.study import Gains, Method, Study, gains
from e2fl.report.table import Cell, Column, Table, cell
from e2fl.report.theme import Theme

POINTS_SHOWN = 1500


def section(study: Study, theme: Theme) -> Section | None:
    alone = study.alone
    found = [] if alone is None else [(m, g) for m in study.methods if m is not alone if (g := gains(m, alone))]
    if not found:
        return None
    intro = "Is each client better off than training on its own?"
    return Section(
        "gains", "Taking part or training alone", intro, (), (_points(study, theme, found),), (gain_table(found),)
    )


def gain_table(found: Sequence[tuple[Method, list[Gains]]]) -> Table:
    """Return a table of how many clients gain and lose by taking part, and how much."""
    rows = []
    for method, by_seed in found:
        counts = [float(np.mean([(np.sign(g.difference) == sign).sum() for g in by_seed])) for sign in (1, 0, -1)]
        every = np.concatenate([g.difference for g in by_seed])
        ends = (Cell(float(every.min())), Cell(float(every.max())))
        rows.append((Cell(method.label), *map(Cell, counts), cell(bootstrap([every])), *ends))
    columns = (
        METHOD,
        *(
            Column(key, title, 1, "clients", "gain")
            for key, title in (("better_off", "better off"), ("equal", "equal"), ("worse_off", "worse off"))
        ),
        *(
            Column(f"gain_{title}", title, 1, "gain, percentage points", "gain", signed=True)
            for title in ("mean", "lowest", "highest")
        ),
    )
    note = "Counts are means over seeds. Small figures: 95 % interval of the mean gain over clients (bootstrap)."
    return Table("gains", "Every client against training alone", columns, tuple(rows), note)


def _points(study: Study, theme: Theme, found: Sequence[tuple[Method, list[Gains]]]) -> Plot:
    """Return a plot with a point for each client: training alone against taking part."""
    runs = [(method, gain) for method, by_seed in found if not method.view for gain in by_seed]
    step = math.ceil(sum(len(gain.names) for _, gain in runs) / POINTS_SHOWN)
    values = [row for method, gain in runs for row in _rows(method, gain, step)]
    numbers = [row[key] for row in values for key in ("alone", "value")]
    pad = max(1.0, 0.07 * (max(numbers) - min(numbers)))  # room for the words in the corners
    low, high = min(numbers) - pad, max(numbers) + pad
    across = quantity(alt.X, "alone", "training alone, %", 6, domain=[low, high], nice=False)
    up = quantity(alt.Y, "value", "taking part, %", 6, domain=[low, high], nice=False)
    tips = [tip_text("client", "client"), *([tip_text("group", "group")] if study.group_names else []), METHOD_TIP]
    tips += [tip("alone", "alone, %"), tip("value", "taking part, %"), tip("gain", "gain, points", "+.2f")]
    even = alt.Chart(data([{"alone": low, "value": low}, {"alone": high, "value": high}])).encode(x=across, y=up)
    layers = [
        even.mark_line(strokeDash=[4, 3], strokeWidth=1.5, color=theme.muted),
        marks(values, study, theme)
        .mark_point(filled=True, size=34)
        .encode(x=across, y=up, shape=shape(study, theme), opacity=bright(0.6), tooltip=tips),
    ]
    corners = (
        (low, high, "better than alone", {"align": "left", "baseline": "top", "dx": 6, "dy": 6}),
        (high, low, "worse than alone", {"align": "right", "baseline": "bottom", "dx": -6, "dy": -6}),
    )
    for x, y, words, place in corners:
        mark: Channels = place | {"fontStyle": "italic", "color": theme.muted}
        corner = alt.Chart(data([{"alone": x, "value": y, "text": words}])).mark_text(**mark)
        layers.append(corner.encode(x=across, y=up, text="text:N"))
    worse = "; ".join(
        f"{m.label} {np.mean([(g.difference < 0).sum() for g in by_seed]):.1f}" for m, by_seed in found if not m.view
    )
    clients = len(runs[0][1].names)
    caption = "Each point is a client. Above the dashed line, the client does better in the federation than on its own."
    caption += f" One client in {step} is drawn; the counts are of all." if step > 1 else ""
    words = f"Clients as points, training alone against taking part. Worse than alone, of {clients:,} clients: {worse}."
    return draw("gains", "Who gains by taking part", caption, words, layers, theme, 400)


def _rows(method: Method, gain: Gains, step: int) -> list[Row]:
    groups: Sequence[str] = gain.groups.tolist() if gain.groups is not None else [""] * len(gain.names)
    return [
        {"label": method.label, "client": str(gain.names[place]), "group": groups[place]}
        | {"alone": float(gain.alone[place]), "value": float(gain.accuracy[place])}
        | {"gain": float(gain.difference[place])}
        for place in range(0, len(gain.names), step)
        if math.isfinite(gain.difference[place])
    ]
