"""What the pages share: templates that escape every name, and hashes that allow only the page's own scripts."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

import jinja2


@cache
def asset(package: str, name: str) -> str:
    """Return the text of a file that comes with a package."""
    return (files(package) / name).read_text(encoding="utf-8")


def environment() -> jinja2.Environment:
    """Return an environment that escapes what is inserted; a name that a template does not know is an error."""
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def digest(text: str) -> str:
    """Return the SHA-256 of a script or style as a content-security policy writes it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
