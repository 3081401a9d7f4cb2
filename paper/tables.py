"""The engine of all tables: the frame of the ledger, rows selected from it, means over seeds.

`tables.toml` declares them: rows that are named one by one, rows for every combination of some
settings that was run, and rows beside those of the paper.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from e2fl.metrics.intervals import Interval, over_seeds
from paper.ledger import HERE, Json, Run, canonical

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

    @property
    def seeds(self) -> int:
        """The number of runs."""
        return self.rows["seed"].nunique() if len(self.rows) else 0

    def values(self, path: str, number: int | None = None) -> "pd.Series[float]":
        """Return a figure by seed, at the round or another one, without seeds that lack it."""
        if path not in self.rows:
            return pd.Series(dtype=float)
        number, seeds = number or self.round, self.rows["seed"]
        last = ~seeds.duplicated(keep="last")
        chosen = last if number is None else self.rows["round"] == number
        return self.rows[path][chosen].set_axis(seeds[chosen]).dropna()

    def mean(self, path: str, number: int | None = None) -> Interval | None:
        """Return the mean of a figure over seeds, with its interval; None if not measured."""
        values = self.values(path, number)
        return over_seeds(list(values)) if len(values) else None

    def interval(self, column: Column, view: str = "") -> Interval | None:
        """Return the mean over seeds for a column, of the models of a view."""
        in_view = view and column.path.startswith(("group", "clients", "protected"))
        return self.mean(f"views/{view}/{column.path}" if in_view else column.path, column.round)


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


def shared_rounds(seeds: "pd.Series[int]") -> list[int]:
    """Return the last round that three seeds share, and the last one, if it differs.

    If no three share one, it is the last round that two share, unless they have only begun.
    seeds: how many have evaluated each round.
    """
    far = seeds[seeds.index >= FAR * seeds.index.max()]
    enough = seeds[seeds >= FEWEST] if seeds.max() >= FEWEST else far[far == far.max()]
    return sorted({int(enough.index.max()), int(seeds.index.max())})


def repeats_of(rows: pd.DataFrame, until: int = 0) -> list[Repeats]:
    """Return runs at the last round that enough seeds share, and the longest, if it differs.

    until: rounds after this one do not count, unless a run has no others; 0: all count.
    """
    if not len(rows):
        return []
    early = rows if not until else rows[rows["round"] <= until]
    counted = pd.concat([early, rows[~rows["seed"].isin(early["seed"])]])
    seeds = counted.groupby("round")["seed"]
    return [
        Repeats(rows[rows["seed"].isin(seeds.get_group(number))], number)
        for number in shared_rounds(seeds.size())
    ]


def picked(rows: pd.DataFrame, at: int | None = None) -> list[Repeats]:
    """Return the runs that have evaluated this round, and those that ended before it (Local).

    at: None for `repeats_of`.
    """
    if at is None or not len(rows):
        return repeats_of(rows)
    there = rows["seed"].isin(rows.loc[rows["round"] == at, "seed"])
    own = rows[there | rows["ended"]]
    return [Repeats(own, at if there[own.index].all() else None)] if len(own) else []


def columns(*names: str) -> list[Column]:
    """Return the columns of these names in tables.toml."""
    return [Column(*values) for name in names for values in DECLARED["columns"][name]]


def declared(name: str) -> Json:
    """Return the declaration of a table, with what it takes from another one."""
    own: Json = DECLARED["tables"][name]
    return DECLARED["tables"][own["like"]] | own if "like" in own else own


def table(name: str, frame: pd.DataFrame, overrides: Mapping[str, Any] | None = None) -> Table:
    """Return a table from this frame; overrides: with which it is made, beside its own ones."""
    spec = declared(name)
    base = spec.get("overrides", {}) | dict(overrides or {})
    if "paper" in spec:
        return _beside_paper(spec, select(frame, spec["experiment"], base), not overrides)
    rows = labelled(name, frame, base)
    shown = columns(*spec["columns"])
    if spec.get("missing"):  # no run has reached the rounds of these columns
        shown = [
            c for c in shown if not c.round or any(r.mean(c.path, c.round) for r in rows.values())
        ]
    made = [_row(spec, label, repeats, shown, view) for (label, view), repeats in rows.items()]
    kept = [row for row in made if spec.get("missing") or set(row[-len(shown) :]) != {NONE}]
    not_run = tuple(label[0] for (label, _), repeats in rows.items() if not repeats.seeds)
    empty = len(not_run) == len(rows)
    return Table((*spec["head"], *(column.title for column in shown)), tuple(kept), not_run, empty)


Label = tuple[tuple[str, ...], str]  # the first cells of a row, and the model that is scored


def labelled(name: str, frame: pd.DataFrame, base: Mapping[str, Any]) -> dict[Label, Repeats]:
    """Return the runs of each row of a table."""
    spec = declared(name)
    if "by" in spec:
        return _combinations(spec, frame[frame["experiment"] == spec["experiment"]], base)
    rows: dict[Label, Repeats] = {}
    for row in spec["rows"]:
        overrides = {**base, **row.get("overrides", {})}
        own = select(frame, spec["experiment"], overrides, row["method"])
        label = row["label"] if isinstance(row["label"], list) else [row["label"]]
        for number in spec.get("rounds", [spec.get("at")]):
            found = picked(own, number) or ([Repeats(own)] if spec.get("missing") else [])
            cells = (*label, str(number)) if "rounds" in spec else tuple(label)
            for repeats in found[-1:] if spec.get("longest") else found[:1]:
                rows[cells, row.get("view", "")] = repeats
    if spec.get("same_seeds") and rows:
        seeds = set.intersection(*(set(repeats.rows["seed"]) for repeats in rows.values()))
        return {
            key: Repeats(row.rows[row.rows["seed"].isin(seeds)], row.round)
            for key, row in rows.items()
        }
    return rows


def _combinations(spec: Json, frame: pd.DataFrame, base: Mapping[str, Any]) -> dict[Label, Repeats]:
    """Return the runs that differ in settings below `free` only, by what `by` names.

    Rows are sorted by the values, or by variant and from the largest figure of `largest` down.
    """
    found: dict[tuple[int, tuple[Any, ...]], list[pd.DataFrame]] = {}
    for _, rows in frame.groupby(["method", "overrides"]):
        run: Run = rows["run"].iloc[0]
        free = tuple(spec["free"])
        rest = {key: value for key, value in run.overrides.items() if not key.startswith(free)}
        for position, variant in enumerate(spec["variants"]):
            if (run.method, rest) == (variant["method"], base | variant.get("overrides", {})):
                cells = variant.get("cells") or [_named(key, run, variant) for key in spec["by"]]
                found.setdefault((position, tuple(cells)), []).append(rows)
    made: dict[tuple[Any, ...], tuple[tuple[str, ...], Repeats]] = {}
    for (position, values), parts in found.items():
        own = pd.concat(parts)
        cells = tuple(part if isinstance(part, str) else f"{part:g}" for part in values)
        for repeats in picked(own, spec.get("at"))[:1]:
            size = repeats.mean(spec["largest"]) if "largest" in spec else None
            key = (position, -size.value) if size is not None else (0, 0)
            made[(*key, *values)] = cells, repeats
    return {(cells, ""): repeats for _, (cells, repeats) in sorted(made.items())}


def _named(key: str, run: Run, variant: Json) -> Any:
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


def _row(
    spec: Json, label: Sequence[str], repeats: Repeats, shown: Sequence[Column], view: str
) -> tuple[str, ...]:
    seeds, cells = _cells(repeats, shown, view)
    filled = {"seeds": seeds} | ({} if "rounds" in spec else {"round": str(repeats.round)})
    labels = iter(label)  # where rows are at several rounds, the round is a part of it
    return (*(filled.get(title) or next(labels) for title in spec["head"]), *cells)


def _cells(
    repeats: Repeats, shown: Sequence[Column], view: str = ""
) -> tuple[str, tuple[str, ...]]:
    """Return on how many seeds a row is based, those that have its figures, and the figures."""
    means = [repeats.interval(column, view) for column in shown]
    seeds = max((mean.count for mean in means if mean), default=repeats.seeds)
    return str(seeds), tuple(
        cell(mean, column.digits) for mean, column in zip(means, shown, strict=True)
    )


def _beside_paper(spec: Json, rows: pd.DataFrame, as_paper: bool) -> Table:
    """Return each method's row of the paper, our rows, and the differences.

    as_paper: our runs have the paper's settings, so that its rows are shown where ours are missing.
    """
    shown = columns(*spec["columns"])
    made: list[tuple[str, ...]] = []
    not_run, printed = [], set()
    for row in spec["rows"]:
        label, rounds = row["label"], row.get("rounds", spec.get("rounds")) or ""
        own = rows[rows["method"] == row["method"]]
        given = row.get("paper") if as_paper or spec.get("reference") else None
        theirs = [paper_value(f"{spec['paper']}/{given}/{column.path}") for column in shown]
        if given is not None and given not in printed and (len(own) or as_paper):
            printed.add(given)
            seeds = str(spec.get("paper_seeds", PAPER["seeds"]))
            formatted = [_number(value, c.digits) for value, c in zip(theirs, shown, strict=True)]
            name = row.get("paper_label", label)
            made.append((name, "paper", seeds, str(rounds), *formatted))
        if not len(own):
            not_run.append(label)
            made += [(label, "ours", "0", NONE, *(NONE for _ in shown))] if as_paper else []
        for repeats in repeats_of(own, int(rounds or 0) if "paper" in row else 0):
            view = row.get("view", "")
            seeds, cells = _cells(repeats, shown, view)
            made.append((label, "ours", seeds, str(repeats.round), *cells))
            if given is not None and as_paper and spec.get("differences"):
                means = [repeats.interval(column, view) for column in shown]
                differences = [
                    _number(
                        mean.value - value if mean and value is not None else None, c.digits, "+"
                    )
                    for mean, value, c in zip(means, theirs, shown, strict=True)
                ]
                made.append((label, "difference", "", "", *differences))
    titles = ("method", "", "seeds", "round", *(column.title for column in shown))
    return Table(titles, tuple(made), tuple(not_run), not len(rows))


def paper_value(path: str) -> float | None:
    """Return one of the paper's numbers, such as table1/e2fl/group/worst10."""
    part: Any = PAPER
    for name in path.split("/"):
        part = part.get(name) if isinstance(part, dict) else None
    return None if part is None else float(part)


