"""Run and compare from Python, and what comes out: data frames, plots, the report page."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair
import pandas
from torch import nn

from e2fl.config.experiment import Experiment, from_dict, load
from e2fl.config.methods import methods as methods_of
from e2fl.config.methods import with_attacks
from e2fl.config.overrides import given
from e2fl.config.sections import (
    AlgorithmLike,
    ModelLike,
    algorithm_settings,
    model_settings,
    name_of,
    named,
)
from e2fl.data import FederatedData
from e2fl.errors import ConfigError, E2flWarning, ReportError, RunError
from e2fl.report.study import frame as records_frame
from e2fl.runs import batch, store
from e2fl.runs.progress import NotebookProgress
from e2fl.runs.records import Json, numbers_of
from e2fl.runs.runner import run_experiment
from e2fl.runs.trained import Prediction, TrainedRun, from_inputs
from e2fl.runs.watcher import Watcher

if TYPE_CHECKING:
    from altair import Chart

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
    settings = algorithm_settings(algorithm)
    name = settings.pop("name", None)
    network, network_settings = model_settings(model)
    own_data = data if isinstance(data, FederatedData) else None
    data_settings = data if isinstance(data, Mapping) else {}
    sections = {"algorithm": settings, "model": network_settings, "data": data_settings}
    asked = given(
        _named_measures(changes)
        | {section: values for section, values in sections.items() if values}
    )
    experiment = _experiment(config, own_data)
    experiment = experiment.changed(asked) if name is None else experiment.variant(name, asked)
    _warn_of_imports(config, experiment, name)
    _warn_if_not_stored(out)
    return Run(
        run_experiment(
            experiment,
            out=None if out is None else Path(out),
            resume=resume,
            data=own_data,
            network=network,
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
    own_data = data if isinstance(data, FederatedData) else None
    settings = {"data": data} if isinstance(data, Mapping) else {}
    attack = () if isinstance(changes.get("attack"), Mapping) else changes.pop("attack", ())
    asked = given(_named_measures(changes) | settings)
    experiment, names = named(_experiment(config, own_data), algorithms)
    methods = methods_of(experiment, names, asked)
    if attack:
        methods = with_attacks(methods, [attack] if isinstance(attack, str) else attack)
    for name, method in methods.items():
        _warn_of_imports(config, method, name)
    _warn_if_not_stored(out)
    folder = None if out is None else Path(out)
    runs = batch.compare(
        methods,
        [next(iter(methods.values())).seed] if seeds is None else seeds,
        out=folder,
        resume=resume,
        data=own_data,
        watcher=watcher or NotebookProgress(shown=progress),
    )
    return Comparison([Run(run) for run in runs], folder)


class Run:
    """A finished run."""

    def __init__(self, record: store.Run):
        self.record = record

    @property
    def experiment(self) -> Experiment:
        """The whole configuration, with every default."""
        return self.record.experiment

    @property
    def summary(self) -> Json:
        """The contents of summary.json, such as `run.summary["group"]["worst10"]`."""
        return self.record.summary

    @property
    def state(self) -> Any:
        """The algorithm's state after the last round; None for a run that was read from disk."""
        return self.record.state

    @property
    def folder(self) -> Path | None:
        """Where the run is stored; None if it is not."""
        return self.record.folder

    @property
    def label(self) -> str:
        """The display name of the method."""
        return self.record.label

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

    def plot(self) -> "Chart":
        """Return a plot of the accuracy of each group, and of clients on average, over rounds."""
        lines = {"mean of clients": "clients/mean"}
        lines |= {name: f"groups/{name}/accuracy" for name in self.summary["groups"]}
        means = self.history[list(lines.values())].set_axis(list(lines), axis=1)
        rows = means.reset_index().melt("round", var_name="group", value_name="accuracy")
        return _lines(rows, "group", f"{self.label}, seed {self.record.seed}")

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report page, by default into the run's folder, and return its path."""
        return _report([self], path, self.folder)

    def predict(self, x: Any, *, group: str | int | None = None, trust: bool = False) -> Prediction:
        """Predict inputs [examples, ...], as the network reads them, with the model of a group.

        group: the name of a group of the data, the number of a group that was found, or "global";
        None: the only model. trust: import the network that a run read from disk names, if it is
        not one of e2fl.
        """
        trained = self._trained(trust)
        return trained.predict(from_inputs(x, trained.shape), group)

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
        return f"<p>{escape(repr(self)[1:-1])}, {escape(where)}</p>{_html([self])}"


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
    def history(self) -> pandas.DataFrame:
        """The histories of all runs, one below the other, with algorithm, seed and round."""
        return self._together([run.history.reset_index() for run in self.runs])

    @cached_property
    def clients(self) -> pandas.DataFrame:
        """The clients of all runs, one below the other, with the columns algorithm and seed."""
        return self._together([run.clients for run in self.runs])

    @cached_property
    def table(self) -> pandas.DataFrame:
        """One row for each run: means, worst and best tenth and variance, and bytes."""
        last = frame(self.runs).query("last and view == ''")
        measures = last.filter(regex="^(group|clients)/(mean|worst10|best10|variance)$")
        ways = [f"{way}_per_client_round" for way in ("up", "down")]
        sent = last[[f"bytes/{way}" for way in ways]].set_axis(ways, axis=1)
        named = last[["label", "seed"]].set_axis(["algorithm", "seed"], axis=1)
        return pandas.concat([named, measures, sent], axis=1).reset_index(drop=True)

    def plot(self, measure: str = "group/worst10") -> "Chart":
        """Return a plot of a measure, such as clients/mean, over the rounds: a line per method."""
        rows = frame(self.runs).query("view == ''")
        if measure not in rows or not rows[measure].notna().any():
            known = ", ".join(name for name in rows.columns if "/" in name)
            raise ReportError(f"there is no figure '{measure}'; known: {known}")
        named = rows[["round", "label", measure]].rename(columns={"label": "algorithm"})
        return _lines(named, "algorithm", measure, measure)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report page, by default into the comparison's folder, and return its path."""
        return _report(self.runs, path, self.folder)

    def __repr__(self) -> str:
        labels = dict.fromkeys(run.label for run in self.runs)
        seeds = ", ".join(map(str, self.seeds))
        return f"<e2fl.Comparison of {', '.join(labels)}; seeds {seeds}>"

    def __str__(self) -> str:
        from e2fl.report.finish import printed
        from e2fl.report.from_runs import study_of

        study = study_of([run.record for run in self.runs])
        count, seeds = len(self.seeds), ", ".join(map(str, self.seeds))
        said = f"{count} seeds ({seeds}): mean ± standard deviation"
        one = f"1 seed ({seeds}): no deviation over seeds"
        return f"{printed(study)}\n\n{one if count == 1 else said}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self)[1:-1])}</p>{_html(self.runs)}"

    def _together(self, frames: Sequence[pandas.DataFrame]) -> pandas.DataFrame:
        keys, names = [(run.label, run.record.seed) for run in self.runs], ["algorithm", "seed"]
        whole = pandas.concat(frames, keys=keys, names=names)
        return whole.reset_index(names).reset_index(drop=True)


