"""Run and compare from Python, and what comes out: data frames, plots, the report page."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import altair
import numpy as np
import pandas
from torch import nn

from e2fl.config.experiment import Experiment, from_dict, load
from e2fl.config.methods import methods as methods_of
from e2fl.config.methods import with_attacks
from e2fl.config.overrides import Change, given
from e2fl.config.sections import (
    AlgorithmLike,
    ModelLike,
    name_of,
    named,
    section_from,
)
from e2fl.data import FederatedData
from e2fl.errors import ConfigError, E2flWarning, ReportError, RunError
from e2fl.report.finish import printed
from e2fl.report.from_runs import study_of
from e2fl.report.page import write_report
from e2fl.report.study import Study
from e2fl.report.study import frame as records_frame
from e2fl.report.table import summary_table
from e2fl.runs import batch, store
from e2fl.runs.progress import NotebookProgress
from e2fl.runs.records import numbers_of
from e2fl.runs.runner import run_experiment
from e2fl.runs.trained import Prediction, TrainedRun
from e2fl.runs.watcher import Watcher

Config = str | Path | Mapping[str, Any] | Experiment


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
) -> "Run":
    """Run one experiment: a TOML file, the name of a shipped one, a dictionary, an `Experiment`.

    algorithm: a name or a variant of the experiment, a class, an object, or settings such as
    {"q": 1.0}. model: settings, a function or class that makes a network of (inputs, classes), or a
    network. data: settings such as {"clients": 20}, or a data set made in Python. out: the folder
    to store the run in; without it, nothing is stored. resume: continue the run in that folder.
    progress: show a progress bar; default: in notebooks and terminals. changes: other settings,
    such as rounds=20, learner={"epochs": 1} or measures=[auc].
    """
    settings = section_from(algorithm, "algorithm")
    name = settings.pop("name", None)
    experiment, own_data, asked = _asked(config, data, changes)
    asked += given({"algorithm": settings, "model": section_from(model, "model")})
    experiment = experiment.changed(asked) if name is None else experiment.variant(name, asked)
    folder = _folder(config, {str(name): experiment}, out)
    return Run(
        run_experiment(
            experiment,
            out=folder,
            resume=resume,
            data=own_data,
            network=model if isinstance(model, nn.Module) else None,
            watcher=watcher or NotebookProgress(shown=progress),
        )
    )


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
) -> "Comparison":
    """Run several algorithms on the same data with the same draws of clients.

    algorithms: names, variants of the experiment, classes or objects. seeds: default: the
    experiment's own. changes: as in `run`, made to all; settings of an algorithm, such as
    algorithm={"q": 1.0}, to those that have them. attack="scale", or a list: run each algorithm
    with everybody honest and under each attack.
    """
    _require_list("algorithms", algorithms, "['fedavg', 'e2fl']")
    if seeds is not None:
        _require_list("seeds", seeds, "[0, 1, 2]")
    attack = () if isinstance(changes.get("attack"), Mapping) else changes.pop("attack", ())
    experiment, own_data, asked = _asked(config, data, changes)
    experiment, names = named(experiment, algorithms)
    methods = methods_of(experiment, names, asked)
    if attack:
        methods = with_attacks(methods, [attack] if isinstance(attack, str) else attack)
    folder = _folder(config, methods, out)
    finished = batch.compare(
        methods,
        [next(iter(methods.values())).seed] if seeds is None else seeds,
        out=folder,
        resume=resume,
        data=own_data,
        watcher=watcher or NotebookProgress(shown=progress),
        keep_states=True,
    )
    for reason in finished.reasons() if finished.runs else ():
        warnings.warn(f"left out, as it failed: {reason}", E2flWarning, stacklevel=2)
    return Comparison([Run(run) for run in finished.some()], folder)


class Run:
    """A finished run.

    summary: the contents of summary.json, such as `run.summary["group"]["worst10"]`. label: the
    display name of the method. folder: where the run is stored; None if it is not. state: the
    algorithm's state after the last round; None for a run that was read from disk.
    """

    def __init__(self, record: store.StoredRun):
        self.record = record
        self.summary, self.label, self.state = record.summary, record.label, record.state
        self.folder = record.folder

    @property
    def experiment(self) -> Experiment:
        """The whole configuration, with every default."""
        return self.record.experiment

    @cached_property
    def history(self) -> pandas.DataFrame:
        """One row for each evaluated round; columns such as clients/mean and groups/G1/accuracy.

        training_loss: mean over the clients that trained in this round.
        """
        rows = pandas.DataFrame([numbers_of(line) for line in self.record.history])
        return rows.set_index("round")

    @cached_property
    def clients(self) -> pandas.DataFrame:
        """One row for each client, or for each group inside it, at the last evaluation."""
        return pandas.DataFrame(self.record.clients)

    def plot(self) -> altair.Chart:
        """Return a plot of the accuracy of each group, and of clients on average, over rounds."""
        lines = {"mean of clients": "clients/mean"}
        lines |= {name: f"groups/{name}/accuracy" for name in self.summary["groups"]}
        means = self.history[list(lines.values())].set_axis(list(lines), axis=1)
        rows = means.reset_index().melt("round", var_name="group")
        return _lines(
            rows, "group", "accuracy in percent", f"{self.label}, seed {self.record.seed}"
        )

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report page, by default into the run's folder, and return its path."""
        return Comparison([self], self.folder).report(path)

    def predict(self, x: Any, *, group: str | int | None = None, trust: bool = False) -> Prediction:
        """Predict inputs [examples, ...], as the network reads them, with the model of a group.

        group: the name of a group of the data, the number of a group that was found, or "global";
        None: the only model. trust: import the network that a run read from disk names, if it is
        not one of e2fl.
        """
        trained = self._trained(trust)
        return trained.predict(trained.read(np.asarray(x)), group)

    def network(self, *, group: str | int | None = None, trust: bool = False) -> nn.Module:
        """Return the model of a group as a plain torch module; arguments as in `predict`."""
        trained = self._trained(trust)
        return trained.network(trained.choose(group))

    def _trained(self, trust: bool) -> TrainedRun:
        if self.folder is None:
            raise RunError(
                "the run is not stored, so it has no models to load; run it with out='runs/mine'"
            )
        # What a run of this process names was imported for it already.
        return TrainedRun(self.folder, trust=trust or self.state is not None)

    def __repr__(self) -> str:
        clients, group = self.summary["clients"], self.summary["group"]
        worst = f", worst group {group['worst10']:.1f} %" if group else ""
        what = f"{self.label}, seed {self.record.seed}, {self.summary['rounds']} rounds"
        return f"<e2fl.Run {what}: clients {clients['mean']:.1f} %{worst}>"

    def _repr_html_(self) -> str:
        where = f"stored in {self.folder}" if self.folder else "not stored"
        table = summary_table(_study([self])).html()
        return f"<p>{escape(repr(self)[1:-1])}, {escape(where)}</p>{table}"


