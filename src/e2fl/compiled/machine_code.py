"""The decorator that compiles a loop, and the directory of compiled code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


_PACKAGE = Path(__file__).parent.parent


def sources() -> list[Path]:
    """Return all files with compiled loops."""
    return [path for folder in ("compiled", "learning") for path in sorted((_PACKAGE / folder).rglob("*.py"))]


def _cache_directory() -> str:
    """Return the directory of compiled code, named after the contents of all files with compiled loops.

    Numba inlines loops of one file into those of another, and would not notice that the first file changed.
    """
    digest = hashlib.blake2b(b"".join(path.read_bytes() for path in sources()), digest_size=8).hexdigest()
    return str(_PACKAGE / "__pycache__" / f"compiled-{digest}")


_DIRECTORY = _cache_directory()


def compiled(function: _Function) -> _Function:
    """Compile a function to machine code that releases the interpreter lock and is cached on disk."""
    config: Any = numba.config  # its attributes are created at run time, so it has no types
    before = config.CACHE_DIR
    config.CACHE_DIR = before or _DIRECTORY  # a directory set by the user takes precedence
    try:
        return cast(_Function, numba.njit(nogil=True, cache=True)(function))
    finally:
        config.CACHE_DIR = before
