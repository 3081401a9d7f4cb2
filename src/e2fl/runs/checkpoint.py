"""Checkpoints: a round of a run in one file, and when a run may resume from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True)
class Checkpoint:
    """A saved round: its number, the state after it, and the other data of the run."""

    round_number: int
    state: Any
    identity: str = ""  # of the experiment
    ever_answered: bool = False
    totals: Totals = field(default_factory=Totals)
    # The round in which each client wrote its memory last.
    memories: Mapping[ClientId, int] = field(default_factory=dict)
    data: str | None = None  # the digest of the file that a user's own data is in

    @property
    def name(self) -> str:
        """The name of its file, without the suffix."""
        return f"round-{self.round_number:07d}"


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint next to the older ones, then delete all but the newest few."""
    codec.save(folder / f"{checkpoint.name}.safetensors", checkpoint)
    keep_newest(folder, KEPT)


def keep_newest(folder: Path, count: int) -> None:
    """Delete all checkpoints but the newest ones."""
    for old in list(_files(folder).values())[count:]:
        old.unlink(missing_ok=True)


def drop_after(folder: Path, number: int) -> None:
    """Delete the checkpoints of later rounds, which a run that goes back will write again."""
    for later, path in _files(folder).items():
        if later > number:
            path.unlink(missing_ok=True)


def latest(
    folder: Path,
    kind: type[Any],
    *,
    require: Callable[[Checkpoint], None] = lambda checkpoint: None,
    below: int | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> Checkpoint | None:
    """Return the newest checkpoint that is complete and usable; `warn` names each that is not.

    kind: the class of its state. require: raises `RunError` for a checkpoint that must not be used.
    below: only checkpoints of earlier rounds.
    """
    for number, path in _files(folder).items():
        if below is not None and number >= below:
            continue
        try:
            checkpoint = load(path, kind)
            require(checkpoint)
        except RunError as error:
            warn(str(error))
        else:
            return checkpoint
    return None


def load(path: Path, kind: type[Any]) -> Checkpoint:
    """Return one checkpoint, or raise `RunError`. kind: the class of its state."""
    try:
        arrays, stored = codec.load_json(path)
        state = codec.decode(stored.pop("state"), kind, arrays)
        checkpoint: Checkpoint = codec.decode(stored | {"state": None}, Checkpoint)
        return replace(checkpoint, state=state)
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


def require_identity(checkpoint: Checkpoint, experiment: Experiment) -> None:
    """Raise `RunError` unless a checkpoint belongs to this experiment."""
    if checkpoint.identity != experiment.identity():
        raise RunError(
            f"checkpoint {checkpoint.name} belongs to another experiment, or to another version "
            "of e2fl"
        )


def require_usable(
    checkpoint: Checkpoint,
    experiment: Experiment,
    folder: Folder,
    history: list[Json],
    data: str | None,
) -> None:
    """Raise `RunError` unless a checkpoint fits the experiment, its data and the other files."""
    require_identity(checkpoint, experiment)
    if checkpoint.data != data:
        raise RunError(
            f"checkpoint {checkpoint.name} was made with other data: the file has changed since"
        )
    known = [line["round"] for line in history[: checkpoint.totals.lines]]
    if len(known) < checkpoint.totals.lines or max(known, default=-1) > checkpoint.round_number:
        raise RunError(
            f"checkpoint {checkpoint.name} does not match history.jsonl, which was damaged or "
            "edited since"
        )
    stored, memories = versions(folder.memories), checkpoint.memories.items()
    missing = [client for client, number in memories if number not in stored.get(client, ())]
    if missing:
        raise RunError(
            f"checkpoint {checkpoint.name} needs models that clients kept and that are gone (of "
            f"{len(missing)} clients); a run made with --keep-client-models keeps them"
        )
