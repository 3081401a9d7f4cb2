"""Watchers: objects that follow the progress of a run."""

from e2fl.config.experiment import Experiment
from e2fl.runs.records import Json


class Watcher:
    """A watcher that does nothing; subclasses show or store the progress of a run."""

    def announce(self, number: int, total: int) -> None:
        """Handle the announcement of run `number` of `total`."""

    def prepare(self, what: str) -> None:
        """Handle the compilation of a part of the program for this machine, which is about to start."""

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        """Handle the start of a run, or its resumption, with round `first`."""

    def advance(self, number: int, measured: Json | None) -> None:
        """Handle the end of a round; `measured` is its line of history, if it was evaluated.

        An exception here stops the run, and the round is repeated when it is resumed: every watcher sees every round.
        """

    def pause(self, number: int) -> None:
        """Handle the time after a round that all watchers have seen: an exception here stops the run and keeps it."""

    def warn(self, message: str) -> None:
        """Handle a warning: something is wrong, but the run continues."""

    def end(self) -> None:
        """Handle the end of the run, finished or not."""


class Watchers(Watcher):
    """Several watchers, all called with the same events."""

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

    def pause(self, number: int) -> None:
        for watcher in self.watchers:
            watcher.pause(number)

    def warn(self, message: str) -> None:
        for watcher in self.watchers:
            watcher.warn(message)

    def end(self) -> None:
        for watcher in self.watchers:
            watcher.end()
