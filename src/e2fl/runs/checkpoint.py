"""Checkpoints: a state on disk, written atomically.

A state is a frozen dataclass of arrays, numbers, strings and containers of these. Its arrays go into one safetensors
file, its structure into JSON; the type of each part comes from the state's own class, never from the file.
"""

import dataclasses
import json
import shutil
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from safetensors.torch import load as tensors
from safetensors.torch import save_file

from e2fl.errors import RunError
from e2fl.files import replacing, sha256, sha256_of

KEPT = 2  # checkpoints on disk: a spare one in case the newest is damaged


@dataclass(frozen=True)
class Checkpoint:
    """A saved round: its number, the state after it, and the other data of the run."""

    round_number: int
    state: Any
    extra: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint next to the older ones, then delete all but the newest few."""
    with replacing(folder / f"round-{checkpoint.round_number:07d}") as partial:
        partial.mkdir()
        arrays: dict[str, torch.Tensor] = {}
        tree = _encode(checkpoint.state, arrays, "state")
        save_file(arrays, partial / "state.safetensors")
        body = {
            "number": checkpoint.round_number,
            "extra": checkpoint.extra,
            "tree": tree,
            "sha256_state": sha256_of(partial / "state.safetensors"),
        }
        description = json.dumps(body | {"sha256": sha256(json.dumps(body).encode())})
        (partial / "checkpoint.json").write_text(description)
    keep_newest(folder, KEPT)


def keep_newest(folder: Path, count: int) -> None:
    """Delete all checkpoints but the newest ones."""
    for old in _found(folder)[count:]:
        shutil.rmtree(old, ignore_errors=True)


def latest(
    folder: Path,
    kind: type[Any],
    *,
    require: Callable[[Checkpoint], None] = lambda checkpoint: None,
    below: int | None = None,
    warn: Callable[[str], None] | None = None,
) -> Checkpoint | None:
    """Return the newest checkpoint that is complete and usable; `warn` is called for each that is not.

    require: raises `RunError` for a checkpoint that must not be used. below: only checkpoints of earlier rounds.
    """
    for path in _found(folder):
        if below is not None and _round_of(path) >= below:
            continue
        try:
            found = load(path, kind)
            require(found)
        except RunError as error:
            if warn is not None:
                warn(f"{error}; trying the one before")
        else:
            return found
    return None


def load(path: Path, kind: type[Any]) -> Checkpoint:
    """Return one checkpoint whose state is of this class, or raise `RunError`."""
    try:
        body = json.loads((path / "checkpoint.json").read_text())
        if body.pop("sha256") != sha256(json.dumps(body).encode()):
            raise ValueError("its description does not match its checksum")
        raw = (path / "state.safetensors").read_bytes()
        if body["sha256_state"] != sha256(raw):
            raise ValueError("its arrays do not match their checksum")
        state = _decode(body["tree"], tensors(raw), kind)
        return Checkpoint(int(body["number"]), state, body["extra"])
    except Exception as error:  # any damage is reported in the same way
        raise RunError(f"checkpoint {path.name} is damaged or of another kind ({error})") from error


def oldest(folder: Path) -> int:
    """Return the round of the oldest checkpoint."""
    return rounds(folder)[-1]


def rounds(folder: Path) -> list[int]:
    """Return the rounds of all checkpoints, usable or not, newest first."""
    return [_round_of(path) for path in _found(folder)]


def _round_of(path: Path) -> int:
    return int(path.name.removeprefix("round-"))


def _found(folder: Path) -> list[Path]:
    """Return complete checkpoints, newest first."""
    return sorted(folder.glob("round-???????"), reverse=True) if folder.is_dir() else []


def _encode(value: Any, arrays: dict[str, torch.Tensor], path: str) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray):
        arrays[path] = torch.as_tensor(value).detach().cpu().contiguous().clone()
        return {"array": path}
    if dataclasses.is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"fields": {name: _encode(part, arrays, f"{path}.{name}") for name, part in parts.items()}}
    if isinstance(value, Mapping):
        items = [[key, _encode(part, arrays, f"{path}.{key}")] for key, part in value.items()]
        return {"items": items}
    if isinstance(value, tuple | list):
        return {"list": [_encode(part, arrays, f"{path}.{place}") for place, part in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise TypeError(f"a state cannot hold {type(value).__name__} ({path})")


def _decode(tree: Any, arrays: Mapping[str, torch.Tensor], kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        if "value" in tree:
            return tree["value"]
        kind = next(choice for choice in get_args(kind) if choice is not type(None))
    if "value" in tree:
        return tree["value"]
    if "array" in tree:
        tensor = arrays[tree["array"]]
        return tensor if kind is torch.Tensor else tensor.numpy()
    if "fields" in tree:
        return kind(**_decode_fields(tree["fields"], arrays, kind))
    inner = get_args(kind)
    if "items" in tree:
        return {key: _decode(part, arrays, inner[1]) for key, part in tree["items"]}
    return tuple(_decode(part, arrays, inner[0]) for part in tree["list"])


def _decode_fields(stored: Mapping[str, Any], arrays: Mapping[str, torch.Tensor], kind: type[Any]) -> dict[str, Any]:
    """Return the fields of a state; those that its class no longer has are dropped, and new ones take their default."""
    known = {field.name for field in dataclasses.fields(kind)}
    if stored.keys() - known and known - stored.keys():  # a field may have been renamed, and its default would be wrong
        raise ValueError(f"it has {', '.join(sorted(stored))}, and {kind.__name__} has {', '.join(sorted(known))}")
    hints = get_type_hints(kind)
    return {name: _decode(part, arrays, hints[name]) for name, part in stored.items() if name in known}
