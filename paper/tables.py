"""The tables of `tables.toml`: the paper's number, ours and the difference, with 95 % intervals."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from e2fl.metrics.intervals import Interval, over_seeds
from paper.ledger import HERE, Json, Run, canonical

FAR = 0.1  # two seeds are shown at a round that is at least this part of the longest run
FEWEST = 3  # seeds for an interval worth the name; two may agree by accident
NONE = "–"

PAPER: Json = json.loads((HERE / "paper.json").read_text(encoding="utf-8"))
DECLARED: Json = tomllib.loads((HERE / "tables.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Column:
    """A column: its title, the path of its figure, its decimals, and a round of its own."""

    title: str
    path: str
    digits: int = 2
    round: int | None = None


@dataclass(frozen=True)
class Repeats:
    """Runs of one method with different seeds, at a round that all of them have reached."""

    runs: tuple[Run, ...]
    round: int | None  # None: the last round of each

    def values(self, path: str, number: int | None = None) -> dict[int, float]:
        """Return a figure by seed; a seed without it is left out."""
        found = {}
        for run in self.runs:
            value = figure(run, path, number or self.round or run.reached)
            if value is not None:
                found[run.seed] = value
        return found

    def interval(self, column: Column, view: str = "") -> Interval | None:
        """Return the mean over seeds with its interval; None if nothing was measured."""
        in_view = column.path.startswith(("group", "clients", "protected")) and view
        path = f"views/{view}/{column.path}" if in_view else column.path
        values = list(self.values(path, column.round).values())
        return over_seeds(values) if values else None


@dataclass(frozen=True)
class Table:
    """Rows of strings under titles; `not_run` names the methods that the ledger lacks."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    not_run: tuple[str, ...] = ()
    empty: bool = False

    @property
    def text(self) -> str:
        """The table in Markdown: numbers to the right, and a label is not repeated."""
        if self.empty:
            return "Not run: the ledger has no run for this table."
        marks = ["---" if position < 2 else "--:" for position in range(len(self.titles))]
        lines = [_line(self.titles), _line(marks)]
        before = ""
        for label, *cells in self.rows:
            shown = "" if label == before and self.titles[1] == "" else label
            lines.append(_line([shown, *cells]))
            before = label
        return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def figure(run: Run, path: str, number: int) -> float | None:
    """Return a figure of a round: `Run.value`, bytes in MiB, and two that are derived from bytes.

    bytes/total is what was sent until this round; bytes/ballot is the KiB of a ballot of rank
    clustering.
    """
    if path == "bytes/total":
        sent = [run.value(f"bytes/{way}_total", number) for way in ("up", "down")]
        return None if None in sent else sum(filter(None, sent)) / 2**20
    if path == "bytes/ballot":
        inference = (run.at(number) or {})["inference"]
        clients = sum(inference["found"].values())
        received = clients * run.summary["bytes"]["down_per_client_round"]
        return float((inference["bytes"] - received) / clients / 2**10)
    value = run.value(path, number)
    return value / 2**20 if value is not None and path.startswith("bytes/") else value


def select(
    runs: Iterable[Run], experiment: str, overrides: Mapping[str, Any] | None = None
) -> list[Run]:
    """Return the runs of an experiment with exactly these overrides."""
    wanted = canonical(overrides or {})
    return [
        run for run in runs if (run.experiment, canonical(run.overrides)) == (experiment, wanted)
    ]


