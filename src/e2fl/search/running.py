"""The search: a grid or Optuna's sampler gives settings, trials run, the chosen are tested.

Nothing of Optuna is stored: its storage does not keep the state of a sampler. The sampler is seeded
and gets the same results in the same order when a search is resumed, so it draws the same settings
again, and finished runs are read.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.samplers import TPESampler
from optuna.trial import TrialState

from e2fl.config.experiment import Experiment
from e2fl.config.overrides import from_names
from e2fl.errors import ConfigError, NothingLearnedError, RunError
from e2fl.metrics import MEASURES, Measure
from e2fl.metrics.measures import own_measures
from e2fl.runs.batch import SharedData, Task, compare, file_name, require_seeds, run_all
from e2fl.runs.records import Json
from e2fl.runs.store import Folder
from e2fl.runs.watcher import Watcher
from e2fl.search import results
from e2fl.search import space as spaces
from e2fl.search.results import Result, Trial, Tuned, validation_share
from e2fl.search.space import Space, settings_text

RECORD = "search.json"
VALIDATION_SHARE = 0.2  # of each client's training rows, where the experiment sets none
LIMIT = 10_000  # points of a grid
DRAWS = 20  # draws per trial of the budget, at most, to find settings that are new

optuna.logging.set_verbosity(optuna.logging.WARNING)


def search(
    methods: Mapping[str, Experiment],
    space: Space,
    seeds: Sequence[int],
    *,
    out: Path,
    sampler: Literal["grid", "tpe"] = "tpe",
    trials: int = 20,
    objectives: Sequence[str] = (),
    pick: str | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    tell: Callable[[str], None] = lambda message: None,
    command: str = "",
) -> Result:
    """Search the space for every method, and test the chosen settings on test data.

    methods: by name, on the same data. trials: of each method; a grid tries all its points.
    objectives, pick: as in `objectives_of`. resume: continue the search in `out`. tell: called with
    a line for each trial. command: stored in command.txt, for `e2fl resume`.
    """
    require_seeds(seeds, "a search")
    if trials < 1:
        raise ConfigError(f"--trials must be at least 1, not {trials}")
    if sampler == "grid" and spaces.size_of(space) > LIMIT:
        raise ConfigError(f"the grid has more than {LIMIT:,} points")
    validated = {
        name: validation_share(method, method.data.get("validation_share") or VALIDATION_SHARE)
        for name, method in methods.items()
    }
    searched = spaces.spaces_of(validated, space)
    data, first, watcher = SharedData(), next(iter(validated.values())), watcher or Watcher()
    levels = _checked(validated, searched, data)
    own = own_measures({one.name: one.described for one in first.build.measures()})
    goals, decisive = results.objectives_of(objectives, pick, levels, own)
    shown = [MEASURES[f"{level}/{name}"] for level in levels for name in results.SHOWN]
    measures = {measure.key: measure for measure in (*shown, *goals)}
    folder = Folder(out)
    folder.require_new(resume)
    with folder.claimed():
        asked = {
            "sampler": sampler,
            "trials": trials,
            "space": {name: spaces.described(one) for name, one in space.items()},
            "seeds": list(seeds),
            "pick": decisive.key,
            "objectives": [goal.key for goal in goals],
            "methods": {name: method.identity() for name, method in validated.items()},
        }
        _record(folder, asked, command)
        runner = Runner(out, seeds, goals, list(measures), data, watcher, tell)
        tuned = []
        for name, method in methods.items():
            own_space = searched[name]
            points = [spaces.own_settings(own_space, validated[name])]  # nothing gets worse
            if sampler == "grid":
                choices = [vars(one)["choices"] for one in own_space.values()]
                points = [dict(zip(own_space, one, strict=True)) for one in product(*choices)]
            budget = len(points) if sampler == "grid" else min(spaces.size_of(own_space), trials)
            tried = runner.trials(name, validated[name], own_space, points, int(budget))
            order = [decisive, *(one for one in goals if one != decisive)]
            tuned.append(Tuned(name, method, own_space, tried, order))
        chosen = {one.name: one.best for one in tuned if one.best is not None}
        batch = compare(chosen, seeds, out=out / "final", resume=True, watcher=watcher)
        runs = batch.finished()
        final = {name: runs[place :: len(chosen)] for place, name in enumerate(chosen)}
    return Result(first, sampler, goals, decisive, measures, seeds, tuned, final)


def _checked(
    methods: Mapping[str, Experiment], searched: Mapping[str, Space], data: SharedData
) -> list[str]:
    """Return the levels that all data has; raise errors for wrong settings before anything runs."""
    groups = True
    for name, method in methods.items():
        ends = {setting: spaces.ends_of(one) for setting, one in searched[name].items()}
        first = {setting: values[0] for setting, values in ends.items()}
        built = data(method.changed(from_names(first)))
        for setting, values in ends.items():
            for value in values:
                experiment = method.changed(from_names(first | {setting: value}))
                experiment.build.algorithm()
                experiment.build.settings()
                if not setting.startswith("data."):
                    experiment.build.model(built)
        groups = groups and built.population.groups > 0
    return ["group", "clients"] if groups else ["clients"]


def _record(folder: Folder, asked: Json, command: str) -> None:
    """Store what is searched and the command; a folder holds one search only."""
    folder.write_command(command)
    recorded = folder.read_json(RECORD)
    if recorded is None:
        folder.write(RECORD, asked)
    elif recorded != asked:
        raise RunError(
            f"{folder.path} holds another search (see {RECORD}); use the same options and "
            "settings, or choose another folder with --out"
        )


@dataclass(frozen=True)
class Runner:
    """What all trials of a search share."""

    out: Path
    seeds: Sequence[int]
    objectives: Sequence[Measure]
    paths: Sequence[str]  # of what is recorded of every trial
    data: SharedData
    watcher: Watcher
    tell: Callable[[str], None]

    def trials(
        self,
        name: str,
        method: Experiment,
        space: Space,
        points: Sequence[Mapping[str, Any]],
        budget: int,
    ) -> list[Trial]:
        """Run as many trials as the budget has: first these points, then others that are drawn."""
        study = optuna.create_study(
            directions=["maximize" if one.sign > 0 else "minimize" for one in self.objectives],
            sampler=TPESampler(seed=method.seed % 2**32),
        )
        for point in points:
            study.enqueue_trial(dict(point))
        trials: dict[str, Trial] = {}
        for _ in range(DRAWS * budget):
            if len(trials) == budget:
                break
            asked = study.ask(dict(space))
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
                values = [trials[key].values(one.key) for one in self.objectives]
                study.tell(asked, [sum(own) / len(own) for own in values])
        return list(trials.values())

    def _trial(
        self, name: str, method: Experiment, number: int, settings: Mapping[str, Any]
    ) -> Trial:
        """Run a trial with every seed, or read its runs."""
        self.tell(f"{name}, trial {number}: {settings_text(settings)}")
        experiment = method.changed(from_names(settings))
        place = self.out / f"{file_name(name)}-trial{number}"
        tasks = [Task(replace(experiment, seed=seed), place / f"seed{seed}") for seed in self.seeds]
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
