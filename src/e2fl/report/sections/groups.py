"""Equity: does every group get a good model, and do protected groups get the same chances?"""

from collections.abc import Iterable
from typing import Any

from e2fl.metrics.intervals import FEW
from e2fl.report.charts import Dot, DotRow, Plot, dot_plot
from e2fl.report.sections.section import Section
from e2fl.report.study import Method, Study, extremes, names_in
from e2fl.report.table import Column, Table, interval_cells, method_table, words
from e2fl.report.verdict import subject_of

UNEVEN = 1.5  # times as often: then the burden on some groups is mentioned
PROTECTED = ("eod", "spd", "di")


def groups(study: Study) -> Section | None:
    """Does every group get a good model, however small it is?"""
    if not study.group_names:
        return None
    asked = participation_table(study)
    tables, behind = ([] if asked is None else [asked]), [group_table(study)]
    found = words("groups", "found") if study.groups_found else ""
    return Section.of("groups", tables, [group_dots(study)], behind, found=found)


def group_dots(study: Study) -> Plot:
    """Return a plot of every group, sorted by accuracy with the method of the verdict."""
    subject = subject_of(study)
    rows = []
    for name in study.group_names:
        key, size = f"groups/{name}/accuracy", study.methods[0].mean(f"groups/{name}/clients")
        value = subject.mean(key)
        dots = _dots(study, key, hollow=(size or 0) < FEW)
        rows.append(DotRow(name, dots, size, sort=float("inf") if value is None else value))
    rows.sort(key=lambda row: row.sort)
    everyone = sum(row.size or 0 for row in rows)
    first = DotRow("All clients", _dots(study, "clients/mean"), everyone, pinned=True)
    every = [dot for row in rows for dot in row.dots]
    several = len(study.methods) > 1
    order = f"Sorted by accuracy with {subject.label}, lowest" if several else "Lowest"
    order += " first."
    if any(dot.hollow for dot in every):
        order += words("groups", "hollow", few=FEW)
    if len(study.seeds) == 1 and any(dot.low is None for dot in every):
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
        ranges=_ranges(study, rows),
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


def _ranges(study: Study, rows: Iterable[DotRow]) -> str:
    """Return the lowest and the highest group of each method, in words."""
    text = "{label} from {least:.1f} % ({low}) to {most:.1f} % ({high})"
    by_method = {
        method.label: {r.name: d.value for r in rows for d in r.dots if d.label == method.label}
        for method in study.methods
    }
    ranges = {label: extremes(values) for label, values in by_method.items()}
    return "; ".join(text.format(label=label, **ends) for label, ends in ranges.items() if ends)


def group_table(study: Study) -> Table:
    """Return a table of every group: its clients, and its accuracy and loss with each method."""
    columns = [Column("group", _group(study)), Column("clients", "clients", 0)]
    paths: dict[str, tuple[Method, str]] = {}
    for kind, digits in (("accuracy", 2), ("gain", 2), ("loss", 3)):
        for method in study.methods:
            if any(method.by_seed(f"groups/{group}/{kind}") for group in study.group_names):
                key = f"{method.label}/{kind}"
                columns.append(Column(key, method.label, digits, kind, kind))
                paths[key] = method, kind
    rows = []
    for group in study.group_names:
        clients = study.methods[0].mean(f"groups/{group}/clients")
        whole = clients is not None and clients == int(clients)
        row: dict[str, Any] = {"group": group, "clients": int(clients or 0) if whole else clients}
        for key, (method, kind) in paths.items():
            row |= interval_cells(key, method.interval(f"groups/{group}/{kind}"))
        rows.append(row)
    note = words("groups", "note", intervals=study.interval_label)
    return Table.of("groups", words("groups", "plot", group="group"), columns, rows, note)


def participation_table(study: Study) -> Table | None:
    """Return how often the clients of each group were asked to train: the burden on each group."""
    asked = {
        method: names
        for method in study.main
        if (names := names_in(method.final, "participation", "asked_per_client"))
    }
    if not asked:
        return None
    names = list(dict.fromkeys(name for known in asked.values() for name in known))
    sizes = [{method.mean(f"participation/{name}/clients") for method in asked} for name in names]
    columns = [Column("group", _group(study))]
    if all(len(size) == 1 for size in sizes):  # groups that were found may differ between methods
        columns.append(Column("clients", "clients", 0))
    columns += [Column(m.label, m.label, 1, "times asked, per client") for m in asked]
    rows = []
    for name, size in zip(names, sizes, strict=True):
        row: dict[str, Any] = {"group": name, "clients": min(size, key=str)}
        for method in asked:
            interval = method.interval(f"participation/{name}/asked_per_client")
            row |= interval_cells(method.label, interval)
        rows.append(row)
    title = words("groups", "participation")
    note = " ".join(filter(None, (_uneven(method, names) for method in asked)))
    return Table.of("participation", title, columns, rows, note)


def _uneven(method: Method, names: list[str]) -> str:
    """Return a sentence if clients of some groups were asked much more often than others."""
    ends = extremes({n: method.mean(f"participation/{n}/asked_per_client") for n in names})
    if ends is None or ends["most"] <= UNEVEN * ends["least"]:
        return ""
    return words("groups", "uneven", method=method.label, **ends)


def protected(study: Study) -> Section | None:
    """Do both groups get the same chances, if the groups are a protected attribute?"""
    keys = [f"protected/{key}" for key in PROTECTED]
    methods = [m for m in study.methods if any(key in m.final for key in keys)]
    if not methods:
        return None
    first, second = study.protected_groups or ("the first group", "the second")
    names: dict[str, Any] = {"first": first, "second": second}
    titles = {key: words("protected", key) for key in PROTECTED}
    columns = [Column("clients/mean", "mean accuracy", definition="mean")] + [
        Column(f"protected/{key}", title.partition(":")[0], 4, definition=key, signed=True)
        for key, title in titles.items()
    ]
    title, note = (words("protected", kind, **names) for kind in ("table", "note"))
    table = method_table("protected", title, methods, columns, note)
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
