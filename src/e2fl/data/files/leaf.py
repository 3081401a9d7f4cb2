"""LEAF's JSON files, one client at a time: a file may be larger than memory, a client may not.

A file is one object: {"users": [...], "num_samples": [...], "user_data": {NAME: {"x": [...], "y": [...]}, ...}}.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from e2fl.errors import DataError

VALUE_LIMIT = 64 * 2**20  # bytes between two clients; the largest writer of FEMNIST needs about 8 million
BLOCK = 2**14
DEPTH_LIMIT = 1000  # brackets open at the end of a block; LEAF has 4, and names may contain some


def read_clients(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and data of each client in a file."""
    try:
        import ijson
    except ImportError as error:
        raise DataError("LEAF's JSON files need the package ijson: pip install 'e2fl[leaf]'") from error
    found = False
    with path.open("rb") as raw:
        file = _Bounded(raw, path)
        try:
            for name, data in ijson.kvitems(file, "user_data", buf_size=BLOCK, use_float=True):
                if not isinstance(data, dict):
                    raise DataError(f"{path} is not a LEAF file: client '{name}' is not an object")
                found = True
                file.since_client = 0
                yield name, data
        except (ijson.JSONError, ValueError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(f"{path} is not a LEAF file: {reason} (near byte {raw.tell()})") from error
    if not found:
        raise DataError(f"{path} is not a LEAF file: it has no clients in user_data")


class _Bounded:
    """A file of which only a limited number of bytes may be read for one client, so that it cannot fill the memory.

    Deeply nested values cost the parser time and memory that grow with the square of the depth, so they are rejected
    too.
    """

    def __init__(self, file: IO[bytes], path: Path):
        self.file, self.path = file, path
        self.since_client = 0
        self.depth = 0

    def read(self, size: int) -> bytes:
        part = self.file.read(size)
        self.since_client += len(part)
        if self.since_client > VALUE_LIMIT:
            raise DataError(f"{self.path} is not a LEAF file: a client has more than {VALUE_LIMIT} bytes")
        self.depth += part.count(b"[") + part.count(b"{") - part.count(b"]") - part.count(b"}")
        if self.depth > DEPTH_LIMIT:
            raise DataError(f"{self.path} is not a LEAF file: values are nested too deeply")
        return part
