"""The engine of all tables: the frame of the ledger, rows selected from it, means over seeds.

`tables.toml` declares them: rows that are named one by one, rows for every combination of some
settings that was run, and rows beside those of the paper.
"""

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from e2fl.metrics.intervals import Interval, over_seeds
from e2fl.runs.records import numbers_of
from paper.ledger import HERE, Json, LedgerRun, canonical

TEMPLATES = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # Markdown
    extensions=["jinja2.ext.do"],
)
FAR = 0.1  # two seeds are shown at a round that is at least this part of the longest run
FEWEST = 3  # seeds for an interval worth the name; two may agree by accident
NONE = "–"

PAPER: Json = json.loads((HERE / "paper.json").read_text(encoding="utf-8"))
PRINTED = numbers_of(PAPER)  # by path, such as table1/e2fl/group/worst10
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

    rows: pd.DataFrame  # of the frame: all rounds of these runs
    round: int | None = None  # None: the last round of each
    view: str = ""  # the models that are scored, if not those that serve the clients

    def figures(self, number: int | None = None) -> pd.DataFrame:
        """Return a row for each seed, at the round or at another one.

        A run that ended before by itself (Local) keeps its last figures.
        """
        number, rounds = number or self.round, self.rows["round"]
        there = (rounds == number) | (self.rows["ended"] & (rounds < (number or 0)))
        rows = self.rows if number is None else self.rows[there]
        return rows.drop_duplicates("seed", keep="last").set_index("seed")

    @property
    def seeds(self) -> int:
        """The number of runs."""
        return len(self.figures())

    def values(self, path: str, number: int | None = None) -> dict[int, float]:
        """Return a figure by seed, at the round or another one, without seeds that lack it."""
        if self.view and path.startswith(("group", "clients", "protected")):
            path = f"views/{self.view}/{path}"
        figures = self.figures(number)
        return dict(figures[path].dropna()) if path in figures else {}

    def mean(self, path: str, number: int | None = None) -> Interval | None:
        """Return the mean of a figure over seeds, with its interval; None if not measured."""
        values = self.values(path, number)
        return over_seeds(list(values.values())) if values else None


Means = list[Interval | None]
Labelled = dict[tuple[str, ...], Repeats]  # by the first cells of a row


@dataclass
class PageTable:
    """Rows of text: a head, of which seeds and rounds are filled in, and columns of figures."""

    head: Sequence[str]
    columns: Sequence[Column] = ()
    not_run: Sequence[str] = ()  # the methods that the ledger lacks
    rows: list[list[str]] = field(default_factory=list)

    @property
    def titles(self) -> list[str]:
        """The titles of all columns."""
        return [*self.head, *(column.title for column in self.columns)]

    def add(
        self, label: Sequence[str], means: Means, seeds: object, number: object, sign: str = ""
    ) -> None:
        """Add a row; label: the first cells, without seeds and round."""
        filled = {"seeds": str(seeds), "round": str(number), "rounds": str(number)}
        labels, pairs = iter(label), zip(means, self.columns, strict=True)
        first = [filled[title] if title in filled else next(labels) for title in self.head]
        self.rows.append([*first, *(cell(mean, column.digits, sign) for mean, column in pairs)])

    def add_runs(self, label: Sequence[str], runs: Repeats) -> Means:
        """Add the row of these runs, and return its figures."""
        means = [runs.mean(column.path, column.round) for column in self.columns]
        seeds = max((mean.count for mean in means if mean), default=runs.seeds)
        self.add(label, means, seeds, runs.round)
        return means

    @property
    def text(self) -> str:
        """The table in Markdown: numbers to the right, and a label is not repeated."""
        if not self.rows:
            return "Not run: the ledger has no run for this table."
        marks = ["---" if position < 2 else "--:" for position in range(len(self.titles))]
        lines, before = [self.titles, marks], ""
        for label, *cells in self.rows:
            lines.append(["" if label == before and self.titles[1] == "" else label, *cells])
            before = label
        return "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
        )


