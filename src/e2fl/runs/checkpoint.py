"""Checkpoints: one file each with the state after a round, written atomically, with a digest."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2fl import codec
from e2fl.errors import RunError

KEPT = 2  # checkpoints on disk: a spare one in case the newest is damaged


@dataclass(frozen=True)
class Checkpoint:
    """A saved round: its number, the state after it, and the other data of the run."""

    round_number: int
    state: Any
    extra: Any = None


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint next to the older ones, then delete all but the newest few."""
    codec.save(folder / f"round-{checkpoint.round_number:07d}.safetensors", checkpoint)
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
    warn: Callable[[str], None] = lambda message: None,
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
    """Return complete checkpoints, newest first."""
    return sorted(folder.glob("round-???????.safetensors"), reverse=True)
