"""The results of a search: trials, the Pareto front, the chosen settings and their final test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import tomli_w

from e2fl.config.experiment import Experiment
from e2fl.config.overrides import Change
from e2fl.metrics import MEASURES, Measure
from e2fl.report.table import Column, Table, column_of
from e2fl.runs.records import numbers_of
from e2fl.runs.store import Run
from e2fl.search.space import Space, changes_of, described, settings_text, shown
from e2fl.search.trials import BYTES, SHOWN, State, Trial, front, paths_of, point_of

ALGORITHM = Column("algorithm", "algorithm")
STATES: tuple[State, ...] = ("complete", "pruned", "diverged")


def validation_share(experiment: Experiment, share: float) -> Experiment:
    """Return the experiment with another share of validation rows."""
    return experiment.changed([Change(("data", "validation_share"), share)])


@dataclass(frozen=True)
class Tuned:
    """One method: its space, its trials, and the chosen one."""

    name: str
    method: Experiment  # before the search
    space: Space
    trials: tuple[Trial, ...]
    front: tuple[int, ...]  # numbers of the trials that no other trial of it dominates
    chosen: Trial | None  # None: no trial was completed

    @classmethod
    def of(
        cls,
        name: str,
        method: Experiment,
        space: Space,
        trials: Sequence[Trial],
        objectives: Sequence[Measure],
        pick: Measure,
    ) -> Self:
        """Choose the trial on the front that is best in the objective `pick`; ties: the first."""
        by_number = {trial.number: trial for trial in trials}
        best = front(by_number, objectives)
        chosen = max(
            (by_number[number] for number in best),
            key=lambda trial: float(point_of(trial, [pick])[0]),
            default=None,
        )
        return cls(name, method, space, tuple(trials), tuple(best), chosen)

    @property
    def best(self) -> Experiment | None:
        """The method with the chosen settings, trained on all training rows."""
        if self.chosen is None:
            return None
        best = self.method.changed(changes_of(self.chosen.settings))
        return validation_share(best, 0.0) if best.data.get("validation_share") else best


@dataclass(frozen=True)
class Result:
    """A finished search."""

    experiment: Experiment  # with validation rows
    sampler: str
    prune: bool
    objectives: Sequence[Measure]
    pick: Measure  # the objective that the chosen trials are best in
    levels: Sequence[str]
    seeds: tuple[int, ...]
    tuned: Sequence[Tuned]
    final: Mapping[str, Sequence[Run]]  # by method, one for each seed

    @cached_property
    def front(self) -> set[tuple[str, int]]:
        """The trials that no trial of any method dominates."""
        every = {(one.name, trial.number): trial for one in self.tuned for trial in one.trials}
        return set(front(every, self.objectives))

    def table(self, paths: Sequence[str] | None = None, *, chosen: bool = False) -> Table:
        """Return a row for each trial: its settings, and measures on validation data.

        paths: of the measures; default: all that are recorded. chosen: only the chosen trials.
        """
        paths = paths or paths_of(self.objectives, self.levels)
        settings = dict.fromkeys(setting for one in self.tuned for setting in one.space)
        columns = [
            ALGORITHM,
            Column("trial", "trial", 0),
            *(Column(setting, setting) for setting in settings),
            *map(_column, paths),
            *(Column(key, key) for key in ("state", "rounds", "front", "chosen")),
        ]
        rows = [
            self._row(one, trial, paths)
            for one in self.tuned
            for trial in one.trials
            if not chosen or trial is one.chosen
        ]
        return Table.of("trials", "Trials, on validation data", columns, rows, plus_minus="std")

    def final_table(self) -> Table:
        """Return the measures of the chosen settings on test data."""
        paths = [f"{level}/{measure}" for level in self.levels for measure in SHOWN]
        rows = []
        for name, runs in self.final.items():
            numbers = [numbers_of(run.summary) for run in runs]
            over_seeds = {path: [one.get(path, np.nan) for one in numbers] for path in paths}
            rows.append({"algorithm": name} | _cells(over_seeds))
        columns = [ALGORITHM, *map(_column, paths)]
        return Table.of("final", "Chosen settings, on test data", columns, rows, plus_minus="std")

    def effort_table(self) -> Table:
        """Return how each method was searched."""
        rows = []
        for one in self.tuned:
            states = [trial.state for trial in one.trials]
            space = [f"{name}: {described(values)}" for name, values in one.space.items()]
            row: dict[str, Any] = {state: states.count(state) for state in STATES}
            row |= {"algorithm": one.name, "space": "; ".join(space) or "nothing varies"}
            row |= {"trials": len(states)}
            rows.append(row | {"rounds": sum(trial.rounds for trial in one.trials)})
        keys = ("space", "trials", *STATES, "rounds")
        columns = [ALGORITHM, *(Column(key, key, 0) for key in keys)]
        return Table.of("effort", "How each algorithm was searched", columns, rows)

    def choices(self) -> list[str]:
        """Return which trial of each method was chosen and why, in a sentence each."""
        best = "highest" if self.pick.sign > 0 else "lowest"
        texts = []
        for one in self.tuned:
            if one.chosen is None:
                why = "no trial was completed, so none was chosen; try lower rates"
            else:
                why = f"trial {one.chosen.number} ({settings_text(one.chosen.settings)}) was chosen"
                why += f": it has the {best} {self.pick.key} on validation data"
            texts.append(f"{one.name}: {why}")
        return texts

    def to_toml(self, base: Experiment) -> str:
        """Return the experiment with the chosen settings as variants, for `e2fl compare`."""
        share = base.data.get("validation_share")
        whole = (validation_share(base, 0.0) if share else base).to_dict()
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

    def _row(self, one: Tuned, trial: Trial, paths: Sequence[str]) -> dict[str, Any]:
        complete = trial.state == "complete"
        own = "own" if trial.number in one.front else ""
        return {
            "algorithm": one.name,
            "trial": trial.number,
            **{setting: shown(value) for setting, value in trial.settings.items()},
            **_cells({path: trial.values(path) for path in paths if complete}),
            "state": trial.state,
            "rounds": trial.rounds,
            "front": "all" if (one.name, trial.number) in self.front else own,
            "chosen": "*" if trial is one.chosen else "",
        }


def _column(path: str) -> Column:
    column = column_of(MEASURES[path])
    if path == BYTES:
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
