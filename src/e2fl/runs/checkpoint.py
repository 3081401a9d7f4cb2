"""Checkpoints: a round of a run in one file, and when a run may resume from it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2fl import codec
from e2fl.config.experiment import Experiment
from e2fl.data.federated import ClientId
from e2fl.errors import reason_of
from e2fl.runs.measure import Totals
from e2fl.runs.records import Json
from e2fl.simulation.client_memory import versions

KEPT = 2  # checkpoints on disk: a spare one in case the newest is damaged


@dataclass(frozen=True)
class Checkpoint:
    """A saved round: its number, the state after it, and the other data of the run."""

    round_number: int
    state: Any
    identity: str = ""  # of the experiment and its data
    ever_answered: bool = False
    totals: Totals = field(default_factory=Totals)
    # The round in which each client wrote its memory last.
    memories: Mapping[ClientId, int] = field(default_factory=dict)


def identity_of(experiment: Experiment, about: Mapping[str, object]) -> str:
    """Return what is the same for all checkpoints of a run. about: its data, as it says itself."""
    return f"{experiment.identity()} {about.get('sha256', '')}"  # of a user's own table


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint next to the older ones, then delete all but the newest few."""
    codec.save(folder / f"round-{checkpoint.round_number:07d}.safetensors", checkpoint)
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
    problem: Callable[[Checkpoint], str] = lambda checkpoint: "",
    below: int | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> Checkpoint | None:
    """Return the newest checkpoint that is whole and usable; `warn` is told of each that is not.

    kind: the class of its state. problem: why a checkpoint must not be used; empty if it may.
    below: only checkpoints of earlier rounds.
    """
    for number, path in _files(folder).items():
        if below is not None and number >= below:
            continue
        try:
            found: Checkpoint = codec.load(path, Checkpoint, state=kind)
        except Exception as error:  # any damage is reported in the same way
            reason = f"is damaged or of another kind ({reason_of(error)})"
        else:
            reason = problem(found)
            if not reason:
                return found
        warn(f"checkpoint {path.stem} {reason}")
    return None


def rounds(folder: Path) -> list[int]:
    """Return the rounds of all checkpoints, usable or not, newest first."""
    return list(_files(folder))


def _files(folder: Path) -> dict[int, Path]:
    """Return the file of each round, newest first."""
    paths = sorted(folder.glob("round-???????.safetensors"), reverse=True)
    return {int(path.stem.removeprefix("round-")): path for path in paths}


def problem_of(
    checkpoint: Checkpoint, identity: str, history: Sequence[Json], memories: Path
) -> str:
    """Return why a checkpoint does not fit the run and its other files; empty if it does."""
    if checkpoint.identity != identity:
        return (
            "belongs to another experiment or version of e2fl, or its data file has changed since"
        )
    lines = checkpoint.totals.lines
    known = [line["round"] for line in history[:lines]]
    if len(known) < lines or max(known, default=-1) > checkpoint.round_number:
        return "does not match history.jsonl, which was damaged or edited since"
    stored, needed = versions(memories), checkpoint.memories.items()
    gone = [client for client, number in needed if number not in stored.get(client, ())]
    if gone:
        return (
            f"needs models that clients kept and that are gone (of {len(gone)} clients); a run "
            "made with --keep-client-models keeps them"
        )
    return ""
