"""Watchers: objects that follow the progress of a run."""

from functools import partial
from typing import Any

from e2fl.config.experiment import Experiment
from e2fl.runs.records import Json


class Watcher:
    """A watcher that does nothing; subclasses show or store the progress of a run."""

    def announce(self, number: int, total: int) -> None:
        """Handle the announcement of run `number` of `total`."""

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        """Handle the start of a run, or its resumption, with round `first`."""

    def advance(self, number: int, measured: Json | None) -> None:
        """Handle the end of a round; `measured` is its line of history, if it was evaluated.

        An exception here stops the run, and the round is repeated when it is resumed: every watcher
        sees every round.
        """

    def warn(self, message: str) -> None:
        """Handle a warning: something is wrong, but the run continues."""

    def end(self) -> None:
        """Handle the end of the run, finished or not."""


class Watchers(Watcher):
    """Several watchers, all called with the same events."""

    def __init__(self, *watchers: Watcher):
        self.watchers = watchers
        for event in ("announce", "begin", "advance", "warn", "end"):
            setattr(self, event, partial(self._all, event))

    def _all(self, event: str, *arguments: Any) -> None:
        for watcher in self.watchers:
            getattr(watcher, event)(*arguments)
