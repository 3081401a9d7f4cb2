"""The contents of a report: one frame of runs, cut into methods over seeds. No words."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from e2fl import metrics
from e2fl.errors import ConfigError
from e2fl.metrics import Interval, Measure, measure_of
from e2fl.metrics.intervals import (
    Chance,
    Statistic,
    chance,
    chance_draws,
    over_clients,
    over_seeds,
    paired,
    row_means,
    row_worst10,
)
from e2fl.runs.records import numbers_of

if TYPE_CHECKING:
    from e2fl.runs.store import Run

Json = dict[str, Any]

FIRST = ("method", "label", "algorithm", "seed", "view", "round", "last")
# The parts of a summary that a line of history does not have.
WHOLE_RUN = ("bytes", "bits", "budget", "inference", "loss", "participation", "seconds", "unseen")
PARTS = ("seed", "client", "group", "n", "accuracy")


def frame(runs: Iterable["Run"]) -> pd.DataFrame:
    """Return one row per run, view and evaluated round; `e2fl.results.frame` says what is in it."""
    rows = pd.DataFrame([row for run in runs for row in _rows_of(run)])
    return rows.reindex(columns=[*FIRST, *(name for name in rows.columns if name not in FIRST)])


def _rows_of(run: "Run") -> Iterator[Json]:
    for line in run.history:
        last = bool(run.summary) and line is run.history[-1]
        for view in ("", *line.get("views", {})):
            part = _seen_through(line, view)
            if last:
                whole = _seen_through(run.summary, view)
                part |= {key: whole[key] for key in (*WHOLE_RUN, "unseen") if whole.get(key)}
            yield {
                "method": view_label(run.label, view),
                "label": run.label,
                "algorithm": run.config["algorithm"]["name"],
                "seed": run.seed,
                "view": view,
                "round": line["round"],
                "last": last,
                **with_derived(numbers_of(part)),
            }


def _seen_through(record: Json, view: str) -> Json:
    """Return a line of history, or a summary, with the measures of one view in place of the own."""
    part = {key: value for key, value in record.items() if key not in ("views", "validation")}
    validation = record.get("validation")
    if validation is not None:
        part["validation"] = _seen_through(validation, view)
    return part | record.get("views", {}).get(view, {}) if view else part


def with_derived(numbers: dict[str, float]) -> dict[str, float]:
    """Return the numbers and those that follow from them: sums and overheads."""
    if "bytes/up_total" in numbers or "bytes/down_total" in numbers:
        ways = (numbers.get(f"bytes/{way}_total", 0.0) for way in ("up", "down"))
        numbers["bytes/total"] = sum(ways)
    entropy = numbers.get("bits/entropy_up_per_edge", 0.0)
    if entropy > 0 and "bits/up_per_edge" in numbers:
        numbers["bits/over_entropy"] = 100 * (numbers["bits/up_per_edge"] / entropy - 1)
    return numbers


def view_label(label: str, view: str) -> str:
    """Return the display name of a method seen through a view of its models, such as E2FL (GM)."""
    return f"{label} ({'GM' if view == 'global' else view})" if view else label


@dataclass(frozen=True, eq=False)
class Method:
    """A compared method, an algorithm as configured or another view of its models, over seeds.

    rows: its part of the frame. parts: the clients at the last evaluation, with the columns
    `PARTS`; a client has a row for each group inside it.
    """

    label: str
    rows: pd.DataFrame
    parts: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(PARTS)))
    alone: bool = False  # every client trains on its own: nothing is sent
    view: bool = False  # not a run of its own: other models of the same run
    recovers: bool = False  # finds the groups of clients
    attacked: bool = False  # some clients are malicious
    _intervals: dict[Any, Interval | None] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def final(self) -> pd.DataFrame:
        """The last evaluated round of each seed."""
        last = self.rows.sort_values("round", kind="stable").groupby("seed").tail(1)
        return last.set_index("seed").sort_index()

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row per seed and client, with the columns `PARTS`: its parts are combined."""
        right = self.parts["n"] * self.parts["accuracy"]
        by_client = self.parts.assign(right=right).groupby(["seed", "client"], sort=False)
        groups = by_client["group"].agg(lambda names: ", ".join(filter(None, names)))
        n, right = by_client["n"].sum(), by_client["right"].sum(min_count=1)
        return pd.DataFrame({"group": groups, "n": n, "accuracy": right / n}).reset_index()

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(int(seed) for seed in self.final.index)

    def by_seed(self, key: str) -> dict[int, float]:
        """Return a measure for each seed; empty if a seed lacks it."""
        if key not in self.final:
            return {}
        values = self.final[key].astype(float).to_list()
        return dict(zip(self.seeds, values, strict=True)) if np.isfinite(values).all() else {}

    def mean(self, key: str) -> float | None:
        """Return a measure, averaged over seeds."""
        values = self.by_seed(key)
        return float(np.mean(list(values.values()))) if values else None

    def interval(self, key: str, minus: "Method | None" = None) -> Interval | None:
        """Return a measure, or its difference to another method's, with its interval.

        The interval is over seeds, of differences paired; with one seed, over clients.
        """
        if (key, minus) not in self._intervals:
            own = self._interval(key) if minus is None else _difference(self, minus, key)
            self._intervals[key, minus] = own
        return self._intervals[key, minus]

    def _interval(self, key: str) -> Interval | None:
        values = self.by_seed(key)
        if not values:
            return None
        interval = over_seeds(list(values.values()))
        if len(values) == 1:
            worst = key == "clients/worst10"
            shares = self.shares("clients/mean" if worst else key, min(values))
            interval = _over_clients(interval, shares, row_worst10 if worst else row_means)
        return _cut(interval, key)

    @property
    def groups(self) -> list[str]:
        """The groups that this method was measured on."""
        return names_in(self.final, "groups", "accuracy")

    def lowest_groups(self, seed: int) -> list[str]:
        """Return the tenth of the groups with the lowest accuracy: group/worst10 averages these."""
        values = {name: self.final[f"groups/{name}/accuracy"].loc[seed] for name in self.groups}
        known = pd.Series(values, dtype=float).dropna().sort_values(kind="stable")
        return list(known.index[: metrics.tenth(len(known))])

    def shares(self, key: str, seed: int) -> "pd.Series[float] | None":
        """Return a mean as the sum of the means of strata of clients; None for other measures.

        The index is stratum, a group or "", and client.
        """
        index = ["stratum", "client"]
        if key == "clients/mean":
            rows = self.clients[self.clients["seed"] == seed].assign(stratum="")
            return rows.set_index(index)["accuracy"] if len(rows) else None
        groups = {"group/worst10": self.lowest_groups(seed), "group/mean": self.groups}.get(
            key, [key.removeprefix("groups/").removesuffix("/accuracy")]
        )
        parts = self.parts[(self.parts["seed"] == seed) & (self.parts["group"] != "")]
        members = parts.assign(stratum=parts["group"]).set_index(index)["accuracy"]
        if not groups or not set(groups) <= set(parts["group"]):
            return None
        shares: pd.Series[float] = pd.concat([members.loc[[group]] for group in groups])
        return shares / len(groups)

    @cached_property
    def chance(self) -> dict[str, Chance]:
        """By path, the spread that chance alone gives, averaged over seeds as the measures are."""
        tested = self.parts[self.parts["n"] > 0]
        if tested.empty or not np.isfinite(tested["accuracy"]).all():
            return {}
        grouped = bool((tested["group"] != "").all())
        draws = [
            chance_draws(
                rows["accuracy"],
                rows["n"],
                rows["client"].to_numpy(),
                rows["group"].to_numpy() if grouped else None,
                seed=position,
            )
            for position, (_, rows) in enumerate(tested.groupby("seed", sort=False))
        ]
        return chance({key: np.mean([draw[key] for draw in draws], axis=0) for key in draws[0]})

    def by_chance(self, key: str) -> bool:
        """Return whether chance alone explains the spread of this path.

        Of three groups, the lowest may be as chance has it, and its distance from the best not.
        """
        value, expected = self.mean(key), self.chance.get(key)
        if value is None or expected is None or not expected.explains(value):
            return False
        level, _, kind = key.partition("/")
        best = self.mean(f"{level}/best10") if kind == "worst10" else None
        return best is None or self.chance[f"{level}/tenths"].explains(best - value)


