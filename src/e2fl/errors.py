"""The errors that a user can cause and fix; each message says what is wrong and what to do."""

import re
from typing import Any, TypeVar

Kind = TypeVar("Kind")


class E2flError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(E2flError):
    """A configuration that names something unknown or impossible."""


class DataError(E2flError):
    """Data that is missing, damaged, or not in the documented format."""


class WireError(E2flError):
    """Bytes that are not a valid message for this model."""


class RunError(E2flError):
    """A run that cannot start, continue, or be read."""


class NothingLearnedError(RunError):
    """A run in which no client ever sent a usable reply: it diverged, or the algorithm is wrong."""


class StorageError(RunError):
    """A file that cannot be written: a full disk, a removed folder, missing permissions."""


class ReportError(E2flError):
    """A report that cannot be made: an optional package is missing, or there is nothing to show."""


class E2flWarning(UserWarning):
    """Something that a user should know and that does not stop a run."""


def expect(value: Any, kind: type[Kind], owner: object, method: str) -> Kind:
    """Return what a method of the user's own class returned if it is of this type.

    Raise `ConfigError` with the name of the method otherwise.
    """
    if not isinstance(value, kind):
        raise ConfigError(
            f"{type(owner).__name__}.{method} returned {with_article(type(value))}; "
            f"it must return {with_article(kind)}"
        )
    return value


def require_setting(allowed: bool, name: str, rule: str, value: object) -> None:
    """Raise `ConfigError` unless the value of a setting is allowed; `rule` says what it must be."""
    if not allowed:
        shown = f"'{value}'" if isinstance(value, str) else value
        raise ConfigError(f"{name} must be {rule}, not {shown}")


def with_article(kind: type) -> str:
    """Return the name of a type in a sentence: a dict, an Update, nothing."""
    name = kind.__name__
    return "nothing" if kind is type(None) else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


_REASONS: dict[type[BaseException], str] = {
    FileNotFoundError: "it does not exist",
    IsADirectoryError: "it is a folder",
    NotADirectoryError: "part of its path is a file, not a folder",
    PermissionError: "permission denied",
    UnicodeDecodeError: "it is not text in UTF-8",
}


def reason_of(error: BaseException) -> str:
    """Return what an error says, in words on one line, without numbers of the operating system."""
    for kind, words in _REASONS.items():
        if isinstance(error, kind):
            return words
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(re.sub(r"\[Errno -?\d+\]", "", text).split())[:200]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: Python, NumPy and torch each have their own error."""
    words = ("can't allocate memory", "not enough memory", "out of memory", "unable to allocate")
    text = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(part in text for part in words)
    )
