"""Where data sets are stored on this machine."""

import os
from pathlib import Path

from e2fl.errors import DataError


def data_directory(directory: str | None = None) -> Path:
    """Return the folder that the configuration or E2FL_DATA names; default: the user's cache."""
    named = directory or os.environ.get("E2FL_DATA")
    return Path(named).expanduser() if named else cache_directory()


def cache_directory() -> Path:
    """Return this user's folder for downloads."""
    import pooch

    return Path(pooch.os_cache("e2fl"))


def existing(path: str) -> Path:
    """Return a path given by the user, or raise an error if it does not exist."""
    found = Path(path).expanduser()
    if not found.exists():
        looked = "" if found.is_absolute() else f" in {Path.cwd()}"
        raise DataError(f"there is no file or folder {found}{looked}")
    return found
