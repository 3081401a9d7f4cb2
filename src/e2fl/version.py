"""The version, defined once, and other things that a result depends on."""

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__version__ = "0.1.0"


def environment() -> dict[str, str]:
    """Return the versions of Python, libraries and system, for the record of a run."""
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    found["system"] = f"{platform.system()} {platform.machine()}"
    return found | ({"commit": commit()} if commit() else {})


@cache
def commit() -> str:
    """Return the git commit of the checkout, "-dirty" if files differ; empty outside of one."""
    package = Path(__file__).resolve().parent
    root = package.parent.parent
    if package.parent.name != "src" or not (root / ".git").exists():
        return ""
    words = "describe --always --abbrev=40 --exclude=* --dirty"
    command = ["git", "-C", str(root), *words.split()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
