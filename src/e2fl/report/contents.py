"""The tables of a report, from a study."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from e2fl.report.intervals import Interval, interval
from e2fl.report.study import MEASURES, MIB, Contender, Json, Measure, Study, gains, measured, pareto
from e2fl.report.table import Cell, Column, Table, text_cells
from e2fl.report.verdict import difference, worst_words

INFERENCE = {
    "matched": "right, %",
    "purity": "purity, %",
    "adjusted_rand": "adjusted Rand",
    "changed": "changed, %",
    "passes_per_client": "passes a client",
    "bytes": "bytes",
}
QUANTILES = (0, 5, 10, 25, 50, 75, 90, 95, 100)
SHOWN = 200  # rows of a long table that the page shows


def main_table(study: Study) -> Table:
    """The table of the paper: clients, groups, bytes; the best cell of each column marked."""
    used = [measure for measure in MEASURES if any(c.by_seed(measure.key) for c in study.contenders)]
    digits = {measure.key: _digits(study.contenders, measure) for measure in used}
    best = {measure.key: _best(study.contenders, measure, digits[measure.key]) for measure in used}
    rows = []
    for contender in study.contenders:
        cells = [Cell(contender.label)]
        for measure in used:
            values = [value * measure.scale for value in contender.by_seed(measure.key).values()]
            found = interval(values) if values else None
            cells.append(_cell(found, best=contender.label in best[measure.key]))
        rows.append(tuple(cells))
    columns = (
        _name(study),
        *(Column(m.key, m.title, digits[m.key], m.over, m.definition) for m in used),
    )
    seeds = len(study.seeds)
    noise = f" Mean ± half of the 95 % interval over {seeds} seeds." if seeds > 1 else ""
    if seeds == 1 and study.source == "runs":
        noise = " One run each: no interval can be given."
    if len(study.contenders) > 1:
        noise += " Bold: the best of a column" + (
            "; whether it is beyond noise, the differences say." if seeds > 1 else "."
        )
    unit = "Accuracies in percent, variances in percent points squared."
    title = "Accuracy and its spread" + (" after the last round" if study.source == "runs" else "")
    return Table("main", title, columns, tuple(rows), unit + noise)


def difference_table(study: Study, subject: Contender) -> Table | None:
    """The subject of the verdict minus each of the others, paired over seeds."""
    keys = [("user/mean", "mean"), (study.worst, "worst"), ("user/variance", "variance of clients")]
    if study.group_names:
        keys.append(("group/variance", "variance of groups"))
    judged = len(study.seeds) > 1
    rows = []
    for other in study.contenders:
        if other is subject:
            continue
        cells: list[Cell] = [Cell(other.label)]
        for key, _ in keys:
            found = difference(subject, other, key)
            cells += [_cell(found), Cell(_judgement(found))] if judged else [_cell(found)]
        rows.append(tuple(cells))
    if not rows:
        return None
    columns = [Column("against", f"{subject.label} minus")]
    for key, title in keys:
        head = worst_words(study).removeprefix("the ") if key == study.worst else title
        columns.append(Column(key, "difference", head=head, definition=key.partition("/")[2], signed=True))
        if judged:
            columns.append(Column(f"{key}_noise", "judged", head=head, definition="interval"))
    note = "A lower variance is better. "
    if study.source == "table":
        note += "One table each cannot tell a difference from noise."
    else:
        note += "Seed by seed, between runs with the same data and the same draws of clients."
        note += "" if judged else " One seed: noise cannot be judged."
    return Table("differences", f"{subject.label} against the others", tuple(columns), tuple(rows), note)


def group_table(study: Study) -> Table:
    """Every group: how many clients, and how each contender serves it."""
    has_loss = any(contender.by_seed(f"groups/{g}/loss") for contender in study.contenders for g in study.group_names)
    kinds = ("accuracy", "loss") if has_loss else ("accuracy",)
    columns = [Column("group", "group"), Column("clients", "clients", 0)]
    for kind in kinds:
        columns += [
            Column(f"{contender.label}/{kind}", contender.label, 3 if kind == "loss" else 2, kind, kind)
            for contender in study.contenders
        ]
    rows = []
    for group in study.group_names:
        cells = [Cell(group), Cell(_whole(study.contenders[0].mean(f"groups/{group}/clients")))]
        for kind in kinds:
            means = [contender.by_seed(f"groups/{group}/{kind}") for contender in study.contenders]
            cells += [_cell(interval(list(values.values())) if values else None) for values in means]
        rows.append(tuple(cells))
    return Table("groups", "Accuracy and loss of each group", tuple(columns), tuple(rows), shown=SHOWN)


def distribution_table(study: Study) -> Table:
    """Quantiles of the accuracy over clients, all seeds together."""
    rows = []
    for contender in study.contenders:
        values = pooled(contender)
        if len(values):
            found = np.percentile(values, QUANTILES)
            rows.append(text_cells([contender.label, len(values), *(float(value) for value in found)]))
    titles = {0: "lowest", 50: "median", 100: "highest"}
    columns = (
        _name(study),
        Column("clients", "clients", 0),
        *(Column(f"percentile_{q}", titles.get(q, f"{q} %"), 1) for q in QUANTILES),
    )
    note = "Read: so many percent of the clients are at or below this accuracy."
    return Table("distribution", "Accuracy over clients", columns, tuple(rows), note)


def pooled(contender: Contender) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The accuracies of all clients of all seeds."""
    known = [outcome.clients.accuracy for outcome in contender.outcomes if outcome.clients is not None]
    return np.concatenate(known) if known else np.empty(0)


