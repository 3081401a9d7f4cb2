"""The decorator that compiles a loop, the cache of compiled code, array types, and scratch memory.

Compiled code is stored in the user's cache folder, under the digest of all files with compiled
loops: a copy or another installation of the same version finds it, and a change of any loop
compiles all of them again, because Numba inlines loops of one file into those of another.
`NUMBA_CACHE_DIR` names another folder.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

import numba
import numpy as np
from numba.core.caching import _CacheLocator
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
UInt16 = NDArray[np.uint16]
UInt32 = NDArray[np.uint32]
UInt64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def sources() -> list[Path]:
    """Return all files with compiled loops."""
    return sorted(Path(__file__).parent.glob("*.py"))


def _digest() -> str:
    raw = b"".join(path.read_bytes() for path in sources())
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def _cache_folder(digest: str) -> Path | None:
    """Return the first folder that can be written, or None."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    for folder in (Path(chosen or home, "e2fl"), Path(__file__).parent / "__pycache__"):
        try:
            (folder / f"compiled-{digest}").mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder / f"compiled-{digest}").close()
        except OSError:
            continue
        return folder / f"compiled-{digest}"
    return None


DIGEST = _digest()
FOLDER = _cache_folder(DIGEST)  # of compiled code; None: it is compiled in every process


class ContentLocator(_CacheLocator):
    """Finds compiled code by what the sources contain, wherever and whenever written."""

    def __init__(self, line: int):
        self.line = line

    def get_cache_path(self) -> str:
        return str(FOLDER)

    def get_source_stamp(self) -> str:
        return DIGEST

    def get_disambiguator(self) -> str:
        return str(self.line)

    @classmethod
    def from_function(cls, function: Any, file: str) -> ContentLocator:
        return cls(function.__code__.co_firstlineno)


def compiled(function: _Function) -> _Function:
    """Compile a function to code that releases the interpreter lock and is cached on disk."""
    config: Any = numba.config  # its attributes are created at run time, so it has no types
    before = config.CACHE_LOCATOR_CLASSES
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.{ContentLocator.__name__}"
    try:
        return cast(_Function, numba.njit(nogil=True, cache=FOLDER is not None)(function))
    finally:
        config.CACHE_LOCATOR_CLASSES = before


@contextmanager
def one_process() -> Iterator[None]:
    """Let one process compile while others wait; they then find the code in the cache."""
    if FOLDER is None or fcntl is None:
        yield
        return
    with (FOLDER / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Scratch(threading.local):
    """Memory that a thread keeps between sorts: touching fresh pages takes longer than a sort."""

    def __init__(self) -> None:
        self.words: UInt64 = np.empty(0, np.uint64)

    def of(self, edges: int) -> tuple[UInt64, UInt64]:
        """Return two uninitialised arrays of this many words.

        The next call returns the same memory.
        """
        if self.words.size < 2 * edges:
            self.words = np.empty(2 * edges, np.uint64)
        return self.words[:edges], self.words[edges : 2 * edges]


scratch = _Scratch()
