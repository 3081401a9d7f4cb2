"""Trials: their objectives, when one is pruned, and which are on the Pareto front."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from e2fl.config.experiment import Experiment
from e2fl.errors import ConfigError, RunError
from e2fl.metrics import Measure, measure_of
from e2fl.runs.records import Json, numbers_of
from e2fl.runs.watcher import Watcher

BYTES = "bytes/total"
SHOWN = ("mean", "worst10", "best10", "variance")  # of every trial, at each level
WARM = 5  # trials that must have reached a round before others are pruned there
PATIENCE = 0.25  # of the rounds: no trial is pruned before

State = Literal["complete", "pruned", "diverged"]
Curve = dict[int, dict[str, float]]  # by evaluated round, measures on validation data, by path


def objective_of(path: str) -> Measure:
    """Return the measure that a search improves, or raise `ConfigError`."""
    measure = measure_of(BYTES if path == "bytes" else path)
    if not measure.sign:
        raise ConfigError(f"'{path}' has no better direction; name another objective")
    return measure


def objectives_of(text: str | None, default: Sequence[str], levels: Sequence[str]) -> list[Measure]:
    """Return the objectives named in a string, or the default ones."""
    objectives = [objective_of(path.strip()) for path in (text.split(",") if text else default)]
    if len(set(objectives)) != len(objectives):
        raise ConfigError("--objectives names an objective twice")
    if "group" not in levels and any(one.key.startswith("group/") for one in objectives):
        raise ConfigError("this data declares no groups; name clients/mean or clients/worst10")
    return objectives


def pick_of(path: str | None, objectives: Sequence[Measure]) -> Measure:
    """Return the objective that decides the choice; default: a worst tenth, or the first."""
    if path is None:
        worst = [objective for objective in objectives if objective.key.endswith("/worst10")]
        return [*worst, objectives[0]][0]
    if objective_of(path) not in objectives:
        keys = ", ".join(objective.key for objective in objectives)
        raise ConfigError(f"--pick must be one of the objectives, {keys}; not '{path}'")
    return objective_of(path)


def paths_of(objectives: Sequence[Measure], levels: Sequence[str]) -> list[str]:
    """Return the paths of what is recorded of every trial."""
    shown = [f"{level}/{measure}" for level in levels for measure in SHOWN]
    return list(dict.fromkeys([*shown, *(objective.key for objective in objectives)]))


@dataclass(frozen=True)
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


def curve_of(history: Iterable[Json], paths: Sequence[str]) -> Curve:
    """Return the measures of these paths on validation data, by evaluated round."""
    return {line["round"]: measured(line, paths) for line in history}


def measured(line: Json, paths: Sequence[str]) -> dict[str, float]:
    """Return measures of an evaluated round on validation data; NaN where training diverged."""
    if line.get("validation") is None:
        raise RunError("a run has no validation rows; raise data.validation_share")
    numbers = numbers_of(line)
    numbers[f"validation/{BYTES}"] = numbers["bytes/up_total"] + numbers["bytes/down_total"]
    diverged = bool(line["validation"].get("diverged"))
    return {
        path: math.nan
        if diverged and path != BYTES
        else numbers.get(f"validation/{path}", numbers.get(path, math.nan))
        for path in paths
    }


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
        if should_prune(values, number, self.earlier, self.objectives):
            raise Pruned


def should_prune(
    values: Mapping[str, float],
    number: int,
    earlier: Sequence[Curve],
    objectives: Sequence[Measure],
) -> bool:
    """Return whether the medians of earlier trials at this round dominate a trial.

    For one objective this is the usual median rule. For several, a trial that is better than the
    median in any of them may still reach the Pareto front and continues.
    """
    reached = [oriented(curve[number], objectives) for curve in earlier if number in curve]
    if len(reached) < WARM:
        return False
    lower_median = (len(reached) - 1) // 2  # a doubtful trial continues
    return dominates(np.sort(reached, axis=0)[lower_median], oriented(values, objectives))


def oriented(values: Mapping[str, float], objectives: Sequence[Measure]) -> np.ndarray:
    """Return the objectives such that higher is better; diverged trials are worst in all."""
    signed = np.array([objective.sign * values[objective.key] for objective in objectives])
    return signed if np.isfinite(signed).all() else np.full(len(signed), -np.inf)


def dominates(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether one is at least as good in all objectives, and better in one."""
    return bool((one >= other).all() and (one > other).any())


def point_of(trial: Trial, objectives: Sequence[Measure]) -> np.ndarray:
    """Return the mean over seeds of each objective, such that higher is better."""
    return oriented({one.key: trial.mean(one.key) for one in objectives}, objectives)


def front(trials: Mapping[Any, Trial], objectives: Sequence[Measure]) -> list[Any]:
    """Return the keys of the complete trials that no other one dominates."""
    complete = {key: trial for key, trial in trials.items() if trial.state == "complete"}
    points = {key: point_of(trial, objectives) for key, trial in complete.items()}
    return [
        key
        for key, own in points.items()
        if not any(dominates(other, own) for other in points.values())
    ]
