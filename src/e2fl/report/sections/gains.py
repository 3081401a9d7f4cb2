"""Is each client better off than training on its own?"""

import math

import altair as alt
import numpy as np
import pandas as pd

from e2fl.metrics.intervals import over_clients
from e2fl.report.chart import (
    METHOD_TIP,
    Channels,
    Plot,
    Row,
    bright,
    data,
    draw,
    marks,
    quantity,
    shape,
    tip,
    tip_text,
)
from e2fl.report.section import Section
from e2fl.report.study import Method, Study, gains
from e2fl.report.table import METHOD, Column, Table, interval_cells
from e2fl.report.theme import Theme

Gains = list[tuple[Method, dict[int, pd.DataFrame]]]  # of each method, by seed
POINTS_SHOWN = 1500


def section(study: Study, theme: Theme) -> Section | None:
    alone = study.alone
    found = (
        []
        if alone is None
        else [(m, g) for m in study.methods if m is not alone if (g := gains(m, alone))]
    )
    if not found:
        return None
    intro = "Is each client better off than training on its own?"
    return Section(
        "gains",
        "Taking part or training alone",
        intro,
        (),
        (_points(study, theme, found),),
        (gain_table(found),),
    )


def gain_table(found: Gains) -> Table:
    """Return a table of how many clients gain and lose by taking part, and how much."""
    kinds = {"better_off": 1, "equal": 0, "worse_off": -1}
    rows = []
    for method, by_seed in found:
        signs = [np.sign(clients["difference"]) for clients in by_seed.values()]
        counts = {
            kind: float(np.mean([(sign == wanted).sum() for sign in signs]))
            for kind, wanted in kinds.items()
        }
        every = pd.concat([clients["difference"] for clients in by_seed.values()]).to_numpy()
        ends = {"gain_lowest": float(every.min()), "gain_highest": float(every.max())}
        mean = interval_cells("gain_mean", over_clients([every]))
        rows.append({"method": method.label, **counts, **mean, **ends})
    columns = [METHOD]
    columns += [Column(kind, kind.replace("_", " "), 1, "clients", "gain") for kind in kinds]
    columns += [
        Column(f"gain_{title}", title, 1, "gain, percentage points", "gain", signed=True)
        for title in ("mean", "lowest", "highest")
    ]
    note = (
        "Counts are means over seeds. Small figures: 95 % interval of the mean gain over clients "
        "(bootstrap)."
    )
    return Table.of("gains", "Every client against training alone", columns, rows, note)


def _points(study: Study, theme: Theme, found: Gains) -> Plot:
    """Return a plot with a point for each client: training alone against taking part."""
    runs = [(m, clients) for m, by_seed in found if not m.view for clients in by_seed.values()]
    step = math.ceil(sum(len(clients) for _, clients in runs) / POINTS_SHOWN)
    values = [row for method, clients in runs for row in _rows(method, clients, step)]
    numbers = [row[key] for row in values for key in ("alone", "value")]
    pad = max(1.0, 0.07 * (max(numbers) - min(numbers)))  # room for the words in the corners
    low, high = min(numbers) - pad, max(numbers) + pad
    across = quantity(alt.X, "alone", "training alone, %", 6, domain=[low, high], nice=False)
    up = quantity(alt.Y, "value", "taking part, %", 6, domain=[low, high], nice=False)
    tips = [
        tip_text("client", "client"),
        *([tip_text("group", "group")] if study.group_names else []),
        METHOD_TIP,
    ]
    tips += [
        tip("alone", "alone, %"),
        tip("value", "taking part, %"),
        tip("gain", "gain, points", "+.2f"),
    ]
    even = alt.Chart(data([{"alone": low, "value": low}, {"alone": high, "value": high}])).encode(
        x=across, y=up
    )
    layers = [
        even.mark_line(strokeDash=[4, 3], strokeWidth=1.5, color=theme.muted),
        marks(values, study, theme)
        .mark_point(filled=True, size=34)
        .encode(x=across, y=up, shape=shape(study, theme), opacity=bright(0.6), tooltip=tips),
    ]
    corners = (
        (low, high, "better than alone", {"align": "left", "baseline": "top", "dx": 6, "dy": 6}),
        (
            high,
            low,
            "worse than alone",
            {"align": "right", "baseline": "bottom", "dx": -6, "dy": -6},
        ),
    )
    for x, y, words, place in corners:
        mark: Channels = place | {"fontStyle": "italic", "color": theme.muted}
        corner = alt.Chart(data([{"alone": x, "value": y, "text": words}])).mark_text(**mark)
        layers.append(corner.encode(x=across, y=up, text="text:N"))
    worse = "; ".join(
        f"{m.label} {np.mean([(c['difference'] < 0).sum() for c in by_seed.values()]):.1f}"
        for m, by_seed in found
        if not m.view
    )
    clients = len(runs[0][1])
    caption = (
        "Each point is a client. Above the dashed line, the client does better in the federation "
        "than on its own."
    )
    caption += f" One client in {step} is drawn; the counts are of all." if step > 1 else ""
    words = (
        "Clients as points, training alone against taking part. "
        f"Worse than alone, of {clients:,} clients: {worse}."
    )
    return draw("gains", "Who gains by taking part", caption, words, layers, theme, 400)


def _rows(method: Method, clients: pd.DataFrame, step: int) -> list[Row]:
    drawn = clients.iloc[::step]
    drawn = drawn[np.isfinite(drawn["difference"])]
    columns = {"accuracy": "value", "difference": "gain"}
    shown = drawn[["client", "group", "alone", "accuracy", "difference"]].rename(columns=columns)
    return [
        {str(k): v for k, v in row.items()}
        for row in shown.assign(label=method.label).to_dict("records")
    ]
