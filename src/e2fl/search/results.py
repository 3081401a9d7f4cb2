"""The results of a search: trials, objectives, the Pareto front, what is chosen and why."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import tomli_w

from e2fl.config.experiment import Experiment
from e2fl.config.overrides import from_names
from e2fl.errors import ConfigError, RunError
from e2fl.metrics import Measure, measure_of
from e2fl.report.from_runs import study_of
from e2fl.report.study import with_derived
from e2fl.report.table import Column, Table, summary_table
from e2fl.runs.records import Json, numbers_of
from e2fl.runs.store import StoredRun
from e2fl.search.space import Space, settings_text, shown

BYTES = "bytes/total"
SHOWN = ("mean", "worst10", "best10", "variance")  # of every trial, at each level


def objectives_of(
    paths: Sequence[str], pick: str | None, levels: Sequence[str], own: Sequence[Measure] = ()
) -> tuple[list[Measure], Measure]:
    """Return the objectives of these paths, and the one that decides the choice.

    paths: default: the mean, the worst tenth and bytes. pick: default: a worst tenth, or the first.
    levels: those that the data has. own: a user's measures.
    """
    paths = paths or [f"{levels[0]}/mean", f"{levels[0]}/worst10", BYTES]
    pick = pick or next((path for path in paths if path.endswith("/worst10")), paths[0])
    names = [BYTES if path == "bytes" else path for path in (*paths, pick)]
    objectives = [measure_of(name, own) for name in dict.fromkeys(names)]
    for objective in objectives:
        if not objective.sign:
            raise ConfigError(f"'{objective.key}' has no better direction")
        if "group" not in levels and "group" in objective.key.split("/"):
            raise ConfigError("this data declares no groups; name clients/mean or clients/worst10")
    return objectives, measure_of(names[-1], own)


@dataclass(frozen=True, eq=False)
class Trial:
    """One combination of settings, and its results: measures by path, for each seed."""

    number: int
    settings: Mapping[str, Any]
    results: Sequence[Mapping[str, float]]
    diverged: bool = False  # with any seed

    def values(self, path: str) -> list[float]:
        """Return a measure for every seed."""
        return [result[path] for result in self.results]

    def score(self, objectives: Iterable[Measure]) -> list[float]:
        """Return the means over seeds of objectives, such that more is better."""
        return [one.sign * float(np.mean(self.values(one.key))) for one in objectives]


def measured(line: Json, paths: Iterable[str]) -> dict[str, float]:
    """Return measures of an evaluated round on validation data; NaN where training diverged."""
    if line.get("validation") is None:
        raise RunError("a run has no validation rows; raise data.validation_share")
    validation = {} if line["validation"].get("diverged") else line["validation"]
    numbers = with_derived(numbers_of({**validation, "bytes": line["bytes"]}))
    return {path: numbers.get(path, math.nan) for path in paths}


def front(trials: Sequence[Trial], objectives: Sequence[Measure]) -> list[Trial]:
    """Return the trials that no other one beats in an objective without losing in another."""
    complete = [trial for trial in trials if not trial.diverged]
    scores = np.array([trial.score(objectives) for trial in complete])
    return [
        trial
        for trial, own in zip(complete, scores, strict=True)
        if not ((scores >= own).all(axis=1) & (scores > own).any(axis=1)).any()
    ]


def validation_share(experiment: Experiment, share: float) -> Experiment:
    """Return the experiment with another share of validation rows."""
    if share == experiment.data.get("validation_share", 0.0):
        return experiment
    return experiment.changed(from_names({"data.validation_share": share}))


@dataclass(frozen=True)
class Tuned:
    """One method: its space and its trials, of which one is chosen."""

    name: str
    method: Experiment  # before the search
    space: Space
    trials: Sequence[Trial]
    objectives: Sequence[Measure]  # the one that decides comes first

    @cached_property
    def chosen(self) -> Trial | None:
        """The best trial; of trials that are equal in an objective, the next one decides."""
        complete = [trial for trial in self.trials if not trial.diverged]
        return max(complete, key=lambda trial: trial.score(self.objectives), default=None)

    @property
    def best(self) -> Experiment | None:
        """The method with the chosen settings, trained on all training rows."""
        if self.chosen is None:
            return None
        return validation_share(self.method.changed(from_names(self.chosen.settings)), 0.0)


@dataclass(frozen=True)
class Result:
    """A finished search."""

    experiment: Experiment  # with validation rows
    sampler: str
    objectives: Sequence[Measure]
    pick: Measure  # the objective that the chosen trials are best in
    measures: Mapping[str, Measure]  # recorded of every trial, by path
    seeds: Sequence[int]
    tuned: Sequence[Tuned]
    final: Mapping[str, Sequence[StoredRun]]  # by method, one for each seed

    def table(self, paths: Sequence[str] | None = None, *, chosen: bool = False) -> Table:
        """Return a row for each trial: its settings, and measures on validation data.

        paths: of the measures; default: all that are recorded. chosen: only the chosen trials.
        """
        paths = paths or list(self.measures)
        best = front([trial for one in self.tuned for trial in one.trials], self.objectives)
        settings = dict.fromkeys(setting for one in self.tuned for setting in one.space)
        columns = [Column(key, key, 0) for key in ("algorithm", "trial", *settings)]
        columns += [_column(self.measures[path]) for path in paths]
        columns += [Column(key, key) for key in ("state", "front", "chosen")]
        rows = [
            {
                "algorithm": one.name,
                "trial": trial.number,
                **{setting: shown(value) for setting, value in trial.settings.items()},
                **_cells(trial, () if trial.diverged else paths),
                "state": "diverged" if trial.diverged else "complete",
                "front": "*" if trial in best else "",
                "chosen": "*" if trial is one.chosen else "",
            }
            for one in self.tuned
            for trial in one.trials
            if not chosen or trial is one.chosen
        ]
        return Table("trials", "Trials, on validation data", columns, rows)

    def final_table(self) -> Table:
        """Return the chosen settings on test data, as `e2fl compare` shows them."""
        return summary_table(study_of([run for runs in self.final.values() for run in runs]))

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
        whole = validation_share(base, 0.0).to_dict() | {"variants": {}}
        best = {one.name: one.best.to_dict() for one in self.tuned if one.best is not None}
        variants = {
            name: {
                key: value
                for key, value in own.items()
                if key == "algorithm" or (value != whole[key] and key != "variants")
            }
            for name, own in best.items()
        }
        note = (
            f"# {base.name}, with settings chosen on validation data by {self.pick.key}.\n"
            f"# Compare with: e2fl compare best.toml --algorithms {','.join(variants)}\n\n"
        )
        return note + tomli_w.dumps(whole | {"variants": variants})


def _column(measure: Measure) -> Column:
    if measure.key == BYTES:
        return replace(measure, title="MiB sent", head="", scale=2.0**-20)
    return measure


def _cells(trial: Trial, paths: Iterable[str]) -> dict[str, float]:
    """Return the mean of each measure over seeds, and the standard deviation of several."""
    cells = {path: float(np.mean(trial.values(path))) for path in paths}
    if len(trial.results) > 1:
        cells |= {f"{path}/std": float(np.std(trial.values(path), ddof=1)) for path in paths}
    return cells
