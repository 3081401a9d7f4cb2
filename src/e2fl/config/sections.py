"""Sections of a configuration: with every default, and from classes and objects.

`completed` is what a run stores in its config.toml: the file means the same in a later version with
other defaults.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from torch import nn

from e2fl.algorithms import SECTION_REGISTRIES, Algorithm, AnyAlgorithm
from e2fl.config.build import COMMON, REGISTRIES
from e2fl.config.experiment import Experiment, Section
from e2fl.construct import Setting, look_up, settings_of
from e2fl.errors import ConfigError
from e2fl.learning import Settings

AlgorithmLike = str | Mapping[str, Any] | type[AnyAlgorithm] | AnyAlgorithm
ModelLike = Mapping[str, Any] | Callable[..., nn.Module] | nn.Module | str

SECTIONS = ("data", "model", "algorithm", "participation", "learner")


def completed(experiment: Experiment) -> Experiment:
    """Return the experiment with every default of every section; imports what it names."""
    sections: Any = {name: _completed(name, getattr(experiment, name)) for name in SECTIONS}
    return dataclasses.replace(experiment, **sections)


def known_settings(kind: str, section: Section) -> dict[str, Setting]:
    """Return the settings that a section of this kind can have, as far as its name is known."""
    common = {"learner": settings_of(Settings), "model": COMMON}
    known: dict[str, Setting] = dict(common.get(kind, {}))
    with suppress(ConfigError):  # data made in Python has no name that can be looked up
        if "name" in section:
            known |= settings_of(look_up(str(section["name"]), REGISTRIES[kind], kind))
    return known


def _completed(kind: str, section: Section) -> Section:
    """Return a section with the defaults that TOML can hold; the seed follows the experiment."""
    defaults = {name: plain(one.default) for name, one in known_settings(kind, section).items()}
    defaults = {"name": section.get("name")} | defaults | {"seed": None}
    full = {name: value for name, value in defaults.items() if value is not None} | section
    for part in SECTION_REGISTRIES:
        if isinstance(full.get(part), dict) and "name" in full[part]:
            full[part] = _completed(part, full[part])
    return full


def named(
    experiment: Experiment, algorithms: Sequence[AlgorithmLike]
) -> tuple[Experiment, list[str]]:
    """Return the names of algorithms, and the experiment with a variant for each that has none."""
    names, variants = [], dict(experiment.variants)
    for algorithm in algorithms:
        if isinstance(algorithm, str):
            names.append(algorithm)
            continue
        section = section_from(algorithm, "algorithm")
        if isinstance(algorithm, Mapping):
            name = str(section.get("label", section.get("name")))
        else:
            name = (algorithm if isinstance(algorithm, type) else type(algorithm)).__name__
        variants[name] = {"algorithm": section}
        names.append(name)
    return dataclasses.replace(experiment, variants=variants), names


def section_from(given: AlgorithmLike | ModelLike | None, what: str) -> Section:
    """Return the section of an algorithm or a model, however it was given."""
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, Algorithm):
        return section_of(given, what)
    if isinstance(given, nn.Module):
        return {"name": type(given).__name__}
    if inspect.isfunction(given) or isinstance(given, type):
        return {"name": name_of(given, what)}
    kind = type(given).__name__
    raise ConfigError(f"{what} must be a name, settings, a class or an object, not {kind}")


def section_of(thing: Any, what: str) -> Section:
    """Return the section that makes an equal object."""
    section: Section = {"name": name_of(type(thing), what)}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if field.init and value is not None and value != field.default:
            part = dataclasses.is_dataclass(value)
            section[field.name] = section_of(value, field.name) if part else value
    return section


def plain(value: Any) -> Any:
    """Return a default as TOML holds it; None if it cannot."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        parts = [plain(part) for part in value]
        return None if None in parts else parts
    registries = SECTION_REGISTRIES.items()
    known = (part for part, choices in registries if type(value) in choices.values())
    return next((section_of(value, part) for part in known), None)


def name_of(thing: Any, what: str) -> str:
    """Return the name in a configuration that stands for a class or a function."""
    for name, known in REGISTRIES.get(what, {}).items():
        if known is thing:
            return name
    module, name = thing.__module__, thing.__qualname__
    if getattr(sys.modules.get(module), name, None) is not thing:
        raise ConfigError(f"{what} {name} must be defined at the top level of a module")
    return f"{module}:{name}"
