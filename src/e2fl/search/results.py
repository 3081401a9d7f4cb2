"""The results of a search: trials, objectives, the Pareto front, what is chosen and why."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import tomli_w
from numpy.typing import NDArray

from e2fl.config.experiment import Experiment
from e2fl.config.overrides import Change
from e2fl.errors import ConfigError, RunError
from e2fl.metrics import Measure, measure_of
from e2fl.report.table import Column, Table, column_of
from e2fl.runs.records import Json, numbers_of
from e2fl.runs.store import Run
from e2fl.runs.watcher import Watcher
from e2fl.search.space import Space, changes_of, described, settings_text, shown

BYTES = "bytes/total"
SHOWN = ("mean", "worst10", "best10", "variance")  # of every trial, at each level
WARM = 5  # trials that must have reached a round before others are pruned there
PATIENCE = 0.25  # of the rounds: no trial is pruned before

State = Literal["complete", "pruned", "diverged"]
Curve = dict[int, dict[str, float]]  # by evaluated round, measures on validation data, by path
Points = NDArray[np.float64]
ALGORITHM = Column("algorithm", "algorithm")
STATES: tuple[State, ...] = ("complete", "pruned", "diverged")


def objective_of(path: str, own: Sequence[Measure] = ()) -> Measure:
    """Return the measure that a search improves, or raise `ConfigError`; own: a user's measures."""
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
        return next((one for one in objectives if one.key.endswith("/worst10")), objectives[0])
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


def measured(line: Json, paths: Iterable[str]) -> dict[str, float]:
    """Return measures of an evaluated round on validation data; NaN where training diverged."""
    if line.get("validation") is None:
        raise RunError("a run has no validation rows; raise data.validation_share")
    numbers = {} if line["validation"].get("diverged") else numbers_of(line["validation"])
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
    signed = [[one.sign * trial.mean(one.key) for one in objectives] for trial in complete]
    points = np.array(signed)
    return [
        trial for trial, point in zip(complete, points, strict=True) if not dominates(points, point)
    ]


def validation_share(experiment: Experiment, share: float) -> Experiment:
    """Return the experiment with another share of validation rows."""
    if share == experiment.data.get("validation_share", 0.0):
        return experiment
    return experiment.changed([Change(("data", "validation_share"), share)])


@dataclass(frozen=True)
class Tuned:
    """One method: its space and its trials, of which one is chosen."""

    name: str
    method: Experiment  # before the search
    space: Space
    trials: Sequence[Trial]
    objectives: Sequence[Measure]
    pick: Measure

    @cached_property
    def front(self) -> list[Trial]:
        """The trials that no other trial of this method dominates."""
        return front(self.trials, self.objectives)

    @cached_property
    def chosen(self) -> Trial | None:
        """The trial on the front that is best in `pick`, the first of equals; None without any."""
        sign, key = self.pick.sign, self.pick.key
        return max(self.front, key=lambda trial: sign * trial.mean(key), default=None)

    @property
    def best(self) -> Experiment | None:
        """The method with the chosen settings, trained on all training rows."""
        if self.chosen is None:
            return None
        return validation_share(self.method.changed(changes_of(self.chosen.settings)), 0.0)


