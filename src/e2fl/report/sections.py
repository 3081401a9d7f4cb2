"""The sections of the page: a function for each question, with text, tables and plots."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from e2fl.metrics import COLUMNS, MEASURES
from e2fl.metrics.intervals import MIN_CLIENTS
from e2fl.report import charts
from e2fl.report.charts import Plot, Row
from e2fl.report.study import Study, names_in
from e2fl.report.table import (
    METHOD,
    Column,
    Table,
    interval_cells,
    known_measures,
    measure_columns,
    method_table,
    seed_cells,
    words,
)

LOWEST_CLIENTS = 10  # clients in the table of the lowest
QUANTILES = (0, 5, 10, 25, 50, 75, 90, 95, 100)
OF_GROUPS = ("groups/NAME/accuracy", "groups/NAME/gain", "groups/NAME/loss")
ASKED = "participation/NAME/asked_per_client"
SENT = "bytes/total"
MAX_TICKS = 8  # at most, of rounds
LOSSES = {
    "worst": "worst group",
    "inside": "attacked groups",
    "outside": "other groups",
    "hardest": "of these, the most",
    "clients": "mean of clients",
}
SHARES = {"contained": "of it in attacked groups, %", "edges": "kept edges changed, %"}


class Section:
    """A heading and a short text, of words.toml, tables, plots, and the tables behind the plots."""

    def __init__(
        self,
        key: str,
        tables: Sequence[Table] = (),
        plots: Sequence[Plot] = (),
        behind: Sequence[Table] = (),
        **values: Any,
    ):
        self.key, self.tables, self.plots, self.behind = key, tables, plots, behind
        self.title, self.intro = (words(key, kind, **values).strip() for kind in ("title", "intro"))


def sections(study: Study) -> list[Section]:
    """Return all sections that have something to show for this study."""
    answers = (question(study) for question in QUESTIONS)
    return [section for section in answers if section is not None]


def outcome(study: Study) -> Section:
    """How good is each method, for clients and for groups, and what did it cost?"""
    tables = [main_table(study), *([difference_table(study)] if study.pair else [])]
    return Section("outcome", tables, budget=budget_sentence(study))


def main_table(study: Study) -> Table:
    """Return a table of groups, clients and bytes; the best cell of each column is marked."""
    measures = known_measures(study.methods, "page", study.own)
    note = words("outcome", "note", intervals=study.interval_label)
    return method_table(study, "main", words("outcome", "table"), measures, study.methods, note)


def difference_table(study: Study) -> Table:
    """Return the subject of the verdict minus each other method; significant ones are marked."""
    subject, others = study.subject, [m for m in study.methods if m is not study.subject]
    paths = ["clients/mean", "clients/std", study.worst, *(["group/std"] * bool(study.group_names))]
    measures = [replace(MEASURES[path], signed=True) for path in dict.fromkeys(paths)]
    columns = [Column("against", f"{subject.label} minus"), *measure_columns(study, measures)]
    rows: list[Row] = [{"against": other.label} for other in others]
    bold = set()
    for position, other in enumerate(others):
        for path in paths:
            difference = subject.minus(other, path)
            rows[position] |= interval_cells(path, difference)
            if difference is not None and difference.may_be_chance is False:
                bold.add((position, path))
    title = words("outcome", "differences", subject=subject.label)
    judged = "judged" if len(study.seeds) > 1 else "one_run"
    note = words("outcome", judged, intervals=study.interval_label)
    return Table("differences", title, columns, rows, note, bold)


def budget_sentence(study: Study) -> str:
    """Return a sentence about equal or different budgets; empty for one method."""
    epochs = {method.label: method.mean("budget/client_epochs") for method in study.main}
    finite = pd.Series(epochs, dtype=float).dropna()
    if finite.empty or len(study.main) == 1:
        return ""
    ends = {"most": finite.max(), "least": finite.min()}
    kind = "equal" if ends["most"] <= 1.001 * ends["least"] else "differ"
    return words("outcome", kind, high=finite.idxmax(), low=finite.idxmin(), **ends)


def groups(study: Study) -> Section | None:
    """Does every group get a good model, however small it is?"""
    if not study.group_names:
        return None
    note = words("groups", "found") if study.groups_found else ""
    return Section("groups", (), [group_dots(study)], [group_table(study)], found=note)


def group_dots(study: Study) -> Plot:
    """Return a plot of every group, sorted by accuracy with the method of the verdict."""
    accuracy = {n: study.subject.mean(f"groups/{n}/accuracy") for n in study.group_names}
    sizes = {name: study.size_of(name) or 0 for name in accuracy}
    names = {"clients/mean": f"All clients ({sum(sizes.values()):,.0f})"}
    for name in pd.Series(accuracy, dtype=float).sort_values(kind="stable").index:
        names[f"groups/{name}/accuracy"] = f"{name} ({sizes[name]:,.0f})"
    return charts.dot_plot(
        study,
        "group-accuracy",
        charts.dot_rows(study, names),
        "accuracy, %",
        group="found group" if study.groups_found else "group",
        intervals=study.interval_label,
        subject=study.subject.label,
        no_line=words("groups", "no_line", few=MIN_CLIENTS) if len(study.seeds) == 1 else "",
    )


def group_table(study: Study) -> Table:
    """Return a table of every group: how each method serves it, and how often it asks it."""
    title = words("group-accuracy", "plot", group="found group" if study.groups_found else "group")
    columns = [Column("group", "group"), Column("clients", "clients", 0)]
    rows: list[Row] = [{"group": n, "clients": study.size_of(n)} for n in study.group_names]
    for measure in (MEASURES[path] for path in (*OF_GROUPS, ASKED)):
        for method in study.methods:
            paths = [measure.key.replace("NAME", name) for name in study.group_names]
            cells = [method.interval(path) for path in paths]
            if any(cells):
                key = f"{method.label}/{measure.key.rpartition('/')[2]}"
                columns.append(replace(measure, key=key, title=method.label, head=measure.title))
                for row, cell in zip(rows, cells, strict=True):
                    row |= interval_cells(key, cell)
    note = words("groups", "note", intervals=study.interval_label)
    return Table("groups", title, columns, rows, note)


def protected(study: Study) -> Section | None:
    """Do both groups get the same chances, if the groups are a protected attribute?"""
    methods = [m for m in study.methods if "protected/di" in m.final]
    if not methods or not study.protected_groups:
        return None
    names = dict(zip(("first", "second"), study.protected_groups, strict=True))
    measures = [MEASURES[key] for key in COLUMNS["protected"]]
    title, note = (words("protected", kind, **names) for kind in ("table", "note"))
    table = method_table(study, "protected", title, measures, methods, note)
    titles = {f"protected/{key}": words("protected", key) for key in ("eod", "spd", "di")}
    rows = charts.dot_rows(study, titles)
    plot = charts.dot_plot(study, "protected", rows, "difference", zero=True, **names)
    return Section("protected", (), [plot], [table], **names)


def attacks(study: Study) -> Section | None:
    """What do malicious clients cost the honest ones?"""
    table = attack_table(study)
    if table is None:
        return None
    paths = {str(path): str(path).partition("/")[2] for path in study.attacked if "/" in str(path)}
    columns = [Column(path, name, 2, "points lost", signed=True) for path, name in paths.items()]
    by_group = _per_attack(study.attacked, "attack-groups", words("attacks", "groups"), columns)
    return Section("attacks", [table], (), [by_group] if paths else [])


def attack_table(study: Study) -> Table | None:
    """Return the cost of each attack for each method; None without a clean run to compare with."""
    if study.attacked.empty:
        return None
    columns = [Column(key, title, 2, "points lost", signed=True) for key, title in LOSSES.items()]
    columns += [Column(key, title, 1) for key, title in SHARES.items()]
    title, note = (words("attacks", kind) for kind in ("table", "note"))
    return _per_attack(study.attacked, "attacks", title, columns, note)


def _per_attack(
    attacked: pd.DataFrame, key: str, title: str, columns: Sequence[Column], note: str = ""
) -> Table:
    """Return a table with a row for each method and attack: means over seeds, with intervals."""
    rows = []
    for (method, attack), repeats in attacked.groupby(["method", "attack"], sort=False):
        row: Row = {"method": method, "attack": attack}
        for column in columns:
            row |= seed_cells(column.key, repeats[column.key])
        rows.append(row)
    return Table(key, title, [METHOD, Column("attack", "attack"), *columns], rows, note)


def clients(study: Study) -> Section | None:
    """Do all clients get about the same accuracy?"""
    samples = {m.label: v for m in study.methods if len(v := m.clients["accuracy"].dropna())}
    if not samples:
        return None
    table, plot = _boxes(study, "distribution", samples, "accuracy of a client, %")
    return Section("clients", [lowest_table(study)], [plot], [table])


def _boxes(
    study: Study, key: str, samples: "dict[str, pd.Series[float]]", axis: str, **options: bool
) -> tuple[Table, Plot]:
    """Return the quantiles of values of clients for each method, as a table and as a box plot."""
    rows = [
        {"method": label, "clients": len(values)}
        | {f"percentile_{q}": float(np.percentile(values, q)) for q in QUANTILES}
        for label, values in samples.items()
    ]
    titles = {0: "lowest", 50: "median", 100: "highest"}
    columns = [METHOD, Column("clients", "clients", 0)]
    columns += [Column(f"percentile_{q}", titles.get(q, f"{q} %"), 1) for q in QUANTILES]
    table = Table(key, words(key, "plot"), columns, rows, words("clients", "quantiles"))
    ends = {"low": 0, "left": 25, "value": 50, "right": 75, "high": 100}
    boxes: list[Row] = [
        {"name": row["method"], "label": row["method"]}
        | {end: row[f"percentile_{q}"] for end, q in ends.items()}
        for row in rows
    ]
    return table, charts.dot_plot(study, key, boxes, axis, **options)


def lowest_table(study: Study) -> Table:
    """Return a table of the clients with the lowest accuracy, by name."""
    subject = study.subject
    every = pd.concat([method.clients.assign(method=method.label) for method in study.methods])
    wide = every.pivot(index=["seed", "client"], columns="method", values="accuracy").reset_index()
    rows = subject.clients[["seed", "client", "group", "n"]].astype({"n": int})
    lowest = rows.merge(wide, on=["seed", "client"], suffixes=("", " "))
    lowest = lowest.sort_values([subject.label, "seed", "client"], kind="stable")[:LOWEST_CLIENTS]
    columns = [Column("client", "client")]
    columns += [Column("seed", "seed", 0)] if len(study.seeds) > 1 else []
    columns += [Column("group", "group")] if study.group_names else []
    columns += [Column("n", "test rows", 0)]
    columns += [Column(m.label, m.label, 1, "accuracy, %", "accuracy") for m in study.methods]
    title = words("clients", "lowest", count=len(lowest), subject=subject.label)
    return Table("lowest", title, columns, lowest)


def taking_part(study: Study) -> Section | None:
    """Is each client better off than training on its own?"""
    methods = [method for method in study.methods if not method.alone]
    samples = {m.label: values for m in methods if len(values := m.gains.dropna())}
    if not samples:
        return None
    measures = known_measures(methods, "gain")
    table = method_table(study, "gains", words("gains", "table"), measures, methods)
    axis = "gain of a client, percentage points"
    quantiles, plot = _boxes(study, "gain-distribution", samples, axis, zero=True)
    return Section("gains", [table], [plot], [quantiles])


def curves(study: Study) -> Section | None:
    """How did accuracy develop, by round and by data sent?"""
    titles = {"clients/mean": "mean of clients", study.worst: study.worst_label}
    rows = curve_rows(study, [*titles])
    once = rows.groupby("method")["round"].transform("size") == 1
    if once.all():
        return None
    sent, *columns = measure_columns(study, [MEASURES[path] for path in (SENT, *titles)])
    shown = [METHOD, Column("round", "round", 0), sent, *columns]
    table = Table("curves", words("curves", "table"), shown, rows)
    drawn = rows.assign(label=rows["method"], sent=rows[SENT] * sent.scale)
    # What was evaluated once is level: it is drawn at both ends.
    first, last = (drawn[~once][["round", "sent"]].agg(end) for end in ("min", "max"))
    ends = [drawn[once].assign(round=end["round"], sent=end["sent"]) for end in (first, last)]
    drawn = pd.concat([drawn[~once], *ends])
    total = f"{sent.head}, clients and rounds so far, up and down"
    rounds = [int(number) for number in sorted(drawn["round"].unique())]
    ticks = alt.Axis(values=rounds[:: math.ceil(len(rounds) / MAX_TICKS)])
    axes = {
        "round": charts.quantity(alt.X, "round", "round", nice=False).axis(ticks),
        "sent": charts.quantity(alt.X, "sent", total, nice=False, zero=True),
    }
    plots = [
        _curve(study, drawn, key, title, along, x)
        for key, title in titles.items()
        for along, x in axes.items()
    ]
    shaded = words("curves", "shaded") if len(study.seeds) > 1 else ""
    level = words("curves", "once") if once.any() else ""
    return Section("curves", (), plots, [table], shaded=shaded, once=level)


def curve_rows(study: Study, keys: Iterable[str]) -> pd.DataFrame:
    """Return the rounds that all seeds have: bytes sent so far, measures with their intervals."""
    rows: list[Row] = []
    for method in study.methods:
        for number, seeds in method.rows.groupby("round"):
            if len(seeds) == len(method.seeds):
                rows.append({"method": method.label, "round": number, SENT: seeds[SENT].mean()})
                for key in keys:
                    rows[-1] |= seed_cells(key, seeds.reindex(columns=[key])[key])
    return pd.DataFrame(rows)


def _curve(study: Study, rows: pd.DataFrame, key: str, title: str, along: str, x: Any) -> Plot:
    """Return the curves of a measure."""
    names = {key: "value", f"{key}_low": "low", f"{key}_high": "high"}
    drawn = rows.rename(columns=names).reindex(columns=["label", "round", "sent", *names.values()])
    drawn = drawn.dropna(subset="value")
    # The curves decide what is shown, not their intervals: one over two seeds can dwarf them.
    domain = charts.room(drawn["value"])
    y, band = (charts.quantity(alt.Y, end, f"{title}, %", 5, **domain) for end in ("value", "low"))
    labels, tip = charts.labels_of(study), charts.tips(round="round|d", value=f"{title}, %|.2f")
    area = charts.marks(drawn, labels, 0.1, x=x, y=band, y2="high:Q").mark_area(clip=True)
    line = charts.marks(drawn, labels, x=x, y=y, tooltip=tip).mark_line(strokeWidth=2)
    return charts.draw(
        "curves",
        220,
        *([area] if len(study.seeds) > 1 else []),
        line,
        charts.points(drawn, labels, 36, x=x, y=y, tooltip=tip),
        name=f"curve-{'mean' if key == 'clients/mean' else 'worst'}-{along}",
        title=title.capitalize(),
        way="by round" if along == "round" else "by data sent",
    )


def recovery(study: Study) -> Section | None:
    """How well were groups found that clients did not declare?"""
    methods = [method for method in study.main if method.recovers]
    measures = known_measures(methods, "recovery")
    table = method_table(study, "recovery", words("recovery", "table"), measures, methods)
    return Section("recovery", [table]) if measures else None


def influence(study: Study) -> Section | None:
    """How much of a mask could one voter change?"""
    rows: list[Row] = []
    for method in study.main:
        votes = {f"groups/{n}": n for n in names_in(method.final, "influence/groups", "mask")}
        for path, vote in (votes | {"global": words("influence", "all")}).items():
            means = method.final.filter(regex=f"^influence/{re.escape(path)}/").mean().dropna()
            cells = {str(key).removeprefix(f"influence/{path}/"): v for key, v in means.items()}
            rows += [{"label": method.label, "name": vote, **cells}] if cells else []
    if not rows:
        return None
    layers = dict.fromkeys(key for row in rows for key in row if key.startswith("layers/"))
    shares = {"mask": "whole mask"} | {key: key.removeprefix("layers/") for key in layers}
    columns = [Column("label", "method"), Column("name", "vote"), Column("ballots", "ballots", 1)]
    columns += [Column(key, name, 1, words("influence", "head")) for key, name in shares.items()]
    table = Table("influence", words("influence", "table"), columns, rows)
    drawn = [{"label": row["label"], "name": row["name"], "value": row["mask"]} for row in rows]
    plot = charts.dot_plot(study, "influence", drawn, words("influence", "head"), zero=True)
    return Section("influence", (), [plot], [table])


def data_section(study: Study) -> Section | None:
    """What data do the clients hold?"""
    if study.data is None:
        return None
    columns = [Column("name", "group"), Column("clients", "clients", 0)]
    columns += [Column(key, key, 0, "examples") for key in ("train", "test")]
    rows = study.data.get("groups") or []
    behind = [Table("data", words("data", "table"), columns, rows)] if rows else []
    clients, examples = study.data.get("clients", 0), study.data.get("examples", {})
    parts = [f"{clients:,} clients", *(f"{n:,} {name} examples" for name, n in examples.items())]
    if (counted_over := study.data.get("looked_at", clients)) < clients:
        parts.append(f"counted over {counted_over:,} clients")
    return Section("data", (), (), behind, counts=", ".join(parts))


QUESTIONS = (
    *(outcome, groups, protected, attacks, clients, taking_part),
    *(curves, recovery, influence, data_section),
)
