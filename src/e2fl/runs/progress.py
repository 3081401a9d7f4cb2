"""Progress of a run: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import NoReturn, TextIO

from tqdm import tqdm

from e2fl.config.experiment import Experiment
from e2fl.runs.folder import Json
from e2fl.runs.runner import Watcher

WARNINGS_SHOWN = 5
PATIENCE = 1.5  # seconds


class Progress(Watcher):
    """Shows round, mean accuracy, worst group and time left."""

    def __init__(self, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.bar: tqdm[NoReturn] | None = None
        self.label = ""
        self.last = 0
        self.warned = 0
        self.preparing = 0.0

    def prepare(self, what: str) -> None:
        now = time.monotonic()
        self.preparing = self.preparing or now
        # Loading what was compiled before takes a moment, and nobody need hear of it; nor of every small part.
        if now - self.preparing > PATIENCE:
            self._say(f"compiling for this machine, which happens once: {what}")
            self.preparing = now

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.label, self.last, self.preparing = experiment.label, last, 0.0
        if self.stream.isatty():
            self.bar = tqdm(
                total=last,
                initial=max(0, first - 1),
                desc=self.label,
                unit="round",
                file=self.stream,
                dynamic_ncols=True,
            )
        else:
            self._say(f"{self.label}: round {first} of {last}")

    def advance(self, number: int, measured: Json | None) -> None:
        if self.bar is not None:
            if number > 0:
                self.bar.update(1)
            if measured is not None:
                self.bar.set_postfix_str(_figures(measured))
        elif measured is not None:
            self._say(f"{self.label}: round {number} of {self.last}, {_figures(measured)}")

    def warn(self, message: str) -> None:
        self.warned += 1
        if self.warned <= WARNINGS_SHOWN:
            self._say(f"{self.label}: {message}")
        elif self.warned == WARNINGS_SHOWN + 1:
            self._say(f"{self.label}: more warnings follow; history.jsonl counts them all")

    def end(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def _say(self, text: str) -> None:
        if self.bar is not None:
            self.bar.write(text, file=self.stream)
        else:
            print(text, file=self.stream, flush=True)


def timed_steps() -> Callable[[str], None]:
    """For work that has steps but no rounds: lines that say what begins, and how many seconds after the start."""
    start = time.monotonic()
    return lambda text: print(f"{time.monotonic() - start:6.1f} s  {text}", file=sys.stderr, flush=True)


def _figures(measured: Json) -> str:
    figures = f"clients {measured['user']['mean']:.1f} %"
    if measured["group"]:
        worst = min(measured["groups"], key=lambda name: measured["groups"][name]["accuracy"])
        figures += f", worst group {worst} {measured['groups'][worst]['accuracy']:.1f} %"
    return figures
