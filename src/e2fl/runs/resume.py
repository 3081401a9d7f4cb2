"""The conditions for resuming a run: the same configuration, a complete checkpoint, and files that fit it."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from e2fl.config.completion import completed, with_whole_numbers
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
    return sha256(json.dumps(_compared(experiment), sort_keys=True).encode())


def _compared(experiment: Experiment) -> dict[str, str]:
    """Return the settings that a run must keep when it is resumed, each as text that is the same for 0 and 0.0."""
    ignored = {*UNSAVED, "rounds", "variants"}
    kept = {name: value for name, value in experiment.to_dict().items() if name not in ignored}
    return {name: json.dumps(with_whole_numbers(value), sort_keys=True) for name, value in kept.items()}


def require_same(folder: Folder, stored: Experiment, experiment: Experiment) -> None:
    """Raise an error if anything but the number of rounds, or a setting without effect on results, differs."""
    stored = completed(stored)
    old, new = _compared(stored), _compared(experiment)
    differing = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if differing:
        before, now = stored.to_dict(), experiment.to_dict()
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
        # Checkpoints written before `lineage` left out the variants hold the fingerprint.
        former = replace(self.experiment, rounds=1).fingerprint()
        if found.extra.get("experiment") not in (lineage(self.experiment), former):
            raise RunError(f"{name} belongs to another experiment, or to another version of e2fl")


@dataclass(frozen=True)
class RestoredRun:
    """A run as it was when its checkpoint was written."""

    round: Round
    totals: Totals
    history: list[Json]
    times: dict[int, float]
    seconds: float
    ahead: bool  # its checkpoint was written with a later line of history, as former versions did when interrupted


def restore(
    folder: Folder,
    loop: Loop,
    stored: Experiment,
    experiment: Experiment,
    data_file: object,
    warn: Callable[[str], None],
) -> RestoredRun | None:
    """Return the last good checkpoint of a run; None if it starts from its first round and nothing is lost.

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
    begun = found is not None and found.round_number >= loop.first
    if not begun:
        _require_nothing_to_lose(folder, loop, found)
    if found is None or not (begun or folder.read_history()):
        return None
    if found.extra["data"] != data_file:
        raise RunError(
            f"{folder.path} was started with other data: the file has changed since; "
            "restore the file, or start a new run in another folder with --out"
        )
    if not begun:
        return None
    last, extra = found.round_number, dict(found.extra)
    if "unevaluated" in extra:  # the last round of a run that now has more
        last, extra = last - 1, extra | extra["unevaluated"]
    lines = folder.read_history(extra["history"]["bytes"])
    return RestoredRun(
        Round(found.round_number, found.state, bool(extra["ever_answered"])),
        Totals.from_json(extra),
        [line for line in lines if line["round"] <= last],
        {number: seconds for number, seconds in folder.read_times().items() if number <= last},
        float(extra["seconds"]),
        ahead=any(line["round"] > found.round_number for line in lines),
    )


def _require_nothing_to_lose(folder: Folder, loop: Loop, start: Checkpoint | None) -> None:
    """Raise an error if rounds were recorded that would not be repeated as they were.

    start: the checkpoint from before the first round, which shows that the same rounds run again. Those after it are
    missing if the process was killed early. That of the last round is never used: a round must be left to repeat.
    """
    refused = [number for number in checkpoint.rounds(folder.checkpoints) if loop.first <= number != loop.last]
    if refused or (start is None and folder.read_history()):
        raise RunError(
            f"{folder.path} cannot be resumed: it has recorded rounds but no checkpoint that can be used, and starting "
            "again would erase them; start a new run in another folder with --out, or resume with the version of e2fl "
            "that made it"
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


def digest_of_history(folder: Folder, last: int) -> Mapping[str, Any]:
    """Return length and digest of the history up to this round; the file is flushed to disk.

    A later line is of a round that was interrupted after it was written, and is written again when that round is.
    """
    path = folder.path / "history.jsonl"
    with writing(path), path.open("rb+") as file:
        os.fsync(file.fileno())
        lines = file.read().splitlines(keepends=True)
    while lines and not (lines[-1].endswith(b"\n") and json.loads(lines[-1])["round"] <= last):
        lines.pop()
    raw = b"".join(lines)
    return {"bytes": len(raw), "sha256": sha256(raw)}


def _begins_with(path: Path, history: Mapping[str, Any]) -> bool:
    try:
        raw = path.read_bytes()[: int(history["bytes"])]
    except OSError:
        return False
    return {"bytes": len(raw), "sha256": sha256(raw)} == dict(history)
