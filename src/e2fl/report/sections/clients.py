"""Equality: do clients get about the same accuracy, and more than they would get on their own?"""

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from e2fl.metrics.intervals import over_clients
from e2fl.report import study as studies
from e2fl.report.charts import (
    Plot,
    Row,
    data,
    dot_plot,
    draw,
    labels_of,
    points,
    quantity,
    room,
    tips,
)
from e2fl.report.sections.section import Section
from e2fl.report.study import Method, Study
from e2fl.report.table import METHOD, Column, Table, interval_cells, words

QUANTILES = (0, 5, 10, 25, 50, 75, 90, 95, 100)
LOWEST = 10  # clients in the table of the lowest
POINTS_SHOWN = 1500


def clients(study: Study) -> Section | None:
    """Do all clients get about the same accuracy?"""
    samples = {m.label: v for m in study.methods if len(v := m.clients["accuracy"].dropna())}
    if not samples:
        return None
    table = _quantiles(samples)
    return Section.of("clients", [lowest_table(study)], [_boxes(study, table.frame)], [table])


def lowest_table(study: Study) -> Table:
    """Return a table of the clients with the lowest accuracy, by name."""
    subject, by = study.subject, ["seed", "client"]
    lowest = subject.clients.sort_values(["accuracy", *by], kind="stable")[:LOWEST]
    for method in study.methods:
        own = method.clients[[*by, "accuracy"]].rename(columns={"accuracy": method.label})
        lowest = lowest.merge(own, on=by, how="left", suffixes=("", " "))
    columns = [Column("client", "client")]
    columns += [Column("seed", "seed", 0)] if len(study.seeds) > 1 else []
    columns += [Column("group", "group")] if study.group_names else []
    columns += [Column("n", "test rows", 0)]
    columns += [Column(m.label, m.label, 1, "accuracy, %", "accuracy") for m in study.methods]
    title = words("clients", "lowest", count=len(lowest), subject=subject.label)
    return Table.of("lowest", title, columns, lowest.astype({"n": int}))


def _quantiles(samples: dict[str, "pd.Series[float]"]) -> Table:
    rows = [
        {"method": label, "clients": len(values)}
        | {f"percentile_{q}": float(np.percentile(values, q)) for q in QUANTILES}
        for label, values in samples.items()
    ]
    titles = {0: "lowest", 50: "median", 100: "highest"}
    columns = [METHOD, Column("clients", "clients", 0)]
    columns += [Column(f"percentile_{q}", titles.get(q, f"{q} %"), 1) for q in QUANTILES]
    title, note = words("distribution", "plot"), words("clients", "quantiles")
    return Table.of("distribution", title, columns, rows, note)


def _boxes(study: Study, quantiles: pd.DataFrame) -> Plot:
    """Return a box plot: a row for each method, of all clients and seeds."""
    ends = {0: "low", 25: "left", 50: "value", 75: "right", 100: "high"}
    columns = {f"percentile_{q}": end for q, end in ends.items()} | {"method": "label"}
    boxes = quantiles.rename(columns=columns)[list(columns.values())]
    rows: list[Any] = boxes.assign(name=boxes["label"]).to_dict("records")
    text = "{label} {low:.1f} to {high:.1f}, median {value:.1f}"
    values = "; ".join(text.format(**row) for row in rows)
    return dot_plot(study, "distribution", rows, "accuracy of a client, %", values=values)


def gains(study: Study) -> Section | None:
    """Is each client better off than training on its own?"""
    alone = study.alone
    if alone is None:
        return None
    others = {m: studies.gains(m, alone) for m in study.methods if m is not alone}
    by_method = {method: both for method, both in others.items() if len(both)}
    if not by_method:
        return None
    return Section.of("gains", (), [_gain_points(study, by_method)], [gain_table(by_method)])


def gain_table(by_method: dict[Method, Any]) -> Table:
    """Return a table of how many clients gain and lose by taking part, and how much."""
    kinds = {"better_off": 1, "equal": 0, "worse_off": -1}
    rows = []
    for method, both in by_method.items():
        gain, seeds = both["difference"], both["seed"]
        row: dict[str, Any] = {"method": method.label}
        for kind, sign in kinds.items():
            row[kind] = float((np.sign(gain) == sign).groupby(seeds).sum().mean())
        row |= interval_cells("gain_mean", over_clients([gain.to_numpy(np.float64)]))
        rows.append(row | {"gain_lowest": float(gain.min()), "gain_highest": float(gain.max())})
    columns = [METHOD]
    columns += [Column(kind, kind.replace("_", " "), 1, "clients", "gain") for kind in kinds]
    columns += [
        Column(f"gain_{title}", title, 1, "gain, percentage points", "gain", signed=True)
        for title in ("mean", "lowest", "highest")
    ]
    title, note = (words("gains", kind) for kind in ("table", "note"))
    return Table.of("gains", title, columns, rows, note)


def _gain_points(study: Study, by_method: dict[Method, Any]) -> Plot:
    """Return a plot with a point for each client: training alone against taking part."""
    shown = pd.concat([both.assign(label=m.label) for m, both in by_method.items() if not m.view])
    step = math.ceil(len(shown) / POINTS_SHOWN)
    drawn = shown[shown.groupby(["label", "seed"], sort=False).cumcount() % step == 0].dropna()
    rows: list[Row] = drawn.drop(columns=["seed", "n"]).to_dict("records")
    ends = drawn[["alone", "accuracy"]]
    scale = room([ends.min(axis=None), ends.max(axis=None)], high=100.0)
    axes = {
        "x": quantity(alt.X, "alone", "training alone, %", 6, **scale),
        "y": quantity(alt.Y, "accuracy", "taking part, %", 6, **scale),
    }
    numbers = {"alone": "alone, %|.2f", "accuracy": "taking part, %|.2f"}
    tip = tips(client="client", group="group", difference="gain, points|+.2f", **numbers)
    even = alt.Chart(data([{"alone": end, "accuracy": end} for end in scale["domain"]]))
    worse = (shown["difference"] < 0).groupby([shown["label"], shown["seed"]], sort=False).sum()
    counts = worse.groupby("label", sort=False).mean()
    return draw(
        "gains",
        400,
        even.mark_line(strokeDash=[4, 3], strokeWidth=1.5, color="var(--muted)").encode(**axes),
        points(rows, labels_of(study), 34, opacity=0.6, tooltip=tip, **axes),
        sample=words("gains", "sample", step=step) if step > 1 else "",
        clients=shown.groupby(["label", "seed"]).size().max(),
        values="; ".join(f"{label} {count:.1f}" for label, count in counts.items()),
    )
