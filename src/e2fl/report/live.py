"""The page of a run in progress: rewritten after evaluated rounds, and reloading itself."""

import sys
import time
from importlib.resources import files
from pathlib import Path

from e2fl.config.experiment import Experiment
from e2fl.errors import E2flError, reason_of
from e2fl.files import write_text
from e2fl.report.from_runs import study_of
from e2fl.report.page import bundle, page
from e2fl.report.study import Json
from e2fl.runs.store import Folder, StoredRun, read_run, run_folders
from e2fl.runs.watcher import Watcher

RELOAD = 5  # seconds after which the page in the browser reloads itself
PAUSE = 3.0  # seconds between two pages at least: training matters more


class Live(Watcher):
    """A writer that keeps the page of a run or a comparison up to date while it is in progress."""

    def __init__(self, folder: Path, page: Path):
        bundle()  # made before the training, not after its first round
        self.folder, self.page = folder, page
        self.standing = self.label = ""
        self.last = 0
        self.written = -PAUSE

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.label, self.last = f"{experiment.label}, seed {experiment.seed}", last
        if not self.page.exists():
            waiting = (files("e2fl.report") / "waiting.html").read_text(encoding="utf-8")
            write_text(self.page, waiting)

    def advance(self, number: int, measured: Json | None) -> None:
        self.standing = f"{self.label}, is at round {number} of {self.last}"
        if measured is not None and time.monotonic() - self.written >= PAUSE:
            self._write(reload=RELOAD)
            self.written = time.monotonic()

    def stop(self) -> None:
        """Write the page once more, without reloading: the run has ended early."""
        self._write(reload=0)

    def _write(self, reload: int) -> None:
        folders = [Folder(path) for path in run_folders(self.folder)]
        runs = [
            read_run(folder.path) if folder.finished() else unfinished(folder)
            for folder in folders
            if folder.finished() or folder.read_history()
        ]
        try:
            if runs:
                study = study_of(runs, unfinished=self.standing)
                write_text(self.page, page(study, reload=reload))
        except (E2flError, OSError) as error:  # a page is not worth a run
            print(f"e2fl: the page could not be written: {reason_of(error)}", file=sys.stderr)


def unfinished(folder: Folder) -> StoredRun:
    """Return a run from what it has written to its folder so far."""
    experiment, history = folder.read_experiment(), folder.read_history()
    summary = history[-1] | experiment.build.naming() | {"dataset": experiment.data["name"]}
    summary["trains_alone"] = experiment.algorithm["name"] == "local"
    return StoredRun(folder.read_config(), summary, history, [], folder=folder.path)
