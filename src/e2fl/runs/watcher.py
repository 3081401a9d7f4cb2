"""Watchers: objects that are told how a run proceeds."""

from e2fl.config.experiment import Experiment
from e2fl.runs.records import Json


class Watcher:
    """Is told how a run proceeds, and does nothing with it; subclasses show or store it."""

    def announce(self, number: int, total: int) -> None:
        """Run `number` of `total` is next."""

    def prepare(self, what: str) -> None:
        """A part of the program is about to be compiled for this machine."""

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        """A run starts, or resumes, with round `first`."""

    def advance(self, number: int, measured: Json | None) -> None:
        """A round is done; `measured` is its line of history, if it was evaluated."""

    def warn(self, message: str) -> None:
        """Something is wrong, but the run continues."""

    def end(self) -> None:
        """The run is over, finished or not."""


class Watchers(Watcher):
    """Several watchers, told the same."""

    def __init__(self, *watchers: Watcher):
        self.watchers = watchers

    def announce(self, number: int, total: int) -> None:
        for watcher in self.watchers:
            watcher.announce(number, total)

    def prepare(self, what: str) -> None:
        for watcher in self.watchers:
            watcher.prepare(what)

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        for watcher in self.watchers:
            watcher.begin(experiment, first, last)

    def advance(self, number: int, measured: Json | None) -> None:
        for watcher in self.watchers:
            watcher.advance(number, measured)

    def warn(self, message: str) -> None:
        for watcher in self.watchers:
            watcher.warn(message)

    def end(self) -> None:
        for watcher in self.watchers:
            watcher.end()
