"""Changes to a configuration, as strings for --set or as values from Python."""

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from e2fl.errors import ConfigError

# Settings that never change a result.
UNSAVED = ("threads", "runtime", "checkpoint_seconds", "keep_client_models", "keep_ballots")
# Settings that do not tell two runs apart: names, and how and where a run is computed.
NEUTRAL = ("name", "variants", "device", *UNSAVED)


@dataclass(frozen=True)
class Change:
    """One setting and its new value."""

    path: tuple[str, ...]  # the sections it is in, outermost first, then its own name
    value: Any

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def section(self) -> str:
        """The outermost section, or the setting itself if it is in none."""
        return self.path[0]


def typed(texts: Iterable[str]) -> list[Change]:
    """Return changes from strings such as "rounds=20", "data.alpha=1" or "model={name='mlp'}".

    A value is read as TOML; a word without quotes is a string.
    """
    changes = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set takes key=value, such as rounds=20, not '{text}'")
        try:
            read = tomllib.loads(f"value = {value.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            read = value.strip()
        changes.append(Change(tuple(key.strip().split(".")), read))
    return changes


def seed_numbers(text: str) -> list[int]:
    """Return the seeds in a string such as "0,1,2"."""
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise ConfigError(f"--seeds takes integers, such as 0,1,2, not '{text}'") from None


def given(values: Mapping[str, Any], within: tuple[str, ...] = ()) -> list[Change]:
    """Return changes from values such as {"rounds": 20, "data": {"alpha": 1}}.

    Other settings of a section stay.
    """
    changes = []
    for name, value in values.items():
        path = (*within, name)
        changes += given(value, path) if isinstance(value, Mapping) else [Change(path, value)]
    return changes


def from_names(settings: Mapping[str, Any]) -> list[Change]:
    """Return changes from settings by their full names, such as learner.learning_rate."""
    return [Change(tuple(name.split(".")), value) for name, value in settings.items()]


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings by their full names, such as learner.learning_rate."""
    return {change.name: change.value for change in given(values)}


def ordered(changes: Iterable[Change]) -> list[Change]:
    """Return the changes with the name of a section before its settings.

    A section with another name starts empty.
    """

    def place(change: Change) -> float:
        whole = change.path[-1] == "name" or isinstance(change.value, Mapping)
        return len(change.path) if whole else math.inf

    return sorted(changes, key=place)


def lay(changes: Iterable[Change], values: Mapping[str, Any]) -> dict[str, Any]:
    """Apply changes to settings; of two changes to one setting, the last counts."""
    changed = dict(values)
    for change in ordered(changes):
        section = changed
        *outer, last = change.path
        for name in outer:
            inner = section.get(name, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{change.name} cannot be set: '{name}' is not a section")
            section[name] = dict(inner)
            section = section[name]
        if last == "name" and outer and section.get("name") != change.value:
            section.clear()
        section[last] = change.value
    return changed
