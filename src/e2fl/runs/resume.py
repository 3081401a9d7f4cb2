"""The conditions for resuming a run: the same configuration, a complete checkpoint, and files that fit it."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from e2fl.config.completion import completed
from e2fl.config.experiment import UNSAVED, Experiment
from e2fl.errors import RunError
from e2fl.files import sha256, writing
from e2fl.rounds import Round
from e2fl.runs import checkpoint
from e2fl.runs.checkpoint import Checkpoint
from e2fl.runs.folder import Folder
from e2fl.runs.loop import Loop
from e2fl.runs.records import Json
from e2fl.runs.totals import Totals

_MEMORY = re.compile(r"client-(\d+)-round-(\d+)\.safetensors")


def lineage(experiment: Experiment) -> str:
    """Return a digest that differs between experiments whose rounds differ, whatever their number of rounds."""
    return replace(experiment, rounds=1).fingerprint()


def require_same(folder: Folder, stored: Experiment, experiment: Experiment) -> None:
    """Raise an error if anything but the number of rounds, or a setting without effect on results, differs."""
    before, now = completed(stored).to_dict(), experiment.to_dict()
    ignored = {*UNSAVED, "rounds", "variants"}
    differing = sorted(
        name for name in before.keys() | now.keys() if name not in ignored and before.get(name) != now.get(name)
    )
    if differing:
        told = ", ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in differing)
        raise RunError(
            f"{folder.path} was run with another configuration: {told}; "
            "use the same configuration, or choose another folder with --out"
        )


def require_more_rounds(folder: Folder, loop: Loop, before: int) -> None:
    """Raise an error unless a finished run of `before` rounds can continue: its last round must be a regular one."""
    name, asked = loop.experiment.label, loop.experiment.rounds
    if asked < before:
        raise RunError(f"{folder.path} is finished with {before} rounds; fewer ({asked}) need a new run: pass --out")
    if loop.last_of(asked) == loop.last_of(before):
        raise RunError(f"{name} runs {loop.last} rounds for any setting of rounds; {folder.path} has nothing to add")
    if loop.last_of(before) != before:
        raise RunError(
            f"{folder.path} cannot be continued: the last round of {name} depends on the total number of rounds; "
            "start a new run with --out"
        )


class Requirements:
    """The requirements of a checkpoint to resume from; `RunError` if one is not met."""

    def __init__(self, folder: Folder, experiment: Experiment):
        self.folder, self.experiment = folder, experiment

    def __call__(self, found: Checkpoint) -> None:
        self.same_experiment(found)
        name = f"checkpoint round-{found.round_number:07d}"
        # A last round evaluated only because it was the last leaves a line that a longer run does not have.
        history = found.extra.get("unevaluated", found.extra)["history"]
        if not _begins_with(self.folder.path / "history.jsonl", history):
            raise RunError(f"{name} does not match history.jsonl, which was damaged, truncated or edited since")
        missing = missing_memories(self.folder, found)
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise RunError(f"{name} needs models that clients kept and that are gone: {missing[0]}{more}")

    def same_experiment(self, found: Checkpoint) -> None:
        name = f"checkpoint round-{found.round_number:07d}"
        if found.extra.get("experiment") != lineage(self.experiment):
            raise RunError(f"{name} belongs to another experiment")


@dataclass(frozen=True)
class RestoredRun:
    """A run as it was when its checkpoint was written."""

    round: Round
    totals: Totals
    history: list[Json]
    times: dict[int, float]
    seconds: float


def restore(
    folder: Folder,
    loop: Loop,
    stored: Experiment,
    experiment: Experiment,
    data_file: object,
    warn: Callable[[str], None],
) -> RestoredRun | None:
    """Return the last good checkpoint of a run; None if it starts again from its first round.

    stored: the configuration in the folder; data_file: the digest of the file of a user's own data.
    """
    folder.clean()
    finished = folder.finished()
    found = checkpoint.latest(
        folder.checkpoints,
        loop.state_type,
        require=(lambda found: None) if finished else Requirements(folder, experiment),
        below=loop.last,
        warn=warn,
    )
    if finished:
        _require_continuable(folder, loop, found, stored, experiment)
    elif found is None and checkpoint.any_in(folder.checkpoints):
        warn("no usable checkpoint is left; the run starts again from its first round")
    if found is None:
        return None
    if found.extra["data"] != data_file:
        raise RunError(
            f"{folder.path} was started with other data: the file has changed since; "
            "restore the file, or start a new run in another folder with --out"
        )
    last, extra = found.round_number, dict(found.extra)
    if "unevaluated" in extra:  # the last round of a run that now has more
        last, extra = last - 1, extra | extra["unevaluated"]
    return RestoredRun(
        Round(found.round_number, found.state, bool(extra["ever_answered"])),
        Totals.from_json(extra),
        [line for line in folder.read_history(extra["history"]["bytes"]) if line["round"] <= last],
        {number: seconds for number, seconds in folder.read_times().items() if number <= last},
        float(extra["seconds"]),
    )


def _require_continuable(
    folder: Folder, loop: Loop, found: Checkpoint | None, stored: Experiment, experiment: Experiment
) -> None:
    """Raise an error unless a finished run can continue after its last round, so that no results are lost."""
    path = folder.path
    if found is None or found.round_number != loop.last_of(stored.rounds):
        raise RunError(f"{path} cannot be continued: its last checkpoint is gone or damaged; start a new run")
    if missing_memories(folder, found):
        raise RunError(
            f"{path} cannot be continued: the models that its clients keep were dropped when it finished; "
            "repeat it with --keep-client-models"
        )
    Requirements(folder, experiment)(found)


def missing_memories(folder: Folder, found: Checkpoint) -> list[str]:
    """Return the files of client models that a checkpoint needs and that are missing."""
    return [name for name in found.extra["memories"] if not (folder.memories / name).is_file()]


def memories_of(folder: Folder, number: int) -> list[str]:
    """Return the files with the model that each client kept last, as of this round."""
    newest: dict[int, int] = {}
    for path in folder.memories.iterdir() if folder.memories.is_dir() else ():
        match = _MEMORY.fullmatch(path.name)
        if match and int(match[2]) <= number:
            newest[int(match[1])] = max(int(match[2]), newest.get(int(match[1]), -1))
    return [f"client-{client}-round-{round_}.safetensors" for client, round_ in sorted(newest.items())]


def digest_of_history(folder: Folder, *, without_last: bool = False) -> Mapping[str, Any]:
    """Return length and digest of the history so far, which is flushed to disk; or of all its lines but the last."""
    path = folder.path / "history.jsonl"
    with writing(path), path.open("rb+") as file:
        os.fsync(file.fileno())
        raw = file.read()
    if without_last:
        raw = b"".join(raw.splitlines(keepends=True)[:-1])
    return {"bytes": len(raw), "sha256": sha256(raw)}


def _begins_with(path: Path, history: Mapping[str, Any]) -> bool:
    try:
        raw = path.read_bytes()[: int(history["bytes"])]
    except OSError:
        return False
    return {"bytes": len(raw), "sha256": sha256(raw)} == dict(history)