class Comparison:
    """Several runs on the same experiment."""

    def __init__(self, runs: Sequence[Run], folder: Path | None = None):
        self.runs, self.folder = list(runs), folder

    def __getitem__(self, position: int) -> Run:
        return self.runs[position]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def seeds(self) -> list[int]:
        """The seeds, each once."""
        return list(dict.fromkeys(run.record.seed for run in self.runs))

    @cached_property
    def table(self) -> pandas.DataFrame:
        """One row for each run: means, worst and best tenth and variance, and bytes."""
        last = frame(self.runs).query("last and view == ''").reset_index(drop=True)
        last = last.drop(columns="algorithm").rename(columns={"label": "algorithm"})
        spreads = "(group|clients)/(mean|worst10|best10|variance)"
        return last.filter(regex=f"^(algorithm|seed|{spreads}|bytes/(up|down)_per_client_round)$")

    def plot(self, measure: str = "group/worst10") -> altair.Chart:
        """Return a plot of a measure, such as clients/mean, over the rounds: a line per method."""
        rows = frame(self.runs).query("view == ''")
        if measure not in rows or not rows[measure].notna().any():
            known = ", ".join(name for name in rows.columns if "/" in name)
            raise ReportError(f"there is no figure '{measure}'; known: {known}")
        named = rows[["round", "label", measure]].set_axis(["round", "algorithm", "value"], axis=1)
        return _lines(named, "algorithm", measure, measure)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report page, by default into the comparison's folder, and return its path."""
        out = Path(path) if path is not None else (self.folder or Path()) / store.PAGE
        write_report(_study(self.runs), out)
        return out

    def __repr__(self) -> str:
        labels = dict.fromkeys(run.label for run in self.runs)
        seeds = ", ".join(map(str, self.seeds))
        return f"<e2fl.Comparison of {', '.join(labels)}; seeds {seeds}>"

    def __str__(self) -> str:
        count, seeds = len(self.seeds), ", ".join(map(str, self.seeds))
        said = f"{count} seeds ({seeds}): mean ± standard deviation"
        one = f"1 seed ({seeds}): no deviation over seeds"
        return f"{printed(_study(self.runs))}\n\n{one if count == 1 else said}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self)[1:-1])}</p>{summary_table(_study(self.runs)).html()}"


