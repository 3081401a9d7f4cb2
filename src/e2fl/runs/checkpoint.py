"""Checkpoints: the state after a round in one file, and when a run may resume from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from e2fl import codec
from e2fl.config.experiment import Experiment
from e2fl.data.federated import ClientId
from e2fl.errors import RunError
from e2fl.rounds import Round
from e2fl.runs.measure import Totals
from e2fl.runs.records import Json
from e2fl.runs.store import Folder
from e2fl.simulation.client_memory import newest_versions, versions

KEPT = 2  # checkpoints on disk: a spare one in case the newest is damaged

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Checkpoint:
    """A saved round: its number, the state after it, and the other data of the run."""

    round_number: int
    state: Any
    extra: Any = None

    @property
    def name(self) -> str:
        """The name of its file, without the suffix."""
        return f"round-{self.round_number:07d}"


@dataclass(frozen=True)
class Progress:
    """What the checkpoint of a run holds besides the state."""

    identity: str  # of the experiment
    ever_answered: bool
    seconds: float
    totals: Totals
    lines: int  # of the history, up to this round or, if it is to be dropped, the one before
    memories: Mapping[ClientId, int]  # the round in which each client wrote its memory last
    data: str | None = None  # the digest of the file that a user's own data is in
    unevaluated: Totals | None = None  # of a last round that is evaluated only for being the last


@dataclass(frozen=True)
class Schedule:
    """The rounds of a run: the first, the last, and the last for another setting of `rounds`."""

    first: int
    last: int
    last_of: Callable[[int], int]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint next to the older ones, then delete all but the newest few."""
    codec.save(folder / f"{checkpoint.name}.safetensors", checkpoint)
    keep_newest(folder, KEPT)


def keep_newest(folder: Path, count: int) -> None:
    """Delete all checkpoints but the newest ones."""
    for old in _files(folder)[count:]:
        old.unlink(missing_ok=True)


def latest(
    folder: Path,
    kind: type[Any],
    extra: Any = Any,
    *,
    require: Callable[[Checkpoint], None] = lambda checkpoint: None,
    below: int | None = None,
    warn: Warn = lambda message: None,
) -> Checkpoint | None:
    """Return the newest checkpoint that is complete and usable; `warn` names each that is not.

    kind, extra: the classes of its state and of its other data. require: raises `RunError` for a
    checkpoint that must not be used. below: only checkpoints of earlier rounds.
    """
    for path in _files(folder):
        if below is not None and _round_of(path) >= below:
            continue
        try:
            checkpoint = load(path, kind, extra)
            require(checkpoint)
        except RunError as error:
            warn(f"{error}; trying the one before")
        else:
            return checkpoint
    return None


def load(path: Path, kind: type[Any], extra: Any = Any) -> Checkpoint:
    """Return one checkpoint, or raise `RunError`. kind, extra: as in `latest`."""
    try:
        arrays, stored = codec.load_json(path)
        return Checkpoint(
            int(stored["round_number"]),
            codec.decode(stored["state"], kind, arrays),
            codec.decode(stored.get("extra"), extra, arrays),
        )
    except Exception as error:  # any damage is reported in the same way
        raise RunError(f"checkpoint {path.stem} is damaged or of another kind ({error})") from error


def rounds(folder: Path) -> list[int]:
    """Return the rounds of all checkpoints, usable or not, newest first."""
    return [_round_of(path) for path in _files(folder)]


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("round-???????.safetensors"), reverse=True)


def require_same(folder: Folder, stored: Experiment, experiment: Experiment) -> None:
    """Raise `RunError` if anything that changes results differs, except the number of rounds."""
    before, now = stored.compared(), experiment.compared()
    names = sorted(name for name in before | now if before.get(name) != now.get(name))
    if names:
        changes = [f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in names]
        raise RunError(
            f"{folder.path} was run with another configuration: {', '.join(changes)}; use the same "
            "configuration, or choose another folder with --out"
        )