def gain_table(study: Study) -> Table | None:
    """Who gains by taking part, and who loses, client by client against training alone."""
    alone = study.alone
    rows = []
    for contender in study.contenders:
        found = [] if alone is None or contender is alone else gains(contender, alone)
        if not found:
            continue
        counts = [
            [int((g.difference > 0).sum()), int((g.difference == 0).sum()), int((g.difference < 0).sum())]
            for g in found
        ]
        better, equal, worse = (interval(column).mean for column in zip(*counts, strict=True))
        every = np.concatenate([g.difference for g in found])
        rows.append(
            (
                Cell(contender.label),
                *(Cell(count) for count in (better, equal, worse)),
                Cell(interval(every.tolist()).mean, interval(every.tolist()).half),
                *(Cell(float(value)) for value in (every.min(), every.max())),
            )
        )
    if not rows:
        return None
    columns = (
        _name(study),
        *(
            Column(name, title, 1, "clients", "gain")
            for name, title in (("better_off", "better off"), ("equal", "equal"), ("worse_off", "worse off"))
        ),
        Column("gain_mean", "mean", 1, "gain in points", "gain", signed=True),
        Column("gain_lowest", "lowest", 1, "gain in points", "gain", signed=True),
        Column("gain_highest", "highest", 1, "gain in points", "gain", signed=True),
    )
    note = "Counts are means over seeds; ± is half of the 95 % interval of the mean gain over clients."
    return Table("gains", "Every client against training alone", columns, tuple(rows), note)


def curve_table(study: Study) -> Table:
    """Every evaluated round."""
    rows = [
        (*text_cells([c.label, m.number, m.mib]), *(_cell(found) for found in (m.mean, m.worst, m.variance)))
        for c in study.contenders
        for m in curve(c, study.worst)
    ]
    columns = (
        _name(study),
        Column("round", "round", 0),
        Column("mib_sent", "MiB sent", 2, definition="bytes"),
        Column("user/mean", "mean of clients", definition="mean"),
        Column(study.worst, "worst", definition="worst10"),
        Column("user/variance", "variance of clients", definition="variance"),
    )
    return Table("curves", "Evaluated rounds, averaged over seeds", columns, tuple(rows), shown=SHOWN)


@dataclass(frozen=True)
class Moment:
    """A contender after one evaluated round, averaged over seeds."""

    number: int
    mib: float | None  # sent so far
    mean: Interval | None
    worst: Interval | None
    variance: Interval | None


def curve(contender: Contender, worst: str) -> list[Moment]:
    """The rounds that all seeds have."""
    by_round: dict[int, list[Json]] = {}
    for outcome in contender.outcomes:
        for line in outcome.history:
            by_round.setdefault(int(line["round"]), []).append(line)
    return [
        Moment(
            number,
            _mib_sent(lines),
            *(_averaged(lines, key) for key in ("user/mean", worst, "user/variance")),
        )
        for number, lines in sorted(by_round.items())
        if len(lines) == len(contender.outcomes)
    ]


def _averaged(lines: Sequence[Json], key: str) -> Interval | None:
    known = [value for line in lines if (value := measured(line, key)) is not None]
    return interval(known) if known else None


def _mib_sent(lines: Sequence[Json]) -> float | None:
    ways = [_averaged(lines, f"bytes/{way}_total") for way in ("up", "down")]
    known = [found.mean for found in ways if found is not None]
    return sum(known) / MIB if len(known) == len(ways) else None


def tradeoff_table(study: Study) -> Table:
    """Accuracy, equity and bytes at once."""
    rows = [
        text_cells(
            [
                stand.contender.label,
                stand.mean,
                stand.worst,
                stand.mib,
                f"beaten by {', '.join(stand.beaten_by)}" if stand.beaten_by else "not beaten",
            ]
        )
        for stand in pareto(study)
    ]
    columns = (
        _name(study),
        Column("user/mean", "mean of clients", definition="mean"),
        Column(study.worst, "worst", definition="worst10"),
        Column("mib_total", "MiB in all", 1, definition="bytes"),
        Column("front", "in all three", definition="pareto"),
    )
    return Table("tradeoff", "Accuracy, equity and bytes", columns, tuple(rows))


def size_table(study: Study) -> Table:
    """Groups by size."""
    first = study.contenders[0]
    sizes = {name: first.mean(f"groups/{name}/clients") or 0 for name in study.group_names}
    whole = sum(sizes.values()) or 1
    rows = [text_cells([name, _whole(size), 100.0 * size / whole]) for name, size in sizes.items()]
    columns = (Column("group", "group"), Column("clients", "clients", 0), Column("share", "share, %", 1))
    return Table("sizes", "Clients of each group", columns, tuple(rows), shown=SHOWN)


