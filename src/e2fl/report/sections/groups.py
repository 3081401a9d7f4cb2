"""Equity: does every group get a good model, however small it is?"""

from e2fl.metrics.intervals import FEW
from e2fl.report.dotplot import Dot, DotPlot, DotRow, ticks
from e2fl.report.section import Section
from e2fl.report.study import Method, Study, names_in
from e2fl.report.table import Column, Table, interval_cells
from e2fl.report.theme import Theme
from e2fl.report.verdict import subject_of

UNEVEN = 1.5  # times as often: then the burden on some groups is mentioned


def section(study: Study, theme: Theme) -> Section | None:
    if not study.group_names:
        return None
    intro = "Does every group get a good model, however small the group is?"
    if study.groups_found:
        intro += " No group was declared: these groups were found by an algorithm."
    asked = participation_table(study)
    tables = () if asked is None else (asked,)
    plots, behind = (group_dots(study),), (group_table(study),)
    return Section("groups", "Groups", intro, tables, plots, behind, open=True)


def group_dots(study: Study) -> DotPlot:
    """Return a plot of every group, sorted by accuracy with the method of the verdict."""
    subject = subject_of(study)
    sizes = {name: study.methods[0].mean(f"groups/{name}/clients") for name in study.group_names}
    rows = []
    for name in study.group_names:
        value = subject.mean(f"groups/{name}/accuracy")
        few = (sizes[name] or 0) < FEW
        found = _dots(study, f"groups/{name}/accuracy", few=few)
        rows.append(DotRow(name, sizes[name], found, sort=float("inf") if value is None else value))
    everyone = DotRow(
        "All clients",
        sum(size or 0 for size in sizes.values()),
        _dots(study, "clients/mean"),
        pinned=True,
    )
    ordered = (everyone, *sorted(rows, key=lambda row: row.sort))
    values = [
        end
        for row in ordered
        for d in row.dots
        for end in (d.value, d.low, d.high)
        if end is not None
    ]
    what = "found group" if study.groups_found else "group"
    order = (
        f" Sorted by accuracy with {subject.label}, lowest first."
        if len(study.methods) > 1
        else " Lowest first."
    )
    hollow = (
        f" Hollow: fewer than {FEW} clients."
        if any(d.hollow for row in rows for d in row.dots)
        else ""
    )
    if len(study.seeds) == 1 and any(d.low is None for row in rows for d in row.dots):
        hollow += (
            " Without a line: too few clients to judge, or clients that all have the same accuracy."
        )
    return DotPlot(
        "group-accuracy",
        f"Accuracy by {what}",
        f"Lines: {study.interval_label}.{order}{hollow}",
        _words(study, ordered[1:]),
        "accuracy, %",
        ordered,
        ticks(values or [0.0, 100.0]),
        subject.mean("clients/mean") if len(study.methods) == 1 else None,
    )


def _dots(study: Study, key: str, *, few: bool = False) -> tuple[Dot, ...]:
    return tuple(
        Dot(place, method.label, interval.value, interval.low, interval.high, few)
        for place, method in enumerate(study.methods)
        if (interval := method.interval(key)) is not None
    )


def _words(study: Study, rows: tuple[DotRow, ...]) -> str:
    told = []
    for method in study.methods:
        found = {row.name: d.value for row in rows for d in row.dots if d.label == method.label}
        if found:
            low, high = min(found, key=lambda g: found[g]), max(found, key=lambda g: found[g])
            told.append(
                f"{method.label} from {found[low]:.1f} % ({low}) to {found[high]:.1f} % ({high})"
            )
    return f"Dot plot of accuracy by group. {'; '.join(told)}."


def group_table(study: Study) -> Table:
    """Return a table of every group: its clients, and its accuracy and loss with each method."""
    columns = [
        Column("group", "found group" if study.groups_found else "group"),
        Column("clients", "clients", 0),
    ]
    columns += [
        Column(f"{method.label}/{kind}", method.label, 3 if kind == "loss" else 2, kind, kind)
        for kind in ("accuracy", "loss")
        for method in study.methods
        if any(method.by_seed(f"groups/{group}/{kind}") for group in study.group_names)
    ]
    by_label = {method.label: method for method in study.methods}
    rows = []
    for group in study.group_names:
        clients = study.methods[0].mean(f"groups/{group}/clients")
        whole = clients is not None and clients == int(clients)
        row = {
            "group": group,
            "clients": int(clients) if clients is not None and whole else clients,
        }
        for column in columns[2:]:
            label, _, kind = column.key.rpartition("/")
            interval = by_label[label].interval(f"groups/{group}/{kind}")
            row |= interval_cells(column.key, interval)
        rows.append(row)
    note = f"Small figures: {study.interval_label}."
    return Table.of("groups", "Accuracy by group", columns, rows, note)


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
    columns = [Column("group", "found group" if study.groups_found else "group")]
    if all(len(size) == 1 for size in sizes):  # groups that were found may differ between methods
        columns.append(Column("clients", "clients", 0))
    columns += [Column(m.label, m.label, 1, "times asked, per client") for m in asked]
    rows = []
    for name, size in zip(names, sizes, strict=True):
        row: dict[str, float | str | None] = {"group": name, "clients": next(iter(size))}
        for method in asked:
            interval = method.interval(f"participation/{name}/asked_per_client")
            row |= interval_cells(method.label, interval)
        rows.append(row)
    title = "How often clients were asked to train"
    note = " ".join(_uneven(method, names) for method in asked).strip()
    return Table.of("participation", title, columns, rows, note)


def _uneven(method: Method, names: list[str]) -> str:
    """Return a sentence if clients of some groups were asked much more often than others."""
    times = {
        name: value
        for name in names
        if (value := method.mean(f"participation/{name}/asked_per_client")) is not None
    }
    low = min(times, key=lambda name: times[name], default="")
    high = max(times, key=lambda name: times[name], default="")
    if not times or times[high] <= UNEVEN * times[low]:
        return ""
    return (
        f"With {method.label}, clients of {high} were asked {times[high]:.1f} times on average, "
        f"clients of {low} {times[low]:.1f} times."
    )
