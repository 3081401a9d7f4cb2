"""The contents of a report: one frame of runs, cut into methods over seeds. No words."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from e2fl.metrics import Interval, Measure, measure_of, tenth
from e2fl.metrics.accuracy import Numbers, Positions
from e2fl.metrics.intervals import LEVEL, chance_draws, over_clients, over_seeds, paired
from e2fl.runs.records import numbers_of
from e2fl.runs.store import StoredRun

Json = dict[str, Any]

# The parts of a summary that a line of history does not have.
WHOLE_RUN = ("bytes", "bits", "budget", "inference", "loss", "participation", "seconds", "unseen")
MIN_SHARED_ROWS = 100  # test rows: three clients hardly agree on so many by accident
CLIENT_COLUMNS = ("seed", "client", "group", "n", "accuracy", "loss")


def frame(runs: Iterable[StoredRun]) -> pd.DataFrame:
    """Return one row per run, view and evaluated round; `e2fl.results.frame` says what is in it."""
    return pd.DataFrame([row for run in runs for row in _rows_of(run)])


def _rows_of(run: StoredRun) -> Iterator[Json]:
    for line in run.history:
        last = bool(run.summary) and line is run.history[-1]
        for view in ("", *line.get("views", {})):
            record = _with_view(line, view)
            if last:
                whole = _with_view(run.summary, view)
                record |= {key: whole[key] for key in WHOLE_RUN if whole.get(key)}
            yield {
                "method": view_label(run.label, view),
                "label": run.label,
                "algorithm": run.config["algorithm"]["name"],
                "seed": run.seed,
                "view": view,
                "round": line["round"],
                "last": last,
                **with_derived(numbers_of(record)),
            }


def _with_view(record: Json, view: str) -> Json:
    """Return a line of history, or a summary, with the measures of one view in place of the own."""
    selected = {key: value for key, value in record.items() if key not in ("views", "validation")}
    validation = record.get("validation")
    if validation is not None:
        selected["validation"] = _with_view(validation, view)
    return selected | record.get("views", {}).get(view, {}) if view else selected


def with_derived(numbers: dict[str, float]) -> dict[str, float]:
    """Return the numbers with derived ones: sums and overheads."""
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
    `CLIENT_COLUMNS`; a client has a row for each group inside it.
    """

    label: str
    rows: pd.DataFrame
    parts: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(CLIENT_COLUMNS)))
    alone: bool = False  # every client trains on its own: nothing is sent
    view: bool = False  # not a run of its own: other models of the same run
    recovers: bool = False  # finds the groups of clients
    attacked: bool = False  # some clients are malicious
    baseline: "Method | None" = None  # training alone, if that was run on the same data

    @cached_property
    def final(self) -> pd.DataFrame:
        """The last evaluated round of each seed, with the gains over training alone."""
        rows = self.rows.sort_values("round", kind="stable").groupby("seed").tail(1)
        last, alone = rows.set_index("seed").sort_index(), self.baseline
        if alone is None or self.gains.empty:
            return last
        gains: dict[str, pd.Series[float]] = {
            "gain/mean": self.gains.groupby(level=0).mean(),
            "gain/worse_off": 100 * (self.gains < 0).groupby(level=0).mean(),
        }
        for name in {*names_in(last, "groups", "accuracy")} & {*alone.groups}:
            key = f"groups/{name}/accuracy"
            gains[f"groups/{name}/gain"] = last[key] - alone.final[key]
        return last.assign(**gains)

    @cached_property
    def gains(self) -> "pd.Series[float]":
        """The gain of every client over training alone, by seed; empty if that was not run."""
        if self.baseline is None:
            return pd.Series(dtype=float)
        keys, suffixes = ["seed", "client"], ("", "_alone")
        both = self.clients.merge(self.baseline.clients, on=keys, suffixes=suffixes)
        return (both["accuracy"] - both["accuracy_alone"]).set_axis(both["seed"])

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row per seed and client: the parts of a client are combined."""
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

    def interval(self, key: str) -> Interval | None:
        """Return a measure with its interval over seeds; with one seed, over clients."""
        values = self.by_seed(key)
        if not values:
            return None
        interval = over_seeds([*values.values()])
        members = self._members(key)
        if len(values) == 1 and len(members) and np.isfinite(members).all():
            interval = over_clients(members)
        return _cut(interval, key)

    def minus(self, other: "Method", key: str) -> Interval | None:
        """Return the difference to another method, over the seeds of both, paired."""
        first, second = self.by_seed(key), other.by_seed(key)
        if not first or not second:
            return None
        unpaired = Interval(float(np.mean([*first.values()]) - np.mean([*second.values()])))
        return paired(first, second) or unpaired

    @property
    def groups(self) -> list[str]:
        """The groups that this method was measured on."""
        return names_in(self.final, "groups", "accuracy")

    def lowest_groups(self, seed: int) -> list[str]:
        """Return the tenth of the groups with the lowest accuracy: group/worst10 averages these."""
        values = {name: self.final[f"groups/{name}/accuracy"].loc[seed] for name in self.groups}
        finite = pd.Series(values, dtype=float).dropna().sort_values(kind="stable")
        return list(finite.index[: tenth(len(finite))])

    def _members(self, key: str) -> Numbers:
        """Return the accuracies that a measure of one run is the mean of; none: it is no mean."""
        if key == "clients/mean":
            return self.clients["accuracy"].to_numpy(float)
        lowest = self.lowest_groups(self.seeds[0]) if key == "group/worst10" else []
        group = lowest[0] if len(lowest) == 1 else key.removeprefix("groups/")
        inside = self.parts["group"] == group.removesuffix("/accuracy")
        return self.parts.loc[inside & (self.parts["n"] > 0), "accuracy"].to_numpy(float)

    @cached_property
    def _draws(self) -> dict[str, Numbers]:
        """By path, the spreads that chance alone gives, averaged over seeds as the measures are."""
        tested = self.parts[self.parts["n"] > 0]
        if tested.empty or not np.isfinite(tested["accuracy"]).all():
            return {}
        grouped = bool((tested["group"] != "").all())
        names = ["accuracy", "n", "client", *(["group"] if grouped else [])]
        draws = [
            chance_draws(
                **{name: rows[name].to_numpy() for name in names}, test=_tests(rows), seed=position
            )
            for position, (_, rows) in enumerate(tested.groupby("seed", sort=False))
        ]
        return {key: np.mean([draw[key] for draw in draws], axis=0) for key in draws[0]}

    @cached_property
    def chance(self) -> dict[str, float]:
        """By path, the spread that chance alone gives on average."""
        return {key: float(drawn.mean()) for key, drawn in self._draws.items()}

    def by_chance(self, key: str) -> bool:
        """Return whether chance alone explains this spread: the variance over groups or clients."""
        variance = f"{key.partition('/')[0]}/variance"
        value = self.mean(variance)
        if value is None or key not in self._draws:
            return False
        return value <= float(np.quantile(self._draws[variance], LEVEL))

    def apart_by_chance(self, level: str) -> float:
        """Return the largest distance of best and worst that chance alone explains."""
        if f"{level}/worst10" not in self._draws:
            return 0.0
        distances = self._draws[f"{level}/best10"] - self._draws[f"{level}/worst10"]
        return float(np.quantile(distances, LEVEL))


def _tests(rows: pd.DataFrame) -> Positions:
    """Return a number per row, equal for clients that share model and test rows.

    Their losses are equal; without losses, a whole group has one accuracy.
    """
    positions = pd.Series(np.arange(len(rows)), rows.index)
    if "loss" not in rows:
        return positions.to_numpy()
    of_group = rows.groupby("group")["accuracy"]
    equal = (of_group.transform("nunique") == 1) & (of_group.transform("size") > 2)
    loss = rows["loss"].mask(rows["loss"].isna() & equal & (rows["n"] >= MIN_SHARED_ROWS), 1.0)
    same = [rows["group"], rows["n"], rows["accuracy"], loss]
    return positions.groupby(same).transform("min").where(loss > 0, positions).to_numpy(np.int64)


def names_in(rows: pd.DataFrame, first: str, last: str) -> list[str]:
    """Return the groups for which paths such as groups/NAME/accuracy have a value."""
    return [
        path.removeprefix(f"{first}/").removesuffix(f"/{last}")
        for path in rows.columns
        if path.startswith(f"{first}/") and path.endswith(f"/{last}") and rows[path].notna().any()
    ]


def _cut(interval: Interval, key: str) -> Interval:
    """Return an interval without the values that the measure cannot have."""
    if interval.low is None or interval.high is None or key.startswith("measures/"):
        return interval
    measure = measure_of(key)
    low = interval.low if measure.signed else max(0.0, interval.low)
    high = min(100.0, interval.high) if measure.unit == "%" else interval.high
    return replace(interval, low=low, high=high)


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
    data_picture: str = ""  # data.svg beside it, in base64
    groups_found: bool = False  # groups were found by an algorithm, not declared by clients
    own: tuple[Measure, ...] = ()  # measures that the user added
    attacked: pd.DataFrame = field(default_factory=pd.DataFrame)  # what attacks cost, by seed
    same_data: bool = True  # otherwise, nothing is compared

    @property
    def main(self) -> tuple[Method, ...]:
        """The methods that are runs of their own."""
        return tuple(method for method in self.methods if not method.view)

    @property
    def honest(self) -> tuple[Method, ...]:
        """Those without malicious clients, which the verdict compares; all if each has some."""
        return tuple(method for method in self.main if not method.attacked) or self.main

    @property
    def alone(self) -> Method | None:
        """The method whose clients train on their own, if it was run on the same data."""
        alone = (method for method in self.main if method.alone and self.same_data)
        return next(alone, None)

    @cached_property
    def pair(self) -> tuple[Method, Method] | None:
        """The best and the second best for the worst group; training alone comes last."""

        def rank(method: Method) -> tuple[bool, float, float]:
            values = (method.mean(key) for key in (self.worst, "clients/mean"))
            worst, mean = (-math.inf if value is None else value for value in values)
            return not method.alone, worst, mean

        ranked = sorted(self.honest, key=rank, reverse=True)
        return (ranked[0], ranked[1]) if len(ranked) > 1 and self.same_data else None

    @property
    def subject(self) -> Method:
        """The method that the page describes first."""
        return self.pair[0] if self.pair else self.main[0]

    @property
    def protected_groups(self) -> tuple[str, ...]:
        """The two groups of a protected attribute: differences are the first minus the second."""
        paths = (str(path) for method in self.methods for path in method.final)
        protected = any(path.startswith("protected/") for path in paths)
        return tuple(self.group_names) if protected and len(self.group_names) == 2 else ()

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
        single = tenth(len(self.group_names)) == 1
        return f"worst {found}group" if single else f"worst tenth of {found}groups"

    @property
    def interval_label(self) -> str:
        """A description of the intervals on this page."""
        if len(self.seeds) > 1:
            return f"95 % intervals over {len(self.seeds)} seeds"
        return "95 % intervals over clients (one run)"
