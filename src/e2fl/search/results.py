"""The results of a search: trials, the Pareto front, the chosen settings and their final test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import tomli_w

from e2fl.config.experiment import Experiment
from e2fl.config.overrides import Change
from e2fl.metrics import Measure
from e2fl.report.table import Column, Table, column_of
from e2fl.runs.records import numbers_of
from e2fl.runs.store import Run
from e2fl.search.space import Space, changes_of, described, settings_text, shown
from e2fl.search.trials import BYTES, State, Trial, front

ALGORITHM = Column("algorithm", "algorithm")
STATES: tuple[State, ...] = ("complete", "pruned", "diverged")


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
        rows = []
        for one in self.tuned:
            states = [trial.state for trial in one.trials]
            space = [f"{name}: {described(values)}" for name, values in one.space.items()]
            row: dict[str, Any] = {state: states.count(state) for state in STATES}
            row |= {"algorithm": one.name, "space": "; ".join(space) or "nothing varies"}
            row |= {"trials": len(states), "rounds": sum(trial.rounds for trial in one.trials)}
            rows.append(row)
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
    """Return the mean of each measure over seeds, and the standard deviation if there are several."""
    cells: dict[str, float] = {}
    for path, over_seeds in values.items():
        cells[path] = float(np.mean(over_seeds))
        if len(over_seeds) > 1:
            cells[f"{path}/std"] = float(np.std(over_seeds, ddof=1))
    return cells
