"""The memory of clients between rounds: in files if the run has a folder, else in this process.

Every version is kept until no checkpoint needs it, so that a run resumed from an earlier round
finds its clients as they were then.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from e2fl import codec
from e2fl.data.federated import ClientId, Memory
from e2fl.errors import ConfigError, RunError, reason_of

_FILE = re.compile(r"client-(\d+)-round-(\d+)\.safetensors")


class Memories:
    """The memory of every client, by the round in which it was written."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder
        self.rounds: dict[ClientId, list[int]] = {} if folder is None else versions(folder)
        self.held: dict[ClientId, Memory] = {}  # without a folder: the last memory of each

    def load(self, client: ClientId, before: int) -> Memory:
        """Return what this client stored last before this round; empty if it never did."""
        if self.folder is None:
            return dict(self.held.get(client, {}))
        earlier = [written for written in self.rounds.get(client, []) if written < before]
        if not earlier:
            return {}
        path = self._path(client, earlier[-1])
        try:
            memory: dict[str, Any] = codec.load(path, dict[str, Any])
        except (OSError, ValueError) as error:
            raise RunError(
                f"{path}, what client {client} keeps, cannot be read: {reason_of(error)}"
            ) from error
        return memory

    def store(self, client: ClientId, round_number: int, memory: Memory) -> None:
        """Store the client's memory of this round; a client that stores nothing costs nothing."""
        if not memory and client not in self.rounds:
            return
        checked, rounds = checked_memory(memory), self.rounds.setdefault(client, [])
        if self.folder is None:
            self.held[client] = checked
            return
        codec.save(self._path(client, round_number), checked)
        if round_number not in rounds:
            rounds.append(round_number)

    def forget(self, before: int) -> None:
        """Drop versions that a run resumed from this round or a later one cannot need."""
        for client, rounds in list(self.rounds.items()):  # a client may still be writing
            needed = [written for written in rounds if written <= before][-1:]
            for written in rounds:
                if written <= before and written not in needed:
                    self._path(client, written).unlink(missing_ok=True)
            self.rounds[client] = needed + [written for written in rounds if written > before]

    def rewind(self, round_number: int) -> None:
        """Drop what was stored after this round, because those rounds run again."""
        for client, rounds in self.rounds.items():
            for late in [written for written in rounds if written > round_number]:
                rounds.remove(late)
                self._path(client, late).unlink(missing_ok=True)

    def _path(self, client: ClientId, round_number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"client-{client}-round-{round_number}.safetensors"


def versions(folder: Path) -> dict[ClientId, list[int]]:
    """Return the rounds in which each client wrote its memory to this folder, in rising order."""
    rounds: dict[ClientId, list[int]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _FILE.fullmatch(path.name):
            rounds.setdefault(int(match[1]), []).append(int(match[2]))
    return {client: sorted(written) for client, written in sorted(rounds.items())}


def newest_versions(folder: Path, round_number: int) -> dict[ClientId, int]:
    """Return the round in which each client wrote its memory last, as of this round."""
    known = versions(folder).items()
    earlier = {client: [n for n in written if n <= round_number] for client, written in known}
    return {client: written[-1] for client, written in earlier.items() if written}


def checked_memory(memory: Memory) -> dict[str, Any]:
    """Return what a client stores as it is read back, or raise `ConfigError`."""
    return {name: _checked(name, value) for name, value in memory.items()}


def _checked(name: Any, value: Any) -> Any:
    if not isinstance(name, str) or not name or "/" in name:
        raise ConfigError(f"client.memory has the name {name!r}; names are strings without '/'")
    if isinstance(value, torch.Tensor):
        return value
    parts = value.values() if isinstance(value, Mapping) else ()
    if parts and all(isinstance(part, torch.Tensor) for part in parts):
        return dict(value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise ConfigError(
        f"client.memory[{name!r}] is {type(value).__name__}; it must be a model (a dictionary of "
        "tensors), a tensor, an int, a float, a bool or a str"
    )
