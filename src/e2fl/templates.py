"""Common parts of pages: templates that escape every name, hashes that allow only their own scripts, round ticks."""

import base64
import hashlib
import math
from functools import cache
from importlib.resources import files

import jinja2


@cache
def asset(package: str, name: str) -> str:
    """Return the text of a file that comes with a package."""
    return (files(package) / name).read_text(encoding="utf-8")


def environment(loader: jinja2.BaseLoader | None = None) -> jinja2.Environment:
    """Return an environment that escapes what is inserted; a name that a template does not know is an error.

    loader: finds the templates that a template names.
    """
    return jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def digest(text: str) -> str:
    """Return the SHA-256 of a script or style as a content-security policy writes it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def round_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below this, for the ticks of an axis."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)
