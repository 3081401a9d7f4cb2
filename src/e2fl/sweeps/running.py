"""Runs all points of a grid, in this process or in several, and the final test of the chosen point."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from types import FrameType
from typing import NoReturn

from e2fl.config.experiment import UNSAVED, Experiment, with_seed
from e2fl.data import FederatedData
from e2fl.errors import ConfigError, RunError
from e2fl.files import write_text
from e2fl.runs.folder import Folder, json_text
from e2fl.runs.records import Json
from e2fl.runs.runner import run_experiment
from e2fl.runs.watcher import Watcher
from e2fl.sweeps.grid import Axis, Point, points_of, with_validation_share, without_validation_share
from e2fl.sweeps.results import Pick, Result, choose, require_measure

RECORD, COMMAND = "sweep.json", "command.txt"


@dataclass(frozen=True)
class Task:
    """One run of a sweep."""

    title: str
    experiment: Experiment
    folder: Path


def sweep(
    base: Experiment,
    axes: Sequence[Axis],
    seeds: Sequence[int],
    *,
    out: Path,
    pick: str | None = None,
    jobs: int = 1,
    resume: bool = False,
    watcher: Watcher | None = None,
    tell: Callable[[str], None] = lambda message: None,
    command: str = "",
) -> Result:
    """Run every point with every seed, choose a point on validation data, and test it on test data.

    pick: the measure to choose by; default: the worst tenth of groups, or of clients without groups. jobs: runs at a
    time. resume: continue the sweep in `out`; finished runs are read. tell: gets progress where there are several jobs.
    command: stored in command.txt, for `e2fl resume`.
    """
    measure = None if pick is None else Pick.of(pick)
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError("a sweep needs at least one seed, and must name every seed once")
    if jobs < 1:
        raise ConfigError(f"--jobs must be at least 1, not {jobs}")
    base = replace(base, variants={})
    validated, points = with_validation_share(base), points_of(axes)
    at = {point.number: validated.changed(point.changes) for point in points}
    for experiment in at.values():  # a mistake in any point is found before one runs
        experiment.build_algorithm()
        experiment.build_settings()
    if Folder(out).exists() and not resume:
        raise RunError(f"{out} already exists; pass --resume to continue it, or choose another folder with --out")
    run = _in_processes(jobs, tell) if jobs > 1 else _here(watcher or Watcher())
    with Folder(out).claimed():
        _record(out, validated, axes, seeds, pick)
        if command and not (out / COMMAND).exists():
            write_text(out / COMMAND, command + "\n")
        run(
            [
                Task(f"point {point.number}, seed {seed}", with_seed(at[point.number], seed), _place(out, point, seed))
                for seed in seeds
                for point in points
            ]
        )
        found = {point: [_summary(_place(out, point, seed)) for seed in seeds] for point in points}
        measure = measure or Pick.default(next(iter(found.values()))[0])
        require_measure(found, measure)
        chosen = choose(found, measure)
        final: list[Json] = []
        if chosen is not None:
            whole = without_validation_share(base).changed(chosen.changes)
            places = {seed: out / f"final-seed{seed}" for seed in seeds}
            run([Task(f"final test, seed {seed}", with_seed(whole, seed), places[seed]) for seed in seeds])
            final = [_summary(place) for place in places.values()]
    share = float(validated.data["validation_share"])
    return Result(base.name, base.label, tuple(axes), tuple(seeds), share, measure, found, chosen, final)


def _place(out: Path, point: Point, seed: int) -> Path:
    return out / f"point{point.number}-seed{seed}"


def _summary(folder: Path) -> Json:
    stored = Folder(folder)
    stored.verify()
    return stored.read_summary()


def _record(out: Path, base: Experiment, axes: Sequence[Axis], seeds: Sequence[int], pick: str | None) -> None:
    """Store what the sweep is; a folder holds one sweep only."""
    settings = {name: value for name, value in base.to_dict().items() if name not in UNSAVED}
    grid = {axis.name: [change.value for change in axis.changes] for axis in axes}
    text = json_text({"grid": grid, "seeds": list(seeds), "pick": pick, "experiment": settings})
    path = out / RECORD
    if not path.exists():
        write_text(path, text)
        return
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); choose another folder with --out") from error
    if stored != json.loads(text):
        raise RunError(
            f"{out} holds another sweep (see {RECORD}); use the same grid, seeds and settings, or choose another "
            "folder with --out"
        )


def _here(watcher: Watcher) -> Callable[[Sequence[Task]], None]:
    """Run one after the other; runs with the same data share it."""

    def run(tasks: Sequence[Task]) -> None:
        shared: dict[str, FederatedData] = {}
        for number, task in enumerate(tasks, start=1):
            watcher.announce(number, len(tasks))
            if Folder(task.folder).finished():
                data = None
            else:
                key = f"{task.experiment.seed} {task.experiment.data}"
                if key not in shared:
                    shared = {key: task.experiment.build_data()}
                data = shared[key]
            run_experiment(task.experiment, out=task.folder, resume=True, data=data, watcher=watcher)

    return run


def _in_processes(jobs: int, tell: Callable[[str], None]) -> Callable[[Sequence[Task]], None]:
    """Run several at a time, each in a process of its own with its share of the cores."""

    def run(tasks: Sequence[Task]) -> None:
        before = set(active_children())
        threads = max(1, (os.cpu_count() or 1) // jobs)
        with ProcessPoolExecutor(
            min(jobs, len(tasks)), mp_context=get_context("spawn"), initializer=_prepare, initargs=(sys.path,)
        ) as pool:
            waiting = {pool.submit(_work, task, threads): task for task in tasks}
            try:
                for number, done in enumerate(as_completed(waiting), start=1):
                    done.result()
                    tell(f"run {number} of {len(tasks)} is done: {waiting[done].title}")
            except BaseException as error:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in set(active_children()) - before:
                    process.terminate()  # the runs in progress leave a checkpoint
                if isinstance(error, BrokenProcessPool):
                    raise RunError(
                        "a process of the sweep was killed, perhaps for lack of memory; resume with fewer --jobs"
                    ) from error
                raise

    return run


_stopped = threading.Event()


def _prepare(path: list[str]) -> None:
    """Prepare a process of the pool: modules are found as in the parent, and its end is like being stopped."""
    sys.path[:] = path
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which stops this process
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    _stopped.set()
    raise KeyboardInterrupt


def _follow_parent() -> None:
    """Stop when the parent is killed: an orphaned run would keep its folder locked."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(10)  # time for a checkpoint
        os._exit(1)


def _work(task: Task, threads: int) -> None:
    if _stopped.is_set():
        raise KeyboardInterrupt
    experiment = task.experiment
    if experiment.threads is None:
        experiment = replace(experiment, threads=threads)
    run_experiment(experiment, out=task.folder, resume=True)
