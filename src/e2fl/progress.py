"""Progress of a run: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from typing import NoReturn, TextIO

from tqdm import tqdm

from e2fl.experiment import Experiment
from e2fl.history import Json
from e2fl.runner import Watcher

WARNINGS_SHOWN = 5
PATIENCE = 2.0  # seconds until a silent start looks like a hang


class Progress(Watcher):
    """Shows round, mean accuracy, worst group and time left."""

    def __init__(self, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.bar: tqdm[NoReturn] | None = None
        self.label = ""
        self.last = 0
        self.warned = 0
        self.compiling_since: float | None = None
        self.told_of_compiling = False

    def compiling(self, part: str) -> None:
        now = time.monotonic()
        self.compiling_since = self.compiling_since or now
        if now - self.compiling_since > PATIENCE:
            # From the cache it takes a moment; only real compiling is worth a word.
            if not self.told_of_compiling:
                self._say("compiling the training loops for this machine; the next start finds them ready")
            self.told_of_compiling = True
            self._say(f"  compiling {part}")

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.label, self.last = experiment.label, last
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


def _figures(measured: Json) -> str:
    figures = f"clients {measured['user']['mean']:.1f} %"
    if measured["group"]:
        worst = min(measured["groups"], key=lambda name: measured["groups"][name]["accuracy"])
        figures += f", worst group {worst} {measured['groups'][worst]['accuracy']:.1f} %"
    return figures
