"""The version, in one place, and what else a result depends on."""

import platform
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"


def environment() -> dict[str, str]:
    """Versions of what computes, for the record of a run."""
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found | {"system": f"{platform.system()} {platform.machine()}"}
