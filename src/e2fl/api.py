"""Run and compare from Python, as the command line does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2fl import comparison
from e2fl.data import FederatedData
from e2fl.experiment import Experiment, Section, from_dict, load, merge
from e2fl.runner import Run, Watcher, run_experiment

Config = str | Path | Mapping[str, Any] | Experiment


def run(
    config: Config,
    *,
    algorithm: str | None = None,
    data: FederatedData | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    **changes: Any,
) -> Run:
    """Run one experiment: a TOML file, the name of a shipped one, a dictionary, or an `Experiment`.

    algorithm: another algorithm, or a variant the experiment names.  data: a data set made in Python, instead of the
    configured one.  changes: settings laid over the configuration, such as rounds=20 or learner={"epochs": 1}.
    """
    experiment = _experiment(config, changes, data)
    if algorithm is not None:
        experiment = experiment.variant(algorithm)
    folder = None if out is None else Path(out)
    return run_experiment(experiment, out=folder, resume=resume, data=data, watcher=watcher)


def compare(
    config: Config,
    algorithms: Sequence[str],
    *,
    seeds: Sequence[int] = (0,),
    data: FederatedData | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    **changes: Any,
) -> list[Run]:
    """Run several algorithms, or variants the experiment names, on the same data with the same draws of clients."""
    experiment = _experiment(config, changes, data)
    folder = None if out is None else Path(out)
    return comparison.compare(experiment, algorithms, seeds, out=folder, resume=resume, data=data, watcher=watcher)


def _experiment(config: Config, changes: Section, data: FederatedData | None) -> Experiment:
    if isinstance(config, Experiment):
        values = config.to_dict()
    elif isinstance(config, Mapping):
        values = dict(config)
    else:
        values = load(config).to_dict()
    if data is not None:
        values["data"] = {"name": data.name}
    return from_dict(merge(values, changes))
