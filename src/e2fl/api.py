"""Run and compare from Python, as the command line does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2fl.config.experiment import Experiment, from_dict, load
from e2fl.config.overrides import given
from e2fl.data import FederatedData
from e2fl.runs import compare as comparison
from e2fl.runs.runner import Run, Watcher, run_experiment

Config = str | Path | Mapping[str, Any] | Experiment


def run(
    config: Config,
    *,
    algorithm: str | Mapping[str, Any] | None = None,
    data: FederatedData | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    **changes: Any,
) -> Run:
    """Run one experiment: a TOML file, the name of a shipped one, a dictionary, or an `Experiment`.

    algorithm: another algorithm, or a variant the experiment names, or settings, such as {"name": "qffl", "q": 1.0};
    without a name, they are of the algorithm that is configured.  data: a data set made in Python, instead of the
    configured one.  changes: settings laid over all that, such as rounds=20 or learner={"epochs": 1}.
    """
    settings = dict(algorithm) if isinstance(algorithm, Mapping) else {"name": algorithm}
    name = settings.pop("name", None)
    asked = given(changes | {"algorithm": settings})
    experiment = _experiment(config, data)
    experiment = experiment.changed(asked) if name is None else experiment.variant(name, asked)
    folder = None if out is None else Path(out)
    return run_experiment(experiment, out=folder, resume=resume, data=data, watcher=watcher)


def compare(
    config: Config,
    algorithms: Sequence[str],
    *,
    seeds: Sequence[int] | None = None,
    data: FederatedData | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    **changes: Any,
) -> list[Run]:
    """Run several algorithms, or variants the experiment names, on the same data with the same draws of clients.

    seeds: to repeat with; default: the experiment's own.  changes: as `run` takes them, made to all; settings of an
    algorithm, such as algorithm={"q": 1.0}, to those that have them.
    """
    found = comparison.contenders(_experiment(config, data), algorithms, given(changes))
    seeds = [next(iter(found.values())).seed] if seeds is None else seeds
    folder = None if out is None else Path(out)
    return comparison.compare(found, seeds, out=folder, resume=resume, data=data, watcher=watcher)


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