def select(
    frame: pd.DataFrame,
    experiment: str,
    overrides: Mapping[str, Any] | None = None,
    method: str | None = None,
) -> pd.DataFrame:
    """Return the rows of an experiment with exactly these overrides, and of one method if named."""
    chosen = (frame["experiment"] == experiment) & (frame["overrides"] == canonical(overrides))
    return frame[chosen if method is None else chosen & (frame["method"] == method)]


def by_variant(frame: pd.DataFrame) -> Iterator[tuple[LedgerRun, pd.DataFrame]]:
    """Yield the rows of each method with the same overrides, and the first of their runs."""
    for _, rows in frame.groupby(["experiment", "method", "overrides"]):
        yield rows["run"].iloc[0], rows


def shared_rounds(seeds: "pd.Series[int]") -> list[int]:
    """Return the last round that three seeds share, and the last one, if it differs.

    If no three share one, it is the last round that two share, unless they have only begun.
    seeds: how many have evaluated each round.
    """
    far = seeds[seeds.index >= FAR * seeds.index.max()]
    enough = seeds[seeds >= FEWEST] if seeds.max() >= FEWEST else far[far == far.max()]
    return sorted({int(enough.index.max()), int(seeds.index.max())})


def repeats_of(rows: pd.DataFrame, at: int | None = None, until: int = 0) -> list[Repeats]:
    """Return runs at the last round that enough seeds share, and the longest, if it differs.

    at: only at this round. until: rounds after this one do not count, unless a run has no others;
    0: all count.
    """
    if at is not None or not len(rows):
        return [Repeats(rows, at)]
    early = rows[rows["round"] <= (until or math.inf)]
    counted = pd.concat([early, rows[~rows["seed"].isin(early["seed"])]])
    seeds = counted.groupby("round")["seed"]
    return [
        Repeats(rows[rows["seed"].isin(seeds.get_group(number))], number)
        for number in shared_rounds(seeds.size())
    ]


def columns(*names: str) -> list[Column]:
    """Return the columns of these names in tables.toml."""
    return [Column(*values) for name in names for values in DECLARED["columns"][name]]


def declared(name: str) -> Json:
    """Return the declaration of a table, with what it takes from another one."""
    own: Json = DECLARED["tables"][name]
    return DECLARED["tables"][own["like"]] | own if "like" in own else own


def table(name: str, frame: pd.DataFrame, overrides: Mapping[str, Any] | None = None) -> PageTable:
    """Return a table from this frame; overrides: with which it is made, beside its own ones."""
    spec, rows = declared(name), labelled(name, frame, overrides)
    shown = [
        column
        for column in columns(*spec["columns"])
        if not column.round or any(own.mean(column.path, column.round) for own in rows.values())
    ]
    not_run = [label[0] for label, own in rows.items() if not own.seeds]
    made = PageTable(spec.get("head", ["method", "", "seeds", "round"]), shown, not_run)
    if len(not_run) == len(rows):
        return made
    if "paper" in spec:
        _add_beside_paper(made, spec, frame, dict(overrides or {}))
        return made
    for label, own in rows.items():
        if not any(made.add_runs(label, own)) and not spec.get("missing"):
            made.rows.pop()
    return made


def labelled(
    name: str, frame: pd.DataFrame, overrides: Mapping[str, Any] | None = None
) -> Labelled:
    """Return the runs of each row of a table."""
    spec = declared(name)
    base = spec.get("overrides", {}) | dict(overrides or {})
    if "by" in spec:
        return _combinations(spec, frame[frame["experiment"] == spec["experiment"]], base)
    rows: Labelled = {}
    for row in spec["rows"]:
        own = select(frame, spec["experiment"], base | row.get("overrides", {}), row["method"])
        label = row["label"] if isinstance(row["label"], list) else [row["label"]]
        rounds = row.get("at", spec.get("at"))
        for at in rounds if isinstance(rounds, list) else [rounds]:
            found = repeats_of(own, at)[-1 if spec.get("longest") else 0]
            rows[*label, str(at)] = replace(found, view=row.get("view", ""))
    if spec.get("same_seeds"):
        seeds = set.intersection(*(set(own.figures().index) for own in rows.values()))
        return {
            cells: replace(runs, rows=runs.rows[runs.rows["seed"].isin(seeds)])
            for cells, runs in rows.items()
        }
    return rows


