"""Many runs, such as a comparison: finished ones are read, others resumed or started."""

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path

from e2fl import construct
from e2fl.config.experiment import Experiment, with_seed
from e2fl.data import FederatedData
from e2fl.errors import ConfigError, E2flError, RunError, StorageError
from e2fl.runs.runner import Federate, run_experiment
from e2fl.runs.store import Folder, Run, read_run
from e2fl.runs.watcher import Watcher, Watchers

BuildData = Callable[[Experiment], FederatedData]
MakeFederate = Callable[[Experiment, FederatedData, Watcher], Federate | None]


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
class Batch:
    """What became of the tasks of a batch."""

    runs: dict[Task, Run] = field(default_factory=dict)  # those that are finished
    failed: dict[Task, E2flError] = field(default_factory=dict)
    stopped: bool = False  # the budget was spent before the last task

    def finished(self) -> list[Run]:
        """Return all runs, or raise an error that names those that failed."""
        errors = list(self.failed.values())
        if len({str(error) for error in errors}) == 1:
            raise errors[0]
        if errors:
            reasons = "; ".join(f"{task.title}: {error}" for task, error in self.failed.items())
            total = len(self.runs) + len(errors)
            raise RunError(f"{len(errors)} of {total} runs failed: {reasons}")
        return list(self.runs.values())


class BudgetSpentError(RunError):
    """The end of the time for a batch; the run in progress leaves a checkpoint."""


class SharedData:
    """A builder of data that keeps the last one: it depends on its settings and the seed only."""

    def __init__(self) -> None:
        self._key = ""
        self._data: FederatedData | None = None

    def __call__(self, experiment: Experiment) -> FederatedData:
        key = json.dumps([experiment.seed, experiment.data], sort_keys=True)
        if self._data is None or self._key != key:
            self._key, self._data = key, experiment.build_data()
        return self._data