def cell(mean: Interval | None, digits: int) -> str:
    """Return the mean and half the width of its interval, if there is one and it is visible."""
    if mean is None:
        return NONE
    half = round(mean.half or 0.0, digits)
    return f"{mean.value:.{digits}f}" + (f" ± {half:.{digits}f}" if half else "")


def _number(value: float | None, digits: int, sign: str = "") -> str:
    return NONE if value is None else f"{value:{sign}.{digits}f}"


def seeds_text(count: int) -> str:
    """Return a number of seeds in words."""
    return "1 seed" if count == 1 else f"{count} seeds"


BOARD: Json = DECLARED["leaderboard"]
SENT = ("algorithm.ballot.", "algorithm.downlink.")
SURROUNDINGS = ("data.", "model.")


def leaderboard(frame: pd.DataFrame) -> list[tuple[str, Table]]:
    """Return a table for each data set and model, the best worst group first.

    Methods have their shipped settings; by_group participation, known groups for IFCA and the
    recommended coarse ballots are rows of their own. On Adult, the smallest EOD is first.
    """
    boards: dict[str, list[pd.DataFrame]] = {}
    for _, rows in frame.groupby(["experiment", "method", "overrides"]):
        run: Run = rows["run"].iloc[0]
        if run.experiment in BOARD["titles"] and is_method(run):
            boards.setdefault(_heading(run), []).append(rows)
    return [(heading, _board(own)) for heading, own in sorted(boards.items())]