def _combinations(spec: Json, frame: pd.DataFrame, base: Json) -> Labelled:
    """Return the runs that differ in settings below `free` only, by what `by` names.

    Rows are sorted by the values, or by variant and from the largest figure of `largest` down.
    """
    found = []
    for run, rows in by_variant(frame):
        free = tuple(spec["free"])
        rest = {key: value for key, value in run.overrides.items() if not key.startswith(free)}
        for position, variant in enumerate(spec["variants"]):
            if (run.method, rest) == (variant["method"], base | variant.get("overrides", {})):
                values = variant.get("cells") or [_named(key, run, variant) for key in spec["by"]]
                own = repeats_of(rows, spec.get("at"))[0]
                size = own.mean(spec["largest"]) if "largest" in spec else None
                found.append(((position, -size.value) if size else (0, 0), values, own))
    found.sort(key=lambda row: row[:2])
    named = {
        tuple(part if isinstance(part, str) else f"{part:g}" for part in values): own
        for _, values, own in found
    }
    if len(named) < len(found):
        raise ValueError(f"`by` does not tell all rows apart: {spec['by']}")
    return named


def _named(key: str, run: LedgerRun, variant: Json) -> Any:
    """Return what a row is called by: a setting, its ballot or downlink, or part of its variant."""
    if key in ("ballot", "downlink"):
        return ballot_name(run.settings, key)
    return run.settings.get(key, variant.get(key))


def ballot_name(settings: Mapping[str, Any], part: str) -> str:
    """Return the display name of what is sent: part is ballot or downlink."""
    prefix = f"algorithm.{part}."
    own = {key.removeprefix(prefix): settings[key] for key in settings if key.startswith(prefix)}
    finer = f", {own['finer']} x near the cut" if own.get("finer", 1) > 1 else ""
    if own.get("name") == "moves":
        return f"moves, {own['steps']} steps{finer}"
    if own.get("name") != "buckets":
        return str(own.get("name", "exact"))
    if own.get("uneven"):
        return f"uneven {' '.join(f'{border:g}' for border in own['uneven'])}"
    return f"{own['buckets']} buckets{finer}"


def _add_beside_paper(made: PageTable, spec: Json, frame: pd.DataFrame, overrides: Json) -> None:
    """Add each method's row of the paper, our rows, and the differences.

    The paper's rows are shown where ours are missing only if ours have the paper's settings.
    """
    rows = select(frame, spec["experiment"], spec.get("overrides", {}) | overrides)
    printed = {None}
    for row in spec["rows"]:
        label, rounds = row["label"], row.get("rounds", spec.get("rounds", 0))
        own = rows[rows["method"] == row["method"]]
        given = row.get("paper") if not overrides or spec.get("reference") else None
        figures = [PRINTED.get(f"{spec['paper']}/{given}/{column.path}") for column in made.columns]
        theirs = [None if figure is None else Interval(figure) for figure in figures]
        if given not in printed and (len(own) or not overrides):
            printed.add(given)
            name, seeds = row.get("paper_label", label), spec.get("paper_seeds", PAPER["seeds"])
            made.add([name, "paper"], theirs, seeds, rounds or "")
        if not len(own) and not overrides:
            made.add([label, "ours"], [None] * len(theirs), 0, NONE)
        for runs in repeats_of(own, until=rounds if "paper" in row else 0) if len(own) else ():
            ours = made.add_runs([label, "ours"], replace(runs, view=row.get("view", "")))
            if given is not None and not overrides and spec.get("differences"):
                pairs = zip(ours, theirs, strict=True)
                differences = [a and b and Interval(a.value - b.value) for a, b in pairs]
                made.add([label, "difference"], differences, "", "", "+")


