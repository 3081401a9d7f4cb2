"""The decorator that makes a loop machine code, and where that code is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _cache_directory() -> str:
    """Where machine code is kept: a folder named after the contents of all files with loops.

    Loops of one file are compiled into those of another, which Numba would not see change.
    """
    here = Path(__file__).parent.parent
    files = [path for folder in ("compiled", "learning") for path in sorted((here / folder).rglob("*.py"))]
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in files), digest_size=8).hexdigest()
    return str(here / "__pycache__" / f"compiled-{digest}")


_DIRECTORY = _cache_directory()


def compiled(function: _Function) -> _Function:
    """Compile to machine code that runs without the interpreter lock and is cached on disk."""
    config: Any = numba.config  # its attributes are made when it is imported
    before = config.CACHE_DIR
    config.CACHE_DIR = before or _DIRECTORY  # a directory the user has chosen comes first
    try:
        return cast(_Function, numba.njit(nogil=True, cache=True)(function))
    finally:
        config.CACHE_DIR = before