def run_all(
    tasks: Sequence[Task],
    *,
    jobs: int = 1,
    budget: float | None = None,
    data: FederatedData | BuildData | None = None,
    watcher: Watcher | None = None,
    federate: MakeFederate | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> Batch:
    """Run all tasks, and return the runs in their order, with the failures.

    A finished run is read, an interrupted one resumed. A run that fails does not stop the others,
    unless nothing can be stored. budget: seconds, after which the run in progress stops with a
    checkpoint. jobs: runs at a time, each in a process of its own with its share of the cores.
    data: made in Python, or what builds the data of an experiment; default: `SharedData`.
    watcher, federate: for runs in this process. tell: called with the progress of several jobs.
    """
    if jobs < 1:
        raise ConfigError(f"--jobs must be at least 1, not {jobs}")
    if jobs > 1 and any(task.folder is None for task in tasks):
        raise ConfigError("several jobs need folders to store their runs in")
    if jobs > 1 and any(task.experiment.runtime for task in tasks):
        raise ConfigError("the actors of a runtime already work in parallel: leave out --jobs")
    deadline = None if budget is None else time.time() + budget
    if jobs > 1 and len(tasks) > 1:
        return _in_processes(tasks, jobs, deadline, tell)
    build = data if callable(data) else SharedData() if data is None else lambda _: data
    watcher = watcher or Watcher()
    batch = Batch()
    for position, task in enumerate(tasks, start=1):
        watcher.announce(position, len(tasks))
        with _recorded(batch, task):
            batch.runs[task] = _run(task, build, watcher, deadline, federate)
        if batch.stopped:
            break
    return batch


def compare(
    methods: Mapping[str, Experiment],
    seeds: Sequence[int],
    *,
    out: Path | None = None,
    resume: bool = False,
    data: FederatedData | None = None,
    watcher: Watcher | None = None,
) -> list[Run]:
    """Run each method with each seed, in folders NAME-seedN of `out`."""
    require_seeds(seeds, "a comparison")
    if out is not None:
        Folder(out).require_new(resume)
        Folder(out).require_no_links()
    tasks = [
        Task(
            with_seed(method, seed), None if out is None else out / f"{file_name(name)}-seed{seed}"
        )
        for seed in seeds
        for name, method in methods.items()
    ]
    return run_all(tasks, data=data, watcher=watcher).finished()


def require_seeds(seeds: Sequence[int], what: str) -> None:
    """Raise `ConfigError` unless there is a seed, and each is named once. what: "a sweep"."""
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(f"{what} needs at least one seed, and must name every seed once")


def file_name(name: str) -> str:
    """Return the name of a method in a file name: a variant "../x" must not leave its folder."""
    return re.sub(r"[:/\\]", ".", name)


def _run(
    task: Task,
    build: BuildData,
    watcher: Watcher,
    deadline: float | None,
    federate: MakeFederate | None = None,
) -> Run:
    if task.folder is not None and task.folder.is_symlink():
        raise RunError(f"{task.folder} is a symbolic link; replace it by what it names")
    finished = task.folder is not None and Folder(task.folder).finished()
    if not finished and deadline is not None and time.time() >= deadline:
        raise BudgetSpentError("the budget is spent")
    data = None if finished else build(task.experiment)
    watcher = watcher if deadline is None else Watchers(watcher, _Deadline(deadline))
    made = None if federate is None or data is None else federate(task.experiment, data, watcher)
    return run_experiment(
        task.experiment, out=task.folder, resume=True, data=data, watcher=watcher, federate=made
    )


@contextmanager
def _recorded(batch: Batch, task: Task) -> Iterator[None]:
    """Record that a run failed, or that the budget is spent; other errors stop the batch."""
    try:
        yield
    except BudgetSpentError:
        batch.stopped = True
    except StorageError:  # no other run could be stored either
        raise
    except E2flError as error:
        batch.failed[task] = error


class _Deadline(Watcher):
    """A watcher that stops a run between two rounds; never before its last round."""

    def __init__(self, deadline: float):
        self.deadline, self.last = deadline, 0

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.last = last

    def pause(self, number: int) -> None:
        if number < self.last and time.time() >= self.deadline:
            raise BudgetSpentError("the budget is spent")


def _in_processes(
    tasks: Sequence[Task], jobs: int, deadline: float | None, tell: Callable[[str], None]
) -> Batch:
    batch = Batch()
    before = set(active_children())
    threads = max(1, (os.cpu_count() or 1) // jobs)
    given = (sys.path, construct.importable)
    with ProcessPoolExecutor(
        min(jobs, len(tasks)), get_context("spawn"), initializer=_prepare, initargs=given
    ) as pool:
        waiting = {pool.submit(_work, task, threads, deadline): task for task in tasks}
        try:
            for position, future in enumerate(as_completed(waiting), start=1):
                task = waiting[future]
                with _recorded(batch, task):
                    future.result()
                    tell(f"run {position} of {len(tasks)} is done: {task.title}")
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(active_children()) - before:
                process.terminate()  # the runs in progress leave a checkpoint
            if isinstance(error, BrokenProcessPool):
                raise RunError(
                    "a process was killed, perhaps for lack of memory; resume with fewer --jobs"
                ) from error
            raise
    for task in tasks:
        if task not in batch.failed and task.folder and Folder(task.folder).finished():
            batch.runs[task] = read_run(task.folder)
    return batch


_shared = SharedData()  # of a process of the pool


def _work(task: Task, threads: int, deadline: float | None) -> None:
    if task.experiment.threads is None:
        task = replace(task, experiment=replace(task.experiment, threads=threads))
    try:
        _run(task, _shared, Watcher(), deadline)
    except KeyboardInterrupt:  # the run has its checkpoint, and no other one must start here
        os._exit(1)


def _prepare(path: list[str], importable: frozenset[str] | None) -> None:
    """Prepare a process of the pool: it imports as the parent does, and SIGTERM interrupts it."""
    sys.path[:], construct.importable = path, importable
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which stops this one
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """Stop when the parent is killed: an orphaned run would keep its folder locked."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(10)  # time for a checkpoint
        os._exit(1)
