"""The contents of a report: methods, each with its outcomes over seeds. Measurements only, no words or pictures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl import metrics
from e2fl.report.intervals import Interval, Numbers, bootstrap, over_seeds, paired, row_means, row_worst10

Json = dict[str, Any]


@dataclass(frozen=True)
class Clients:
    """Every client at the last evaluation; where groups lie inside a client, its parts are combined."""

    names: NDArray[np.object_]  # [clients]
    groups: NDArray[np.object_] | None  # [clients]; a client with several groups names them all
    accuracy: Numbers  # [clients]
    n: Numbers  # [clients], test examples
    members: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # group: client: accuracy in that group

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Outcome:
    """One run at its last evaluation."""

    seed: int
    user: Mapping[str, float]
    group: Mapping[str, float] | None
    groups: Mapping[str, Json]  # name: clients, accuracy, loss
    clients: Clients | None = None
    sent: Mapping[str, float] | None = None  # encoded bytes of training: up and down per client per round, total
    history: Sequence[Json] = ()  # the lines of history.jsonl, as seen through this view
    protected: Mapping[str, float | None] | None = None
    recovery: Mapping[str, Any] | None = None  # how well groups were found; None where clients declared them
    budget: Mapping[str, float] | None = None  # client_trainings, client_epochs, examples
    participation: Mapping[str, Mapping[str, float]] | None = None  # group: clients, asked, asked_per_client
    bits: Mapping[str, float] | None = None  # per edge; over_entropy in percent
    loss: Mapping[str, Any] | None = None  # over clients and over groups: mean, std
    diverged: int = 0  # clients whose models give outputs that are not finite

    def value(self, key: str) -> float | None:
        """Return a measure by the name it has everywhere, such as group/worst10 or groups/G1/accuracy."""
        return measured({**vars(self), "bytes": self.sent}, key)

    def lowest_groups(self) -> list[str]:
        """Return the tenth of the groups with the lowest accuracy, at least one: group/worst10 averages these."""
        known = {name: value for name in self.groups if (value := self.value(f"groups/{name}/accuracy")) is not None}
        return sorted(known, key=lambda name: known[name])[: metrics.tenth(len(known))] if known else []

    def parts(self, key: str) -> dict[str, dict[str, float]] | None:
        """Return a mean as the sum of the means of these strata of clients; None for other measures."""
        if self.clients is None:
            return None
        if key == "user/mean":
            names = self.clients.names.tolist()
            return {"": dict(zip(names, self.clients.accuracy.tolist(), strict=True))}
        groups = {"group/worst10": self.lowest_groups(), "group/mean": list(self.groups)}.get(key)
        if groups is None and key.startswith("groups/") and key.endswith("/accuracy"):
            groups = [key.removeprefix("groups/").removesuffix("/accuracy")]
        members = self.clients.members
        if not groups or any(not members.get(group) for group in groups):
            return None
        return {g: {name: value / len(groups) for name, value in members[g].items()} for g in groups}


def measured(line: Mapping[str, Any], key: str) -> float | None:
    """Return the number of this name, such as user/mean, in a line of history; None if missing or not finite."""
    if key in ("user/std", "group/std"):
        variance = measured(line, f"{key.removesuffix('/std')}/variance")
        return None if variance is None or variance < 0 else math.sqrt(variance)
    place: Any = line
    first, _, rest = key.partition("/")
    # A group may have a slash in its name: only the ends of such a key are ours.
    parts = [first, *rest.rsplit("/", 1)] if first in ("groups", "participation") else key.split("/")
    for part in parts:
        if not isinstance(place, Mapping) or part not in place:
            return None
        place = place[part]
    return number(place)


def number(value: Any) -> float | None:
    """Return a finite number, or None."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