def names_in(rows: pd.DataFrame, first: str, last: str) -> list[str]:
    """Return the names of groups in paths such as groups/NAME/accuracy that have any value."""
    return [
        path.removeprefix(f"{first}/").removesuffix(f"/{last}")
        for path in rows.columns
        if path.startswith(f"{first}/") and path.endswith(f"/{last}") and rows[path].notna().any()
    ]


def _cut(interval: Interval, key: str) -> Interval:
    """Return an interval without the values that the measure cannot have."""
    if interval.low is None or interval.high is None:
        return interval
    try:
        measure = measure_of(key)
    except ConfigError:  # a user's own measure
        return interval
    low = interval.low if measure.signed else max(0.0, interval.low)
    high = min(100.0, interval.high) if measure.unit == "%" else interval.high
    return replace(interval, low=low, high=high)


def _difference(first: Method, second: Method, key: str) -> Interval | None:
    one, two = first.by_seed(key), second.by_seed(key)
    if not one or not two:
        return None
    interval = paired(one, two)
    if interval is None:
        return Interval(float(np.mean([*one.values()]) - np.mean([*two.values()])))
    seed = min(one.keys() & two.keys())
    own, other = first.shares(key, seed), second.shares(key, seed)
    if interval.count > 1 or own is None or other is None:
        return interval
    # A group that is the worst with one method only counts 0 for the other; of a group of both
    # methods, the clients count that both have.
    both = own.index.get_level_values(0).intersection(other.index.get_level_values(0))
    alone = (own - other).isna()
    left_out = alone & alone.index.get_level_values(0).isin(both)
    shares = own.sub(other, fill_value=0.0)[~left_out].sort_index()
    return _over_clients(interval, shares, row_means)


