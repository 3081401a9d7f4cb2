"""Progress of a run: a bar on a terminal and in notebooks, plain lines elsewhere."""

import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, TextIO

from tqdm import tqdm  # a bar of text needs no ipywidgets in a notebook

from e2fl.config.experiment import Experiment
from e2fl.errors import E2flWarning
from e2fl.runs.records import Json
from e2fl.runs.watcher import Watcher

if TYPE_CHECKING:
    Bar = tqdm[Any]

WARNINGS_SHOWN = 5
ESTIMATE_AFTER = 3  # rounds, after which the time left is told for the first time


class Progress(Watcher):
    """A display of the round, mean accuracy, worst group and time left."""

    def __init__(self, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.shown, self.draws = True, self.stream.isatty()
        self.bar: Bar | None = None
        self.label = self.turn = ""
        self.first = self.last = self.warned = 0
        self.started = 0.0

    def announce(self, number: int, total: int) -> None:
        self.turn = f"run {number} of {total}, " if total > 1 else ""

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.label = f"{self.turn}{experiment.label}, seed {experiment.seed}"
        self.first, self.last, self.warned, self.started = first, last, 0, time.monotonic()
        if self.shown and self.draws:
            done = max(0, first - 1)
            self.bar = tqdm(total=last, initial=done, desc=self.label, unit="round")
        else:
            self._say(f"{self.label}: round {first} of {last}")

    def advance(self, number: int, measured: Json | None) -> None:
        if self.bar is not None:
            self.bar.update(1 if number > 0 else 0)
            if measured is not None:
                self.bar.set_postfix_str(figures(measured))
            return
        done = number - self.first + 1
        if measured is None and done != ESTIMATE_AFTER:
            return
        left = (time.monotonic() - self.started) / max(1, done) * (self.last - number)
        words = [f"round {number} of {self.last}"]
        words += [] if measured is None else [figures(measured)]
        words += [f"about {tqdm.format_interval(left)} left"] if left >= 1 else []
        self._say(f"{self.label}: {', '.join(words)}")

    def warn(self, message: str) -> None:
        self.warned += 1
        if self.warned <= WARNINGS_SHOWN:
            self._say(self._labelled(message))
        elif self.warned == WARNINGS_SHOWN + 1:
            self._say(f"{self.label}: more warnings follow; history.jsonl counts them all")

    def end(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def _labelled(self, message: str) -> str:
        return f"{self.label}: {message}" if self.label else message

    def _say(self, text: str) -> None:
        if self.bar is not None:
            self.bar.write(text, file=self.stream)
        elif self.shown:
            print(text, file=self.stream, flush=True)


class NotebookProgress(Progress):
    """The display for Python and notebooks: a bar if possible, and warnings as such.

    shown: default: in notebooks and on terminals.
    """

    def __init__(self, *, shown: bool | None = None):
        super().__init__()
        self.draws = self.draws or "ipykernel" in sys.modules
        self.shown = self.draws if shown is None else shown

    def warn(self, message: str) -> None:
        warnings.warn(self._labelled(message), E2flWarning, stacklevel=2)


def figures(measured: Json) -> str:
    """Return mean and worst accuracy of a line of history, as text."""
    text = f"clients {measured['clients']['mean']:.1f} %"
    if measured["group"]:
        accuracy = {name: group["accuracy"] for name, group in measured["groups"].items()}
        worst = min(accuracy, key=accuracy.__getitem__)
        text += f", worst group {worst} {accuracy[worst]:.1f} %"
    return text