def read_run(path: str | Path) -> Run:
    """Return a finished run from its folder. Nothing that its files name is imported."""
    return Run(store.read_run(path))


def frame(runs: Iterable[Run]) -> pandas.DataFrame:
    """Return one row per run, view and evaluated round, with a column per path of a number.

    The first columns are method, label, algorithm, seed, view, round and last. view is "" for the
    clients' own models; method is the label, with the view in parentheses where there is one. The
    row of the last round also has what the summary adds: bytes/*, bits/*, budget/*,
    participation/*, seconds/* and unseen/*.
    """
    return records_frame(run.record for run in runs)


def _study(runs: Sequence[Run]) -> Study:
    return study_of([run.record for run in runs])


def _lines(rows: pandas.DataFrame, colour: str, value: str, title: str) -> altair.Chart:
    """Return a plot with a line per colour; several runs of one colour are averaged."""
    chart: altair.Chart = altair.Chart(rows, title=title).mark_line(point=True)
    return chart.encode(
        x=altair.X("round:Q", title="round"),
        y=altair.Y("mean(value):Q", title=value),
        color=altair.Color(f"{colour}:N", title=colour),
    )


def _require_list(name: str, values: object, example: str) -> None:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigError(f"{name} must be a list, such as {example}, not {values!r}")


def _asked(
    config: Config, data: FederatedData | Mapping[str, Any] | None, changes: Mapping[str, Any]
) -> tuple[Experiment, FederatedData | None, list[Change]]:
    """Return the experiment as configured, data made in Python, and the changes to make."""
    if isinstance(config, FederatedData):
        raise ConfigError("a configuration comes first, such as 'demo'; pass data as data=data")
    if isinstance(config, Mapping):
        default = {"name": data.name} if isinstance(data, FederatedData) else data
        config = from_dict(({"data": default} if default else {}) | dict(config))
    experiment = config if isinstance(config, Experiment) else load(config)
    asked = dict(changes)
    if "measures" in asked:  # functions stand by their names
        measures = asked["measures"]
        _require_list("measures", measures, "[auc]")
        asked["measures"] = [name_of(one, "measure") if callable(one) else one for one in measures]
    if isinstance(data, FederatedData):
        return replace(experiment, data={"name": data.name}), data, given(asked)
    return experiment, None, given(asked | {"data": data or {}})


def _folder(
    config: Config, methods: Mapping[str, Experiment], out: str | Path | None
) -> Path | None:
    """Return where to store runs; warn of code that a file names, and if nothing is stored."""
    codes = [code for name, method in methods.items() for code in method.imports() if code != name]
    names = dict.fromkeys(code for code in codes if not code.startswith("__main__:"))
    if names and isinstance(config, str | Path):
        text = f"{config} names code that is imported and run: {', '.join(names)}"
        warnings.warn(text, E2flWarning, stacklevel=3)
    if out is None:
        text = "nothing is stored: pass out='runs/mine' to store the run"
        warnings.warn(text, E2flWarning, stacklevel=3)
    return None if out is None else Path(out)
