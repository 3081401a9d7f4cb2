"""Many runs, such as a comparison: finished ones are read, others resumed or started."""

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from e2fl.config.experiment import Experiment
from e2fl.data import FederatedData
from e2fl.errors import ConfigError, E2flError, RunError, StorageError
from e2fl.runs.runner import StoppedError, run_experiment
from e2fl.runs.store import Folder, StoredRun
from e2fl.runs.watcher import Watcher

BuildData = Callable[[Experiment], FederatedData]


@dataclass(frozen=True, eq=False)
class Task:
    """One run of a batch, and the folder it is stored in."""

    experiment: Experiment
    folder: Path | None = None

    @property
    def title(self) -> str:
        """The method and the seed."""
        return f"{self.experiment.label}, seed {self.experiment.seed}"


@dataclass
class BatchResult:
    """What became of the tasks of a batch."""

    runs: dict[Task, StoredRun] = field(default_factory=dict)  # those that are finished
    failed: dict[Task, E2flError] = field(default_factory=dict)
    stopped: bool = False  # the budget was spent before the last task

    def finished(self) -> list[StoredRun]:
        """Return all runs, or raise an error that names those that failed."""
        errors = list(self.failed.values())
        if len({str(error) for error in errors}) == 1:
            raise errors[0]
        if errors:
            total = len(self.runs) + len(errors)
            reasons = "; ".join(self.reasons())
            raise RunError(f"{len(errors)} of {total} runs failed: {reasons}")
        return list(self.runs.values())

    def some(self) -> list[StoredRun]:
        """Return the runs that did not fail; it is an error if all of them did."""
        return list(self.runs.values()) or self.finished()

    def reasons(self) -> list[str]:
        """Return which runs failed, and why."""
        return [f"{task.title}: {error}" for task, error in self.failed.items()]


class SharedData:
    """A builder of data that keeps the last one: it depends on its settings and the seed only."""

    def __init__(self) -> None:
        self._key = ""
        self._data: FederatedData | None = None

    def __call__(self, experiment: Experiment) -> FederatedData:
        key = json.dumps([experiment.seed, experiment.data], sort_keys=True)
        if self._data is None or self._key != key:
            self._data = None  # both at once may not fit in memory
            self._key, self._data = key, experiment.build.data()
        return self._data


def run_all(
    tasks: Sequence[Task],
    *,
    budget: float | None = None,
    data: FederatedData | BuildData | None = None,
    watcher: Watcher | None = None,
    keep_states: bool = False,
) -> BatchResult:
    """Run all tasks, and return the runs in their order, with the failures.

    A finished run is read, an interrupted one resumed. A run that fails does not stop the others,
    unless nothing can be stored. budget: seconds, after which the run in progress stops with a
    checkpoint. data: made in Python, or what builds the data of an experiment; default:
    `SharedData`. keep_states: also keep the states of stored runs; LeNet takes 0.14 GB a run.
    """
    build = data if callable(data) else SharedData() if data is None else lambda _: data
    watcher, batch = watcher or Watcher(), BatchResult()
    deadline = math.inf if budget is None else time.time() + budget
    for position, task in enumerate(tasks, start=1):
        watcher.announce(position, len(tasks))
        try:
            run = _run(task, build, watcher, lambda: time.time() >= deadline)
            stored = task.folder is not None and not keep_states
            batch.runs[task] = replace(run, state=None) if stored else run
        except StoppedError:
            batch.stopped = True
            break
        except StorageError:  # no other run could be stored either
            raise
        except E2flError as error:
            batch.failed[task] = error
    return batch


def _run(task: Task, build: BuildData, watcher: Watcher, stop: Callable[[], bool]) -> StoredRun:
    if task.folder is not None and task.folder.is_symlink():
        raise RunError(f"{task.folder} is a symbolic link; replace it by what it names")
    data = None
    if task.folder is None or not Folder(task.folder).finished():
        if stop():
            raise StoppedError("the budget is spent")
        data = build(task.experiment)
    return run_experiment(
        task.experiment, out=task.folder, resume=True, data=data, watcher=watcher, stop=stop
    )


def compare(
    methods: Mapping[str, Experiment],
    seeds: Sequence[int],
    *,
    out: Path | None = None,
    resume: bool = False,
    data: FederatedData | None = None,
    watcher: Watcher | None = None,
    keep_states: bool = False,
) -> BatchResult:
    """Run each method with each seed, in folders NAME-seedN of `out`."""
    require_seeds(seeds, "a comparison")
    if out is not None:
        Folder(out).require_new(resume)
    tasks = []
    for seed, (name, method) in product(seeds, methods.items()):
        folder = None if out is None else out / f"{file_name(name)}-seed{seed}"
        tasks.append(Task(replace(method, seed=seed), folder))
    return run_all(tasks, data=data, watcher=watcher, keep_states=keep_states)


def require_seeds(seeds: Sequence[int], what: str) -> None:
    """Raise `ConfigError` unless there is a seed, and each is named once. what: "a sweep"."""
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(f"{what} needs at least one seed, and must name every seed once")


def file_name(name: str) -> str:
    """Return the name of a method in a file name: a variant "../x" must not leave its folder."""
    return re.sub(r"[:/\\]", ".", name)
