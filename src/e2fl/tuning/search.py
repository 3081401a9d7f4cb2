"""The search: Optuna draws settings, trials are run and stored, and the chosen ones are tested.

Nothing of Optuna is stored. Its sampler is seeded and gets the same results in the same order when a search is
resumed, so it draws the same settings again, and trials that are on disk are read instead of run.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2fl.config.completion import completed
from e2fl.config.experiment import Experiment, with_seed
from e2fl.errors import ConfigError, NothingLearnedError, RunError
from e2fl.files import remove
from e2fl.runs.compare import compare, file_name, names_with, require_seeds
from e2fl.runs.folder import Folder
from e2fl.runs.records import Json
from e2fl.runs.runner import Run, read_run
from e2fl.runs.watcher import Watcher, Watchers
from e2fl.sweeps.grid import shown, with_validation_share, without_validation_share
from e2fl.sweeps.tasks import InThisProcess, Task, record, saved
from e2fl.tuning.results import Result, TunedMethod
from e2fl.tuning.space import Choice, Dimension, change, fitted, own_settings
from e2fl.tuning.trials import (
    PATIENCE,
    Curve,
    Objective,
    State,
    Trial,
    curve_of,
    objectives_of,
    pick_of,
    should_prune,
)

if TYPE_CHECKING:
    import optuna

RECORD, TRIAL, FINAL = "tune.json", "trial.json", "final"
DRAWS = 20  # draws per trial of the budget, at most, to find settings that are new


def tune(
    methods: Mapping[str, Experiment],
    space: Sequence[Dimension],
    seeds: Sequence[int],
    budget: int,
    *,
    out: Path,
    objectives: str | None = None,
    pick: str | None = None,
    prune: bool = True,
    resume: bool = False,
    watcher: Watcher | None = None,
    tell: Callable[[str], None] = lambda message: None,
    command: str = "",
) -> Result:
    """Search the space for every method with the same budget of trials, and test the chosen settings on test data.

    methods: by name, experiments with different algorithms on the same data. objectives: names with commas; default:
    the mean and the worst tenth of groups, and bytes. pick: the objective that the chosen trial is best in. resume:
    continue the search in `out`; finished trials are read. tell: called with a line for each trial.
    """
    require_optuna()
    require_seeds(seeds, "a search")
    if budget < 1:
        raise ConfigError(f"--trials must be at least 1, not {budget}")
    validated = {name: with_validation_share(method) for name, method in methods.items()}
    spaces = _spaces(validated, space)
    pruner = Pruner(prune)
    runner = InThisProcess(Watchers(watcher or Watcher(), pruner))
    groups = _checked(validated, spaces, runner)
    pruner.objectives = objectives_of(objectives, groups)
    place = pick_of(pick, pruner.objectives)
    Folder(out).require_new(resume)
    with Folder(out).claimed():
        content = {
            "space": {dimension.name: str(dimension) for dimension in space},
            "trials": budget,
            "seeds": list(seeds),
            "objectives": [objective.name for objective in pruner.objectives],
            "pick": pruner.objectives[place].name,
            "prune": prune,
            "methods": {name: saved(method) for name, method in validated.items()},
        }
        record(out / RECORD, "search", content, command)
        search = Search(seeds, budget, out, runner, pruner, tell, list(methods))
        trials = {name: search.run(name, validated[name], spaces[name]) for name in methods}
        tuned = [
            TunedMethod.of(name, methods[name], spaces[name], trials[name], pruner.objectives, place)
            for name in methods
        ]
        final = _final(tuned, seeds, out / FINAL, watcher)
    first = next(iter(validated.values()))
    share = float(first.data["validation_share"])
    return Result(
        first.name, tuple(pruner.objectives), place, tuple(seeds), budget, prune, share, first.rounds, tuned, final
    )


def require_optuna() -> None:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("e2fl tune needs Optuna; install it with: pip install 'e2fl[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _spaces(methods: Mapping[str, Experiment], space: Sequence[Dimension]) -> dict[str, list[Dimension]]:
    """Return the dimensions of each method: settings of an algorithm are searched in those that have it."""
    complete = {name: completed(method) for name, method in methods.items()}
    having = {dimension.name: names_with(change(dimension.name, None), methods) for dimension in space}
    return {
        name: [fitted(dimension, complete[name]) for dimension in space if name in having[dimension.name]]
        for name in methods
    }


def _checked(
    methods: Mapping[str, Experiment], spaces: Mapping[str, Sequence[Dimension]], runner: InThisProcess
) -> bool:
    """Return whether all data declares groups; raise an error for a wrong setting before anything runs."""
    groups = True
    for name, method in methods.items():
        first = method.changed(change(dimension.name, dimension.example) for dimension in spaces[name])
        first.build_algorithm()
        first.build_settings()
        data = runner.data(first)
        first.build_model(data)
        groups = groups and data.population.groups > 0
    return groups


class Pruned(Exception):  # noqa: N818 - not an error
    """The early end of a trial."""


class Pruner(Watcher):
    """A watcher that ends a run at an evaluated round if the medians of earlier trials dominate it."""

    def __init__(self, active: bool):
        self.active = active
        self.objectives: Sequence[Objective] = ()
        self.earlier: Sequence[Curve] = ()  # of the same algorithm and seed
        self.last = 0

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.last = last

    def advance(self, number: int, measured: Json | None) -> None:
        if not self.active or measured is None or not PATIENCE * self.last <= number < self.last:
            return
        values = [objective.measured(measured) for objective in self.objectives]
        if should_prune(values, number, self.earlier, self.objectives):
            raise Pruned


@dataclass(frozen=True)
class Search:
    """The trials of all methods, one after the other."""

    seeds: Sequence[int]
    budget: int
    out: Path
    runner: InThisProcess
    pruner: Pruner
    tell: Callable[[str], None]
    names: Sequence[str]

    def run(self, name: str, method: Experiment, space: Sequence[Dimension]) -> list[Trial]:
        """Run the trials of one method: as many as the budget, or all if the space has fewer points."""
        import optuna

        kinds = optuna.study.StudyDirection
        directions = [
            kinds.MINIMIZE if objective.lower_is_better else kinds.MAXIMIZE for objective in self.pruner.objectives
        ]
        sampler = optuna.samplers.TPESampler(seed=method.seed % 2**32)
        study = optuna.create_study(directions=directions, sampler=sampler)
        study.enqueue_trial(own_settings(space, completed(method)))  # so that tuning never makes an algorithm worse
        distributions = {dimension.name: _distribution(dimension) for dimension in space}
        size = 1.0
        for dimension in space:
            size *= dimension.size
        trials: dict[str, Trial] = {}
        for _ in range(DRAWS * self.budget):
            if len(trials) >= min(size, self.budget):
                break
            asked = study.ask(distributions)
            settings = {dimension.name: dimension.value(asked.params[dimension.name]) for dimension in space}
            key = json.dumps(settings)
            if key not in trials:  # settings that were tried before have the same results
                trials[key] = self._trial(name, method, len(trials) + 1, settings, list(trials.values()))
            self._tell_sampler(study, asked, trials[key])
        return list(trials.values())

    def _trial(
        self, name: str, method: Experiment, number: int, settings: Mapping[str, Any], earlier: Sequence[Trial]
    ) -> Trial:
        folder = self.out / f"{file_name(name)}-trial{number}"
        values = ", ".join(f"{setting} = {shown(value)}" for setting, value in settings.items()) or "no setting varies"
        if (folder / TRIAL).is_file():
            trial = Trial.read(folder / TRIAL)
            if trial.settings != settings or trial.number != number:
                raise RunError(
                    f"{folder / TRIAL} was run with other settings than those drawn now ({values}); resume with the "
                    "version of Optuna that started the search, or choose another folder with --out"
                )
            return trial
        self.tell(f"{name}, trial {number} of {self.budget}: {values}")
        experiment = method.changed(change(setting, value) for setting, value in settings.items())
        state, curves = self._curves(experiment, folder, earlier, self.names.index(name) * self.budget + number - 1)
        trial = Trial(number, settings, state, curves)
        trial.write(folder / TRIAL)
        for seed in self.seeds:
            remove(Folder(folder / f"seed{seed}").checkpoints)  # a trial is not continued
        return trial

    def _curves(
        self, experiment: Experiment, folder: Path, earlier: Sequence[Trial], before: int
    ) -> tuple[State, list[Curve]]:
        """Run a trial with one seed after the other; before: how many trials come before it, for progress."""
        curves: list[Curve] = []
        for place, seed in enumerate(self.seeds):
            stored = Folder(folder / f"seed{seed}")
            self.pruner.earlier = [trial.curves[place] for trial in earlier if place < len(trial.curves)]
            runs = len(self.seeds)
            self.runner.watcher.announce(before * runs + place + 1, len(self.names) * self.budget * runs)
            try:
                self.runner.run(Task("", with_seed(experiment, seed), stored.path))
            except (Pruned, NothingLearnedError) as end:
                state: State = "pruned" if isinstance(end, Pruned) else "diverged"
                return state, [*curves, curve_of(stored.read_history(), self.pruner.objectives)]
            run = read_run(stored.path)
            curves.append(curve_of(run.history, self.pruner.objectives))
            if run.summary["validation"].get("diverged"):
                return "diverged", curves
        return "complete", curves

    def _tell_sampler(self, study: "optuna.Study", asked: "optuna.Trial", trial: Trial) -> None:
        from optuna.trial import TrialState

        if trial.state == "complete":
            study.tell(asked, [sum(values) / len(values) for values in trial.values])
        else:
            study.tell(asked, state=TrialState.PRUNED if trial.state == "pruned" else TrialState.FAIL)


def _distribution(dimension: Dimension) -> "optuna.distributions.BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(range(len(dimension.values)))
    if dimension.whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _final(tuned: Sequence[TunedMethod], seeds: Sequence[int], out: Path, watcher: Watcher | None) -> list[Run]:
    """Train the chosen settings on all training rows: a comparison that `e2fl report` can read."""
    chosen = {method.name: without_validation_share(method.best) for method in tuned if method.best is not None}
    return compare(chosen, seeds, out=out, resume=True, watcher=watcher) if chosen else []
