"""The conditions for resuming a run: the same experiment, a complete checkpoint, fitting files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from e2fl.config.experiment import Experiment
from e2fl.data.federated import ClientId
from e2fl.errors import RunError
from e2fl.rounds import Round
from e2fl.runs import checkpoint
from e2fl.runs.checkpoint import Checkpoint
from e2fl.runs.measure import Totals
from e2fl.runs.records import Json
from e2fl.runs.store import Folder
from e2fl.simulation.client_memory import newest_versions, versions

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Progress:
    """What a checkpoint holds besides the state."""

    identity: str  # of the experiment
    ever_answered: bool
    seconds: float
    totals: Totals
    lines: int  # of the history, up to this round or, if it is to be dropped, the one before
    memories: Mapping[ClientId, int]  # the round in which each client wrote its memory last
    data: str | None = None  # the digest of the file that a user's own data is in
    unevaluated: Totals | None = None  # of a last round that is evaluated only for being the last


@dataclass(frozen=True)
class Restored:
    """A run as it was when its checkpoint was written."""

    round: Round
    totals: Totals
    history: list[Json]
    times: dict[int, float]
    seconds: float


@dataclass(frozen=True)
class Schedule:
    """The rounds of a run: the first, the last, and the last for another number of rounds."""

    first: int
    last: int
    last_of: Callable[[int], int]
    label: str


def require_same(folder: Folder, stored: Experiment, experiment: Experiment) -> None:
    """Raise `RunError` if anything that changes results differs, except the number of rounds."""
    before, now = stored.compared(), experiment.compared()
    names = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
    if names:
        differences = ", ".join(
            f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in sorted(names)
        )
        raise RunError(
            f"{folder.path} was run with another configuration: {differences}; use the same "
            "configuration, or choose another folder with --out"
        )


def require_more_rounds(folder: Folder, schedule: Schedule, before: int, asked: int) -> None:
    """Raise `RunError` unless a finished run of `before` rounds can continue to `asked`."""
    if asked < before:
        raise RunError(
            f"{folder.path} is finished with {before} rounds; fewer ({asked}) need a new run: "
            "pass --out"
        )
    if schedule.last_of(asked) == schedule.last_of(before):
        raise RunError(
            f"{schedule.label} runs {schedule.last} rounds for any setting of rounds; "
            f"{folder.path} has nothing to add"
        )
    if schedule.last_of(before) != before:
        raise RunError(
            f"{folder.path} cannot be continued: the last round of {schedule.label} depends on the "
            "total number of rounds; start a new run with --out"
        )


def restore(
    folder: Folder,
    schedule: Schedule,
    state: type[Any],
    stored: Experiment,
    data: str | None,
    warn: Warn,
) -> Restored | None:
    """Return the last good checkpoint of a run; None if it starts again and nothing is lost.

    state: the class of its states; stored: the configuration in the folder; data: the digest of
    the file that a user's own data is in.
    """
    folder.clean()
    finished, history = folder.finished(), folder.read_history()
    found = checkpoint.latest(
        folder.checkpoints,
        state,
        Progress,
        require=lambda found: None if finished else require_usable(folder, found, stored, history),
        below=schedule.last,
        warn=warn,
    )
    if finished:
        _require_continuable(folder, schedule, found, stored, history)
    begun = found is not None and found.round_number >= schedule.first
    if not begun:
        _require_nothing_to_lose(folder, schedule, found, history)
    if found is None or not (begun or history):
        return None
    progress: Progress = found.extra
    if progress.data != data:
        raise RunError(
            f"{folder.path} was started with other data: the file has changed since; restore the "
            "file, or start a new run in another folder with --out"
        )
    if not begun:
        return None
    last, totals = found.round_number, progress.totals
    if progress.unevaluated is not None:  # the last round of a run that now has more
        last, totals = last - 1, progress.unevaluated
    return Restored(
        Round(found.round_number, found.state, progress.ever_answered),
        totals,
        [line for line in history if line["round"] <= last],
        {number: seconds for number, seconds in folder.read_times().items() if number <= last},
        progress.seconds,
    )


def require_usable(
    folder: Folder, found: Checkpoint, experiment: Experiment, history: list[Json]
) -> None:
    """Raise `RunError` unless a checkpoint belongs to this experiment and fits the other files."""
    name = f"checkpoint round-{found.round_number:07d}"
    require_identity(found, experiment)
    if count_lines(history, found.round_number, found.extra.unevaluated) != found.extra.lines:
        raise RunError(f"{name} does not match history.jsonl, which was damaged or edited since")
    missing = missing_memories(folder, found)
    if missing:
        raise RunError(
            f"{name} needs models that clients kept and that are gone: of {len(missing)} clients, "
            f"such as client {missing[0]}"
        )


def count_lines(history: list[Json], round_number: int, unevaluated: Totals | None) -> int:
    """Return how many lines of history a checkpoint of this round needs.

    The line of a last round that is evaluated only for being the last is dropped if the run
    continues.
    """
    last = round_number if unevaluated is None else round_number - 1
    return sum(line["round"] <= last for line in history)


def require_identity(found: Checkpoint, experiment: Experiment) -> None:
    """Raise `RunError` unless a checkpoint belongs to this experiment."""
    if found.extra.identity != experiment.identity():
        raise RunError(
            f"checkpoint round-{found.round_number:07d} belongs to another experiment, or to "
            "another version of e2fl"
        )


def missing_memories(folder: Folder, found: Checkpoint) -> list[ClientId]:
    """Return the clients whose memory a checkpoint needs and that is missing."""
    stored = versions(folder.memories)
    needed: Mapping[ClientId, int] = found.extra.memories
    return [client for client, number in needed.items() if number not in stored.get(client, ())]


def memories_of(folder: Folder, round_number: int) -> dict[ClientId, int]:
    """Return the round in which each client of a run wrote its memory last, as of this round."""
    return newest_versions(folder.memories, round_number)


def _require_nothing_to_lose(
    folder: Folder, schedule: Schedule, start: Checkpoint | None, history: list[Json]
) -> None:
    """Raise `RunError` if rounds were recorded that would not be repeated as they were.

    start: the checkpoint from before the first round, which shows that the same rounds run again.
    Those after it are missing if the process was killed early. That of the last round is never
    used: a round must be left to repeat.
    """
    refused = [
        number
        for number in checkpoint.rounds(folder.checkpoints)
        if schedule.first <= number != schedule.last
    ]
    if refused or (start is None and history):
        raise RunError(
            f"{folder.path} cannot be resumed: it has recorded rounds but no checkpoint that can "
            "be used, and starting again would erase them; start a new run in another folder with "
            "--out, or resume with the version of e2fl that made it"
        )


def _require_continuable(
    folder: Folder,
    schedule: Schedule,
    found: Checkpoint | None,
    stored: Experiment,
    history: list[Json],
) -> None:
    """Raise `RunError` unless a finished run can continue, so that no results are lost."""
    if found is None or found.round_number != schedule.last_of(stored.rounds):
        raise RunError(
            f"{folder.path} cannot be continued: its last checkpoint is gone or damaged; start a "
            "new run"
        )
    if missing_memories(folder, found):
        raise RunError(
            f"{folder.path} cannot be continued: the models that its clients keep were dropped "
            "when it finished; repeat it with --keep-client-models"
        )
    require_usable(folder, found, stored, history)