def require_more_rounds(folder: Folder, schedule: Schedule, before: int, asked: int) -> None:
    """Raise `RunError` unless a finished run of `before` rounds can continue to `asked`."""
    reason = ""
    if asked < before:
        reason = f"it is finished with {before} rounds, and {asked} are fewer"
    elif schedule.last_of(asked) == schedule.last_of(before):
        reason = f"it runs {schedule.last} rounds for any setting, so there is nothing to add"
    elif schedule.last_of(before) != before:
        reason = "its last round depends on the total number of rounds"
    if reason:
        raise RunError(f"{folder.path} cannot be continued: {reason}; start a new run with --out")


def require_identity(checkpoint: Checkpoint, experiment: Experiment) -> None:
    """Raise `RunError` unless a checkpoint belongs to this experiment."""
    if checkpoint.extra.identity != experiment.identity():
        raise RunError(
            f"checkpoint {checkpoint.name} belongs to another experiment, or to another version "
            "of e2fl"
        )


def restore(
    folder: Folder,
    schedule: Schedule,
    state: type[Any],
    stored: Experiment,
    data: str | None,
    warn: Warn,
) -> tuple[Round, Progress, list[Json]] | None:
    """Return the last good round, its progress and history; None if the run starts again.

    state: the class of its states; stored: the configuration in the folder; data: the digest of
    the file that a user's own data is in. Raises `RunError` where recorded rounds would be lost.
    """
    folder.clean()
    history = folder.read_history()
    usable = partial(_require_usable, folder, stored, history)
    place, below = folder.checkpoints, schedule.last
    found = latest(place, state, Progress, require=usable, below=below, warn=warn)
    last = schedule.last_of(stored.rounds)
    if folder.finished() and (found is None or found.round_number != last):
        raise RunError(
            f"{folder.path} cannot be continued: its last checkpoint is damaged, or the models "
            "that its clients keep were dropped; repeat it with --keep-client-models"
        )
    begun = found is not None and found.round_number >= schedule.first
    # That of the last round is never used: a round must be left to repeat.
    refused = [number for number in rounds(place) if schedule.first <= number != schedule.last]
    if not begun and (refused or (found is None and history)):
        raise RunError(
            f"{folder.path} cannot be resumed: it has recorded rounds but no checkpoint that can "
            "be used, and starting again would erase them; start a new run with --out"
        )
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
    done = Round(found.round_number, found.state, progress.ever_answered)
    return done, progress, history[: progress.lines]


def count_lines(history: list[Json], round_number: int, unevaluated: Totals | None) -> int:
    """Return how many lines of history a checkpoint of this round needs.

    The line of a last round that is evaluated only for being the last is dropped if the run
    continues.
    """
    last = round_number if unevaluated is None else round_number - 1
    return sum(line["round"] <= last for line in history)


def memories_of(folder: Folder, round_number: int) -> dict[ClientId, int]:
    """Return the round in which each client of a run wrote its memory last, as of this round."""
    return newest_versions(folder.memories, round_number)


def _require_usable(
    folder: Folder, experiment: Experiment, history: list[Json], checkpoint: Checkpoint
) -> None:
    """Raise `RunError` unless a checkpoint belongs to this experiment and fits the other files."""
    require_identity(checkpoint, experiment)
    progress: Progress = checkpoint.extra
    lines = count_lines(history, checkpoint.round_number, progress.unevaluated)
    if lines != progress.lines:
        raise RunError(
            f"checkpoint {checkpoint.name} does not match history.jsonl, which was damaged or "
            "edited since"
        )
    stored = versions(folder.memories)
    missing = [
        client
        for client, number in progress.memories.items()
        if number not in stored.get(client, ())
    ]
    if missing:
        raise RunError(
            f"checkpoint {checkpoint.name} needs models that clients kept and that are gone: of "
            f"{len(missing)} clients, such as client {missing[0]}"
        )
