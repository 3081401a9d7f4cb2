"""The contents of a report: methods, each measured over seeds. Measurements only, no words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from e2fl import metrics
from e2fl.errors import ConfigError
from e2fl.metrics import Interval, Measure, measure_of
from e2fl.metrics.arrays import Numbers
from e2fl.metrics.chance import FEW_ROWS, Chance, chance, chance_draws
from e2fl.metrics.intervals import over_clients, over_seeds, paired, row_means, row_worst10

Json = dict[str, Any]
Strata = dict[str, dict[str, float]]  # name of a stratum: client: its share of the measure


@dataclass(frozen=True, eq=False)
class Method:
    """A compared method, an algorithm as configured or another view of its models, over seeds.

    rows: its part of the frame. parts: by seed, the clients at the last evaluation, with the
    columns client, group, n and accuracy; a client has a row for each group inside it.
    """

    label: str
    rows: pd.DataFrame
    parts: Mapping[int, pd.DataFrame] = field(default_factory=dict)
    alone: bool = False  # every client trains on its own: nothing is sent
    view: bool = False  # not a run of its own: other models of the same run
    recovers: bool = False  # finds the groups of clients
    _intervals: dict[str, Interval | None] = field(default_factory=dict, repr=False)

    @cached_property
    def final(self) -> pd.DataFrame:
        """The last evaluated round of each seed."""
        last = self.rows.sort_values("round", kind="stable").groupby("seed").tail(1)
        return last.set_index("seed").sort_index()

    @cached_property
    def clients(self) -> dict[int, pd.DataFrame]:
        """By seed, one row per client: client, group, n, accuracy; its parts are combined."""
        return {seed: _combined(parts) for seed, parts in self.parts.items()}

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(int(seed) for seed in self.final.index)

    def by_seed(self, key: str) -> dict[int, float]:
        """Return a measure for each seed; empty if a seed lacks it."""
        if key not in self.final:
            return {}
        values = self.final[key].astype(float).to_list()
        if not np.isfinite(values).all():
            return {}
        return dict(zip(self.seeds, values, strict=True))

    def mean(self, key: str) -> float | None:
        """Return a measure, averaged over seeds."""
        values = self.by_seed(key)
        return float(np.mean(list(values.values()))) if values else None

    def interval(self, key: str) -> Interval | None:
        """Return a measure with its interval over seeds, or over clients for one seed."""
        if key not in self._intervals:
            self._intervals[key] = _cut(self._interval(key), key)
        return self._intervals[key]

    def _interval(self, key: str) -> Interval | None:
        values = self.by_seed(key)
        if len(values) != 1:
            return over_seeds(list(values.values())) if values else None
        ((seed, value),) = values.items()
        worst = key == "clients/worst10"
        strata = self.strata("clients/mean" if worst else key, seed)
        arrays = [np.array(list(stratum.values())) for stratum in (strata or {}).values()]
        if not arrays or not all(np.isfinite(array).all() for array in arrays):
            return over_seeds([value])
        statistic = row_worst10 if worst else row_means
        return replace(over_clients(arrays, statistic), value=value)

    @property
    def groups(self) -> list[str]:
        """The groups that this method was measured on."""
        return names_in(self.final, "groups", "accuracy")

    def lowest_groups(self, seed: int) -> list[str]:
        """Return the tenth of the groups with the lowest accuracy: group/worst10 averages these."""
        accuracy = {
            name: self.final[f"groups/{name}/accuracy"].astype(float) for name in self.groups
        }
        values = {name: by_seed[seed] for name, by_seed in accuracy.items()}
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        ordered = sorted(values, key=lambda name: values[name])
        return ordered[: metrics.tenth(len(ordered))] if ordered else []

    def members(self, seed: int) -> Strata:
        """Return the accuracy of every client in every group."""
        parts = self.parts.get(seed)
        if parts is None:
            return {}
        return {
            str(name): dict(zip(rows["client"], rows["accuracy"].astype(float), strict=True))
            for name, rows in parts[parts["group"] != ""].groupby("group", sort=False)
        }

    def strata(self, key: str, seed: int) -> Strata | None:
        """Return a mean as the sum of the means of strata of clients; None for other measures."""
        if seed not in self.parts:
            return None
        if key == "clients/mean":
            clients = self.clients[seed]
            return {"": dict(zip(clients["client"], clients["accuracy"], strict=True))}
        if key == "group/worst10":
            groups = self.lowest_groups(seed)
        elif key == "group/mean":
            groups = self.groups
        elif key.startswith("groups/") and key.endswith("/accuracy"):
            groups = [key.removeprefix("groups/").removesuffix("/accuracy")]
        else:
            return None
        members = self.members(seed)
        if not groups or any(not members.get(group) for group in groups):
            return None
        return {
            group: {client: value / len(groups) for client, value in members[group].items()}
            for group in groups
        }

    @cached_property
    def chance(self) -> dict[str, Chance]:
        """By path, the spread that chance alone gives, averaged over seeds as the measures are."""
        draws: list[dict[str, Numbers]] = []
        for parts in self.parts.values():
            tested = parts[parts["n"] > 0]
            if tested.empty or not np.isfinite(tested["accuracy"]).all():
                return {}
            grouped = (tested["group"] != "").all()
            accuracy, n, client = (tested[name].to_numpy() for name in ("accuracy", "n", "client"))
            group = tested["group"].to_numpy() if grouped else None
            draws.append(chance_draws(accuracy, n, client, group, seed=len(draws)))
        if not draws:
            return {}
        shared = set.intersection(*(set(each) for each in draws))
        return chance({key: np.mean([each[key] for each in draws], axis=0) for key in shared})

    def by_chance(self, key: str) -> bool:
        """Return whether chance alone explains the spread of this path."""
        value, expected = self.mean(key), self.chance.get(key)
        return value is not None and expected is not None and expected.explains(value)

    @cached_property
    def test_rows(self) -> float | None:
        """The median number of test rows of a client; None if it is not known."""
        sizes = [clients["n"] for clients in self.clients.values()]
        return float(np.median(np.concatenate(sizes))) if sizes else None


def names_in(frame: pd.DataFrame, first: str, last: str) -> list[str]:
    """Return the names of groups in paths such as groups/NAME/accuracy that have any value."""
    columns = [name for name in frame.columns if name.startswith(f"{first}/")]
    return [
        name.removeprefix(f"{first}/").removesuffix(f"/{last}")
        for name in columns
        if name.endswith(f"/{last}") and frame[name].notna().any()
    ]


def _combined(parts: pd.DataFrame) -> pd.DataFrame:
    names = parts["client"]
    n, values = parts["n"].astype(float), parts["accuracy"].astype(float)
    sums = (values * n).groupby(names, sort=False).sum(min_count=1)
    sizes = n.groupby(names, sort=False).sum()
    groups = (
        parts["group"].groupby(names, sort=False).agg(lambda group: ", ".join(filter(None, group)))
    )
    columns = {"client": sizes.index, "group": groups.to_numpy(), "n": sizes.to_numpy()}
    with np.errstate(invalid="ignore", divide="ignore"):
        return pd.DataFrame(columns | {"accuracy": (sums / sizes).to_numpy()})


def _listed(groups: "pd.Series[str]") -> str:
    return ", ".join(group for group in groups if group)


def _cut(interval: Interval | None, key: str) -> Interval | None:
    """Return an interval without the values that the measure cannot have."""
    if interval is None or interval.low is None or interval.high is None:
        return interval
    try:
        measure = measure_of(key)
    except ConfigError:
        return interval
    low = interval.low if measure.signed else max(0.0, interval.low)
    high = min(100.0, interval.high) if measure.unit == "%" else interval.high
    return replace(interval, low=low, high=high)


def difference(first: Method, second: Method, key: str) -> Interval | None:
    """Return first minus second: paired over seeds, or over clients if they share one seed."""
    one, two = first.by_seed(key), second.by_seed(key)
    if not one or not two:
        return None
    over = paired(one, two)
    if over is None:
        return Interval(float(np.mean([*one.values()]) - np.mean([*two.values()])))
    if over.count > 1:
        return over
    seed = next(iter(one.keys() & two.keys()))
    own, other = first.strata(key, seed), second.strata(key, seed)
    if own is None or other is None:
        return over
    strata = []
    for group in sorted(own.keys() | other.keys()):
        a, b = own.get(group), other.get(group)
        names = (a or b or {}) if a is None or b is None else a.keys() & b.keys()
        pairs = [(a[name] if a else 0.0) - (b[name] if b else 0.0) for name in sorted(names)]
        strata.append(np.array(pairs))
    if not all(len(stratum) and np.isfinite(stratum).all() for stratum in strata):
        return over
    return replace(over_clients(strata), value=over.value)


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
    protected_groups: tuple[str, str] | None = None  # differences are the first minus the second
    groups_found: bool = False  # groups were found by an algorithm, not declared by clients
    own: tuple[Measure, ...] = ()  # measures that the user added

    @property
    def main(self) -> tuple[Method, ...]:
        """The methods that are runs of their own."""
        return tuple(method for method in self.methods if not method.view)

    @property
    def alone(self) -> Method | None:
        """The method whose clients train on their own, if it was run."""
        return next((method for method in self.main if method.alone), None)

    @cached_property
    def group_names(self) -> list[str]:
        """All groups, in the order in which they first occur."""
        return list(dict.fromkeys(name for method in self.methods for name in method.groups))

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for method in self.methods for seed in method.seeds})

    @property
    def worst(self) -> str:
        """The measure of equity: the worst group, or the worst clients if there are no groups."""
        return "group/worst10" if self.group_names else "clients/worst10"

    @property
    def worst_label(self) -> str:
        """The name of that measure."""
        if not self.group_names:
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

    @property
    def few_test_rows(self) -> float | None:
        """The median number of test rows of a client, if it is too low to judge spreads."""
        known = [method.test_rows for method in self.main if method.test_rows is not None]
        return min(known) if known and min(known) < FEW_ROWS else None


def gains(method: Method, alone: Method) -> dict[int, pd.DataFrame]:
    """Return, by seed that both ran with, every client and its gain over training alone.

    The columns are client, group, alone, accuracy and difference.
    """
    found = {}
    for seed, own in method.clients.items():
        if seed in alone.clients:
            other = alone.clients[seed][["client", "accuracy"]]
            both = own.merge(other.rename(columns={"accuracy": "alone"}), on="client")
            if len(both):
                found[seed] = both.assign(difference=both["accuracy"] - both["alone"])
    return found


@dataclass(frozen=True)
class ParetoPoint:
    """A method's accuracy, equity and bytes, and the methods that are better in all of them."""

    method: Method
    mean: float
    worst: float
    sent: float | None
    beaten_by: tuple[str, ...] = ()


def pareto(study: Study) -> list[ParetoPoint]:
    """Return which methods no other method beats. Unknown values are not compared."""
    points = []
    for method in study.methods:
        mean, worst, sent = (
            method.mean(key) for key in ("clients/mean", study.worst, "bytes/total")
        )
        if mean is not None and worst is not None:
            points.append(ParetoPoint(method, mean, worst, sent))
    return [
        replace(
            point,
            beaten_by=tuple(o.method.label for o in points if o is not point and _beats(o, point)),
        )
        for point in points
    ]


def _beats(first: ParetoPoint, second: ParetoPoint) -> bool:
    pairs = [(first.mean, second.mean), (first.worst, second.worst)]
    if first.sent is not None and second.sent is not None:
        pairs.append((-first.sent, -second.sent))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
