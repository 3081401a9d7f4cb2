"""Groups: how each is served, protected groups, attacks, and what one voter could change."""

import math
import re
from collections.abc import Iterator
from typing import Any

from e2fl.metrics import COLUMNS, MEASURES
from e2fl.metrics.intervals import FEW
from e2fl.report.charts import Plot, dot_plot, dot_rows
from e2fl.report.sections.section import Section
from e2fl.report.study import Study, extremes, names_in
from e2fl.report.table import METHOD, Column, Table, interval_cells, method_table, seed_cells, words

UNEVEN = 1.5  # times as often: then the burden on some groups is mentioned
LOSSES = {
    "worst": "worst group",
    "inside": "attacked groups",
    "outside": "other groups",
    "hardest": "of these, the most",
    "clients": "mean of clients",
}
SHARES = {"contained": "of it in attacked groups, %", "edges": "kept edges changed, %"}


def groups(study: Study) -> Section | None:
    """Does every group get a good model, however small it is?"""
    if not study.group_names:
        return None
    found = words("groups", "found") if study.groups_found else ""
    asked = "".join(f" {sentence}" for sentence in uneven(study))
    return Section.of("groups", (), [group_dots(study)], [group_table(study)], found=found + asked)


def group_dots(study: Study) -> Plot:
    """Return a plot of every group, sorted by accuracy with the method of the verdict."""
    known = {name: study.subject.mean(f"groups/{name}/accuracy") for name in study.group_names}
    accuracy = {name: math.inf if value is None else value for name, value in known.items()}
    sizes = {name: study.size_of(name) or 0 for name in accuracy}
    names = {"clients/mean": f"All clients ({sum(sizes.values()):,.0f})"}
    for name in sorted(accuracy, key=accuracy.__getitem__):
        names[f"groups/{name}/accuracy"] = f"{name} ({sizes[name]:,.0f})"
    return dot_plot(
        study,
        "groups",
        dot_rows(study, names),
        "accuracy, %",
        name="group-accuracy",
        group=_group(study),
        intervals=study.interval_label,
        subject=study.subject.label,
        no_line=words("groups", "no_line", few=FEW) if len(study.seeds) == 1 else "",
        ranges=_ranges(study),
    )


def _group(study: Study) -> str:
    return "found group" if study.groups_found else "group"


def _ranges(study: Study) -> str:
    """Return the lowest and the highest group of each method, in words."""
    text = "{label} from {least:.1f} % ({low}) to {most:.1f} % ({high})"
    ranges = {
        method.label: extremes({n: method.mean(f"groups/{n}/accuracy") for n in method.groups})
        for method in study.methods
    }
    return "; ".join(text.format(label=label, **ends) for label, ends in ranges.items() if ends)


def group_table(study: Study) -> Table:
    """Return a table of every group: its clients, and its accuracy and loss with each method."""
    columns = [Column("group", _group(study)), Column("clients", "clients", 0)]
    rows: list[dict[str, Any]] = [
        {"group": name, "clients": study.size_of(name)} for name in study.group_names
    ]
    for kind, digits in (("accuracy", 2), ("gain", 2), ("loss", 3)):
        for method in study.methods:
            cells = [method.interval(f"groups/{name}/{kind}") for name in study.group_names]
            if any(cells):
                key = f"{method.label}/{kind}"
                columns.append(Column(key, method.label, digits, kind, kind))
                for row, cell in zip(rows, cells, strict=True):
                    row |= interval_cells(key, cell)
    note = words("groups", "note", intervals=study.interval_label)
    return Table.of("groups", words("groups", "plot", group="group"), columns, rows, note)


def uneven(study: Study) -> Iterator[str]:
    """Yield the methods that asked the clients of some groups much more often than others."""
    for method in study.main:
        names = names_in(method.final, "participation", "asked_per_client")
        ends = extremes({n: method.mean(f"participation/{n}/asked_per_client") for n in names})
        if ends is not None and ends["most"] > UNEVEN * ends["least"]:
            yield words("groups", "uneven", method=method.label, **ends)


