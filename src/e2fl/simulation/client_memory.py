"""The memory of clients between rounds: in files if the run has a folder, otherwise in this process.

A file is a safetensors file; numbers, booleans and strings are JSON in its metadata. Nothing is pickled.

Every version is kept until no checkpoint needs it, so that a run resumed from an earlier round finds its clients as
they were then.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save, save_file

from e2fl.data.federated import ClientId, Memory
from e2fl.errors import ConfigError, RunError
from e2fl.files import replacing, sha256
from e2fl.models import Params, storable

DIGEST = "sha256"  # of the contents, in the metadata of a file
VALUES = "values"  # numbers, booleans and strings as JSON, in the metadata of a file
_FILE = re.compile(r"client-(\d+)-round-(\d+)\.safetensors")


class Memories:
    """The memory of every client, by the round in which it was written."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder
        self.rounds: dict[ClientId, list[int]] = {}
        self.held: dict[tuple[ClientId, int], Memory] = {}
        if folder is not None and folder.is_dir():
            for path in folder.iterdir():
                if match := _FILE.fullmatch(path.name):
                    self.rounds.setdefault(int(match[1]), []).append(int(match[2]))
        for rounds in self.rounds.values():
            rounds.sort()

    def load(self, client: ClientId, before: int) -> Memory:
        """Return what this client stored last before this round; empty if it never did."""
        earlier = [round_number for round_number in self.rounds.get(client, []) if round_number < before]
        if not earlier:
            return {}
        if self.folder is None:
            return dict(self.held[client, earlier[-1]])
        path = self._path(client, earlier[-1])
        try:
            raw = path.read_bytes()
            tensors, metadata = load(raw), _metadata(raw)
            recorded, values = metadata.get(DIGEST), metadata.get(VALUES, "")
            memory: dict[str, Any] = json.loads(values or "{}")
        except (OSError, SafetensorError, ValueError) as error:
            raise RunError(f"{path}, the model that client {client} keeps, cannot be read: {error}") from error
        if recorded != _digest(tensors, values):
            raise RunError(
                f"{path}, the model that client {client} keeps, is damaged: it does not match its checksum; "
                "restore it from a copy, or repeat the run in another folder"
            )
        for name, tensor in tensors.items():
            kept, inside, layer = name.partition("/")
            if inside:
                memory.setdefault(kept, {})[layer] = tensor
            else:
                memory[kept] = tensor
        return memory

    def store(self, client: ClientId, round_number: int, memory: Memory) -> None:
        """Store the client's memory of this round; a client that stores nothing costs nothing."""
        if not memory and client not in self.rounds:
            return
        checked = {name: _checked(name, value) for name, value in memory.items()}
        if self.folder is None:
            self.held[client, round_number] = checked
            for older in self.rounds.pop(client, []):
                self.held.pop((client, older)) if older != round_number else None
            self.rounds[client] = [round_number]
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors: Params = {}
        plain: dict[str, Any] = {}
        for name, value in checked.items():
            if isinstance(value, Mapping):
                tensors |= {f"{name}/{layer}": storable(tensor) for layer, tensor in value.items()}
            elif isinstance(value, torch.Tensor):
                tensors[name] = storable(value)
            else:
                plain[name] = value
        places = [tensor.data_ptr() for tensor in tensors.values()]
        if len(set(places)) < len(places):  # a file cannot hold one tensor under two names
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        values = json.dumps(plain) if plain else ""
        metadata = {DIGEST: _digest(tensors, values)} | ({VALUES: values} if values else {})
        with replacing(self._path(client, round_number)) as partial:
            save_file(tensors, partial, metadata=metadata)
        rounds = self.rounds.setdefault(client, [])
        if round_number not in rounds:
            rounds.append(round_number)

    def forget(self, before: int) -> None:
        """Drop versions that a run resumed from this round or a later one cannot need."""
        if self.folder is None:
            return
        for client, rounds in list(self.rounds.items()):  # an interrupted client may still be writing
            needed = [round_number for round_number in rounds if round_number <= before][-1:]
            for round_number in rounds:
                if round_number <= before and round_number not in needed:
                    self._path(client, round_number).unlink(missing_ok=True)
            self.rounds[client] = needed + [round_number for round_number in rounds if round_number > before]

    def rewind(self, round_number: int) -> None:
        """Drop what was stored after this round, because those rounds run again."""
        for client, rounds in self.rounds.items():
            for late in [late for late in rounds if late > round_number]:
                rounds.remove(late)
                self.held.pop((client, late), None)
                if self.folder is not None:
                    self._path(client, late).unlink(missing_ok=True)

    def _path(self, client: ClientId, round_number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"client-{client}-round-{round_number}.safetensors"


def _checked(name: Any, value: Any) -> Any:
    """Return what a client stores under a name as it is read back, or raise `ConfigError`."""
    if not isinstance(name, str) or not name or "/" in name:
        raise ConfigError(f"client.memory has the name {name!r}; names are strings without '/'")
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, Mapping) and value and all(isinstance(part, torch.Tensor) for part in value.values()):
        return dict(value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise ConfigError(
        f"client.memory[{name!r}] is {type(value).__name__}; it must be a model (a dictionary of tensors), a tensor, "
        "an int, a float, a bool or a str"
    )


def _digest(tensors: Params, values: str) -> str:
    return sha256(save(tensors) + values.encode())


def _metadata(raw: bytes) -> dict[str, str]:
    """Return the metadata in the header of a file."""
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return dict(header.get("__metadata__", {}))
