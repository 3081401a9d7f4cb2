"""Tables of runs: the paper's number, ours and the difference, with 95 % intervals over seeds."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from e2fl.metrics import spread
from e2fl.report.intervals import Interval, over_seeds
from e2fl.reproduce.ledger import FOUND, Entry, Json
from e2fl.reproduce.studies import paper

FAR = 0.1  # rounds that two seeds share are shown if they are at least this part of the longest run
FEWEST = 3  # seeds for an interval worth the name; two may agree by accident
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
    """Rows of strings under titles; `not_run` names the methods that the ledger lacks, `empty`: it has none of them."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    not_run: tuple[str, ...] = ()
    empty: bool = False


@dataclass(frozen=True)
class Repeats:
    """The runs of one method with different seeds, at a round that all of them have reached."""

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
class MethodRow:
    """A method in a table: its label, its runs, the row of the paper it is compared with, the model that is scored."""

    label: str
    method: str
    paper: Mapping[str, Any] | None = None
    view: str | None = None
    paper_rounds: int | None = None
    paper_seeds: int | None = None
    paper_label: str | None = None  # of the paper's row, if it is not the same method for sure


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


def repeats_of(entries: Iterable[Entry]) -> list[Repeats]:
    """Return the longest run, and before it the last round that three seeds share, if that is another one.

    If no three share one, it is the last round that two share, unless they have only begun.
    """
    runs = sorted(entries, key=lambda entry: entry.seed)
    counts: dict[int, list[Entry]] = {}
    for entry in runs:
        for line in entry.history:
            counts.setdefault(int(line["round"]), []).append(entry)
    if not counts:
        return []
    longest = max(counts)
    enough = [number for number, own in counts.items() if len(own) >= FEWEST]
    if not enough:
        far = [number for number in counts if number >= FAR * longest]
        most = max(len(counts[number]) for number in far)
        enough = [number for number in far if len(counts[number]) == most]
    return [Repeats(tuple(counts[number]), number) for number in dict.fromkeys((max(enough), longest))]


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
    methods: Sequence[MethodRow],
    entries: Sequence[Entry],
    columns: Callable[[str | None], list[Column]],
    *,
    papers: bool = True,
    comparable: bool = True,
) -> Table:
    """Return each method's row of the paper, our rows, and the differences.

    papers: whether the paper's row is shown where ours is missing; otherwise the method is only listed as not run.
    comparable: whether our runs differ from the paper's only in seeds and rounds; otherwise there are no differences.
    """
    titles = ("method", "", "seeds", "round", *(column.title for column in columns(None)))
    rows: list[tuple[str, ...]] = []
    not_run = []
    shown: list[Mapping[str, Any]] = []
    for method in methods:
        own = [entry for entry in entries if entry.method == method.method]
        if not own:
            not_run.append(method.label)
        if method.paper is not None and method.paper not in shown and (own or papers):
            cells = [_plain(_dig(method.paper, column.key), column.digits) for column in columns(method.view)]
            seeds = method.paper_seeds or paper()["seeds"]
            rows.append(
                (method.paper_label or method.label, "paper", str(seeds), str(method.paper_rounds or ""), *cells)
            )
            shown.append(method.paper)
        if not own and papers:
            rows.append((method.label, "ours", "0", NONE, *(NONE for _ in columns(method.view))))
        for repeats in repeats_of(up_to(entry, method.paper_rounds) for entry in own):
            rows += _ours(method, repeats, columns(method.view), comparable)
    return Table(titles, tuple(rows), tuple(not_run), not entries)


def _ours(method: MethodRow, repeats: Repeats, columns: Sequence[Column], comparable: bool) -> list[tuple[str, ...]]:
    means = [interval(repeats, column) for column in columns]
    shown = [cell(mean, column.digits) for mean, column in zip(means, columns, strict=True)]
    rows = [(method.label, "ours", seeds_of(means, repeats), str(repeats.round), *shown)]
    if method.paper is not None and comparable:
        differences = []
        for mean, column in zip(means, columns, strict=True):
            given = _dig(method.paper, column.key)
            if mean is None or given is None:
                differences.append(NONE)
            else:
                differences.append(f"{mean.mean - given:+.{column.digits}f}")
        rows.append((method.label, "difference", "", "", *differences))
    return rows


def interval(repeats: Repeats, column: Column) -> Interval | None:
    values = list(repeats.values(column.read).values())
    return over_seeds(values) if values else None


def up_to(entry: Entry, number: int | None) -> Entry:
    """Return the entry without what it evaluated after this round, if it evaluated anything before."""
    kept = tuple(line for line in entry.history if number is None or line["round"] <= number)
    return replace(entry, history=kept or entry.history)


def seeds_of(means: Sequence[Interval | None], repeats: Repeats) -> str:
    """Return on how many seeds a row is based: those that have its figures."""
    return str(max((mean.count for mean in means if mean is not None), default=len(repeats.entries)))


def cell(found: Interval | None, digits: int) -> str:
    """Return the mean with its interval, or a dash if nothing was measured."""
    return NONE if found is None else with_interval(found, digits)


def with_interval(found: Interval, digits: int) -> str:
    """Return the mean, and half the width of its interval if there are several seeds and they differ visibly."""
    half = round(found.half or 0.0, digits)
    return f"{found.mean:.{digits}f}" + (f" ± {half:.{digits}f}" if half else "")


def seeds_text(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _plain(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _dig(values: Mapping[str, Any], keys: Sequence[str]) -> float | None:
    found: Any = values
    for key in keys:
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return float(found)