def repeats_of(runs: Iterable[Run], until: int | None = None) -> list[Repeats]:
    """Return the longest run, and before it the last round that three seeds share, if it differs.

    If no three share one, it is the last round that two share, unless they have only begun.
    until: rounds after this one do not count, unless a run has no others.
    """
    by_round: dict[int, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        numbers = [line["round"] for line in run.rounds]
        early = [number for number in numbers if until is None or number <= until]
        for number in early or numbers:
            by_round.setdefault(number, []).append(run)
    return [Repeats(tuple(by_round[number]), number) for number in shared_rounds(by_round)]


def shared_rounds(by_round: Mapping[int, Sequence[object]]) -> list[int]:
    """Return the last round that enough seeds have, and the last one, if it differs."""
    if not by_round:
        return []
    longest = max(by_round)
    enough = [number for number, own in by_round.items() if len(own) >= FEWEST]
    if not enough:
        far = [number for number in by_round if number >= FAR * longest]
        most = max(len(by_round[number]) for number in far)
        enough = [number for number in far if len(by_round[number]) == most]
    return list(dict.fromkeys((max(enough), longest)))


def at_round(runs: Iterable[Run], number: int) -> list[Repeats]:
    """Return the runs that have evaluated this round, and those that ended before it (Local)."""
    own = [run for run in runs if run.at(number) or (run.finished and run.reached < run.planned)]
    ended = any(run.at(number) is None for run in own)
    return [Repeats(tuple(own), None if ended else number)] if own else []


def columns(*names: str) -> list[Column]:
    """Return the columns of these names in tables.toml."""
    return [Column(*values) for name in names for values in DECLARED["columns"][name]]


def declared(name: str) -> Json:
    """Return the declaration of a table, with what it takes from another one."""
    own: Json = DECLARED["tables"][name]
    return DECLARED["tables"][own["like"]] | own if "like" in own else own


def table(name: str, runs: Sequence[Run], overrides: Mapping[str, Any] | None = None) -> Table:
    """Return a table from these runs; overrides: with which it is made, if not its own ones."""
    spec = declared(name)
    base = spec.get("overrides", {}) | dict(overrides or {})
    if "paper" in spec:
        return _beside_paper(spec, select(runs, spec["experiment"], base), not overrides)
    rows = labelled(name, runs, base)
    shown = columns(*spec["columns"])
    if spec.get("missing"):  # no run has reached the rounds of these columns
        shown = [column for column in shown if _measured(column, rows.values())]
    made = [_row(spec, label, repeats, shown, view) for (label, view), repeats in rows.items()]
    kept = [row for row in made if spec.get("missing") or set(row[-len(shown) :]) != {NONE}]
    not_run = tuple(label[0] for (label, _), repeats in rows.items() if not repeats.runs)
    empty = not any(repeats.runs for repeats in rows.values())
    return Table((*spec["head"], *(column.title for column in shown)), tuple(kept), not_run, empty)


Label = tuple[tuple[str, ...], str]  # the first cells of a row, and the model that is scored


def labelled(name: str, runs: Sequence[Run], base: Mapping[str, Any]) -> dict[Label, Repeats]:
    """Return the runs of each row of a table."""
    spec = declared(name)
    if "grid" in spec:
        return _grid(spec, [run for run in runs if run.experiment == spec["experiment"]], base)
    if "ballots" in spec:
        from paper.ballots import ballot_rows

        return ballot_rows(
            spec, [run for run in runs if run.experiment == spec["experiment"]], base
        )
    rows: dict[Label, Repeats] = {}
    for row in spec["rows"]:
        chosen = select(runs, spec["experiment"], {**base, **row.get("overrides", {})})
        own = [run for run in chosen if run.method == row["method"]]
        label = row["label"] if isinstance(row["label"], list) else [row["label"]]
        for number in spec.get("rounds", [spec.get("at")]):
            picked = repeats_of(own) if number is None else at_round(own, number)
            repeats = (picked[-1:] if spec.get("longest") else picked)[:1]
            if repeats or spec.get("missing"):
                cells = (*label, str(number)) if "rounds" in spec else tuple(label)
                rows[cells, row.get("view", "")] = (repeats or [Repeats((), None)])[0]
    return _on_shared_seeds(rows) if spec.get("same_seeds") else rows


def _grid(spec: Json, runs: Sequence[Run], base: Mapping[str, Any]) -> dict[Label, Repeats]:
    """Return the runs that differ in the settings of a grid only, by the values of those."""
    points: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        others = {key: value for key, value in run.overrides.items() if key not in spec["grid"]}
        if run.method in spec["methods"] and others == base:
            point = tuple(run.settings[key] for key in spec["grid"])
            points.setdefault(point, []).append(run)
    rows = {}
    for point in sorted(points):
        for repeats in at_round(points[point], spec["at"]):
            cells = tuple(part if isinstance(part, str) else f"{part:g}" for part in point)
            rows[cells, ""] = repeats
    return rows


def _on_shared_seeds(rows: Mapping[Label, Repeats]) -> dict[Label, Repeats]:
    by_row = [{run.seed for run in repeats.runs} for repeats in rows.values()]
    seeds = set.intersection(*by_row) if by_row else set()
    return {
        label: Repeats(tuple(run for run in repeats.runs if run.seed in seeds), repeats.round)
        for label, repeats in rows.items()
    }


def _measured(column: Column, rows: Iterable[Repeats]) -> bool:
    return column.round is None or any(
        repeats.values(column.path, column.round) for repeats in rows
    )


def _row(
    spec: Json, label: Sequence[str], repeats: Repeats, shown: Sequence[Column], view: str
) -> tuple[str, ...]:
    means = [repeats.interval(column, view) for column in shown]
    cells = [cell(mean, column.digits) for mean, column in zip(means, shown, strict=True)]
    labels = iter(label)
    filled = {"seeds": seeds_of(means, repeats), "round": str(repeats.round)}
    numbered = "rounds" in spec  # the round is a part of the label
    first = [
        next(labels) if title not in filled or (title == "round" and numbered) else filled[title]
        for title in spec["head"]
    ]
    return (*first, *cells)


def _beside_paper(spec: Json, runs: Sequence[Run], as_paper: bool) -> Table:
    """Return each method's row of the paper, our rows, and the differences.

    as_paper: our runs have the paper's settings, so that its rows are shown where ours are missing.
    """
    shown = columns(*spec["columns"])
    rows: list[tuple[str, ...]] = []
    not_run, printed = [], set()
    for row in spec["rows"]:
        own = [run for run in runs if run.method == row["method"]]
        given = row.get("paper") if as_paper or spec.get("reference") else None
        if not own:
            not_run.append(row["label"])
        if given is not None and given not in printed and (own or as_paper):
            printed.add(given)
            rows.append(_of_paper(spec, row, shown))
        if not own and as_paper:
            rows.append((row["label"], "ours", "0", NONE, *(NONE for _ in shown)))
        until = row.get("rounds", spec.get("rounds")) if "paper" in row else None
        for repeats in repeats_of(own, until or None):
            rows += _of_ours(spec, row, repeats, shown, given if as_paper else None)
    titles = ("method", "", "seeds", "round", *(column.title for column in shown))
    return Table(titles, tuple(rows), tuple(not_run), not runs)


def _of_paper(spec: Json, row: Json, shown: Sequence[Column]) -> tuple[str, ...]:
    values = (paper_value(f"{spec['paper']}/{row['paper']}/{column.path}") for column in shown)
    cells = (
        NONE if value is None else f"{value:.{column.digits}f}"
        for value, column in zip(values, shown, strict=True)
    )
    seeds = spec.get("paper_seeds", PAPER["seeds"])
    rounds = row.get("rounds", spec.get("rounds")) or ""
    label = str(row.get("paper_label", row["label"]))
    return (label, "paper", str(seeds), str(rounds), *cells)


def _of_ours(
    spec: Json, row: Json, repeats: Repeats, shown: Sequence[Column], given: str | None
) -> list[tuple[str, ...]]:
    means = [repeats.interval(column, row.get("view", "")) for column in shown]
    cells = [cell(mean, column.digits) for mean, column in zip(means, shown, strict=True)]
    rows = [(row["label"], "ours", seeds_of(means, repeats), str(repeats.round), *cells)]
    if given is not None and spec.get("differences"):
        differences = []
        for mean, column in zip(means, shown, strict=True):
            value = paper_value(f"{spec['paper']}/{given}/{column.path}")
            if mean is None or value is None:
                differences.append(NONE)
            else:
                differences.append(f"{mean.value - value:+.{column.digits}f}")
        rows.append((row["label"], "difference", "", "", *differences))
    return rows


def paper_value(path: str) -> float | None:
    """Return one of the paper's numbers, such as table1/e2fl/group/worst10."""
    part: Any = PAPER
    for name in path.split("/"):
        part = part.get(name) if isinstance(part, dict) else None
    return None if part is None else float(part)


def seeds_of(means: Sequence[Interval | None], repeats: Repeats) -> str:
    """Return on how many seeds a row is based: those that have its figures."""
    return str(max((mean.count for mean in means if mean), default=len(repeats.runs)))


def cell(mean: Interval | None, digits: int) -> str:
    """Return the mean and half the width of its interval, if there is one and it is visible."""
    if mean is None:
        return NONE
    half = round(mean.half or 0.0, digits)
    return f"{mean.value:.{digits}f}" + (f" ± {half:.{digits}f}" if half else "")


def seeds_text(count: int) -> str:
    """Return a number of seeds in words."""
    return "1 seed" if count == 1 else f"{count} seeds"
