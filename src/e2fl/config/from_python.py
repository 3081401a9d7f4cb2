"""Settings from Python: classes and objects as the sections of a configuration that make them."""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from e2fl.algorithms import ALGORITHMS, PARTS, Algorithm, AnyAlgorithm
from e2fl.config.experiment import Experiment
from e2fl.errors import ConfigError
from e2fl.networks import MODELS

AlgorithmLike = str | Mapping[str, Any] | type[AnyAlgorithm] | AnyAlgorithm
ModelLike = Mapping[str, Any] | Callable[..., nn.Module] | nn.Module | str


def named(
    experiment: Experiment, algorithms: Sequence[AlgorithmLike]
) -> tuple[Experiment, list[str]]:
    """Return the names of algorithms, and the experiment with a variant for each that has none."""
    names = []
    for algorithm in algorithms:
        settings = algorithm_settings(algorithm)
        name = str(settings.get("name")) if isinstance(algorithm, str) else type_name(algorithm)
        if not isinstance(algorithm, str):
            variants = experiment.variants | {name: {"algorithm": settings}}
            experiment = dataclasses.replace(experiment, variants=variants)
        names.append(name)
    return experiment, names


def type_name(algorithm: object) -> str:
    """Return the display name of an algorithm."""
    if isinstance(algorithm, Mapping):
        return str(algorithm.get("label", algorithm.get("name")))
    return (algorithm if isinstance(algorithm, type) else type(algorithm)).__name__


def algorithm_settings(algorithm: AlgorithmLike | None) -> dict[str, Any]:
    """Return the section of an algorithm, however it was given."""
    if algorithm is None:
        return {}
    if isinstance(algorithm, str):
        return {"name": algorithm}
    if isinstance(algorithm, Mapping):
        return dict(algorithm)
    if isinstance(algorithm, type):
        return {"name": name_of(algorithm, ALGORITHMS, "algorithm")}
    if not isinstance(algorithm, Algorithm):
        kind = type(algorithm).__name__
        raise ConfigError(f"algorithm must be a name, settings, a class or an object, not {kind}")
    return _settings_of(algorithm, ALGORITHMS, "algorithm")


def _settings_of(thing: Any, registry: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the section that makes an equal object."""
    section: dict[str, Any] = {"name": name_of(type(thing), registry, what)}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if not field.init or value is None or value == field.default:
            continue
        inner = dataclasses.is_dataclass(value) and not isinstance(value, type)
        section[field.name] = _settings_of(value, PARTS[field.name], field.name) if inner else value
    return section


def name_of(thing: Any, registry: Mapping[str, Any], what: str) -> str:
    """Return the name in a configuration that stands for a class or a function."""
    for name, known in registry.items():
        if known is thing:
            return name
    path = f"{thing.__module__}:{thing.__qualname__}"
    if getattr(sys.modules.get(thing.__module__), thing.__qualname__, None) is not thing:
        raise ConfigError(
            f"{what} {thing.__qualname__} must be defined at the top level of a module or a "
            "notebook"
        )
    return path


def model_settings(model: ModelLike | None) -> tuple[nn.Module | None, dict[str, Any]]:
    """Return a network as it was given, or the section of a model."""
    if model is None:
        return None, {}
    if isinstance(model, nn.Module):
        return model, {"name": type(model).__name__}
    if isinstance(model, Mapping):
        return None, dict(model)
    if isinstance(model, str):
        return None, {"name": model}
    if not (inspect.isfunction(model) or isinstance(model, type)):
        kind = type(model).__name__
        raise ConfigError(f"model must be settings, a function, a class or a network, not {kind}")
    return None, {"name": name_of(model, MODELS, "model")}