def _over_clients(
    interval: Interval, shares: "pd.Series[float] | None", statistic: Statistic
) -> Interval:
    """Return the value with its interval over clients, if the share of every client is known."""
    if shares is None or shares.empty or not np.isfinite(shares).all():
        return interval
    by_stratum = shares.groupby(level=0, sort=False)
    strata = [np.asarray(rows, np.float64) for _, rows in by_stratum]
    return replace(over_clients(strata, statistic), value=interval.value)


@dataclass(frozen=True, eq=False)
class Study:
    """Everything one page shows."""

    title: str
    subtitle: str
    methods: tuple[Method, ...]
    warnings: tuple[str, ...] = ()  # reasons to be careful with the comparison
    settings: tuple[str, ...] = ()  # settings in which the methods differ, in words
    runs: tuple[Json, ...] = ()  # label, seed, rounds, version, config, command, folder
    unfinished: str = ""  # while a run is in progress: the round it has reached
    data: Json | None = None  # data.json of the first run that has one
    data_picture: bytes | None = None  # data.svg beside it
    groups_found: bool = False  # groups were found by an algorithm, not declared by clients
    own: tuple[Measure, ...] = ()  # measures that the user added
    attacked: pd.DataFrame | None = None  # what each attack cost each method, by seed

    @property
    def main(self) -> tuple[Method, ...]:
        """The methods that are runs of their own."""
        return tuple(method for method in self.methods if not method.view)

    @property
    def alone(self) -> Method | None:
        """The method whose clients train on their own, if it was run."""
        return next((method for method in self.main if method.alone), None)

    @cached_property
    def pair(self) -> tuple[Method, Method] | None:
        """The best and the second best for the worst group; training alone comes last."""

        def rank(method: Method) -> tuple[bool, float, float]:
            values = (method.mean(key) for key in (self.worst, "clients/mean"))
            worst, mean = (-math.inf if value is None else value for value in values)
            return not method.alone, worst, mean

        honest = [method for method in self.main if not method.attacked] or self.main
        ranked = sorted(honest, key=rank, reverse=True)
        return (ranked[0], ranked[1]) if len(ranked) > 1 else None

    @property
    def subject(self) -> Method:
        """The method that the page describes first."""
        return self.pair[0] if self.pair else self.main[0]

    def lead(self, key: str) -> Interval | None:
        """Return by how much the best for the worst group is above the second best."""
        return self.pair[0].interval(key, self.pair[1]) if self.pair else None

    @cached_property
    def protected_groups(self) -> tuple[str, str] | None:
        """The two groups of a protected attribute: differences are the first minus the second."""
        for method in self.methods:
            groups = method.groups
            if len(groups) == 2 and any("protected/" in str(path) for path in method.final):
                return groups[0], groups[1]
        return None

    @cached_property
    def group_names(self) -> list[str]:
        """All groups, in the order in which they first occur."""
        return list(dict.fromkeys(name for method in self.methods for name in method.groups))

    def size_of(self, group: str) -> float | None:
        """Return the number of clients of a group, from the first method that has it."""
        sizes = (method.mean(f"groups/{group}/clients") for method in self.methods)
        return next((size for size in sizes if size is not None), None)

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for method in self.methods for seed in method.seeds})

    @property
    def worst(self) -> str:
        """The measure of equity: the worst group; the worst clients if a method has no groups."""
        grouped = self.group_names and all(method.groups for method in self.main)
        return "group/worst10" if grouped else "clients/worst10"

    @property
    def best(self) -> str:
        """Its counterpart at the upper end."""
        return self.worst.replace("worst", "best")

    @property
    def worst_label(self) -> str:
        """The name of the measure of equity."""
        if self.worst == "clients/worst10":
            return "worst tenth of clients"
        found = "found " if self.groups_found else ""
        single = metrics.tenth(len(self.group_names)) == 1
        return f"worst {found}group" if single else f"worst tenth of {found}groups"

    @property
    def interval_label(self) -> str:
        """A description of the intervals on this page."""
        if len(self.seeds) > 1:
            return f"95 % intervals over {len(self.seeds)} seeds"
        return "95 % intervals over clients (bootstrap, one run)"


