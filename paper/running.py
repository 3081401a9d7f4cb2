"""The missing runs of a study: listing, timing, starting or resuming them, up to a time budget."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from e2fl.config.completion import completed
from e2fl.config.experiment import Experiment
from e2fl.errors import E2flError, RunError
from e2fl.files import write_text
from e2fl.runs import checkpoint
from e2fl.runs.batch import BudgetSpentError, SharedData, Task, run_all
from e2fl.runs.progress import duration
from e2fl.runs.store import Folder
from e2fl.runs.watcher import Watcher, Watchers
from paper.collecting import ORIGIN, Origin, place, read_origin
from paper.ledger import Identity, Json
from paper.preparation import Preparations
from paper.recipes import overrides_of
from paper.studies import Missing, Planned

Tell = Callable[[str], None]
TIMED = 2  # rounds of each method that are timed before its pace is told


@dataclass(frozen=True)
class Pace:
    """The speed of a method, measured on its first rounds."""

    seconds: float  # of a round, not evaluated if there was such a round
    last: int  # the last round; some methods need fewer than requested
    preparation: float = 0.0  # seconds before the first round


def resumable(todo: Sequence[Missing], out: Path) -> list[Missing]:
    """Return these runs, each with the round of the checkpoint that it is resumed from."""
    found = []
    for item in todo:
        newest = _newest_checkpoint(item.planned, out)
        found.append(replace(item, reached=max(0, newest), prepared=newest >= 0))
    return found


def _newest_checkpoint(planned: Planned, out: Path) -> int:
    """Return the round of the newest checkpoint to resume from; -1 if there is none."""
    try:
        numbers = checkpoint.rounds(Folder(folder_of(planned, out)).checkpoints)
    except RunError:  # reported when the run is about to start
        return -1
    return max((number for number in numbers if number < planned.rounds), default=-1)


def folder_of(planned: Planned, out: Path) -> Path:
    """Return the folder of a run.

    It is one of its own if a run there has passed the last round, or cannot be continued.
    """
    folder, rounds = out / place(planned), planned.rounds
    files = Folder(folder)
    if not (folder / "config.toml").is_file():
        return folder
    stored = files.read_experiment()
    if not _same(stored, planned):
        raise RunError(
            f"{folder} was run with other settings, by another version; "
            "choose another folder with --out"
        )
    reached = max((line["round"] for line in files.read_history()), default=0)
    passed = max([reached, *checkpoint.rounds(files.checkpoints)]) > rounds
    summary = files.read_summary() if files.finished() else {}
    over = bool(summary) and reached > stored.rounds
    ended = over or summary.get("client_models") == "dropped"
    if stored.rounds != rounds and (passed or ended):
        return folder.with_name(f"{folder.name}-rounds-{rounds}")
    return folder


def _same(stored: Experiment, planned: Planned) -> bool:
    """Return whether a stored experiment is that of a planned run."""
    try:
        overrides = overrides_of(stored, planned.experiment, planned.method)
    except E2flError:  # of another version
        return False
    return (overrides, stored.seed) == (planned.overrides, planned.seed)


class _Recorder(Watcher):
    """A watcher that times rounds, stores the origin of a run, and may stop it early."""

    def __init__(self, folders: Mapping[str, Path], origin: Origin):
        self.folders, self.origin = folders, origin  # folders: by `_key`
        self.stop_after = math.inf
        self.start()

    def start(self) -> None:
        """Forget the run before."""
        self.last = time.monotonic()
        self.rounds = 0
        self.end_round = 0
        self.times: dict[bool, float] = {}  # seconds of the latest round, by whether evaluated
        self.preparation = 0.0  # seconds

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        path = self.folders[_key(experiment)] / ORIGIN
        if not path.is_file():  # a resumed run keeps the origin of its first rounds
            write_text(path, json.dumps(self.origin.to_json(), indent=1) + "\n")
        self.start()
        self.end_round = last

    def advance(self, number: int, measured: Json | None) -> None:
        now = time.monotonic()
        if number > 0:
            self.rounds += 1
            self.times[measured is not None] = now - self.last
        else:
            self.preparation = now - self.last
        self.last = now

    def pause(self, number: int) -> None:
        if self.rounds >= self.stop_after and number < self.end_round:
            raise BudgetSpentError("the pace is measured")

    @property
    def pace(self) -> Pace:
        seconds = self.times.get(False, self.times.get(True, 0.0))
        return Pace(seconds, self.end_round, self.preparation)


class Runner:
    """A runner of missing runs into folders of their own, up to a budget of minutes."""

    def __init__(
        self,
        out: Path,
        experiments: Mapping[Identity, Experiment],
        origin: Origin,
        *,
        budget: float | None,
        tell: Tell,
        watcher: Watcher | None = None,
    ):
        self.out, self.experiments, self.origin, self.tell = out, experiments, origin, tell
        self.watcher = watcher or Watcher()
        self.deadline = math.inf if budget is None else time.monotonic() + 60 * budget
        self.data = SharedData()
        self.failed: dict[Identity, str] = {}  # what is wrong

    def run(self, todo: Sequence[Missing]) -> bool:
        """Run all of these, first rounds first to time them. Return whether all were reached."""
        tasks = self._tasks(todo)
        sharing = Preparations(self.out, [task.experiment for task in tasks.values()], self.tell)
        folders = {
            _key(completed(task.experiment)): task.folder for task in tasks.values() if task.folder
        }
        recorder = _Recorder(folders, self.origin)
        watcher = Watchers(recorder, self.watcher)

        def run_some(identities: Sequence[Identity]) -> list[Identity]:
            """Run these; return the finished ones."""
            chosen = {tasks[identity]: identity for identity in identities}
            budget = None if self.deadline == math.inf else self.deadline - time.monotonic()
            batch = run_all(
                list(chosen),
                budget=budget,
                data=self.data,
                watcher=watcher,
                federate=sharing.federate,
            )
            for task, error in batch.failed.items():
                self.failed[chosen[task]] = str(error)
            return [chosen[task] for task in batch.runs]

        recorder.stop_after = TIMED
        paces, finished = {}, set()
        for label, items in _by_method(todo).items():
            first = items[0].planned.identity
            if first in tasks and time.monotonic() < self.deadline:
                recorder.start()
                finished.update(run_some([first]))
                paces[label] = recorder.pace
        recorder.stop_after = math.inf
        ended = finished | self.failed.keys()
        left = [item for item in todo if item.planned.identity not in ended]
        if left and time.monotonic() < self.deadline:
            self.tell(estimate(resumable(left, self.out), paces))
            finished.update(run_some([item.planned.identity for item in left]))
        return self._told(todo, finished)

    def _tasks(self, todo: Sequence[Missing]) -> dict[Identity, Task]:
        """Return the runs that can be started or resumed; the others fail."""
        tasks = {}
        for planned in (item.planned for item in todo):
            experiment = self.experiments[planned.identity]
            try:
                folder = folder_of(planned, self.out)
                if (folder / "config.toml").is_file():
                    self._require_made_alike(folder)
                    experiment = self._as_begun(experiment, folder)
                tasks[planned.identity] = Task(experiment, folder)
            except RunError as error:
                self.failed[planned.identity] = str(error)
        return tasks

    def _told(self, todo: Sequence[Missing], finished: set[Identity]) -> bool:
        """Name the runs that failed; return whether all runs were reached."""
        for planned in (item.planned for item in todo):
            if planned.identity in self.failed:
                reason = self.failed[planned.identity]
                self.tell(f"not run: {planned.label}, seed {planned.seed}: {reason}")
        if len(finished) + len(self.failed) < len(todo):
            self.tell("stopped at the budget; the same command resumes from here")
        return len(finished) == len(todo)

    def _require_made_alike(self, folder: Path) -> None:
        """Raise an error if a run was begun on another kind of machine, or with another engine."""
        begun, here = read_origin(folder), self.origin.to_json()
        for name, before, now in (
            ("kind of machine", _instructions(begun), _instructions(here)),
            ("engine", begun.get("engine"), here["engine"]),
        ):
            if before is not None and before != now:
                raise RunError(
                    f"{folder} was begun on another {name} ({before}, here {now}), where results "
                    "may differ in their last bits; continue it there, or run it here in another "
                    "folder with --out"
                )

    def _as_begun(self, experiment: Experiment, folder: Path) -> Experiment:
        """Return the experiment with the evaluations of the run in this folder."""
        every = Folder(folder).read_experiment().evaluate_every
        if every != experiment.evaluate_every:
            asked = experiment.evaluate_every
            self.tell(f"{folder} keeps evaluate_every={every}, as it was begun, not {asked}")
        return replace(experiment, evaluate_every=every)


def _instructions(origin: Json) -> str | None:
    return (origin.get("machine") or {}).get("instructions")


def _key(experiment: Experiment) -> str:
    return f"{experiment.identity()} {experiment.rounds}"


def listing(todo: Sequence[Missing]) -> str:
    """Return what will be run, a line for each method."""
    lines = []
    for method, items in _by_method(todo).items():
        seeds = ", ".join(str(item.planned.seed) for item in items)
        ends = sorted({item.planned.rounds for item in items})
        resumed = [
            f"seed {item.planned.seed} from round {item.reached}" for item in items if item.reached
        ]
        text = f"  {method}: seeds {seeds}, to round {' or '.join(map(str, ends))}"
        lines.append(text + (f" (resumed: {', '.join(resumed)})" if resumed else ""))
    return "\n".join(lines)


def estimate(todo: Sequence[Missing], paces: Mapping[str, Pace]) -> str:
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
        first = f"preparation of {pace.preparation:.0f} s for {new} runs, "
        text = f"{rounds} rounds of {pace.seconds:.2f} s, about {duration(together)}"
        lines.append(f"  {method}: {first if pace.preparation else ''}{text}")
    lines.append(f"together about {duration(whole)} on this machine, evaluations not counted")
    return "\n".join(lines)


def _by_method(todo: Sequence[Missing]) -> dict[str, list[Missing]]:
    found: dict[str, list[Missing]] = {}
    for item in todo:
        found.setdefault(item.planned.label, []).append(item)
    return found
