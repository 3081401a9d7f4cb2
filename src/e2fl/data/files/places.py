"""Where data sets lie on this machine."""

import hashlib
import os
import sys
from pathlib import Path

from e2fl.errors import DataError


def data_directory(directory: str | None = None) -> Path:
    """The folder as configured, or as E2FL_DATA says, or the user's cache."""
    named = directory or os.environ.get("E2FL_DATA")
    return Path(named).expanduser() if named else cache_directory()


def cache_directory() -> Path:
    """The folder of this user where downloads are kept."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "e2fl"


def existing(path: str) -> Path:
    """A path that the user named and that is there."""
    found = Path(path).expanduser()
    if not found.exists():
        looked = "" if found.is_absolute() else f" in {Path.cwd()}"
        raise DataError(f"there is no file or folder {found}{looked}")
    return found


def sha256(path: Path) -> str:
    """What tells this file from any other."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
