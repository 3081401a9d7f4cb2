"""Equality: do clients get about the same accuracy, and more than they would get on their own?"""

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from e2fl.metrics.intervals import over_clients
from e2fl.report import study as studies
from e2fl.report.charts import Plot, Row, data, draw, marks, points, quantity, room, tips
from e2fl.report.sections.section import Section
from e2fl.report.study import Method, Study
from e2fl.report.table import METHOD, Column, Table, interval_cells, words

Samples = dict[str, "pd.Series[float]"]  # by method, the accuracy of every client

QUANTILES = (0, 5, 10, 25, 50, 75, 90, 95, 100)
BINS = 40
HILL = 0.72  # of the height of a row; the name is above
LOWEST = 10  # clients in the table of the lowest
POINTS_SHOWN = 1500


def clients(study: Study) -> Section | None:
    """Do all clients get about the same accuracy?"""
    samples = {m.label: v for m in study.methods if len(v := m.clients["accuracy"].dropna())}
    if not samples:
        return None
    plots, behind = [_histograms(study, samples)], [_quantiles(samples)]
    return Section.of("clients", [lowest_table(study)], plots, behind)


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


def _histograms(study: Study, samples: Samples) -> Plot:
    """Return a histogram for each method, one below the other, with its name."""
    low = math.floor(min(values.min() for values in samples.values()))
    high = max(low + 1, math.ceil(max(values.max() for values in samples.values())))
    edges = np.linspace(low, high, BINS + 1)
    shares = {label: np.histogram(v, edges)[0] / len(v) for label, v in samples.items()}
    top = max(share.max() for share in shares.values())
    bars: list[Row] = []
    heads: list[Row] = []
    for base, (label, share) in enumerate(reversed(shares.items())):
        head = {"label": label, "at": low, "base": base, "name": base + 0.86, "top": base + HILL}
        heads.append(head | {"mean": float(samples[label].mean())})
        bars += [
            {"label": label, "from": float(edges[k]), "to": float(edges[k + 1]), "base": base}
            | {"share": 100 * float(part), "height": base + HILL * float(part / top)}
            for k, part in enumerate(share)
            if part
        ]
    scale = alt.Scale(domain=[0, len(samples)], nice=False)
    up = {name: alt.Y(f"{name}:Q", axis=None, scale=scale) for name in ("base", "name")}
    across = quantity(alt.X, "from", "accuracy of a client, %", 10, domain=[low, high], nice=False)
    tip = tips(**{"from": "from, %|.1f", "to": "to, %|.1f", "share": "clients, %|.1f"})
    text = marks(heads, study).encode(color=alt.value("var(--ink)"))
    name = {"align": "left", "baseline": "middle", "dx": 2, "fontWeight": "bold", "limit": 300}
    ends = [f"{k} {v.min():.1f} to {v.max():.1f}, mean {v.mean():.1f}" for k, v in samples.items()]
    return draw(
        "distribution",
        40 + 78 * len(samples),
        marks(
            bars, study, 0.85, x=across, x2="to:Q", y=up["base"], y2="height:Q", tooltip=tip
        ).mark_rect(),
        alt.Chart(data(heads)).mark_rule(color="var(--line)").encode(y=up["base"]),
        text.mark_text(**name).encode(x="at:Q", y=up["name"], text="label:N"),
        text.mark_rule(strokeWidth=2).encode(
            x="mean:Q", y=up["base"], y2="top:Q", tooltip=tips(mean="mean, %|.2f")
        ),
        values="; ".join(ends),
    )


def _quantiles(samples: Samples) -> Table:
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


def gains(study: Study) -> Section | None:
    """Is each client better off than training on its own?"""
    alone = study.alone
    others = [method for method in study.methods if alone is not None and method is not alone]
    by_method = {method: studies.gains(method, alone) for method in others if alone is not None}
    by_method = {method: both for method, both in by_method.items() if len(both)}
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
    shown = {method: both for method, both in by_method.items() if not method.view}
    step = math.ceil(sum(map(len, shown.values())) / POINTS_SHOWN)
    rows: list[Row] = []
    for method, both in shown.items():
        first = both.groupby("seed", sort=False).cumcount() % step == 0
        drawn = both[first].assign(label=method.label).dropna()
        rows += drawn.drop(columns=["seed", "n"]).to_dict("records")
    values = [row[key] for row in rows for key in ("alone", "accuracy")]
    scale = room(values, high=100.0)
    axes = {
        "x": quantity(alt.X, "alone", "training alone, %", 6, **scale),
        "y": quantity(alt.Y, "accuracy", "taking part, %", 6, **scale),
    }
    tip = tips(client="client", **({"group": "group"} if study.group_names else {}))
    tip += tips(
        alone="alone, %|.2f", accuracy="taking part, %|.2f", difference="gain, points|+.2f"
    )[1:]
    even = alt.Chart(data([{"alone": end, "accuracy": end} for end in scale["domain"]]))
    layers = [
        even.mark_line(strokeDash=[4, 3], strokeWidth=1.5, color="var(--muted)").encode(**axes),
        points(rows, study, 34, opacity=0.6, tooltip=tip, **axes),
    ]
    counts = {m.label: studies.worse_off(m, study.alone or m) or (0.0, 0, 0) for m in shown}
    return draw(
        "gains",
        400,
        *layers,
        sample=words("gains", "sample", step=step) if step > 1 else "",
        clients=max(count[1] for count in counts.values()),
        values="; ".join(f"{label} {count[0]:.1f}" for label, count in counts.items()),
    )
