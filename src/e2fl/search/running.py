"""The search: a grid or Optuna's sampler gives settings, trials run, the chosen are tested.

Nothing of Optuna is stored: its storage does not keep the state of a sampler. The sampler is seeded
and gets the same results in the same order when a search is resumed, so it draws the same settings
again, and finished runs are read.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.samplers import TPESampler
from optuna.trial import TrialState

from e2fl.config.experiment import Experiment, with_seed
from e2fl.errors import ConfigError, NothingLearnedError, RunError, reason_of
from e2fl.files import read_text, write_text
from e2fl.metrics import MEASURES, Measure
from e2fl.metrics.measures import own_measures
from e2fl.runs.batch import SharedData, Task, file_name, require_seeds, run_all
from e2fl.runs.store import Folder, Run, json_text
from e2fl.runs.watcher import Watcher
from e2fl.search import results
from e2fl.search import space as spaces
from e2fl.search.results import Result, Trial, Tuned, validation_share
from e2fl.search.space import Space, changes_of, settings_text

RECORD = "search.json"
VALIDATION_SHARE = 0.2  # of each client's training rows, where the experiment sets none
LIMIT = 10_000  # points of a grid
DRAWS = 20  # draws per trial of the budget, at most, to find settings that are new

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Options:
    """What distinguishes a search from another one of the same methods.

    trials: of each method; a grid tries all its points. objectives, pick: paths of measures, as in
    `objectives_of`.
    """

    sampler: Literal["grid", "tpe"] = "tpe"
    trials: int = 20
    objectives: str | None = None
    pick: str | None = None


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
        name: validation_share(method, method.data.get("validation_share") or VALIDATION_SHARE)
        for name, method in methods.items()
    }
    searched = spaces.spaces_of(validated, space)
    if options.sampler == "grid" and spaces.size_of(space) > LIMIT:
        raise ConfigError(f"the grid has more than {LIMIT:,} points")
    data, first = SharedData(), next(iter(validated.values()))
    levels = _checked(validated, searched, data)
    own = own_measures(first.build_measures())
    paths = options.objectives.split(",") if options.objectives else []
    objectives, pick = results.objectives_of(paths, options.pick, levels, own)
    shown = [MEASURES[f"{level}/{name}"] for level in levels for name in results.SHOWN]
    measures = {measure.key: measure for measure in (*shown, *objectives)}
    Folder(out).require_new(resume)
    with Folder(out).claimed():
        asked = {
            "sampler": options.sampler,
            "trials": options.trials,
            "space": {name: spaces.described(one) for name, one in space.items()},
            "seeds": list(seeds),
            "pick": pick.key,
            "objectives": [objective.key for objective in objectives],
            "methods": {name: method.identity() for name, method in validated.items()},
        }
        _record(out, json_text(asked), command)
        runner = Runner(
            out, options, seeds, objectives, [*measures], data, watcher or Watcher(), tell
        )
        order = [pick, *(one for one in objectives if one != pick)]
        tuned = []
        for name, method in methods.items():
            trials = runner.trials(name, validated[name], searched[name])
            tuned.append(Tuned(name, method, searched[name], trials, order))
        final = runner.test({one.name: one.best for one in tuned if one.best is not None})
    return Result(first, options.sampler, objectives, pick, measures, seeds, tuned, final)


def _checked(
    methods: Mapping[str, Experiment], searched: Mapping[str, Space], data: SharedData
) -> list[str]:
    """Return the levels that all data has; raise errors for wrong settings before anything runs."""
    groups = True
    for name, method in methods.items():
        ends = {setting: spaces.ends_of(one) for setting, one in searched[name].items()}
        first = {setting: values[0] for setting, values in ends.items()}
        built = data(method.changed(changes_of(first)))
        for setting, value in ((key, value) for key, values in ends.items() for value in values):
            experiment = method.changed(changes_of(first | {setting: value}))
            experiment.build_algorithm()
            experiment.build_settings()
            if not setting.startswith("data."):
                experiment.build_model(built)
        groups = groups and built.population.groups > 0
    return ["group", "clients"] if groups else ["clients"]


def _record(out: Path, asked: str, command: str) -> None:
    """Store what is searched and the command; a folder holds one search only."""
    path = out / RECORD
    Folder(out).write_command(command)
    if not path.exists():
        write_text(path, asked)
    try:
        recorded = read_text(path)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {reason_of(error)}") from error
    if recorded != asked:
        raise RunError(
            f"{out} holds another search (see {RECORD}); use the same options and settings, or "
            "choose another folder with --out"
        )


@dataclass(frozen=True)
class Runner:
    """What all trials of a search share."""

    out: Path
    options: Options
    seeds: Sequence[int]
    objectives: Sequence[Measure]
    paths: Sequence[str]  # of what is recorded of every trial
    data: SharedData
    watcher: Watcher
    tell: Callable[[str], None]

    def trials(self, name: str, method: Experiment, space: Space) -> list[Trial]:
        """Run all points of a grid, or as many trials as the budget has, in their order."""
        if self.options.sampler == "tpe":
            return self._drawn(name, method, space)
        values = itertools.product(*map(spaces.ends_of, space.values()))
        points = list(enumerate((dict(zip(space, point, strict=True)) for point in values), 1))
        return [self._trial(name, method, number, point) for number, point in points]

    def test(self, chosen: Mapping[str, Experiment]) -> dict[str, list[Run]]:
        """Train the chosen settings on all training rows: a comparison that `e2fl report` reads."""
        tasks = {
            (name, seed): Task(
                with_seed(best, seed), self.out / "final" / f"{file_name(name)}-seed{seed}"
            )
            for seed in self.seeds
            for name, best in chosen.items()
        }
        batch = run_all(list(tasks.values()), watcher=self.watcher)
        batch.finished()
        return {name: [batch.runs[tasks[name, seed]] for seed in self.seeds] for name in chosen}

    def _drawn(self, name: str, method: Experiment, space: Space) -> list[Trial]:
        """Run as many trials as the budget has, or all if the space has fewer points."""
        study = optuna.create_study(
            directions=["maximize" if one.sign > 0 else "minimize" for one in self.objectives],
            sampler=TPESampler(seed=method.seed % 2**32),
        )
        study.enqueue_trial(spaces.own_settings(space, method))  # tuning makes nothing worse
        keys = [objective.key for objective in self.objectives]
        budget = min(spaces.size_of(space), self.options.trials)
        trials: dict[str, Trial] = {}
        for _ in range(DRAWS * self.options.trials):
            if len(trials) >= budget:
                break
            asked = study.ask(space)
            settings = {
                setting: spaces.value_of(one, asked.params[setting])
                for setting, one in space.items()
            }
            key = json.dumps(settings)
            if key not in trials:  # settings that were tried before have the same results
                trials[key] = self._trial(name, method, len(trials) + 1, settings)
            if trials[key].diverged:
                study.tell(asked, state=TrialState.FAIL)
            else:
                means = [sum(values) / len(values) for values in map(trials[key].values, keys)]
                study.tell(asked, means)
        return list(trials.values())

    def _trial(
        self, name: str, method: Experiment, number: int, settings: Mapping[str, Any]
    ) -> Trial:
        """Run a trial with every seed, or read its runs."""
        self.tell(f"{name}, trial {number}: {settings_text(settings)}")
        tasks = [self._task(name, method, number, settings, seed) for seed in self.seeds]
        batch = run_all(tasks, data=self.data, watcher=self.watcher)
        for error in batch.failed.values():
            if not isinstance(error, NothingLearnedError):
                raise error
            self.watcher.warn(str(error))  # other trials are not affected
        runs = list(batch.runs.values())
        ends = [results.measured(run.history[-1], self.paths) for run in runs]
        summaries = [run.summary for run in runs]
        diverged = any(s.get("failed") or s["validation"].get("diverged") for s in summaries)
        if batch.failed or diverged:
            return Trial(number, settings, ends, diverged=True)
        missing = [one.key for one in self.objectives if math.isnan(ends[0][one.key])]
        if missing:
            raise RunError(f"runs on this data do not measure {missing[0]} on validation rows")
        return Trial(number, settings, ends)

    def _task(
        self, name: str, method: Experiment, number: int, settings: Mapping[str, Any], seed: int
    ) -> Task:
        experiment = with_seed(method.changed(changes_of(settings)), seed)
        return Task(experiment, self.out / f"{file_name(name)}-trial{number}" / f"seed{seed}")