def cell(mean: Interval | None, digits: int, sign: str = "") -> str:
    """Return the mean and half the width of its interval, if there is one and it is visible."""
    if mean is None:
        return NONE
    half = round(mean.half or 0.0, digits)
    return f"{mean.value:{sign}.{digits}f}" + (f" ± {half:.{digits}f}" if half else "")


def seeds_text(count: int) -> str:
    """Return a number of seeds in words."""
    return "1 seed" if count == 1 else f"{count} seeds"


BOARD: Json = DECLARED["leaderboard"]
SENT = ("algorithm.ballot.", "algorithm.downlink.")
SURROUNDINGS = ("data.", "model.")


def leaderboard(frame: pd.DataFrame) -> list[tuple[str, PageTable]]:
    """Return a table for each data set and model, the best worst group first.

    Methods have their shipped settings; by_group participation, known groups for IFCA and the
    recommended coarse ballots are rows of their own. On Adult, the smallest EOD is first.
    """
    boards: dict[str, Labelled] = {}
    for run, rows in by_variant(frame):
        if run.experiment in BOARD["titles"] and is_method(run):
            boards.setdefault(_heading(run), {})[(described(run),)] = repeats_of(rows)[0]
    return [(heading, _board(own)) for heading, own in sorted(boards.items())]


def _board(methods: Labelled) -> PageTable:
    adult = next(iter(methods.values())).rows["experiment"].iloc[0] == "adult"
    name, order = "leaderboard", ["group/worst10", "clients/worst10"]
    if adult:
        name, order = "leaderboard_adult", ["protected/eod"]
    made = PageTable(["method", "seeds", "rounds"], columns(name))

    def rank(label: tuple[str, ...]) -> tuple[float, tuple[str, ...]]:
        means = [methods[label].mean(path) for path in order]
        value = next((mean.value for mean in means if mean), 0.0)
        return abs(value) if adult else -value, label

    for label in sorted(methods, key=rank):
        made.add_runs(label, methods[label])
    return made


def is_method(run: LedgerRun) -> bool:
    """Return whether a run is a method, and not a point of an ablation or on validation data."""
    if any(run.settings.get(f"data.{name}validation_share") for name in ("", "pooled_")):
        return False
    narrow = run.experiment in BOARD["one_model"]
    if narrow and any(key.startswith("model.") for key in run.overrides):
        return False
    own = {key: value for key, value in run.overrides.items() if not key.startswith(SURROUNDINGS)}
    return all(value in BOARD["rows_of_their_own"].get(key, ()) for key, value in own.items())


def _heading(run: LedgerRun) -> str:
    """Return the data set, and how data and model differ from the shipped experiment."""
    own = {key: value for key, value in run.overrides.items() if key.startswith(SURROUNDINGS)}
    changes = BOARD["told"].get(run.experiment, {}) | own
    parts = [f"{key.removesuffix('.name').split('.')[-1]} = {changes[key]}" for key in changes]
    title = BOARD["titles"][run.experiment]
    return f"{title}: {', '.join(parts)}" if parts else title


def described(run: LedgerRun) -> str:
    """Return the method of a run, how its training differs, and how it finds groups."""
    differing = []
    for key, value in run.overrides.items():
        if key == "participation.name":
            differing.append(str(value))
        elif not key.startswith((*SENT, *SURROUNDINGS)):
            text = str(value).lower() if isinstance(value, bool) else value
            differing.append(f"{key.partition('.')[2]} = {text}")
    if any(key.startswith(SENT) for key in run.overrides):
        up, down = (ballot_name(run.settings, part) for part in ("ballot", "downlink"))
        differing.append(f"{up} up, {down} down")
    name = f"{run.method} ({', '.join(differing)})" if differing else run.method
    groups = run.settings.get("algorithm.grouping.groups")
    if not groups:
        return name
    return f"{name}: {run.settings['algorithm.grouping.name'].replace('_', ' ')}, {groups} groups"
