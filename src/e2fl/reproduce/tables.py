"""Tables of runs: the paper's number, ours and the difference, with 95 % intervals over seeds."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from e2fl.metrics import spread
from e2fl.report.intervals import Interval, over_seeds
from e2fl.reproduce.ledger import FOUND, Entry, Json
from e2fl.reproduce.studies import paper

FAR = 0.25  # rounds that several seeds share are shown if they are at least this part of the longest run
NONE = "–"

Reader = Callable[[Entry, Json], float | None]


@dataclass(frozen=True)
class Column:
    """A column: its title, its key in the paper's row, how to read it from a line of history, and its decimals."""

    title: str
    key: tuple[str, ...]
    read: Reader
    digits: int = 2


@dataclass(frozen=True)
class Table:
    """Rows of strings under titles; `holes` names the methods that the ledger lacks, `empty`: it has none of them."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    holes: tuple[str, ...] = ()
    empty: bool = False


@dataclass(frozen=True)
class Team:
    """The runs of one method that differ in their seed, at a round that all of them have."""

    entries: tuple[Entry, ...]
    round: int

    def values(self, read: Reader) -> dict[int, float]:
        """Return the figure by seed; a seed without it is left out."""
        found = {}
        for entry in self.entries:
            line = entry.at(self.round)
            value = None if line is None else read(entry, line)
            if value is not None and math.isfinite(value):
                found[entry.seed] = value
        return found


@dataclass(frozen=True)
class Line:
    """A method in a table: its label, its runs, the row of the paper it is compared with, the model that is scored."""

    label: str
    method: str
    paper: Mapping[str, Any] | None = None
    view: str | None = None
    paper_rounds: int | None = None
    paper_seeds: int | None = None


def level(name: str, figure: str, view: str | None = None) -> Reader:
    """Return a reader of a figure such as group.mean, of the clients' own models or of another view.

    Clusters that were found are not groups: methods that find none could not be compared with those that do.
    """

    def read(entry: Entry, line: Json) -> float | None:
        part = line if view is None else line.get("views", {}).get(view, {})
        if name == "group" and part.get("groups_are") == FOUND:
            return None
        found = (part.get(name) or {}).get(figure)
        return None if found is None else float(found)

    return read


def found_groups(figure: str) -> Reader:
    """Return a reader of a figure over the clusters that were found; older runs have it only at their end."""

    def read(entry: Entry, line: Json) -> float | None:
        if line.get("groups_are") == FOUND:
            return float(line["group"][figure])
        rows = [row["accuracy"] for row in entry.groups if row["view"] == FOUND and row["round"] == line["round"]]
        return float(spread(rows)[figure]) if rows else None

    return read


def teams(entries: Iterable[Entry]) -> list[Team]:
    """Return the longest run, and before it the last round that most seeds share, if that is another one."""
    runs = sorted(entries, key=lambda entry: entry.seed)
    if not runs:
        return []
    counts: dict[int, list[Entry]] = {}
    for entry in runs:
        for line in entry.history:
            counts.setdefault(int(line["round"]), []).append(entry)
    longest = max(counts)
    far = [number for number in counts if number >= FAR * longest]
    shared = max(far, key=lambda number: (len(counts[number]), number))
    return [Team(tuple(counts[number]), number) for number in dict.fromkeys((shared, longest))]


def spread_columns(names: Sequence[str], view: str | None = None) -> list[Column]:
    """Return mean, worst, best and variance over groups ("group"), clusters ("found") or clients ("user")."""
    titles = {"group": "groups", "found": "clusters", "user": "clients"}
    words = {
        "mean": "mean",
        "worst10": "worst",
        "best10": "best",
        "variance": "variance",
    }
    columns = []
    for name in names:
        for figure, word in words.items():
            title = f"{titles[name]}: {word}" + (" 10 %" if name == "user" and figure.endswith("10") else "")
            read = found_groups(figure) if name == "found" else level(name, figure, view)
            columns.append(Column(title, ("group" if name == "found" else name, figure), read))
    return columns


def traffic_columns() -> list[Column]:
    def reader(way: str) -> Reader:
        return lambda entry, line: entry.mib(way)

    return [Column(f"MiB {way}", ("mib", way), reader(way)) for way in ("up", "down")]


def build(
    lines: Sequence[Line],
    entries: Sequence[Entry],
    columns: Callable[[str | None], list[Column]],
    *,
    papers: bool = True,
) -> Table:
    """Return each method's row of the paper, our rows, and the differences.

    papers: whether the paper's row is shown where ours is missing; otherwise the method is only named among the holes.
    """
    titles = ("method", "", "seeds", "round", *(column.title for column in columns(None)))
    rows: list[tuple[str, ...]] = []
    holes = []
    shown: list[Mapping[str, Any]] = []
    for line in lines:
        own = [entry for entry in entries if entry.method == line.method]
        if not own:
            holes.append(line.label)
        if line.paper is not None and line.paper not in shown and (own or papers):
            cells = [_plain(_dig(line.paper, column.key), column.digits) for column in columns(line.view)]
            seeds = line.paper_seeds or paper()["seeds"]
            rows.append((line.label, "paper", str(seeds), str(line.paper_rounds or ""), *cells))
            shown.append(line.paper)
        if not own and papers:
            rows.append((line.label, "ours", "0", NONE, *(NONE for _ in columns(line.view))))
        for team in teams(own):
            rows += _ours(line, team, columns(line.view))
    return Table(titles, tuple(rows), tuple(holes), not entries)


def _ours(line: Line, team: Team, columns: Sequence[Column]) -> list[tuple[str, ...]]:
    means = [interval(team, column) for column in columns]
    seeds = str(len(team.entries))
    shown = [
        NONE if mean is None else with_interval(mean, column.digits)
        for mean, column in zip(means, columns, strict=True)
    ]
    rows = [(line.label, "ours", seeds, str(team.round), *shown)]
    if line.paper is not None:
        differences = []
        for mean, column in zip(means, columns, strict=True):
            given = _dig(line.paper, column.key)
            if mean is None or given is None:
                differences.append(NONE)
            else:
                differences.append(f"{mean.mean - given:+.{column.digits}f}")
        rows.append((line.label, "difference", "", "", *differences))
    return rows


def interval(team: Team, column: Column) -> Interval | None:
    values = list(team.values(column.read).values())
    return over_seeds(values) if values else None


def with_interval(found: Interval, digits: int) -> str:
    """Return the mean, and half the width of its interval if there are several seeds and they differ."""
    return f"{found.mean:.{digits}f}" + (f" ± {found.half:.{digits}f}" if found.half else "")


def _plain(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _dig(values: Mapping[str, Any], keys: Sequence[str]) -> float | None:
    found: Any = values
    for key in keys:
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return float(found)
