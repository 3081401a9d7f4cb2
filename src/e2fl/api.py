"""Run and compare from Python, as the command line does."""

import dataclasses
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from e2fl.algorithms import ALGORITHMS, PARTS, Algorithm, AnyAlgorithm
from e2fl.config.experiment import Experiment, from_dict, load
from e2fl.config.overrides import given
from e2fl.data import FederatedData
from e2fl.errors import ConfigError, E2flWarning
from e2fl.models import MODELS
from e2fl.results import Comparison, Run
from e2fl.runs import compare as comparison
from e2fl.runs.progress import NotebookProgress
from e2fl.runs.runner import Watcher, run_experiment

Config = str | Path | Mapping[str, Any] | Experiment
AlgorithmLike = str | Mapping[str, Any] | type[AnyAlgorithm] | AnyAlgorithm
ModelLike = Mapping[str, Any] | Callable[..., nn.Module] | nn.Module | str


def run(
    config: Config,
    *,
    algorithm: AlgorithmLike | None = None,
    model: ModelLike | None = None,
    data: FederatedData | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    watcher: Watcher | None = None,
    **changes: Any,
) -> Run:
    """Run one experiment: a TOML file, the name of a shipped one, a dictionary, or an `Experiment`.

    algorithm: a name or a variant of the experiment, a class, an object, or settings such as {"q": 1.0}.
    model: settings, a function or class that makes a network of (inputs, classes), or a network.
    data: settings such as {"clients": 20}, or a data set made in Python.
    out: the folder to store the run in; without it, nothing is stored. resume: continue the run in that folder.
    progress: show a progress bar; default: in notebooks and terminals.
    changes: other settings, such as rounds=20 or learner={"epochs": 1}.
    """
    settings = _algorithm_settings(algorithm)
    name = settings.pop("name", None)
    network, model_settings = _model(model)
    own_data = data if isinstance(data, FederatedData) else None
    data_settings = data if isinstance(data, Mapping) else {}
    sections = {"algorithm": settings, "model": model_settings, "data": data_settings}
    asked = given(changes | {section: values for section, values in sections.items() if values})
    experiment = _experiment(config, own_data)
    experiment = experiment.changed(asked) if name is None else experiment.variant(name, asked)
    _warn_of_imports(config, experiment, name)
    _warn_if_not_stored(out)
    watcher = watcher or _watcher(progress)
    folder = None if out is None else Path(out)
    return Run(run_experiment(experiment, out=folder, resume=resume, data=own_data, network=network, watcher=watcher))


def compare(
    config: Config,
    algorithms: Sequence[AlgorithmLike],
    *,
    seeds: Sequence[int] | None = None,
    data: FederatedData | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    watcher: Watcher | None = None,
    **changes: Any,
) -> Comparison:
    """Run several algorithms on the same data with the same draws of clients.

    algorithms: names, variants of the experiment, classes or objects. seeds: default: the experiment's own.
    changes: as in `run`, made to all; settings of an algorithm, such as algorithm={"q": 1.0}, to those that have them.
    """
    own_data = data if isinstance(data, FederatedData) else None
    asked = given(changes | ({"data": data} if isinstance(data, Mapping) else {}))
    experiment = _experiment(config, own_data)
    names = []
    for algorithm in algorithms:
        settings = _algorithm_settings(algorithm)
        name = str(settings.get("name")) if isinstance(algorithm, str) else type_name(algorithm)
        if not isinstance(algorithm, str):
            experiment = dataclasses.replace(experiment, variants=experiment.variants | {name: {"algorithm": settings}})
        names.append(name)
    found = comparison.methods(experiment, names, asked)
    for name, method in found.items():
        _warn_of_imports(config, method, name)
    _warn_if_not_stored(out)
    seeds = [next(iter(found.values())).seed] if seeds is None else seeds
    folder = None if out is None else Path(out)
    watcher = watcher or _watcher(progress)
    runs = comparison.compare(found, seeds, out=folder, resume=resume, data=own_data, watcher=watcher)
    return Comparison([Run(run) for run in runs], folder)


def _experiment(config: Config, data: FederatedData | None) -> Experiment:
    if isinstance(config, Experiment):
        values = config.to_dict()
    elif isinstance(config, Mapping):
        values = dict(config)
    else:
        values = load(config).to_dict()
    if data is not None:
        values["data"] = {"name": data.name}
    return from_dict(values)


def type_name(algorithm: object) -> str:
    """Return the display name of an algorithm."""
    if isinstance(algorithm, Mapping):
        return str(algorithm.get("label", algorithm.get("name")))
    return (algorithm if isinstance(algorithm, type) else type(algorithm)).__name__


def _algorithm_settings(algorithm: AlgorithmLike | None) -> dict[str, Any]:
    """Return the section of an algorithm, however it was given."""
    if algorithm is None:
        return {}
    if isinstance(algorithm, str):
        return {"name": algorithm}
    if isinstance(algorithm, Mapping):
        return dict(algorithm)
    if isinstance(algorithm, type):
        return {"name": _name_of(algorithm, ALGORITHMS, "algorithm")}
    if not isinstance(algorithm, Algorithm):
        raise ConfigError(f"algorithm must be a name, settings, a class or an object, not {type(algorithm).__name__}")
    return _settings_of(algorithm, ALGORITHMS, "algorithm")


def _settings_of(thing: Any, registry: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the section that makes an equal object."""
    section: dict[str, Any] = {"name": _name_of(type(thing), registry, what)}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if not field.init or value is None or value == field.default:
            continue
        inner = dataclasses.is_dataclass(value) and not isinstance(value, type)
        section[field.name] = _settings_of(value, PARTS[field.name], field.name) if inner else value
    return section


def _name_of(thing: Any, registry: Mapping[str, Any], what: str) -> str:
    """Return the name in a configuration that stands for a class or a function."""
    for name, known in registry.items():
        if known is thing:
            return name
    path = f"{thing.__module__}:{thing.__qualname__}"
    if getattr(sys.modules.get(thing.__module__), thing.__qualname__, None) is not thing:
        raise ConfigError(f"{what} {thing.__qualname__} must be defined at the top level of a module or a notebook")
    return path


def _model(model: ModelLike | None) -> tuple[nn.Module | None, dict[str, Any]]:
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
        raise ConfigError(f"model must be settings, a function, a class or a network, not {type(model).__name__}")
    return None, {"name": _name_of(model, MODELS, "model")}


def _watcher(progress: bool | None) -> Watcher:
    return NotebookProgress(shown=progress)


def _warn_of_imports(config: Config, experiment: Experiment, name: str | None) -> None:
    if isinstance(config, str | Path):
        names = [code for code in experiment.imports() if code != name and not code.startswith("__main__:")]
        if names:
            warnings.warn(
                f"{config} names code that is imported and run: {', '.join(names)}", E2flWarning, stacklevel=3
            )


def _warn_if_not_stored(out: str | Path | None) -> None:
    if out is None:
        warnings.warn("nothing is stored: pass out='runs/mine' to store the run", E2flWarning, stacklevel=3)
