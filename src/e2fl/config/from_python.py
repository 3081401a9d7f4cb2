"""Settings from Python: classes and objects as the sections of a configuration that make them."""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from e2fl.algorithms import Algorithm, AnyAlgorithm
from e2fl.config.experiment import REGISTRIES, Experiment
from e2fl.errors import ConfigError

AlgorithmLike = str | Mapping[str, Any] | type[AnyAlgorithm] | AnyAlgorithm
ModelLike = Mapping[str, Any] | Callable[..., nn.Module] | nn.Module | str


def named(
    experiment: Experiment, algorithms: Sequence[AlgorithmLike]
) -> tuple[Experiment, list[str]]:
    """Return the names of algorithms, and the experiment with a variant for each that has none."""
    names, variants = [], dict(experiment.variants)
    for algorithm in algorithms:
        if isinstance(algorithm, str):
            names.append(algorithm)
            continue
        section = algorithm_settings(algorithm)
        if isinstance(algorithm, Mapping):
            name = str(section.get("label", section.get("name")))
        else:
            name = (algorithm if isinstance(algorithm, type) else type(algorithm)).__name__
        variants[name] = {"algorithm": section}
        names.append(name)
    return dataclasses.replace(experiment, variants=variants), names


def algorithm_settings(algorithm: AlgorithmLike | None) -> dict[str, Any]:
    """Return the section of an algorithm, however it was given."""
    if isinstance(algorithm, Algorithm):
        return section_of(algorithm, "algorithm")
    if isinstance(algorithm, type):
        return {"name": name_of(algorithm, "algorithm")}
    return _section("algorithm", algorithm)


def model_settings(model: ModelLike | None) -> tuple[nn.Module | None, dict[str, Any]]:
    """Return a network as it was given, or the section of a model."""
    if isinstance(model, nn.Module):
        return model, {"name": type(model).__name__}
    if inspect.isfunction(model) or isinstance(model, type):
        return None, {"name": name_of(model, "model")}
    return None, _section("model", model)


def _section(what: str, given: Any) -> dict[str, Any]:
    if given is None or isinstance(given, str):
        return {"name": given} if given is not None else {}
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise ConfigError(f"{what} must be a name, settings, a class or an object, not {kind}")
    return dict(given)


def section_of(thing: Any, what: str) -> dict[str, Any]:
    """Return the section that makes an equal object."""
    section: dict[str, Any] = {"name": name_of(type(thing), what)}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if field.init and value is not None and value != field.default:
            part = dataclasses.is_dataclass(value)
            section[field.name] = section_of(value, field.name) if part else value
    return section


def name_of(thing: Any, what: str) -> str:
    """Return the name in a configuration that stands for a class or a function."""
    for name, known in REGISTRIES.get(what, {}).items():
        if known is thing:
            return name
    module, name = thing.__module__, thing.__qualname__
    if getattr(sys.modules.get(module), name, None) is not thing:
        raise ConfigError(f"{what} {name} must be defined at the top level of a module")
    return f"{module}:{name}"
