"""The missing runs of a study: listing, timing, starting or resuming them, and stopping at the time budget."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from e2fl.config.experiment import Experiment
from e2fl.errors import RunError
from e2fl.reproduce.collecting import RECORD, Origin, place
from e2fl.reproduce.ledger import Entry, Json, read_entry
from e2fl.reproduce.preparation import Preparations
from e2fl.reproduce.studies import PlannedRun
from e2fl.runs.compare import LastData
from e2fl.runs.folder import Folder
from e2fl.runs.progress import duration
from e2fl.runs.runner import Watcher, Watchers, run_experiment
from e2fl.version import __version__

Tell = Callable[[str], None]


class BudgetSpent(KeyboardInterrupt):
    """The end of the time budget: like Ctrl-C, it leaves a checkpoint, and the same command resumes the run."""


@dataclass(frozen=True)
class MissingRun:
    """A run that has not reached its rounds."""

    wanted: PlannedRun
    reached: int  # the last evaluated round so far


@dataclass(frozen=True)
class Pace:
    """The speed of a method, measured on its first rounds."""

    seconds: float  # of a round
    last: int  # the last round; some methods need fewer than requested
    preparation: float = 0.0  # seconds before the first round


def missing(
    wanted: Sequence[PlannedRun], entries: Sequence[Entry], begun: Sequence[Entry] | None = None
) -> list[MissingRun]:
    """Return the runs whose last round no entry has evaluated.

    begun: the entries that count as the start of a run; default: all of them.
    """
    found = []
    for run in wanted:
        key = (run.settings, run.seed)
        if not any(_complete(entry, run.experiment.rounds) for entry in entries if (entry.settings, entry.seed) == key):
            started = entries if begun is None else begun
            reached = [entry.rounds for entry in started if (entry.settings, entry.seed) == key]
            on_the_way = [number for number in reached if number <= run.experiment.rounds]
            found.append(MissingRun(run, max(on_the_way, default=0)))
    return found


def _complete(entry: Entry, rounds: int) -> bool:
    asked = int(entry.config["rounds"])
    if entry.summary is not None and entry.summary.get("rounds") == entry.rounds:
        if asked == rounds or entry.rounds < asked:  # Local ends by itself, whatever is asked for
            return True
        if entry.rounds > asked:  # rounds were added to those asked for: its last round is that of no other number
            return False
    return entry.at(rounds) is not None


class _Clock(Watcher):
    """A watcher that times rounds, records the run's origin, and stops it at a deadline or after its first rounds."""

    def __init__(self, folder: Path, origin: Origin, deadline: float, stop_after: float = math.inf):
        self.folder, self.origin, self.deadline, self.stop_after = folder, origin, deadline, stop_after
        self.last = time.monotonic()
        self.ended = 0  # rounds, a preparation too
        self.rounds = 0
        self.end_round = 0
        self.seconds: float | None = None  # of the latest round
        self.preparation = 0.0  # seconds

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        record: Json = {"commit": self.origin.commit, "machine": self.origin.machine, "version": __version__}
        (self.folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        self.end_round = last
        self.last = time.monotonic()

    def advance(self, number: int, measured: Json | None) -> None:
        now = time.monotonic()
        if number > 0:
            self.rounds += 1
            self.seconds = now - self.last
        else:
            self.preparation = now - self.last
        self.last = now
        self.ended += 1
        # An interruption costs the round that has just ended, so it waits for the second one: one round is always kept.
        # The last round is never interrupted, because the run ends with it anyway.
        if (now >= self.deadline or self.rounds >= self.stop_after) and self.ended > 1 and number < self.end_round:
            raise BudgetSpent


class Runner:
    """A runner into folders with the layout of the ledger."""

    def __init__(self, out: Path, origin: Origin, *, budget: float | None, tell: Tell, watcher: Watcher | None = None):
        self.out, self.origin, self.tell = out, origin, tell
        self.watcher = watcher or Watcher()
        self.deadline = math.inf if budget is None else time.monotonic() + 60 * budget
        self.data = LastData()
        self.preparations = Preparations(out, (), tell)
        self.finished: set[str] = set()  # fingerprints of experiments

    def run(self, todo: Sequence[MissingRun]) -> bool:
        """Run all of these, each method's first round first to time it. Return whether everything was reached."""
        self.preparations = Preparations(self.out, [item.wanted.experiment for item in todo], self.tell)
        try:
            paces = self.measure(todo)
            left = [item for item in todo if item.wanted.experiment.fingerprint() not in self.finished]
            if left:
                self.tell(estimate(left, paces))
            for item in left:
                self._one(item.wanted, math.inf)
        except BudgetSpent:
            self.tell("stopped at the budget; the same command resumes from here")
            return False
        return True

    def measure(self, todo: Sequence[MissingRun]) -> dict[str, Pace]:
        """Return the pace of each method, timed on the first rounds of its first missing run, which are kept."""
        paces: dict[str, Pace] = {}
        for item in todo:
            if item.wanted.label not in paces:
                paces[item.wanted.label] = self._one(item.wanted, 2)
        return paces

    def _one(self, wanted: PlannedRun, stop_after: float) -> Pace:
        """Start or resume a run, and return its pace. Raise `BudgetSpent` only at the deadline."""
        if time.monotonic() >= self.deadline:
            raise BudgetSpent
        experiment = wanted.experiment
        folder = self._folder(wanted)
        clock = _Clock(folder, self.origin, self.deadline, stop_after)
        begun = (folder / "config.toml").is_file()
        if begun:  # perhaps by another study, which evaluates other rounds on the way
            experiment = replace(experiment, evaluate_every=Folder(folder).read_experiment().evaluate_every)
        data, watcher = self.data(experiment), Watchers(clock, self.watcher)
        federate = self.preparations.federate(experiment, data, watcher)
        try:
            run_experiment(experiment, out=folder, resume=begun, data=data, watcher=watcher, federate=federate)
            self.finished.add(wanted.experiment.fingerprint())
        except BudgetSpent:
            if time.monotonic() >= self.deadline:
                raise
        return Pace(clock.seconds or 0.0, clock.end_round, clock.preparation)

    def _folder(self, wanted: PlannedRun) -> Path:
        """Return the folder of a run; another one if a run there has passed the last round, or cannot be continued."""
        rounds = wanted.experiment.rounds
        folder = self.out / place(Entry(wanted.experiment.to_dict(), ()))
        if not (folder / "config.toml").is_file():
            return folder
        known = read_entry(folder)
        if known.settings != wanted.settings:
            raise RunError(
                f"{folder} was run with other settings, by another version; choose another folder with --out"
            )
        asked = int(known.config["rounds"])
        apart = known.rounds > rounds or (known.finished and known.rounds > asked)
        return folder.with_name(f"{folder.name}-rounds-{rounds}") if apart and asked != rounds else folder


def listing(todo: Sequence[MissingRun]) -> str:
    """Return what will be run, a line for each method."""
    lines = []
    for method, items in _by_method(todo).items():
        seeds = ", ".join(str(item.wanted.seed) for item in items)
        ends = sorted({item.wanted.experiment.rounds for item in items})
        resumed = [f"seed {item.wanted.seed} from round {item.reached}" for item in items if item.reached]
        text = f"  {method}: seeds {seeds}, to round {' or '.join(map(str, ends))}"
        lines.append(text + (f" (resumed: {', '.join(resumed)})" if resumed else ""))
    return "\n".join(lines)


def estimate(todo: Sequence[MissingRun], paces: Mapping[str, Pace]) -> str:
    """Return how long it takes, from the pace of each method."""
    lines, whole = [], 0.0
    for method, items in _by_method(todo).items():
        pace = paces[method]
        rounds = sum(max(0, pace.last - item.reached) for item in items)
        new = sum(not item.reached for item in items)
        together = rounds * pace.seconds + new * pace.preparation
        whole += together
        first = f"preparation of {pace.preparation:.0f} s for {new} runs, " if pace.preparation else ""
        lines.append(f"  {method}: {first}{rounds} rounds of {pace.seconds:.2f} s, about {duration(together)}")
    return "\n".join([*lines, f"together about {duration(whole)} on this machine, evaluations not counted"])


def _by_method(todo: Sequence[MissingRun]) -> dict[str, list[MissingRun]]:
    found: dict[str, list[MissingRun]] = {}
    for item in todo:
        found.setdefault(item.wanted.label, []).append(item)
    return found
