"""Trials: their objectives, when one is pruned, and which are on the Pareto front."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from e2fl.config.experiment import Experiment
from e2fl.errors import ConfigError, RunError
from e2fl.metrics import Measure, measure_of
from e2fl.metrics.own import descriptions, measures_of
from e2fl.runs.records import Json, numbers_of
from e2fl.runs.watcher import Watcher

BYTES = "bytes/total"
SHOWN = ("mean", "worst10", "best10", "variance")  # of every trial, at each level
WARM = 5  # trials that must have reached a round before others are pruned there
PATIENCE = 0.25  # of the rounds: no trial is pruned before

State = Literal["complete", "pruned", "diverged"]
Curve = dict[int, dict[str, float]]  # by evaluated round, measures on validation data, by path
Points = NDArray[np.float64]


def own_measures(experiment: Experiment) -> list[Measure]:
    """Return the measures that the user added to an experiment."""
    described = descriptions(experiment.build_measures())
    return [measure for name, entry in described.items() for measure in measures_of(name, entry)]


def objective_of(path: str, own: Sequence[Measure] = ()) -> Measure:
    """Return the measure that a search improves, or raise `ConfigError`."""
    measure = measure_of(BYTES if path.strip() == "bytes" else path.strip(), own)
    if not measure.sign:
        raise ConfigError(f"'{path}' has no better direction; name another objective")
    return measure


def objectives_of(
    paths: Sequence[str], levels: Sequence[str], own: Sequence[Measure] = ()
) -> list[Measure]:
    """Return the objectives of these paths. levels: those that the data has."""
    objectives = [objective_of(path, own) for path in paths]
    if len(set(objectives)) != len(objectives):
        raise ConfigError("--objectives names an objective twice")
    if "group" not in levels and any("group" in one.key.split("/") for one in objectives):
        raise ConfigError("this data declares no groups; name clients/mean or clients/worst10")
    return objectives


def pick_of(path: str | None, objectives: Sequence[Measure]) -> Measure:
    """Return the objective that decides the choice; default: a worst tenth, or the first."""
    if path is None:
        worst = [objective for objective in objectives if objective.key.endswith("/worst10")]
        return [*worst, objectives[0]][0]
    pick = objective_of(path, objectives)
    if pick not in objectives:
        keys = ", ".join(objective.key for objective in objectives)
        raise ConfigError(f"--pick must be one of the objectives, {keys}; not '{path}'")
    return pick


@dataclass(frozen=True, eq=False)
class Trial:
    """One combination of settings, and its results."""

    number: int
    settings: Mapping[str, Any]
    state: State
    curves: Sequence[Curve]  # one for each seed; the last one of a pruned trial ends early

    @property
    def rounds(self) -> int:
        """The rounds it trained, over all seeds."""
        return sum(max(curve, default=0) for curve in self.curves)

    def values(self, path: str) -> list[float]:
        """Return a measure at the last round, for every seed."""
        return [curve[max(curve)][path] for curve in self.curves]

    def mean(self, path: str) -> float:
        """Return the mean over seeds."""
        return float(np.mean(self.values(path)))


def curve_of(history: Iterable[Json], paths: Iterable[str]) -> Curve:
    """Return the measures of these paths on validation data, by evaluated round."""
    return {line["round"]: measured(line, paths) for line in history}


def measured(line: Json, paths: Iterable[str]) -> dict[str, float]:
    """Return measures of an evaluated round on validation data; NaN where training diverged."""
    if line.get("validation") is None:
        raise RunError("a run has no validation rows; raise data.validation_share")
    numbers = numbers_of(line["validation"])
    if line["validation"].get("diverged"):
        numbers = {}
    numbers[BYTES] = line["bytes"]["up_total"] + line["bytes"]["down_total"]
    return {path: numbers.get(path, math.nan) for path in paths}


class Pruned(Exception):  # noqa: N818 - not an error
    """The early end of a trial."""


class Pruner(Watcher):
    """A watcher that ends a run at an evaluated round if earlier medians dominate it."""

    def __init__(self, objectives: Sequence[Measure], earlier: Sequence[Curve]):
        self.objectives = objectives
        self.earlier = earlier  # of the same algorithm and seed
        self.last = 0

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.last = last

    def advance(self, number: int, line: Json | None) -> None:
        if line is None or not PATIENCE * self.last <= number < self.last:
            return
        values = measured(line, [objective.key for objective in self.objectives])
        reached = [curve[number] for curve in self.earlier if number in curve]
        if should_prune(values, reached, self.objectives):
            raise Pruned


def should_prune(
    values: Mapping[str, float],
    reached: Sequence[Mapping[str, float]],
    objectives: Sequence[Measure],
) -> bool:
    """Return whether the medians of earlier trials that reached this round dominate a trial.

    For one objective this is the usual median rule. For several, a trial that is better than the
    median in any of them may still reach the Pareto front and continues.
    """
    if len(reached) < WARM:
        return False
    points = np.sort([oriented(earlier, objectives) for earlier in reached], axis=0)
    lower_median = points[(len(points) - 1) // 2]  # a doubtful trial continues
    return dominates(lower_median, oriented(values, objectives))


def oriented(values: Mapping[str, float], objectives: Sequence[Measure]) -> Points:
    """Return the objectives such that higher is better; diverged trials are worst in all."""
    signed = np.array([objective.sign * values[objective.key] for objective in objectives])
    return signed if np.isfinite(signed).all() else np.full(len(signed), -np.inf)


def dominates(one: Points, other: Points) -> bool:
    """Return whether one, or any row of it, is as good in all objectives, and better in one."""
    return bool(((one >= other).all(axis=-1) & (one > other).any(axis=-1)).any())


def front(trials: Sequence[Trial], objectives: Sequence[Measure]) -> list[Trial]:
    """Return the complete trials that no other one dominates."""
    complete = [trial for trial in trials if trial.state == "complete"]
    keys = [objective.key for objective in objectives]
    points = [oriented({key: trial.mean(key) for key in keys}, objectives) for trial in complete]
    every = np.array(points)
    return [
        trial for trial, point in zip(complete, points, strict=True) if not dominates(every, point)
    ]