def inference_table(study: Study) -> Table | None:
    """How well groups were found, where they were inferred."""
    found = [contender for contender in study.contenders if any(o.inference for o in contender.outcomes)]
    if not found:
        return None
    keys = [key for key in INFERENCE if any(contender.by_seed(f"inference/{key}") for contender in found)]
    rows = []
    for contender in found:
        values = [contender.by_seed(f"inference/{key}") for key in keys]
        rows.append((Cell(contender.label), *(_cell(interval(list(v.values())) if v else None) for v in values)))
    columns = (_name(study), *(Column(f"inference/{key}", INFERENCE[key], definition="inference") for key in keys))
    return Table("inference", "How well groups were inferred", columns, tuple(rows))


def protected_table(study: Study) -> Table | None:
    """EOD, DI and SPD, where there is a protected attribute."""
    found = [contender for contender in study.contenders if any(o.protected for o in contender.outcomes)]
    if not found:
        return None
    keys = ("eod", "di", "spd")
    rows = []
    for contender in found:
        cells = [Cell(contender.label), _cell(_over_seeds(contender, "user/mean"))]
        cells += [_cell(_over_seeds(contender, f"protected/{key}")) for key in keys]
        rows.append(tuple(cells))
    columns = (
        _name(study),
        Column("user/mean", "accuracy", definition="mean"),
        *(Column(f"protected/{key}", key.upper(), 4, definition=key, signed=True) for key in keys),
    )
    note = (
        f"Each is {study.protected_direction}: 0 is even, negative is a disadvantage of the first."
        if study.protected_direction
        else ""
    )
    return Table("protected", "Differences between the two groups", columns, tuple(rows), note)


def fact_table(study: Study) -> Table:
    """The runs behind the page."""
    columns = (
        _name(study),
        Column("seed", "seed"),
        Column("rounds", "rounds"),
        Column("seconds", "seconds", 1),
        Column("version", "e2fl"),
        Column("environment", "with"),
        Column("folder", "folder"),
    )
    rows = [
        text_cells(
            [
                fact["label"],
                fact["seed"],
                fact["rounds"],
                fact["seconds"],
                fact["version"] or "–",
                ", ".join(f"{key} {value}" for key, value in fact["environment"].items()) or "–",
                fact["folder"] or "–",
            ]
        )
        for fact in study.facts
    ]
    return Table("runs", "The runs", columns, tuple(rows))


def client_table(study: Study) -> Table:
    """Every client of every seed, for files."""
    rows = []
    for contender in study.contenders:
        for outcome in contender.outcomes:
            known = outcome.clients
            if known is None:
                continue
            groups: Sequence[str] = known.groups.tolist() if known.groups is not None else [""] * len(known)
            columns = (known.names.tolist(), groups, known.n.tolist(), known.accuracy.tolist())
            rows += [
                text_cells([contender.label, outcome.seed, str(name), group, n, accuracy])
                for name, group, n, accuracy in zip(*columns, strict=True)
            ]
    titles = ("seed", "client", "group", "n", "accuracy")
    return Table("clients", "Every client", (_name(study), *(Column(title, title) for title in titles)), tuple(rows))


def _name(study: Study) -> Column:
    return Column("algorithm", "algorithm" if study.source == "runs" else "table")


def _digits(contenders: Sequence[Contender], measure: Measure) -> int:
    """Two, or more for messages of a small model."""
    top = max((contender.mean(measure.key) or 0.0) * measure.scale for contender in contenders)
    return 4 if measure.key.startswith("bytes/") and 0 < top < 0.1 else 2


def _best(contenders: Sequence[Contender], measure: Measure, digits: int) -> set[str]:
    """Whose cell is marked; everybody at the top as printed. Sending nothing is no merit of an algorithm."""
    able = [c for c in contenders if not (c.alone and measure.key.startswith("bytes/"))]
    means = {c.label: mean * measure.scale * measure.better for c in able if (mean := c.mean(measure.key)) is not None}
    if len(means) < 2:
        return set()
    top = round(max(means.values()), digits)
    return {label for label, mean in means.items() if round(mean, digits) == top}


def _over_seeds(contender: Contender, key: str) -> Interval | None:
    values = contender.by_seed(key)
    return interval(list(values.values())) if values else None


def _cell(found: Interval | None, *, best: bool = False) -> Cell:
    return Cell(None) if found is None else Cell(found.mean, found.half, best)


def _judgement(found: Interval | None) -> str:
    if found is None:
        return "not known"
    if found.within_noise is None:
        return "one seed" if found.count else "no shared seed"
    if found.mean == 0 and found.half == 0:
        return "equal"
    return "within noise" if found.within_noise else "beyond noise"


def _whole(value: float | None) -> int | float | None:
    return int(value) if value is not None and value == int(value) else value