def extremes(values: Mapping[str, float | None]) -> Json | None:
    """Return the names low and high of the lowest and highest values, least and most; or None."""
    known = pd.Series(values, dtype=float).dropna()
    if known.empty:
        return None
    names = {"low": known.idxmin(), "high": known.idxmax()}
    return names | {"least": known.min(), "most": known.max()}


def gains(method: Method, alone: Method) -> pd.DataFrame:
    """Return every client of the seeds that both ran with, and its gain over training alone.

    The columns are those of `PARTS`, alone and difference.
    """
    other = alone.clients[["seed", "client", "accuracy"]].rename(columns={"accuracy": "alone"})
    both = method.clients.merge(other, on=["seed", "client"])
    return both.assign(difference=both["accuracy"] - both["alone"])


def with_gains(method: Method, alone: Method | None) -> Method:
    """Return a method with its gains over training alone, for the seeds that both ran with."""
    if alone is None or method is alone or (both := gains(method, alone)).empty:
        return method
    seeds = both["seed"]
    added = {
        "gain/mean": both["difference"].groupby(seeds).mean(),
        "gain/worse_off": 100 * (both["difference"] < 0).groupby(seeds).mean(),
    }
    for name in {*method.groups} & {*alone.groups}:
        key = f"groups/{name}/accuracy"
        added[f"groups/{name}/gain"] = method.final[key] - alone.final[key]
    last = method.rows["round"] == method.rows.groupby("seed")["round"].transform("max")
    columns = {key: method.rows["seed"].map(values).where(last) for key, values in added.items()}
    return replace(method, rows=method.rows.assign(**columns))


def worse_off(method: Method, alone: Method) -> tuple[float, int, int] | None:
    """Return the clients that do worse than alone, averaged over seeds; all clients; seeds."""
    both = gains(method, alone)
    if both.empty:
        return None
    worse = (both["difference"] < 0).groupby(both["seed"], sort=False)
    return float(worse.sum().mean()), int(worse.size().iloc[0]), worse.ngroups
