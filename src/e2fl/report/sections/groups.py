"""Groups: how each is served, protected groups, attacks, and what one voter could change."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from e2fl.metrics import COLUMNS, MEASURES
from e2fl.metrics.intervals import FEW, over_seeds
from e2fl.report.charts import Dot, DotRow, Plot, dot_plot
from e2fl.report.sections.section import Section
from e2fl.report.study import Json, Study, extremes, names_in
from e2fl.report.table import METHOD, Column, Table, interval_cells, method_table, words

if TYPE_CHECKING:
    from e2fl.runs.store import Run

UNEVEN = 1.5  # times as often: then the burden on some groups is mentioned
PROTECTED = ("eod", "spd", "di")


def groups(study: Study) -> Section | None:
    """Does every group get a good model, however small it is?"""
    if not study.group_names:
        return None
    found = words("groups", "found") if study.groups_found else ""
    asked = "".join(f" {sentence}" for sentence in uneven(study))
    return Section.of("groups", (), [group_dots(study)], [group_table(study)], found=found + asked)


def group_dots(study: Study) -> Plot:
    """Return a plot of every group, sorted by accuracy with the method of the verdict."""
    subject, several = study.subject, len(study.methods) > 1
    rows = []
    for name in study.group_names:
        key, size = f"groups/{name}/accuracy", study.methods[0].mean(f"groups/{name}/clients")
        value = subject.mean(key)
        dots = _dots(study, key, hollow=(size or 0) < FEW)
        rows.append(DotRow(name, dots, size, sort=float("inf") if value is None else value))
    rows.sort(key=lambda row: row.sort)
    everyone = sum(row.size or 0 for row in rows)
    first = DotRow("All clients", _dots(study, "clients/mean"), everyone, pinned=True)
    order = f"Sorted by accuracy with {subject.label}, lowest" if several else "Lowest"
    order += " first."
    if any(dot.hollow for row in rows for dot in row.dots):
        order += words("groups", "hollow", few=FEW)
    if len(study.seeds) == 1 and any(dot.low is None for row in rows for dot in row.dots):
        order += words("groups", "no_line")
    return dot_plot(
        study,
        "groups",
        [first, *rows],
        "accuracy, %",
        None if several else subject.mean("clients/mean"),
        name="group-accuracy",
        group=_group(study),
        intervals=study.interval_label,
        order=order,
        ranges=_ranges(study),
    )


def _group(study: Study) -> str:
    return "found group" if study.groups_found else "group"


def _dots(study: Study, key: str, scale: float = 1.0, *, hollow: bool = False) -> list[Dot]:
    dots = []
    for position, method in enumerate(study.methods):
        interval = method.interval(key)
        if interval is not None:
            low, high = (end and scale * end for end in (interval.low, interval.high))
            dots.append(Dot(position, method.label, scale * interval.value, low, high, hollow))
    return dots


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
    sizes = [study.methods[0].mean(f"groups/{name}/clients") for name in study.group_names]
    rows: list[dict[str, Any]] = [
        {"group": name, "clients": size}
        for name, size in zip(study.group_names, sizes, strict=True)
    ]
    for kind, digits in (("accuracy", 2), ("gain", 2), ("loss", 3)):
        for method in study.methods:
            key = f"{method.label}/{kind}"
            cells = [method.interval(f"groups/{name}/{kind}") for name in study.group_names]
            if any(cells):
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
    keys = [f"protected/{key}" for key in PROTECTED]
    methods = [m for m in study.methods if any(key in m.final for key in keys)]
    if not methods:
        return None
    first, second = study.protected_groups or ("the first group", "the second")
    names: dict[str, Any] = {"first": first, "second": second}
    titles = {key: words("protected", key) for key in PROTECTED}
    measures = [MEASURES[key] for key in COLUMNS["protected"]]
    title, note = (words("protected", kind, **names) for kind in ("table", "note"))
    table = method_table(study, "protected", title, measures, methods, note)
    rows = [
        DotRow(title, dots, pinned=True)
        for key, title in titles.items()
        if (dots := _dots(study, f"protected/{key}", 100.0))
    ]
    if not rows:
        return Section.of("protected", [table], **names)
    values = (
        f"{row.name}: " + ", ".join(f"{d.label} {d.value:+.1f}" for d in row.dots) for row in rows
    )
    names["values"] = "; ".join(values)
    plot = dot_plot(study, "protected", rows, "percentage points", 0.0, **names)
    return Section.of("protected", (), [plot], [table], **names)


HONEST = "none"  # the attack of a run in which those who would attack are honest
PLACEMENT = ("place", "groups", "clients", "fraction")  # the settings that all attacks have
LOSSES = {
    "worst": "worst group",
    "inside": "attacked groups",
    "outside": "other groups",
    "hardest": "of these, the most",
    "clients": "mean of clients",
}

SHARES = {"contained": "of it in attacked groups, %", "edges": "kept edges changed, %"}


def impacts(named: Mapping[str, Sequence["Run"]]) -> tuple[Json, ...]:
    """Return what each attack cost in each seed: accuracy of the clean run minus the attacked one.

    Both runs measure the same honest clients. named: the runs of each method.
    """
    clean = {
        (_setting(run), run.seed): (label, run)
        for label, repeats in named.items()
        for run in repeats
        if _attack(run) == HONEST
    }
    return tuple(
        {"method": clean[key][0], "attack": _attack(run), **_impact(clean[key][1], run)}
        for repeats in named.values()
        for run in repeats
        if _attack(run) not in ("", HONEST) and (key := (_setting(run), run.seed)) in clean
    )


def _attack(run: "Run") -> str:
    attack = run.config.get("attack") or {}
    return str(attack.get("name", HONEST)) if attack else ""


def _setting(run: "Run") -> str:
    """Return what a clean and an attacked run share."""
    attack = run.config["attack"]
    placement = [attack.get(name) for name in PLACEMENT]
    shared = {key: value for key, value in run.config.items() if key in ("data", "model", "rounds")}
    return repr((placement, sorted(shared.items()), sorted(run.config["algorithm"].items())))


def _impact(clean: "Run", attacked: "Run") -> Json:
    before, after = clean.summary, attacked.summary
    level = "group" if before.get("group") and after.get("group") else "clients"
    attackers = set((after.get("attack") or {}).get("groups", ()))
    shared = before["groups"].keys() & after["groups"].keys()
    losses = {
        name: before["groups"][name]["accuracy"] - after["groups"][name]["accuracy"]
        for name in before["groups"]
        if name in shared
    }
    others = [loss for name, loss in losses.items() if name not in attackers]
    inside = [loss for name, loss in losses.items() if name in attackers]
    lost = sum(loss for loss in losses.values() if loss > 0)
    contained = 100 * sum(loss for loss in inside if loss > 0) / lost if inside and lost else None
    return {
        "groups": losses,
        "worst": before[level]["worst10"] - after[level]["worst10"],
        "inside": float(np.mean(inside)) if inside else None,
        "outside": float(np.mean(others)) if others else None,
        "hardest": max(others, default=None),
        "clients": before["clients"]["mean"] - after["clients"]["mean"],
        "contained": contained,
        "edges": _changed_edges(clean.folder, attacked.folder),
    }


def _changed_edges(clean: Path | None, attacked: Path | None) -> float | None:
    """Return the percentage of kept edges that the attacked run drops, over all its masks."""
    if clean is None or attacked is None:
        return None
    before, after = dict(_masks(clean)), dict(_masks(attacked))
    names = before.keys() & after.keys()
    kept = sum(int(before[name].sum()) for name in names)
    lost = sum(int((before[name] & ~after[name]).sum()) for name in names)
    return 100 * lost / kept if kept else None


def _masks(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the masks that a run stored; none if its models are weights, or not stored."""
    try:
        with safe_open(folder / "model.safetensors", framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118  (not a mapping)
                if file.get_slice(name).get_dtype() == "BOOL":
                    yield name, file.get_tensor(name)
    except (OSError, SafetensorError):
        return


def attacks(study: Study) -> Section | None:
    """What do malicious clients cost the honest ones?"""
    table = attack_table(study)
    if table is None:
        return None
    pairs = _pairs(study)
    columns = [Column("group", "group")]
    columns += [
        Column(f"{method}/{attack}", f"{method}, {attack}", 2, "points lost", signed=True)
        for method, attack in pairs
    ]
    rows = []
    for group in study.group_names:
        row: dict[str, Any] = {"group": group}
        for (method, attack), repeats in pairs.items():
            known = [one["groups"][group] for one in repeats if group in one["groups"]]
            row |= interval_cells(f"{method}/{attack}", over_seeds(known) if known else None)
        rows.append(row)
    behind = [Table.of("attack-groups", words("attacks", "groups"), columns, rows)] if rows else []
    return Section.of("attacks", [table], (), behind)


def attack_table(study: Study) -> Table | None:
    """Return what each attack cost each method; None if nothing was run clean and attacked."""
    columns = [METHOD, Column("attack", "attack")]
    columns += [Column(key, title, 2, "points lost", signed=True) for key, title in LOSSES.items()]
    columns += [Column(key, title, 1) for key, title in SHARES.items()]
    rows = []
    for (method, attack), repeats in _pairs(study).items():
        row: dict[str, Any] = {"method": method, "attack": attack}
        for key in (*LOSSES, *SHARES):
            known = [one[key] for one in repeats if one[key] is not None]
            row |= interval_cells(key, over_seeds(known) if known else None)
        rows.append(row)
    note = words("attacks", "note")
    return Table.of("attacks", words("attacks", "table"), columns, rows, note) if rows else None


def _pairs(study: Study) -> dict[tuple[str, str], list[Json]]:
    pairs: dict[tuple[str, str], list[Json]] = {}
    for impact in study.attacked:
        pairs.setdefault((impact["method"], impact["attack"]), []).append(impact)
    return pairs


def influence(study: Study) -> Section | None:
    """How much of a mask could one voter change?"""
    rows: list[Json] = []
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
