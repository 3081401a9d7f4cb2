"""The missing runs of a study: listing, timing, starting or resuming them, and stopping at the time budget."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from e2fl.config.experiment import Experiment
from e2fl.errors import RunError, StorageError
from e2fl.files import write_text
from e2fl.reproduce.collecting import RECORD, Origin, place
from e2fl.reproduce.ledger import Entry, Json, read_entry
from e2fl.reproduce.preparation import Preparations
from e2fl.reproduce.studies import PlannedRun
from e2fl.runs import checkpoint
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
    reached: int  # the last evaluated round, or that of the checkpoint to resume from; 0: the run starts anew
    prepared: bool = False  # there is a checkpoint after the preparation, if the method has one


@dataclass(frozen=True)
class Pace:
    """The speed of a method, measured on its first rounds."""

    seconds: float  # of a round, not evaluated if there was such a round
    last: int  # the last round; some methods need fewer than requested
    preparation: float = 0.0  # seconds before the first round


def missing(wanted: Sequence[PlannedRun], entries: Sequence[Entry]) -> list[MissingRun]:
    """Return the runs whose last round no entry has evaluated."""
    found = []
    for run in wanted:
        own = [entry for entry in entries if (entry.settings, entry.seed) == (run.settings, run.seed)]
        if not any(_complete(entry, run.experiment.rounds) for entry in own):
            on_the_way = [entry.rounds for entry in own if entry.rounds <= run.experiment.rounds]
            found.append(MissingRun(run, max(on_the_way, default=0)))
    return found


def resumable(todo: Sequence[MissingRun], out: Path) -> list[MissingRun]:
    """Return these runs, each with the round of the checkpoint in its folder that it is resumed from."""
    found = []
    for item in todo:
        newest = _newest_checkpoint(item.wanted, out)
        found.append(replace(item, reached=max(0, newest), prepared=newest >= 0))
    return found


def _newest_checkpoint(wanted: PlannedRun, out: Path) -> int:
    """Return the round of the newest checkpoint to resume from; -1 if there is none."""
    try:
        numbers = checkpoint.rounds(Folder(folder_of(wanted, out)).checkpoints)
    except RunError:  # reported when the run is about to start
        return -1
    return max((number for number in numbers if number < wanted.experiment.rounds), default=-1)


def folder_of(wanted: PlannedRun, out: Path) -> Path:
    """Return the folder of a run; one of its own if a run there has passed the last round, or cannot be continued."""
    rounds = wanted.experiment.rounds
    folder = out / place(Entry(wanted.experiment.to_dict(), ()))
    if not (folder / "config.toml").is_file():
        return folder
    known = read_entry(folder)
    if known.settings != wanted.settings:
        raise RunError(f"{folder} was run with other settings, by another version; choose another folder with --out")
    asked, summary = int(known.config["rounds"]), known.summary or {}
    passed = max([known.rounds, *checkpoint.rounds(Folder(folder).checkpoints)]) > rounds
    ended = known.finished and (known.rounds > asked or summary.get("client_models") == "dropped")
    return folder.with_name(f"{folder.name}-rounds-{rounds}") if asked != rounds and (passed or ended) else folder


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
        self.rounds = 0
        self.end_round = 0
        self.times: dict[bool, float] = {}  # seconds of the latest round, by whether it was evaluated
        self.preparation = 0.0  # seconds

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        path = self.folder / RECORD
        if not path.is_file():  # a resumed run keeps the record of its first rounds
            record: Json = {"commit": self.origin.commit, "machine": self.origin.machine, "version": __version__}
            write_text(path, json.dumps(record, indent=1) + "\n")
        self.end_round = last
        self.last = time.monotonic()

    def advance(self, number: int, measured: Json | None) -> None:
        now = time.monotonic()
        if number > 0:
            self.rounds += 1
            self.times[measured is not None] = now - self.last
        else:
            self.preparation = now - self.last
        self.last = now

    def pause(self, number: int) -> None:
        # The last round is never interrupted, because the run ends with it anyway.
        if (self.last >= self.deadline or self.rounds >= self.stop_after) and number < self.end_round:
            raise BudgetSpent

    @property
    def pace(self) -> Pace:
        return Pace(self.times.get(False, self.times.get(True, 0.0)), self.end_round, self.preparation)


class Runner:
    """A runner into folders with the layout of the ledger."""

    def __init__(self, out: Path, origin: Origin, *, budget: float | None, tell: Tell, watcher: Watcher | None = None):
        self.out, self.origin, self.tell = out, origin, tell
        self.watcher = watcher or Watcher()
        self.deadline = math.inf if budget is None else time.monotonic() + 60 * budget
        self.data = LastData()
        self.preparations = Preparations(out, (), tell)
        self.finished: set[str] = set()  # fingerprints of experiments
        self.failed: dict[str, str] = {}  # by fingerprint: what is wrong
        self.kept: set[Path] = set()  # folders whose evaluate_every was kept

    def run(self, todo: Sequence[MissingRun]) -> bool:
        """Run all of these, each method's first rounds first to time it. Return whether everything was reached."""
        self.preparations = Preparations(self.out, [item.wanted.experiment for item in todo], self.tell)
        self.failed = {}
        stopped = False
        try:
            paces = self.measure(todo)
            ended = self.finished | self.failed.keys()
            left = [item for item in todo if item.wanted.experiment.fingerprint() not in ended]
            if left:
                self.tell(estimate(resumable(left, self.out), paces))
            for item in left:
                self._try(item.wanted, math.inf)
        except BudgetSpent:
            self.tell("stopped at the budget; the same command resumes from here")
            stopped = True
        for text in self.failed.values():
            self.tell(f"not run: {text}")
        return not stopped and not self.failed

    def measure(self, todo: Sequence[MissingRun]) -> dict[str, Pace]:
        """Return the pace of each method, timed on the first rounds of its first missing run, which are kept."""
        paces: dict[str, Pace] = {}
        for item in todo:
            if item.wanted.label not in paces:
                pace = self._try(item.wanted, 2)
                if pace is not None:
                    paces[item.wanted.label] = pace
        return paces

    def _try(self, wanted: PlannedRun, stop_after: float) -> Pace | None:
        """Start or resume a run, and return its pace; None if it cannot be run, which does not stop the others."""
        try:
            return self._one(wanted, stop_after)
        except StorageError:  # no other run could be stored either
            raise
        except RunError as error:
            self.failed[wanted.experiment.fingerprint()] = f"{wanted.label}, seed {wanted.seed}: {error}"
            return None

    def _one(self, wanted: PlannedRun, stop_after: float) -> Pace:
        """Start or resume a run, and return its pace. Raise `BudgetSpent` only at the deadline."""
        if time.monotonic() >= self.deadline:
            raise BudgetSpent
        experiment = wanted.experiment
        folder = folder_of(wanted, self.out)
        clock = _Clock(folder, self.origin, self.deadline, stop_after)
        begun = (folder / "config.toml").is_file()
        if begun:
            self._require_same_machine(folder)
            experiment = self._as_begun(experiment, folder)
        data, watcher = self.data(experiment), Watchers(clock, self.watcher)
        federate = self.preparations.federate(experiment, data, watcher)
        try:
            run_experiment(experiment, out=folder, resume=begun, data=data, watcher=watcher, federate=federate)
            self.finished.add(wanted.experiment.fingerprint())
        except BudgetSpent:
            if time.monotonic() >= self.deadline:
                raise
        return clock.pace

    def _require_same_machine(self, folder: Path) -> None:
        """Raise an error if the run was begun on another kind of machine: the last bits of its rounds may differ."""
        before = read_entry(folder).record.get("machine", {}).get("instructions")
        here = self.origin.machine.get("instructions")
        if before is not None and before != here:
            raise RunError(
                f"{folder} was begun on another kind of machine ({before}, here {here}), where results may differ in "
                "their last bits; continue it there, or run it here in another folder with --out"
            )

    def _as_begun(self, experiment: Experiment, folder: Path) -> Experiment:
        """Return the experiment with the evaluations of the run in this folder, which another study may have begun."""
        every = Folder(folder).read_experiment().evaluate_every
        if every != experiment.evaluate_every and folder not in self.kept:
            self.kept.add(folder)
            self.tell(f"{folder} keeps evaluate_every={every}, as it was begun, not {experiment.evaluate_every}")
        return replace(experiment, evaluate_every=every)


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
        if method not in paces:
            continue
        pace = paces[method]
        rounds = sum(max(0, pace.last - item.reached) for item in items)
        new = sum(not (item.reached or item.prepared) for item in items)
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