def protected(study: Study) -> Section | None:
    """Do both groups get the same chances, if the groups are a protected attribute?"""
    titles = {f"protected/{key}": words("protected", key) for key in ("eod", "spd", "di")}
    methods = [m for m in study.methods if any(key in m.final for key in titles)]
    if not methods:
        return None
    first, second = study.protected_groups or ("the first group", "the second")
    names = {"first": first, "second": second}
    measures = [MEASURES[key] for key in COLUMNS["protected"]]
    title, note = (words("protected", kind, **names) for kind in ("table", "note"))
    table = method_table(study, "protected", title, measures, methods, note)
    rows = dot_rows(study, titles, 100.0)
    if not rows:
        return Section.of("protected", [table], **names)
    values = "; ".join(f"{row['name']}: {row['label']} {row['value']:+.1f}" for row in rows)
    plot = dot_plot(
        study, "protected", rows, "percentage points", zero=True, values=values, **names
    )
    return Section.of("protected", (), [plot], [table], **names)


def attacks(study: Study) -> Section | None:
    """What do malicious clients cost the honest ones?"""
    table = attack_table(study)
    if table is None or study.attacked is None:
        return None
    pairs = {
        f"{method}, {attack}": repeats
        for (method, attack), repeats in study.attacked.groupby(["method", "attack"], sort=False)
    }
    columns = [Column("group", "group")]
    columns += [Column(name, name, 2, "points lost", signed=True) for name in pairs]
    rows = []
    for path in study.attacked.filter(regex="^groups/"):
        row: dict[str, Any] = {"group": str(path).removeprefix("groups/")}
        for name, repeats in pairs.items():
            row |= seed_cells(name, repeats[path])
        rows.append(row)
    behind = [Table.of("attack-groups", words("attacks", "groups"), columns, rows)] if rows else []
    return Section.of("attacks", [table], (), behind)


def attack_table(study: Study) -> Table | None:
    """Return what each attack cost each method; None if nothing was run clean and attacked."""
    if study.attacked is None or study.attacked.empty:
        return None
    columns = [METHOD, Column("attack", "attack")]
    columns += [Column(key, title, 2, "points lost", signed=True) for key, title in LOSSES.items()]
    columns += [Column(key, title, 1) for key, title in SHARES.items()]
    rows = []
    for (method, attack), repeats in study.attacked.groupby(["method", "attack"], sort=False):
        row: dict[str, Any] = {"method": method, "attack": attack}
        for key in (*LOSSES, *SHARES):
            row |= seed_cells(key, repeats[key])
        rows.append(row)
    return Table.of("attacks", words("attacks", "table"), columns, rows, words("attacks", "note"))


def influence(study: Study) -> Section | None:
    """How much of a mask could one voter change?"""
    rows: list[dict[str, Any]] = []
    layers: dict[str, str] = {}
    for method in study.main:
        final = method.final
        names = names_in(final, "influence/groups", "mask")
        votes = {f"influence/groups/{name}": name for name in names}
        for path, vote in (votes | {"influence/global": words("influence", "all")}).items():
            means = final.filter(regex=f"^{re.escape(path)}/").mean().dropna()
            cells = {str(key).removeprefix(f"{path}/"): value for key, value in means.items()}
            if cells:
                rows.append({"method": method.label, "vote": vote, **cells})
                layers |= {key: key.removeprefix("layers/") for key in cells if "layers/" in key}
    columns = [METHOD, Column("vote", "vote"), Column("ballots", "ballots", 1)]
    columns.append(Column("mask", "whole mask", 1, words("influence", "head")))
    columns += [Column(key, title, 1, words("influence", "head")) for key, title in layers.items()]
    table = Table.of("influence", words("influence", "table"), columns, rows)
    return Section.of("influence", [table]) if rows else None
