"""The results of a search: the trials of each method, the Pareto front, the chosen settings and their final test."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import tomli_w

from e2fl.config.experiment import Experiment
from e2fl.csv_text import csv_text
from e2fl.runs.records import Json
from e2fl.runs.runner import Run
from e2fl.sweeps.grid import shown, without_validation_share
from e2fl.sweeps.results import LEVELS, MEASURES, Pick, mean_and_std, told, value_of
from e2fl.terminal import aligned
from e2fl.tuning.space import Dimension, change
from e2fl.tuning.trials import Objective, Trial, front, point_of

TESTED = ("mean", "worst10", "variance")


@dataclass(frozen=True)
class TunedMethod:
    """One method: its space, its trials, and the chosen one."""

    name: str
    method: Experiment  # before tuning
    space: tuple[Dimension, ...]
    trials: tuple[Trial, ...]
    front: tuple[int, ...]  # numbers of the trials that no other trial of this method dominates
    chosen: Trial | None  # None: no trial was completed

    @classmethod
    def of(
        cls,
        name: str,
        method: Experiment,
        space: Sequence[Dimension],
        trials: Sequence[Trial],
        objectives: Sequence[Objective],
        pick: int,
    ) -> Self:
        """Choose the trial on the front that is best in the objective `pick`; ties go to the first."""
        by_number = {trial.number: trial for trial in trials}
        best = front(by_number, objectives)
        chosen = max((by_number[n] for n in best), key=lambda t: float(point_of(t, objectives)[pick]), default=None)
        return cls(name, method, tuple(space), tuple(trials), tuple(best), chosen)

    @property
    def best(self) -> Experiment | None:
        """The method with the chosen settings."""
        if self.chosen is None:
            return None
        return self.method.changed(change(name, value) for name, value in self.chosen.settings.items())

    def count(self, state: str) -> int:
        return sum(trial.state == state for trial in self.trials)

    @property
    def rounds(self) -> int:
        """The rounds that all trials trained together."""
        return sum(trial.rounds for trial in self.trials)


@dataclass(frozen=True)
class Result:
    """A finished search."""

    name: str
    objectives: tuple[Objective, ...]
    pick: int  # the place of the objective that the chosen trials are best in
    seeds: tuple[int, ...]
    budget: int
    prune: bool
    share: float  # of each client's training rows that was set aside for validation
    rounds: int
    tuned: Sequence[TunedMethod]
    final: Sequence[Run]

    @property
    def front(self) -> set[tuple[str, int]]:
        """The trials that no trial of any method dominates."""
        every = {(method.name, trial.number): trial for method in self.tuned for trial in method.trials}
        return set(front(every, self.objectives))

    def settings(self, trial: Trial) -> str:
        return ", ".join(f"{name} = {shown(value)}" for name, value in trial.settings.items()) or "as in the experiment"

    def cells(self, trial: Trial) -> list[str]:
        """Return the formatted objectives of a trial; dashes if it was not completed."""
        if trial.state != "complete":
            return ["–" for _ in self.objectives]
        return [objective.told(values) for objective, values in zip(self.objectives, trial.values, strict=True)]

    def chosen_table(self) -> str:
        """Return the chosen settings of each method, and their objectives on validation data."""
        rows = [["algorithm", *map(str, self.objectives), "trial", "settings"]]
        for method in self.tuned:
            if method.chosen is None:
                rows.append([method.name, *("–" for _ in self.objectives), "–", "no trial was completed"])
            else:
                chosen = method.chosen
                rows.append([method.name, *self.cells(chosen), str(chosen.number), self.settings(chosen)])
        return aligned(rows)

    def final_rows(self) -> list[list[str]]:
        """Return test measures of the chosen settings: groups, then clients."""
        by_name: dict[str, list[Run]] = {}
        names = [method.name for method in self.tuned if method.chosen is not None]
        for place, run in enumerate(self.final):
            by_name.setdefault(names[place % len(names)], []).append(run)
        return [
            [name, *(_test(runs, Pick(level, measure)) for level in LEVELS for measure in TESTED)]
            for name, runs in by_name.items()
        ]

    def final_table(self) -> str:
        head = ["", *(title if not place else "" for title in LEVELS.values() for place, _ in enumerate(TESTED))]
        return aligned([["test data", *(MEASURES[m] for _ in LEVELS for m in TESTED)], *self.final_rows()], head)

    def to_csv(self) -> str:
        """Return one row for each trial: its settings, and the mean and standard deviation of its objectives."""
        names = list(dict.fromkeys(dimension.name for method in self.tuned for dimension in method.space))
        rows = []
        for method in self.tuned:
            for trial in method.trials:
                row: Json = {"algorithm": method.name, "trial": trial.number}
                row |= {name: shown(trial.settings[name]) if name in trial.settings else "" for name in names}
                row |= {"state": trial.state, "rounds": trial.rounds}
                values = trial.values if trial.state == "complete" else [[]] * len(self.objectives)
                for objective, measured in zip(self.objectives, values, strict=True):
                    row |= mean_and_std(objective.name, measured)
                rows.append(row | {"front": int(trial.number in method.front), "chosen": int(trial is method.chosen)})
        return csv_text(rows)

    def to_toml(self, base: Experiment) -> str:
        """Return the experiment with the chosen settings as variants, for `e2fl compare`."""
        whole = without_validation_share(base).to_dict()
        variants = {}
        for method in self.tuned:
            if method.best is not None:
                own = without_validation_share(method.best).to_dict()
                differs = {name: value for name, value in own.items() if name != "variants" and value != whole[name]}
                variants[method.name] = differs | {"algorithm": own["algorithm"]}
        names = ",".join(variants)
        note = (
            f"# {base.name}, tuned with {self.budget} trials for each algorithm; chosen on validation data by "
            f"{self.objectives[self.pick].name}.\n# Compare with: e2fl compare tuned.toml --algorithms {names}\n\n"
        )
        return note + tomli_w.dumps(whole | {"variants": variants})


def _test(runs: Sequence[Run], pick: Pick) -> str:
    if not all(run.summary.get(pick.level) for run in runs):
        return "–"
    return told([value_of(run.summary, pick) for run in runs])
