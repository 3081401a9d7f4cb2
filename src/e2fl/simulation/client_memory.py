"""What clients store between rounds: in files where the run has a folder, otherwise in this process.

Every version is kept until no checkpoint needs it, so that a run resumed from an earlier round finds its clients as
they were then.
"""

import json
import re
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save, save_file

from e2fl.data.federated import ClientId, Memory
from e2fl.errors import RunError
from e2fl.files import replacing, sha256
from e2fl.models import Params, storable

DIGEST = "sha256"  # of the tensors, in the metadata of a file
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
        earlier = [number for number in self.rounds.get(client, []) if number < before]
        if not earlier:
            return {}
        if self.folder is None:
            return dict(self.held[client, earlier[-1]])
        memory: dict[str, Params] = {}
        path = self._path(client, earlier[-1])
        try:
            raw = path.read_bytes()
            tensors = load(raw)
            recorded = _digest_in(raw)
        except (OSError, SafetensorError, ValueError) as error:
            raise RunError(f"{path}, the model that client {client} keeps, cannot be read: {error}") from error
        if recorded is not None and recorded != _digest(tensors):
            raise RunError(
                f"{path}, the model that client {client} keeps, is damaged: it does not match its checksum; "
                "restore it from a copy, or repeat the run in another folder"
            )
        for name, tensor in tensors.items():
            kept, layer = name.split("/", 1)
            memory.setdefault(kept, {})[layer] = tensor
        return memory

    def store(self, client: ClientId, number: int, memory: Memory) -> None:
        """Store the client's memory of this round; a client that stores nothing costs nothing."""
        if not memory and client not in self.rounds:
            return
        if self.folder is None:
            self.held[client, number] = dict(memory)
            for older in self.rounds.pop(client, []):
                self.held.pop((client, older)) if older != number else None
            self.rounds[client] = [number]
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{kept}/{layer}": storable(tensor) for kept, params in memory.items() for layer, tensor in params.items()
        }
        with replacing(self._path(client, number)) as partial:
            save_file(tensors, partial, metadata={DIGEST: _digest(tensors)})
        rounds = self.rounds.setdefault(client, [])
        if number not in rounds:
            rounds.append(number)

    def forget(self, before: int) -> None:
        """Drop versions that a run resumed from this round or a later one cannot need."""
        if self.folder is None:
            return
        for client, rounds in list(self.rounds.items()):  # an interrupted client may still be writing
            needed = [number for number in rounds if number <= before][-1:]
            for number in rounds:
                if number <= before and number not in needed:
                    self._path(client, number).unlink(missing_ok=True)
            self.rounds[client] = needed + [number for number in rounds if number > before]

    def rewind(self, number: int) -> None:
        """Drop what was stored after this round, because those rounds run again."""
        for client, rounds in self.rounds.items():
            for late in [late for late in rounds if late > number]:
                rounds.remove(late)
                self.held.pop((client, late), None)
                if self.folder is not None:
                    self._path(client, late).unlink(missing_ok=True)

    def _path(self, client: ClientId, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"client-{client}-round-{number}.safetensors"


def _digest(tensors: Params) -> str:
    return sha256(save(tensors))


def _digest_in(raw: bytes) -> str | None:
    """The digest that a file records; files of earlier versions have none."""
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    recorded: str | None = header.get("__metadata__", {}).get(DIGEST)
    return recorded
