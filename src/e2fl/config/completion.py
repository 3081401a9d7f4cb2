"""Experiments with every default written out, and without any.

`completed` is what a run stores in its config.toml: the file means the same in a later version with other defaults.
`trimmed` is what distinguishes two runs for a reader: the settings that are not the default.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from e2fl.algorithms import ALGORITHMS, PARTS
from e2fl.config.experiment import COMMON, Experiment, Section
from e2fl.construct import look_up, settings_of
from e2fl.data import DATASETS
from e2fl.errors import ConfigError
from e2fl.learning import Settings
from e2fl.networks import MODELS
from e2fl.participation import PARTICIPATION


def completed(experiment: Experiment) -> Experiment:
    """Return the experiment with every default of every section; imports what it names."""
    return dataclasses.replace(
        experiment,
        data=_completed("data", experiment.data, DATASETS),
        model=_completed("model", COMMON | experiment.model, MODELS),
        algorithm=_completed("algorithm", experiment.algorithm, ALGORITHMS),
        learner=defaults_of(Settings) | experiment.learner,
        participation=_completed("participation", experiment.participation, PARTICIPATION),
    )


def trimmed(experiment: Experiment) -> Experiment:
    """Return the experiment without settings that have their default; imports nothing."""
    return dataclasses.replace(
        experiment,
        data=_trimmed(experiment.data, DATASETS),
        model=_trimmed(experiment.model, MODELS, dict(COMMON)),
        algorithm=_trimmed(experiment.algorithm, ALGORITHMS),
        learner=_without(experiment.learner, defaults_of(Settings)),
        participation=_trimmed(experiment.participation, PARTICIPATION),
    )


def defaults_of(make: Callable[..., Any]) -> Section:
    """Return the defaults that TOML can hold; without the seed, which follows the experiment."""
    plain = {
        name: _plain(setting.default)
        for name, setting in settings_of(make).items()
        if name not in ("seed", "name")
    }
    return {name: value for name, value in plain.items() if value is not None}


def _completed(name: str, section: Section, registry: Mapping[str, Any]) -> Section:
    if "name" not in section:
        return section
    try:
        make = look_up(section["name"], registry, name)
        settings_of(make)
    except ConfigError:  # data made in Python has no name that can be looked up
        return section
    full = {"name": section["name"]} | defaults_of(make) | section
    for part, choices in PARTS.items():
        inner = full.get(part)
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            full[part] = _completed(part, inner, choices)
    return full


def _trimmed(
    section: Section, registry: Mapping[str, Any], extra: Section | None = None
) -> Section:
    known = registry.get(
        str(section.get("name"))
    )  # nothing is imported for the name of anything else
    defaults = {} if known is None else defaults_of(known)
    for part, choices in PARTS.items():
        if isinstance(defaults.get(part), dict):
            defaults[part] = _completed(part, defaults[part], choices)
    kept = _without(section, (extra or {}) | defaults)
    for part, choices in PARTS.items():
        if isinstance(kept.get(part), dict):
            kept[part] = _trimmed(kept[part], choices)
    return kept


def _without(section: Section, defaults: Section) -> Section:
    return {
        name: value
        for name, value in section.items()
        if name not in defaults or defaults[name] != value
    }


def _plain(value: Any) -> Any:
    """Return a default as TOML holds it; None if it cannot."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        parts = [_plain(part) for part in value]
        return None if None in parts else parts
    for name, kind in [entry for choices in PARTS.values() for entry in choices.items()]:
        if type(value) is kind:
            own = {
                field.name: _plain(getattr(value, field.name))
                for field in dataclasses.fields(value)
            }
            return {"name": name} | {key: part for key, part in own.items() if part is not None}
    return None