@dataclass(frozen=True)
class Method:
    """A compared method: an algorithm as configured, or another view of its models, over one or more seeds."""

    label: str
    outcomes: tuple[Outcome, ...]
    alone: bool = False  # every client trains on its own: nothing was sent
    view: bool = False  # not a run of its own: other models of the same run

    def by_seed(self, key: str) -> dict[int, float]:
        """Return a measure for each seed; empty if a seed lacks it."""
        found = {outcome.seed: outcome.value(key) for outcome in self.outcomes}
        known = {seed: value for seed, value in found.items() if value is not None}
        return known if len(known) == len(found) else {}

    def mean(self, key: str) -> float | None:
        """Return a measure, averaged over seeds."""
        values = self.by_seed(key)
        return float(np.mean(list(values.values()))) if values else None

    def interval(self, key: str) -> Interval | None:
        """Return a measure with its interval over seeds, or over clients for one seed; cut to possible values."""
        found = self._interval(key)
        if found is None or found.low is None or found.high is None or key.startswith("protected/"):
            return found
        top = 100.0 if key.endswith(("/mean", "10", "/accuracy")) else math.inf
        return replace(found, low=max(0.0, found.low), high=min(top, found.high))

    def _interval(self, key: str) -> Interval | None:
        values = list(self.by_seed(key).values())
        if len(values) != 1:
            return over_seeds(values) if values else None
        outcome = self.outcomes[0]
        strata, statistic = outcome.parts(key), row_means
        if key == "user/worst10" and outcome.clients is not None:
            strata, statistic = outcome.parts("user/mean"), row_worst10
        arrays = [np.array(list(stratum.values())) for stratum in (strata or {}).values()]
        if not arrays or not all(np.isfinite(array).all() for array in arrays):
            return over_seeds(values)
        return replace(bootstrap(arrays, statistic), mean=values[0])

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(outcome.seed for outcome in self.outcomes)


def difference(first: Method, second: Method, key: str) -> Interval | None:
    """Return first minus second: paired over seeds, or over clients if they share one seed."""
    one, two = first.by_seed(key), second.by_seed(key)
    if not one or not two:
        return None
    found = paired(one, two)
    if found is None:
        return Interval(float(np.mean([*one.values()]) - np.mean([*two.values()])), None, None, 0)
    if found.count > 1:
        return found
    seed = next(iter(one.keys() & two.keys()))
    own, other = (next(o for o in method.outcomes if o.seed == seed).parts(key) for method in (first, second))
    if own is None or other is None:
        return found
    strata = []
    for group in sorted(own.keys() | other.keys()):
        a, b = own.get(group), other.get(group)
        names = (a or b or {}) if a is None or b is None else a.keys() & b.keys()
        strata.append(np.array([(a[name] if a else 0.0) - (b[name] if b else 0.0) for name in sorted(names)]))
    if not all(len(stratum) and np.isfinite(stratum).all() for stratum in strata):
        return found
    return replace(bootstrap(strata), mean=found.mean)


@dataclass(frozen=True)
class Study:
    """Everything one page shows."""

    title: str
    subtitle: str
    methods: tuple[Method, ...]
    warnings: tuple[str, ...] = ()  # reasons to be careful with the comparison
    runs: tuple[Json, ...] = ()  # of each run: label, seed, rounds, version, config, command, folder
    unfinished: str = ""  # while a run is in progress: the round it has reached
    data: Json | None = None  # data.json of the first run that has one
    data_picture: bytes | None = None  # data.svg beside it
    protected_groups: tuple[str, str] | None = None  # differences are the first minus the second
    groups_found: bool = False  # groups were found by an algorithm, not declared by clients

    @property
    def main(self) -> tuple[Method, ...]:
        """The methods that are runs of their own."""
        return tuple(method for method in self.methods if not method.view)

    @property
    def alone(self) -> Method | None:
        """The method whose clients train on their own, if it was run."""
        return next((method for method in self.main if method.alone), None)

    @property
    def group_names(self) -> list[str]:
        """All groups, in the order in which they first occur."""
        return list(dict.fromkeys(name for m in self.methods for o in m.outcomes for name in o.groups))

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for method in self.methods for seed in method.seeds})

    @property
    def worst(self) -> str:
        """The measure of equity: of the worst group, or of the worst clients if there are no groups."""
        return "group/worst10" if self.group_names else "user/worst10"

    @property
    def worst_label(self) -> str:
        """The name of that measure."""
        if not self.group_names:
            return "worst tenth of clients"
        found = "found " if self.groups_found else ""
        return f"worst {found}group" if metrics.tenth(len(self.group_names)) == 1 else f"worst tenth of {found}groups"

    @property
    def interval_label(self) -> str:
        """A description of the intervals on this page."""
        if len(self.seeds) > 1:
            return f"95 % intervals over {len(self.seeds)} seeds"
        return "95 % intervals over clients (bootstrap, one run)"