@dataclass(frozen=True)
class Result:
    """A finished search."""

    experiment: Experiment  # with validation rows
    sampler: str
    prune: bool
    objectives: Sequence[Measure]
    pick: Measure  # the objective that the chosen trials are best in
    measures: Mapping[str, Measure]  # recorded of every trial, by path
    seeds: Sequence[int]
    tuned: Sequence[Tuned]
    final: Mapping[str, Sequence[Run]]  # by method, one for each seed

    @cached_property
    def front(self) -> list[Trial]:
        """The trials that no trial of any method dominates."""
        return front([trial for one in self.tuned for trial in one.trials], self.objectives)

    def table(self, paths: Sequence[str] | None = None, *, chosen: bool = False) -> Table:
        """Return a row for each trial: its settings, and measures on validation data.

        paths: of the measures; default: all that are recorded. chosen: only the chosen trials.
        """
        paths = paths or list(self.measures)
        settings = dict.fromkeys(setting for one in self.tuned for setting in one.space)
        columns = [
            ALGORITHM,
            Column("trial", "trial", 0),
            *(Column(setting, setting) for setting in settings),
            *(_column(self.measures[path]) for path in paths),
            *(Column(key, key) for key in ("state", "rounds", "front", "chosen")),
        ]
        rows = [
            {
                "algorithm": one.name,
                "trial": trial.number,
                **{setting: shown(value) for setting, value in trial.settings.items()},
                **_cells({p: trial.values(p) for p in paths if trial.state == "complete"}),
                "state": trial.state,
                "rounds": trial.rounds,
                "front": "all" if trial in self.front else "own" if trial in one.front else "",
                "chosen": "*" if trial is one.chosen else "",
            }
            for one in self.tuned
            for trial in one.trials
            if not chosen or trial is one.chosen
        ]
        return Table.of("trials", "Trials, on validation data", columns, rows, plus_minus="std")

    def final_table(self) -> Table:
        """Return the measures of the chosen settings on test data."""
        measures = {path: one for path, one in self.measures.items() if path != BYTES}
        rows = []
        for name, runs in self.final.items():
            numbers = [numbers_of(run.summary) for run in runs]
            over_seeds = {path: [one.get(path, np.nan) for one in numbers] for path in measures}
            rows.append({"algorithm": name} | _cells(over_seeds))
        columns = [ALGORITHM, *map(_column, measures.values())]
        return Table.of("final", "Chosen settings, on test data", columns, rows, plus_minus="std")

    def effort_table(self) -> Table:
        """Return how each method was searched."""
        rows: list[dict[str, Any]] = []
        for one in self.tuned:
            states = Counter(trial.state for trial in one.trials)
            space = [f"{name}: {described(values)}" for name, values in one.space.items()]
            rows.append(
                {
                    "algorithm": one.name,
                    "space": "; ".join(space) or "nothing varies",
                    "trials": len(one.trials),
                    **{state: states[state] for state in STATES},
                    "rounds": sum(trial.rounds for trial in one.trials),
                }
            )
        keys = ("space", "trials", *STATES, "rounds")
        columns = [ALGORITHM, *(Column(key, key, 0) for key in keys)]
        return Table.of("effort", "How each algorithm was searched", columns, rows)

    def choices(self) -> list[str]:
        """Return which trial of each method was chosen and why, in a sentence each."""
        best = f"the {'highest' if self.pick.sign > 0 else 'lowest'} {self.pick.key}"
        return [
            f"{one.name}: no trial was completed, so none was chosen; try lower rates"
            if one.chosen is None
            else f"{one.name}: trial {one.chosen.number} ({settings_text(one.chosen.settings)}) "
            f"was chosen: it has {best} on validation data"
            for one in self.tuned
        ]

    def to_toml(self, base: Experiment) -> str:
        """Return the experiment with the chosen settings as variants, for `e2fl compare`."""
        whole = validation_share(base, 0.0).to_dict()
        variants = {}
        for one in self.tuned:
            if one.best is not None:
                own = one.best.to_dict()
                differs = {key: value for key, value in own.items() if value != whole[key]}
                differs.pop("variants", None)
                variants[one.name] = differs | {"algorithm": own["algorithm"]}
        note = (
            f"# {base.name}, with settings chosen on validation data by {self.pick.key}.\n"
            f"# Compare with: e2fl compare best.toml --algorithms {','.join(variants)}\n\n"
        )
        return note + tomli_w.dumps(whole | {"variants": variants})


def _column(measure: Measure) -> Column:
    column = column_of(measure)
    if measure.key == BYTES:
        return replace(column, title="MiB sent", head="", scale=2.0**-20)
    return column


def _cells(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the mean of each measure over seeds, and the standard deviation of several."""
    cells: dict[str, float] = {}
    for path, over_seeds in values.items():
        cells[path] = float(np.mean(over_seeds))
        if len(over_seeds) > 1:
            cells[f"{path}/std"] = float(np.std(over_seeds, ddof=1))
    return cells
