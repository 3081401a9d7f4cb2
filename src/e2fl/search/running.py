"""The search: Optuna draws settings, trials are run, and the chosen ones are tested once.

Nothing of Optuna is stored. Its sampler is seeded and gets the same results in the same order when
a search is resumed, so it draws the same settings again, and finished runs are read.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.samplers import GridSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState

from e2fl.config.experiment import UNSAVED, Experiment, with_seed
from e2fl.errors import ConfigError, NothingLearnedError, RunError
from e2fl.files import write_text
from e2fl.metrics import Measure
from e2fl.runs.batch import SharedData, Task, file_name, require_seeds, run_all
from e2fl.runs.records import Json
from e2fl.runs.store import COMMAND, Folder, Run, json_text
from e2fl.runs.watcher import Watcher, Watchers
from e2fl.search.results import Result, Tuned, validation_share
from e2fl.search.space import (
    Space,
    changes_of,
    described,
    ends_of,
    own_settings,
    settings_text,
    size_of,
    spaces_of,
    value_of,
)
from e2fl.search.trials import (
    BYTES,
    Curve,
    Pruned,
    Pruner,
    State,
    Trial,
    curve_of,
    objectives_of,
    paths_of,
    pick_of,
)

RECORD, FINAL = "search.json", "final"
VALIDATION_SHARE = 0.2  # of each client's training rows, where the experiment sets none
LIMIT = 10_000  # points of a grid
DRAWS = 20  # draws per trial of the budget, at most, to find settings that are new

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Options:
    """What distinguishes a search from another one of the same methods.

    trials: of each method; a grid tries all its points. objectives, pick: paths of measures;
    default: the mean, the worst tenth and bytes, or the worst tenth alone for a grid.
    prune: end trials early. jobs: runs of a grid at a time.
    """

    sampler: Literal["grid", "tpe"] = "tpe"
    trials: int = 20
    objectives: str | None = None
    pick: str | None = None
    prune: bool = True
    jobs: int = 1

    def default(self, level: str) -> list[str]:
        """Return the objectives of a search that names none."""
        if self.sampler == "tpe":
            return [f"{level}/mean", f"{level}/worst10", BYTES]
        return [self.pick or f"{level}/worst10"]


def search(
    methods: Mapping[str, Experiment],
    space: Space,
    seeds: Sequence[int],
    options: Options,
    *,
    out: Path,
    resume: bool = False,
    watcher: Watcher | None = None,
    tell: Callable[[str], None] = lambda message: None,
    command: str = "",
) -> Result:
    """Search the space for every method, and test the chosen settings on test data.

    methods: by name, on the same data. resume: continue the search in `out`. tell: called with a
    line for each trial. command: stored in command.txt, for `e2fl resume`.
    """
    require_seeds(seeds, "a search")
    if options.trials < 1:
        raise ConfigError(f"--trials must be at least 1, not {options.trials}")
    validated = {
        name: method
        if method.data.get("validation_share")
        else validation_share(method, VALIDATION_SHARE)
        for name, method in methods.items()
    }
    spaces = spaces_of(validated, space)
    data = SharedData()
    levels = _checked(validated, spaces, data)
    objectives = objectives_of(options.objectives, options.default(levels[0]), levels)
    pick = pick_of(options.pick, objectives)
    Folder(out).require_new(resume)
    with Folder(out).claimed():
        settings = {name: described(distribution) for name, distribution in space.items()}
        asked: Json = {"sampler": options.sampler, "trials": options.trials, "prune": options.prune}
        asked |= {"space": settings, "seeds": list(seeds), "pick": pick.key}
        asked |= {"objectives": [objective.key for objective in objectives]}
        _record(out, asked | {"methods": _saved(validated)}, command)
        trials = Trials(out, options, seeds, objectives, levels, data, watcher or Watcher(), tell)
        tuned = []
        for name, method in methods.items():
            run = trials.run(name, validated[name], spaces[name])
            tuned.append(Tuned.of(name, method, spaces[name], run, objectives, pick))
        final = trials.test({one.name: one.best for one in tuned if one.best is not None})
    first = next(iter(validated.values()))
    return Result(
        first, options.sampler, options.prune, objectives, pick, levels, tuple(seeds), tuned, final
    )


def _checked(
    methods: Mapping[str, Experiment], spaces: Mapping[str, Space], data: SharedData
) -> list[str]:
    """Return the levels that all data has; raise errors for wrong settings before anything runs."""
    groups = True
    for name, method in methods.items():
        ends = {setting: ends_of(one) for setting, one in spaces[name].items()}
        first = {setting: values[0] for setting, values in ends.items()}
        others = [(setting, value) for setting, values in ends.items() for value in values]
        built = data(method.changed(changes_of(first)))
        for setting, value in others:
            experiment = method.changed(changes_of(first | {setting: value}))
            experiment.build_algorithm()
            experiment.build_settings()
            if not setting.startswith("data."):
                experiment.build_model(built)
        groups = groups and built.population.groups > 0
    return ["group", "clients"] if groups else ["clients"]


def _saved(methods: Mapping[str, Experiment]) -> Json:
    """Return the settings of each method that can change a result."""
    return {
        name: {key: value for key, value in method.to_dict().items() if key not in UNSAVED}
        for name, method in methods.items()
    }


def _record(out: Path, content: Json, command: str) -> None:
    """Store what is searched and the command; a folder holds one search only."""
    path = out / RECORD
    if command and not (out / COMMAND).exists():
        write_text(out / COMMAND, command + "\n")
    if not path.exists():
        write_text(path, json_text(content))
        return
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); choose another folder with --out") from error
    if stored != json.loads(json_text(content)):
        raise RunError(
            f"{out} holds another search (see {RECORD}); use the same options and settings, or "
            "choose another folder with --out"
        )


@dataclass(frozen=True)
class Trials:
    """What all trials of a search share."""

    out: Path
    options: Options
    seeds: Sequence[int]
    objectives: Sequence[Measure]
    levels: Sequence[str]
    data: SharedData
    watcher: Watcher
    tell: Callable[[str], None]

    def run(self, name: str, method: Experiment, space: Space) -> list[Trial]:
        """Run the trials of one method, and return them in their order."""
        kinds = {1: StudyDirection.MAXIMIZE, -1: StudyDirection.MINIMIZE}
        directions = [kinds[objective.sign] for objective in self.objectives]
        if self.options.sampler == "tpe":
            study = optuna.create_study(
                directions=directions, sampler=TPESampler(seed=method.seed % 2**32)
            )
            study.enqueue_trial(own_settings(space, method))  # so that tuning makes nothing worse
            return self._drawn(study, name, method, space)
        if size_of(space) > LIMIT:
            raise ConfigError(f"the grid has more than {LIMIT:,} points")
        choices = {setting: one.choices for setting, one in space.items()}  # type: ignore[attr-defined]
        study = optuna.create_study(directions=directions, sampler=GridSampler(choices, seed=0))
        return self._grid(study, name, method, space)

    def test(self, chosen: Mapping[str, Experiment]) -> dict[str, list[Run]]:
        """Train the chosen settings on all training rows: a comparison that `e2fl report` reads."""
        folder = self.out / FINAL
        tasks = {
            (name, seed): Task(with_seed(best, seed), folder / f"{file_name(name)}-seed{seed}")
            for seed in self.seeds
            for name, best in chosen.items()
        }
        jobs = self.options.jobs
        batch = run_all(list(tasks.values()), jobs=jobs, watcher=self.watcher, tell=self.tell)
        batch.finished()
        return {name: [batch.runs[tasks[name, seed]] for seed in self.seeds] for name in chosen}

    def _grid(
        self, study: optuna.Study, name: str, method: Experiment, space: Space
    ) -> list[Trial]:
        """Run every point of a grid, the last setting changing fastest."""
        asked = [study.ask(space).params for _ in range(int(size_of(space)))]
        order = {setting: one.choices.index for setting, one in space.items()}  # type: ignore[attr-defined]
        asked.sort(key=lambda drawn: [order[setting](drawn[setting]) for setting in space])
        points = [_values(space, drawn) for drawn in asked]
        if self.options.jobs > 1:
            tasks = [
                self._task(name, method, number, point, seed)
                for seed in self.seeds
                for number, point in enumerate(points, start=1)
            ]
            run_all(tasks, jobs=self.options.jobs, tell=self.tell)  # the trials read these runs
        return [
            self._trial(name, method, number, point, []) for number, point in enumerate(points, 1)
        ]

    def _drawn(
        self, study: optuna.Study, name: str, method: Experiment, space: Space
    ) -> list[Trial]:
        """Run as many trials as the budget has, or all if the space has fewer points."""
        budget = min(size_of(space), self.options.trials)
        trials: dict[str, Trial] = {}
        for _ in range(DRAWS * self.options.trials):
            if len(trials) >= budget:
                break
            asked = study.ask(space)
            settings = _values(space, asked.params)
            key = json.dumps(settings)
            if key not in trials:  # settings that were tried before have the same results
                earlier = list(trials.values())
                trials[key] = self._trial(name, method, len(trials) + 1, settings, earlier)
            trial = trials[key]
            if trial.state == "complete":
                study.tell(asked, [trial.mean(one.key) for one in self.objectives])
            else:
                pruned = trial.state == "pruned"
                study.tell(asked, state=TrialState.PRUNED if pruned else TrialState.FAIL)
        return list(trials.values())

    def _trial(
        self,
        name: str,
        method: Experiment,
        number: int,
        settings: Mapping[str, Any],
        earlier: Sequence[Trial],
    ) -> Trial:
        """Run a trial with one seed after the other, until it diverges or is pruned."""
        self.tell(f"{name}, trial {number}: {settings_text(settings)}")
        curves: list[Curve] = []
        state: State = "complete"
        prune = self.options.prune and self.options.sampler == "tpe"
        for position, seed in enumerate(self.seeds):
            task = self._task(name, method, number, settings, seed)
            before = [trial.curves[position] for trial in earlier if position < len(trial.curves)]
            watchers = [Pruner(self.objectives, before)] if prune else []
            state = self._run(task, Watchers(self.watcher, *watchers))
            history = Folder(task.folder or self.out).read_history()
            curves.append(curve_of(history, paths_of(self.objectives, self.levels)))
            if state == "complete":
                self._require_objectives(curves[-1])
            if state != "complete":
                break
        return Trial(number, settings, state, curves)

    def _require_objectives(self, curve: Curve) -> None:
        for objective in self.objectives:
            if math.isnan(curve[max(curve)][objective.key]):
                raise RunError(
                    f"runs on this data do not measure {objective.key} on validation rows"
                )

    def _run(self, task: Task, watcher: Watcher) -> State:
        """Run a trial with one seed, or read its run, and return how it ended."""
        try:
            batch = run_all([task], data=self.data, watcher=watcher)
        except Pruned:
            return "pruned"
        error = batch.failed.get(task)
        if error is None:
            return (
                "diverged" if batch.runs[task].summary["validation"].get("diverged") else "complete"
            )
        if not isinstance(error, NothingLearnedError):
            raise error
        watcher.warn(str(error))  # the settings are bad; other trials are not affected
        return "diverged"

    def _task(
        self, name: str, method: Experiment, number: int, settings: Mapping[str, Any], seed: int
    ) -> Task:
        experiment = with_seed(method.changed(changes_of(settings)), seed)
        return Task(experiment, self.out / f"{file_name(name)}-trial{number}" / f"seed{seed}")


def _values(space: Space, drawn: Mapping[str, Any]) -> dict[str, Any]:
    return {setting: value_of(one, drawn[setting]) for setting, one in space.items()}
