"""Experiments with every default written out, and without any.

`completed` is what a run stores in its config.toml: the file means the same in a later version with
other defaults. `trimmed` is what distinguishes two runs for a reader: settings that differ from it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from e2fl.algorithms import PARTS
from e2fl.config.experiment import COMMON, REGISTRIES, Experiment, Section
from e2fl.construct import look_up, settings_of
from e2fl.errors import ConfigError
from e2fl.learning import Settings

SECTIONS = ("data", "model", "algorithm", "participation", "learner", "attack")


def completed(experiment: Experiment) -> Experiment:
    """Return the experiment with every default of every section; imports what it names."""
    sections: Any = {name: _completed(name, getattr(experiment, name)) for name in SECTIONS}
    return dataclasses.replace(experiment, **sections)


def trimmed(experiment: Experiment) -> Experiment:
    """Return the experiment without settings that have their default; imports nothing."""
    sections: Any = {name: _trimmed(name, getattr(experiment, name)) for name in SECTIONS}
    return dataclasses.replace(experiment, **sections)


def defaults_of(make: Callable[..., Any]) -> Section:
    """Return the defaults that TOML can hold; without the seed, which follows the experiment."""
    defaults = {
        name: plain(setting.default)
        for name, setting in settings_of(make).items()
        if name not in ("seed", "name")
    }
    return {name: value for name, value in defaults.items() if value is not None}


def _completed(kind: str, section: Section) -> Section:
    full = _common(kind) | section
    if "name" not in section:
        return full
    try:
        defaults = defaults_of(look_up(section["name"], REGISTRIES[kind], kind))
    except ConfigError:  # data made in Python has no name that can be looked up
        return full
    full = {"name": section["name"]} | defaults | full
    for part in PARTS:
        inner = full.get(part)
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            full[part] = _completed(part, inner)
    return full


def _trimmed(kind: str, section: Section) -> Section:
    # Nothing is imported for a name that is not in the registry.
    name = str(section.get("name"))
    known = name in REGISTRIES.get(kind, ())
    defaults = (_completed(kind, {"name": name}) if known else _common(kind)) | {"name": None}
    kept = {
        key: value
        for key, value in section.items()
        if key not in defaults or defaults[key] != value
    }
    for part in PARTS:
        if isinstance(kept.get(part), dict):
            kept[part] = _trimmed(part, kept[part])
    return kept


def _common(kind: str) -> Section:
    """Return the defaults that a section has whatever it names."""
    if kind == "learner":
        return defaults_of(Settings)
    return dict(COMMON) if kind == "model" else {}


def plain(value: Any) -> Any:
    """Return a default as TOML holds it; None if it cannot."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        parts = [plain(part) for part in value]
        return None if None in parts else parts
    for name, kind in [entry for choices in PARTS.values() for entry in choices.items()]:
        if type(value) is kind:
            own = {
                field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
            }
            return {"name": name} | {key: part for key, part in own.items() if part is not None}
    return None