def clients_of(rows: Sequence[Mapping[str, Any]], column: str = "accuracy") -> Clients | None:
    """Return the clients of a clients.csv; `column` is the view."""
    if not rows or column not in rows[0]:
        return None
    names = [str(row["client"]) for row in rows]
    codes = {name: place for place, name in enumerate(dict.fromkeys(names))}
    places = np.array([codes[name] for name in names])
    n = np.array([float(row["n"]) for row in rows])
    values = np.array([float(row[column]) for row in rows])
    groups: list[list[str]] = [[] for _ in codes]
    members: dict[str, dict[str, float]] = {}
    for place, name, row, value in zip(places, names, rows, values.tolist(), strict=True):
        if row.get("group"):
            groups[place].append(str(row["group"]))
            members.setdefault(str(row["group"]), {})[name] = value
    return Clients(
        np.array(list(codes), dtype=object),
        np.array([", ".join(found) for found in groups], dtype=object) if members else None,
        metrics.combined(values, places, n),
        np.bincount(places, weights=n).astype(np.float64),
        members,
    )


@dataclass(frozen=True)
class Gains:
    """The clients of one run, each compared with training on its own with the same seed."""

    seed: int
    names: NDArray[np.object_]
    groups: NDArray[np.object_] | None
    alone: Numbers
    accuracy: Numbers

    @property
    def difference(self) -> Numbers:
        return self.accuracy - self.alone


def gains(method: Method, alone: Method) -> list[Gains]:
    """Return every client compared with training on its own, for each seed that both methods ran with."""
    found = []
    others = {outcome.seed: outcome.clients for outcome in alone.outcomes}
    for outcome in method.outcomes:
        own, other = outcome.clients, others.get(outcome.seed)
        if own is None or other is None:
            continue
        places = {name: place for place, name in enumerate(other.names)}
        both = [(here, places[name]) for here, name in enumerate(own.names) if name in places]
        if not both:
            continue
        here, there = (np.array(column) for column in zip(*both, strict=True))
        groups = None if own.groups is None else own.groups[here]
        found.append(Gains(outcome.seed, own.names[here], groups, other.accuracy[there], own.accuracy[here]))
    return found


@dataclass(frozen=True)
class ParetoPoint:
    """A method's accuracy, equity and bytes, and the methods that beat it: as good in all three, better in one."""

    method: Method
    mean: float
    worst: float
    sent: float | None
    beaten_by: tuple[str, ...] = ()


def pareto(study: Study) -> list[ParetoPoint]:
    """Return which methods no other method beats. Unknown values are not compared."""
    found = []
    for method in study.methods:
        mean, worst, sent = (method.mean(key) for key in ("user/mean", study.worst, "bytes/total"))
        if mean is not None and worst is not None:
            found.append(ParetoPoint(method, mean, worst, sent))
    return [
        replace(one, beaten_by=tuple(o.method.label for o in found if o is not one and _dominates(o, one)))
        for one in found
    ]


def _dominates(first: ParetoPoint, second: ParetoPoint) -> bool:
    pairs = [(first.mean, second.mean), (first.worst, second.worst)]
    if first.sent is not None and second.sent is not None:
        pairs.append((-first.sent, -second.sent))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
