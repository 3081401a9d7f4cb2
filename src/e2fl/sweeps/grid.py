"""A grid of settings, and the experiments at its points."""

import itertools
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from e2fl.config.experiment import Experiment
from e2fl.config.overrides import Change, typed
from e2fl.errors import ConfigError

VALIDATION_SHARE = 0.2  # of each client's training rows, where the experiment sets none
LIMIT = 10_000  # points of a grid


@dataclass(frozen=True)
class Axis:
    """One setting, and the values it takes."""

    name: str
    changes: tuple[Change, ...]

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(shown(change.value) for change in self.changes)


@dataclass(frozen=True)
class Point:
    """One combination of values; points are numbered from 1, the last axis changing fastest."""

    number: int
    changes: tuple[Change, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """The formatted values, in the order of the axes."""
        return tuple(shown(change.value) for change in self.changes)


def axes_of(texts: Sequence[str], option: str = "--grid") -> list[Axis]:
    """Return axes from strings such as "learner.learning_rate=0.05,0.1"; option: what errors call them."""
    found = []
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not name or not values.strip():
            raise ConfigError(f"{option} takes a setting and its values, such as learner.epochs=1,2, not '{text}'")
        if name in ("seed", "data.validation_share"):
            raise ConfigError(
                f"{name} cannot be given to {option}; use {'--seeds' if name == 'seed' else '--set'} for it"
            )
        changes = tuple(typed(f"{name}={value}" for value in _split(values, option)))
        if len({shown(change.value) for change in changes}) != len(changes):
            raise ConfigError(f"{option} {name} names a value twice")
        found.append(Axis(name, changes))
    if len({axis.name for axis in found}) != len(found):
        raise ConfigError(f"each setting can be given to {option} once")
    return found


def points_of(axes: Sequence[Axis]) -> list[Point]:
    """Return every combination of values."""
    count = 1
    for axis in axes:
        count *= len(axis.changes)
    if count > LIMIT:
        raise ConfigError(f"the grid has {count:,} points; at most {LIMIT:,} can be run")
    combinations = itertools.product(*(axis.changes for axis in axes))
    return [Point(number, changes) for number, changes in enumerate(combinations, start=1)]


def with_validation_share(base: Experiment) -> Experiment:
    """Return the experiment with validation rows: its own share, or the default."""
    if base.data.get("validation_share"):
        return base
    return base.changed([Change(("data", "validation_share"), VALIDATION_SHARE)])


def without_validation_share(base: Experiment) -> Experiment:
    """Return the experiment trained on all training rows."""
    if not base.data.get("validation_share"):
        return base
    return base.changed([Change(("data", "validation_share"), 0.0)])


def shown(value: Any) -> str:
    """Return a value formatted for display."""
    return value if isinstance(value, str) else json.dumps(value)


def _split(text: str, option: str) -> list[str]:
    """Return the values between commas; commas inside brackets, braces and quotes belong to a value."""
    parts, current, depth, quote = [], "", 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        if character == "," and not depth and not quote:
            parts.append(current)
            current = ""
        else:
            current += character
    parts = [part.strip() for part in [*parts, current]]
    if depth or quote or not all(parts):
        raise ConfigError(f"{option} has a value that is empty or not closed: '{text}'")
    for part in parts:
        if part[0] in "[{":
            try:
                tomllib.loads(f"value = {part}")
            except tomllib.TOMLDecodeError as error:
                raise ConfigError(f"{option} has a value that TOML cannot read: {part} ({error})") from None
    return parts
