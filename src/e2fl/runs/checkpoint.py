"""Checkpoints: the state after a round in one file, and when a run may resume from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2fl import codec
from e2fl.config.experiment import Experiment
from e2fl.data.federated import ClientId
from e2fl.errors import RunError, reason_of
from e2fl.runs.measure import Totals
from e2fl.runs.records import Json
from e2fl.runs.store import Folder
from e2fl.simulation.client_memory import versions

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


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint next to the older ones, then delete all but the newest few."""
    codec.save(folder / f"{checkpoint.name}.safetensors", checkpoint)
    keep_newest(folder, KEPT)


def keep_newest(folder: Path, count: int) -> None:
    """Delete all checkpoints but the newest ones."""
    for old in list(_files(folder).values())[count:]:
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
    for number, path in _files(folder).items():
        if below is not None and number >= below:
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
        reason = reason_of(error)
        raise RunError(
            f"checkpoint {path.stem} is damaged or of another kind ({reason})"
        ) from error


def rounds(folder: Path) -> list[int]:
    """Return the rounds of all checkpoints, usable or not, newest first."""
    return list(_files(folder))


def _files(folder: Path) -> dict[int, Path]:
    """Return the file of each round, newest first."""
    paths = sorted(folder.glob("round-???????.safetensors"), reverse=True)
    return {int(path.stem.removeprefix("round-")): path for path in paths}


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


def require_more_rounds(
    folder: Folder, last_of: Callable[[int], int], before: int, asked: int
) -> None:
    """Raise `RunError` unless a finished run of `before` rounds can continue to `asked`.

    last_of: returns the last round of a run for a setting of `rounds`.
    """
    reason = ""
    if asked < before:
        reason = f"it is finished with {before} rounds, and {asked} are fewer"
    elif last_of(asked) == last_of(before):
        reason = f"it runs {last_of(asked)} rounds for any setting, so there is nothing to add"
    elif last_of(before) != before:
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


def count_lines(history: list[Json], round_number: int, unevaluated: Totals | None) -> int:
    """Return how many lines of history a checkpoint of this round needs.

    The line of a last round that is evaluated only for being the last is dropped if the run
    continues.
    """
    last = round_number if unevaluated is None else round_number - 1
    return sum(line["round"] <= last for line in history)


def require_usable(
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
    memories = progress.memories.items()
    missing = [client for client, number in memories if number not in stored.get(client, ())]
    if missing:
        raise RunError(
            f"checkpoint {checkpoint.name} needs models that clients kept and that are gone: of "
            f"{len(missing)} clients, such as client {missing[0]}"
        )
