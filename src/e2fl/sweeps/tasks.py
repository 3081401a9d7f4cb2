"""The runs of a sweep or a search: one after the other in this process, or in several processes."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from types import FrameType
from typing import NoReturn

from e2fl.config.experiment import UNSAVED, Experiment
from e2fl.errors import NothingLearnedError, RunError
from e2fl.files import write_text
from e2fl.runs.compare import LastData
from e2fl.runs.folder import COMMAND, Folder, json_text
from e2fl.runs.records import Json
from e2fl.runs.runner import run_experiment
from e2fl.runs.watcher import Watcher


@dataclass(frozen=True)
class Task:
    """One run."""

    title: str
    experiment: Experiment
    folder: Path


def saved(experiment: Experiment) -> Json:
    """Return the settings that can change a result."""
    return {name: value for name, value in experiment.to_dict().items() if name not in UNSAVED}


def record(path: Path, what: str, content: Json, command: str) -> None:
    """Store the content and the command in a folder, for `e2fl resume`; a folder holds one sweep or search only."""
    if command and not (path.parent / COMMAND).exists():
        write_text(path.parent / COMMAND, command + "\n")
    text = json_text(content)
    if not path.exists():
        write_text(path, text)
        return
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); choose another folder with --out") from error
    if stored != json.loads(text):
        raise RunError(
            f"{path.parent} holds another {what} (see {path.name}); use the same options and settings, or choose "
            "another folder with --out"
        )


class InThisProcess:
    """A runner of tasks one after the other; runs with the same data share it."""

    def __init__(self, watcher: Watcher):
        self.watcher = watcher
        self.data = LastData()

    def __call__(self, tasks: Sequence[Task]) -> None:
        for number, task in enumerate(tasks, start=1):
            self.watcher.announce(number, len(tasks))
            try:
                self.run(task)
            except NothingLearnedError as error:  # the settings are bad, and other runs are not affected
                self.watcher.warn(str(error))

    def run(self, task: Task) -> None:
        data = None if Folder(task.folder).finished() else self.data(task.experiment)
        run_experiment(task.experiment, out=task.folder, resume=True, data=data, watcher=self.watcher)


def in_processes(jobs: int, tell: Callable[[str], None]) -> Callable[[Sequence[Task]], None]:
    """Return a function that runs several tasks at a time, each in its own process with its share of the cores."""

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
    """Prepare a process of the pool: modules are found as in the parent, and termination acts like an interrupt."""
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
    with suppress(NothingLearnedError):  # the settings are bad, and other runs are not affected
        run_experiment(experiment, out=task.folder, resume=True)
