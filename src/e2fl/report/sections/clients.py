"""Equality: do all clients get about the same accuracy, and which clients get the lowest?"""

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from e2fl.metrics import COLUMNS, MEASURES
from e2fl.metrics.arrays import Numbers
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
    tip,
)
from e2fl.report.methods import method_table
from e2fl.report.section import Section
from e2fl.report.study import Method, Study
from e2fl.report.table import METHOD, Column, Table, column_of
from e2fl.report.theme import Theme
from e2fl.report.verdict import subject_of

QUANTILES = (0, 5, 10, 25, 50, 75, 90, 95, 100)
BINS = 40
HILL = 0.72  # of the height of a row; the name is above
LOWEST = 10  # clients in the table of the lowest


def section(study: Study, theme: Theme) -> Section | None:
    samples = {method.label: values for method in study.methods if len(values := pooled(method))}
    if not samples:
        return None
    intro = "Do all clients get about the same accuracy?"
    plots = (_histograms(study, theme, samples),)
    behind = (_quantiles(samples), *loss_table(study))
    tables = (worst_table(study),)
    return Section("clients", "Clients", intro, tables, plots, behind, open=True)


def pooled(method: Method) -> Numbers:
    """Return the finite accuracies of all clients of all seeds."""
    known = [clients["accuracy"].to_numpy() for clients in method.clients.values()]
    values = np.concatenate(known) if known else np.empty(0)
    return values[np.isfinite(values)]


def worst_table(study: Study) -> Table:
    """Return a table of the clients with the lowest accuracy, by name."""
    subject = subject_of(study)
    several = len(study.seeds) > 1
    every = [clients.assign(seed=seed) for seed, clients in subject.clients.items()]
    lowest = pd.concat(every).sort_values(["accuracy", "seed", "client"], kind="stable")[:LOWEST]
    rows = [
        {"client": row["client"], "seed": int(row["seed"]), "group": row["group"]}
        | {"n": int(row["n"])}
        | {method.label: _accuracy_of(method, row) for method in study.methods}
        for _, row in lowest.iterrows()
    ]
    columns = [Column("client", "client"), *([Column("seed", "seed", 0)] if several else [])]
    columns += [Column("group", "group")] if study.group_names else []
    columns += [Column("n", "test rows", 0)]
    columns += [
        Column(method.label, method.label, 1, "accuracy, %", "accuracy") for method in study.methods
    ]
    title = f"The {len(rows)} clients with the lowest accuracy with {subject.label}"
    return Table.of("lowest", title, columns, rows)


def _accuracy_of(method: Method, row: "pd.Series[Any]") -> float | None:
    """Return the accuracy of the client of this row, with the same seed; None if not known."""
    clients = method.clients.get(int(row["seed"]))
    if clients is None:
        return None
    values = clients.loc[clients["client"] == row["client"], "accuracy"]
    return float(values.iloc[0]) if len(values) else None


def _histograms(study: Study, theme: Theme, samples: dict[str, Numbers]) -> Plot:
    """Return a histogram for each method, one below the other, with its name."""
    low = math.floor(min(values.min() for values in samples.values()))
    high = max(low + 1, math.ceil(max(values.max() for values in samples.values())))
    bases = {label: len(samples) - 1 - place for place, label in enumerate(samples)}
    heads = [
        {"label": label, "at": low, "base": base, "name": base + 0.86, "top": base + HILL}
        | {"mean": float(samples[label].mean())}
        for label, base in bases.items()
    ]
    up: Channels = {"axis": None, "scale": alt.Scale(domain=[0, len(samples)], nice=False)}
    across = quantity(alt.X, "from", "accuracy of a client, %", 10, domain=[low, high], nice=False)
    bars = _bars(samples, bases, np.linspace(low, high, BINS + 1))
    tips = [
        METHOD_TIP,
        tip("from", "from, %", ".1f"),
        tip("to", "to, %", ".1f"),
        tip("share", "clients, %", ".1f"),
    ]
    text = alt.Chart(data(heads)).encode(opacity=bright())
    layers = [
        marks(bars, study, theme)
        .mark_rect()
        .encode(
            x=across,
            x2="to:Q",
            y=alt.Y("base:Q", **up),
            y2="height:Q",
            opacity=bright(0.85),
            tooltip=tips,
        ),
        alt.Chart(data(heads)).mark_rule(color=theme.line).encode(y=alt.Y("base:Q", **up)),
        text.mark_text(
            align="left", baseline="middle", dx=2, fontWeight="bold", limit=300, color=theme.ink
        ).encode(x="at:Q", y=alt.Y("name:Q", **up), text="label:N"),
        text.mark_rule(strokeWidth=2, color=theme.ink).encode(
            x="mean:Q",
            y=alt.Y("base:Q", **up),
            y2="top:Q",
            tooltip=[METHOD_TIP, tip("mean", "mean, %")],
        ),
    ]
    told = [
        f"{label} {v.min():.1f} to {v.max():.1f}, mean {v.mean():.1f}"
        for label, v in samples.items()
    ]
    caption = (
        "One histogram of all clients per method; the vertical line is the mean. A narrow one far "
        "to the right is good for all clients; a tail to the left shows clients with a poor model."
    )
    words = f"Histograms of the accuracy of clients in percent. {'; '.join(told)}."
    return draw(
        "distribution",
        "Accuracy over clients",
        caption,
        words,
        layers,
        theme,
        40 + 78 * len(samples),
    )


def _bars(samples: dict[str, Numbers], bases: dict[str, int], edges: Numbers) -> list[Row]:
    shares = {
        label: np.histogram(values, edges)[0] / len(values) for label, values in samples.items()
    }
    top = max(float(share.max()) for share in shares.values())
    return [
        {"label": label, "from": float(start), "to": float(end), "share": 100 * float(part)}
        | {"base": bases[label], "height": bases[label] + HILL * float(part) / top}
        for label, share in shares.items()
        for start, end, part in zip(edges[:-1], edges[1:], share, strict=True)
        if part
    ]


def _quantiles(samples: dict[str, Numbers]) -> Table:
    rows = [
        {"method": label, "clients": len(values)}
        | {f"percentile_{q}": float(np.percentile(values, q)) for q in QUANTILES}
        for label, values in samples.items()
    ]
    titles = {0: "lowest", 50: "median", 100: "highest"}
    columns = [METHOD, Column("clients", "clients", 0)]
    columns += [Column(f"percentile_{q}", titles.get(q, f"{q} %"), 1) for q in QUANTILES]
    note = "Under 10 %: a tenth of the clients are at or below this accuracy. All seeds together."
    return Table.of("distribution", "Accuracy over clients", columns, rows, note)


def loss_table(study: Study) -> tuple[Table, ...]:
    """Return the spread of the objective: Definitions 1 and 2 of the E2FL paper."""
    keys = COLUMNS["losses"]
    methods = [method for method in study.methods if any(method.by_seed(key) for key in keys)]
    if not methods:
        return ()
    columns = [column_of(MEASURES[key]) for key in keys]
    note = "A low spread means that losses are equal."
    return (method_table("losses", "Loss and its spread", methods, columns, note),)
