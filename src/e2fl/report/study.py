"""What a report is about: contenders, each with its outcomes over seeds; measurements, no words, no pictures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl import metrics

Json = dict[str, Any]


@dataclass(frozen=True)
class Clients:
    """Every client at the last evaluation: one entry each, groups inside a client counted together."""

    names: NDArray[np.object_]  # [clients]
    groups: NDArray[np.object_] | None  # [clients]; a client with several groups names them all
    accuracy: NDArray[np.float64]  # [clients]
    n: NDArray[np.float64]  # [clients], test examples

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Sent:
    """Bytes as really encoded, of training."""

    up_per_client_round: float
    down_per_client_round: float
    total: float


@dataclass(frozen=True)
class Outcome:
    """One run, or one table of scores, at its last evaluation."""

    seed: int
    user: Mapping[str, float]
    group: Mapping[str, float] | None
    groups: Mapping[str, Json]  # name: clients, accuracy, loss
    clients: Clients | None = None
    sent: Sent | None = None
    history: Sequence[Json] = ()  # the lines of history.jsonl, as seen through this view
    protected: Mapping[str, float | None] | None = None
    inference: Mapping[str, Any] | None = None  # None where groups were declared
    diverged: int = 0  # clients whose models give outputs that are no finite numbers

    def value(self, key: str) -> float | None:
        """A measure by the name it has everywhere, such as group/worst10 or groups/G1/accuracy."""
        return measured(
            {
                "user": self.user,
                "group": self.group,
                "groups": self.groups,
                "protected": self.protected,
                "inference": self.inference,
                "bytes": None if self.sent is None else vars(self.sent),
            },
            key,
        )


def measured(line: Mapping[str, Any], key: str) -> float | None:
    """The number of this name, such as user/mean, in a line of history; None where there is none, or no finite one."""
    place: Any = line
    first, _, rest = key.partition("/")
    # A group may have a slash in its name: only the ends of such a key are ours.
    parts = [first, *rest.rsplit("/", 1)] if first == "groups" else key.split("/")
    for part in parts:
        if not isinstance(place, Mapping) or part not in place:
            return None
        place = place[part]
    return float(place) if isinstance(place, int | float) and math.isfinite(place) else None


@dataclass(frozen=True)
class Contender:
    """What is compared: an algorithm as configured, or another view of its models, over one or more seeds."""

    label: str
    outcomes: tuple[Outcome, ...]
    alone: bool = False  # trains alone: nothing was sent
    view: bool = False  # not a run of its own: other models of the same run

    def by_seed(self, key: str) -> dict[int, float]:
        """A measure for each seed; empty where a seed lacks it."""
        found = {outcome.seed: outcome.value(key) for outcome in self.outcomes}
        known = {seed: value for seed, value in found.items() if value is not None}
        return known if len(known) == len(found) else {}

    def mean(self, key: str) -> float | None:
        """A measure, averaged over seeds."""
        values = self.by_seed(key)
        return float(np.mean(list(values.values()))) if values else None

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(outcome.seed for outcome in self.outcomes)


@dataclass(frozen=True)
class Study:
    """Everything one page shows."""

    title: str
    subtitle: str
    contenders: tuple[Contender, ...]
    cautions: tuple[str, ...] = ()  # what a reader must know before believing a comparison
    facts: tuple[Json, ...] = ()  # of each run: label, seed, rounds, version, config, command, folder
    source: str = "runs"  # or "table": somebody else's scores
    unfinished: str = ""  # while a run goes on: where it stands
    data: Json | None = None  # a picture of the data: see `picture`
    protected_direction: str = ""  # which group minus which

    @property
    def main(self) -> tuple[Contender, ...]:
        """The contenders that are runs of their own."""
        return tuple(contender for contender in self.contenders if not contender.view)

    @property
    def alone(self) -> Contender | None:
        """The one that trains alone, if it was run."""
        return next((contender for contender in self.main if contender.alone), None)

    @property
    def group_names(self) -> list[str]:
        """All groups, in the order they were met."""
        return list(dict.fromkeys(name for c in self.contenders for o in c.outcomes for name in o.groups))

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for contender in self.contenders for seed in contender.seeds})

    @property
    def worst(self) -> str:
        """The measure of equity: of the worst group, or of the worst clients where there are no groups."""
        return "group/worst10" if self.group_names else "user/worst10"

    def with_data(self, data: Json | None) -> "Study":
        return replace(self, data=data)


def clients_of(rows: Sequence[Mapping[str, Any]], column: str = "accuracy", unit: float = 1.0) -> Clients | None:
    """The clients of a clients.csv; `column` is the view."""
    if not rows or column not in rows[0]:
        return None
    names = [str(row["client"]) for row in rows]
    codes = {name: place for place, name in enumerate(dict.fromkeys(names))}
    places = np.array([codes[name] for name in names])
    n = np.array([float(row["n"]) for row in rows])
    values = unit * np.array([float(row[column]) for row in rows])
    groups: list[list[str]] = [[] for _ in codes]
    for place, row in zip(places, rows, strict=True):
        if row.get("group"):
            groups[place].append(str(row["group"]))
    named = any(groups)
    return Clients(
        np.array(list(codes), dtype=object),
        np.array([", ".join(found) for found in groups], dtype=object) if named else None,
        metrics.combined(values, places, n),
        np.bincount(places, weights=n).astype(np.float64),
    )


@dataclass(frozen=True)
class Gains:
    """Clients of one run beside the same clients training alone, the same seed."""

    seed: int
    names: NDArray[np.object_]
    groups: NDArray[np.object_] | None
    alone: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    @property
    def difference(self) -> NDArray[np.float64]:
        return self.accuracy - self.alone


def gains(contender: Contender, alone: Contender) -> list[Gains]:
    """Client by client against training alone, for each seed both were run with."""
    found = []
    others = {outcome.seed: outcome.clients for outcome in alone.outcomes}
    for outcome in contender.outcomes:
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
class Measure:
    """A column of the main table: where it is found, how it is written, and which way is better."""

    key: str
    title: str
    definition: str
    better: int = 1  # 1: more is better, -1: less is better
    scale: float = 1.0
    over: str = ""


MIB = 2**20
MEASURES = (
    Measure("group/mean", "mean", "mean", over="groups"),
    Measure("group/worst10", "worst", "worst10", over="groups"),
    Measure("group/best10", "best", "best10", over="groups"),
    Measure("group/variance", "variance", "variance", -1, over="groups"),
    Measure("user/mean", "mean", "mean", over="clients"),
    Measure("user/worst10", "worst 10 %", "worst10", over="clients"),
    Measure("user/best10", "best 10 %", "best10", over="clients"),
    Measure("user/variance", "variance", "variance", -1, over="clients"),
    Measure("bytes/up_per_client_round", "up", "bytes", -1, 1 / MIB, over="MiB a client and round"),
    Measure("bytes/down_per_client_round", "down", "bytes", -1, 1 / MIB, over="MiB a client and round"),
)


@dataclass(frozen=True)
class Front:
    """Where a contender stands in accuracy, equity and bytes, and who is at least as good in all and better in one."""

    contender: Contender
    mean: float
    worst: float
    mib: float | None
    beaten_by: tuple[str, ...] = field(default=())


def pareto(study: Study) -> list[Front]:
    """Who is not beaten in everything at once. What is not known (bytes of a table) is not compared."""
    stands = []
    for contender in study.contenders:
        mean, worst, sent = (contender.mean(key) for key in ("user/mean", study.worst, "bytes/total"))
        if mean is not None and worst is not None:
            stands.append(Front(contender, mean, worst, None if sent is None else sent / MIB))
    return [
        replace(stand, beaten_by=tuple(o.contender.label for o in stands if o is not stand and _dominates(o, stand)))
        for stand in stands
    ]


def _dominates(first: Front, second: Front) -> bool:
    pairs = [(first.mean, second.mean), (first.worst, second.worst)]
    if first.mib is not None and second.mib is not None:
        pairs.append((-first.mib, -second.mib))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