def is_method(run: Run) -> bool:
    """Return whether a run is a method, and not a point of an ablation or on validation data."""
    if any(run.settings.get(f"data.{name}validation_share") for name in ("", "pooled_")):
        return False
    narrow = run.experiment in BOARD["one_model"]
    if narrow and any(key.startswith("model.") for key in run.overrides):
        return False
    own = {key: value for key, value in run.overrides.items() if not key.startswith(SURROUNDINGS)}
    return all(value in BOARD["rows_of_their_own"].get(key, ()) for key, value in own.items())


def _heading(run: Run) -> str:
    """Return the data set, and how data and model differ from the shipped experiment."""
    own = {key: value for key, value in run.overrides.items() if key.startswith(SURROUNDINGS)}
    changes = BOARD["told"].get(run.experiment, {}) | own
    parts = [f"{key.removesuffix('.name').split('.')[-1]} = {changes[key]}" for key in changes]
    title = BOARD["titles"][run.experiment]
    return f"{title}: {', '.join(parts)}" if parts else title


def _board(methods: Iterable[pd.DataFrame]) -> Table:
    ranked: list[tuple[float, tuple[str, ...]]] = []
    for rows in methods:
        run: Run = rows["run"].iloc[0]
        adult = run.experiment == "adult"
        shown = columns("leaderboard_adult" if adult else "leaderboard")
        repeats = repeats_of(rows)[0]
        rank = repeats.interval(shown[1]) or repeats.interval(shown[2])
        score = 0.0 if rank is None else -abs(rank.value) if adult else rank.value
        _, cells = _cells(repeats, shown)
        ranked.append((-score, (described(run), str(repeats.seeds), str(repeats.round), *cells)))
    titles = ("method", "seeds", "rounds", *(column.title for column in shown))
    return Table(titles, tuple(row for _, row in sorted(ranked)))


def described(run: Run) -> str:
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
