"""Files: written atomically, read only if they are regular, with errors that say what to do."""

import errno
import hashlib
import math
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError

from e2fl.errors import StorageError, reason_of

Parsed = TypeVar("Parsed")

PARTIAL = ".partial"  # ends the name of a file that is not complete
LARGEST = 256 * 2**20  # bytes of a file of text

_FULL = "the disk is full; free some space"
_DENIED = "permission denied; change the permissions, or choose another place"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.ENOENT: "its folder was removed; restore it, or choose another place",
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to; what is written there replaces `path` in one step, safely on disk.

    If anything fails, it is removed, `path` stays unchanged, and an error of the operating system
    becomes a `StorageError`.
    """
    partial = path.with_name(f".{path.name}{PARTIAL}")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove(partial)
            yield partial
            sync(partial)
            os.replace(partial, path)
            sync(path.parent)
    except BaseException:
        remove(partial)
        raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a `StorageError` with the file and the remedy."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        # safetensors reports an error of the system in its own words.
        told = re.search(r"os error (\d+)", str(error))
        number = getattr(error, "errno", None) or (int(told[1]) if told else 0)
        other = f"{reason_of(error)}; check the disk and the path, or choose another place"
        remedy = _REMEDIES.get(number, other)
        raise StorageError(f"cannot write {path}: {remedy}") from error


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def append_text(path: Path, text: str) -> None:
    """Add text to a file; `sync` makes sure that it is on disk."""
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(text)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists and can be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):  # for the same reason as writing, perhaps; the first error matters more
        path.unlink(missing_ok=True)


def regular(path: Path, limit: int = LARGEST) -> Path:
    """Return the path of a regular file of at most `limit` bytes, or raise an `OSError`.

    A symbolic link, a pipe or a device is refused: it may lead to another file, or never end.
    """
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.EINVAL, "it is a symbolic link, not a file", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if status.st_size > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit >> 20} MiB", str(path))
    return path


def read_bytes(path: Path, limit: int = LARGEST) -> bytes:
    """Return the contents of a `regular` file."""
    return regular(path, limit).read_bytes()


def read_text(path: Path) -> str:
    """Return the text of a `regular` file; `ValueError` if it is not UTF-8."""
    return read_bytes(path).decode("utf-8")


def parse(read: Callable[[str], Parsed], text: str) -> Parsed:
    """Return what a parser of JSON or TOML reads; text nested too deeply raises a `ValueError`."""
    try:
        return read(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def finite(value: Any) -> Any:
    """Return the value with null in place of NaN and inf."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list | tuple) else value


def sha256(raw: bytes) -> str:
    """Return the digest of bytes."""
    return hashlib.sha256(raw).hexdigest()


def sha256_of(path: Path) -> str:
    """Return the digest of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make sure that a file or a folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