def read_run(path: str | Path) -> Run:
    """Return a finished run from its folder. Nothing that its files name is imported."""
    return Run(store.read_run(path))


def frame(runs: Iterable[Run]) -> pandas.DataFrame:
    """Return one row per run, view and evaluated round, with a column per path of a number.

    The first columns are method, label, algorithm, seed, view, round and last. view is "" for the
    clients' own models; method is the label, with the view in parentheses where there is one. The
    row of the last round also has what the summary adds: bytes/*, bits/*, budget/*, loss/*,
    participation/*, seconds/* and unseen/*.
    """
    return records_frame(run.record for run in runs)


def _report(runs: Sequence[Run], path: str | Path | None, folder: Path | None) -> Path:
    from e2fl.report.from_runs import study_of
    from e2fl.report.page import write_report

    out = Path(path) if path is not None else (folder or Path()) / store.PAGE
    write_report(study_of([run.record for run in runs]), out)
    return out


def _html(runs: Sequence[Run]) -> str:
    from e2fl.report.from_runs import study_of
    from e2fl.report.table import summary_table

    return summary_table(study_of([run.record for run in runs])).html()


def _lines(rows: pandas.DataFrame, colour: str, title: str, value: str = "accuracy") -> "Chart":
    """Return a plot with a line per colour; several runs of one colour are averaged."""
    data = rows.rename(columns={value: "value"})
    chart: Chart = altair.Chart(data, title=title).mark_line(point=True)
    return chart.encode(
        x=altair.X("round:Q", title="round"),
        y=altair.Y("mean(value):Q", title="accuracy in percent" if value == "accuracy" else value),
        color=altair.Color(f"{colour}:N", title=colour),
    )


def _require_list(name: str, values: object, example: str) -> None:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigError(f"{name} must be a list, such as {example}, not {values!r}")


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


def _named_measures(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes in which own measures that are functions stand by their names."""
    named_changes = dict(changes)
    if "measures" in named_changes:
        _require_list("measures", named_changes["measures"], "[auc]")
        named_changes["measures"] = [
            name_of(measure, "measure") if callable(measure) else measure
            for measure in named_changes["measures"]
        ]
    return named_changes


def _warn_of_imports(config: Config, experiment: Experiment, name: str | None) -> None:
    given = [code for code in experiment.imports() if not code.startswith("__main__:")]
    names = [code for code in given if code != name]
    if names and isinstance(config, str | Path):
        text = f"{config} names code that is imported and run: {', '.join(names)}"
        warnings.warn(text, E2flWarning, stacklevel=3)


def _warn_if_not_stored(out: str | Path | None) -> None:
    if out is None:
        text = "nothing is stored: pass out='runs/mine' to store the run"
        warnings.warn(text, E2flWarning, stacklevel=3)
