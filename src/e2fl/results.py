"""Runs and comparisons for Python and notebooks: figures, tables as data frames, plots and the report page.

pandas and Altair are imported when they are needed: pip install 'e2fl[report]'.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from e2fl.config.experiment import Experiment
from e2fl.errors import ReportError, RunError
from e2fl.runs import runner
from e2fl.runs.folder import PAGE
from e2fl.runs.predict import Prediction, TrainedRun, from_inputs
from e2fl.runs.printed_tables import all_tables
from e2fl.runs.records import Evaluation, Summary
from e2fl.runs.trackers import flat

if TYPE_CHECKING:
    import pandas
    from altair import Chart
    from torch import nn


class Run:
    """A finished run."""

    def __init__(self, record: runner.Run):
        self.record = record

    @property
    def experiment(self) -> Experiment:
        """The whole configuration, with every default."""
        return self.record.experiment

    @property
    def summary(self) -> dict[str, Any]:
        """The contents of summary.json, such as `run.summary["group"]["worst10"]`."""
        return self.record.summary

    @property
    def result(self) -> Summary:
        """The summary, typed."""
        return self.record.result

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluated rounds, typed."""
        return self.record.evaluations

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
        return self.experiment.label

    @cached_property
    def history(self) -> "pandas.DataFrame":
        """One row for each evaluated round; columns such as user/mean, group/worst10 and groups/G1/accuracy.

        training_loss: mean over the clients that trained in this round. seconds: since the evaluated round before.
        """
        rows = [{"round": line["round"], **flat(line)} for line in self.record.history]
        for row in rows if self.record.times else ():
            row["seconds"] = self.record.times.get(int(row["round"]), math.nan)
        return _frame(rows).set_index("round")

    @cached_property
    def clients(self) -> "pandas.DataFrame":
        """One row for each client, or for each group inside it, at the last evaluation."""
        return _frame(self.record.clients)

    def plot(self) -> "Chart":
        """Return a plot of the accuracy of each group, and of clients on average, over the rounds."""
        rows = []
        for line in self.record.history:
            rows.append({"round": line["round"], "group": "mean of clients", "accuracy": line["user"]["mean"]})
            groups = line["groups"].items()
            rows += [{"round": line["round"], "group": name, "accuracy": group["accuracy"]} for name, group in groups]
        return _lines(rows, "group", f"{self.label}, seed {self.experiment.seed}")

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report page, by default into the run's folder, and return its path."""
        return _report([self], path, self.folder)

    def predict(self, x: Any, *, group: str | int | None = None) -> Prediction:
        """Predict inputs [examples, ...], as the network reads them, with the model of a group.

        group: the name of a group of the data, the number of a group that was found, or "global"; None: the only model.
        """
        run = TrainedRun(self._stored())
        return run.predict(from_inputs(x, run.shape), group)

    def network(self, *, group: str | int | None = None) -> "nn.Module":
        """Return the model of a group as a plain torch module; `group` as in `predict`."""
        run = TrainedRun(self._stored())
        return run.network(run.choose(group))

    def _stored(self) -> Path:
        if self.folder is None:
            raise RunError("the run is not stored, so it has no models to load; run it with out='runs/mine'")
        return self.folder

    def __repr__(self) -> str:
        user, group = self.summary["user"], self.summary["group"]
        worst = f", worst group {group['worst10']:.1f} %" if group else ""
        what = f"{self.label}, seed {self.experiment.seed}, {self.summary['rounds']} rounds"
        return f"<e2fl.Run {what}: clients {user['mean']:.1f} %{worst}>"

    def _repr_html_(self) -> str:
        where = f"stored in {self.folder}" if self.folder else "not stored"
        return f"<p>{escape(repr(self)[1:-1])}, {escape(where)}</p>{_html([self.summary])}"


class Comparison(Sequence[Run]):
    """Several runs on the same experiment."""

    def __init__(self, runs: Sequence[Run], folder: Path | None = None):
        self.runs, self.folder = list(runs), folder

    @overload
    def __getitem__(self, place: int) -> Run: ...

    @overload
    def __getitem__(self, place: slice) -> "Comparison": ...

    def __getitem__(self, place: int | slice) -> "Run | Comparison":
        return Comparison(self.runs[place], self.folder) if isinstance(place, slice) else self.runs[place]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    @cached_property
    def history(self) -> "pandas.DataFrame":
        """The histories of all runs, one below the other, with the columns algorithm, seed and round."""
        return self._together([run.history.reset_index() for run in self.runs])

    @cached_property
    def clients(self) -> "pandas.DataFrame":
        """The clients of all runs, one below the other, with the columns algorithm and seed."""
        return self._together([run.clients for run in self.runs])

    @cached_property
    def table(self) -> "pandas.DataFrame":
        """One row for each run: means, worst and best tenth and variance over groups and clients, and bytes."""
        rows = []
        for run in self.runs:
            row: dict[str, Any] = {"algorithm": run.label, "seed": run.experiment.seed}
            for level in ("group", "user"):
                row |= {f"{level}/{name}": value for name, value in (run.summary[level] or {}).items()}
            row |= {name: run.summary["bytes"][name] for name in ("up_per_client_round", "down_per_client_round")}
            rows.append(row)
        return _frame(rows)

    def plot(self, measure: str = "group/worst10") -> "Chart":
        """Return a plot of one figure, such as user/mean or group/worst10, over the rounds; a line per algorithm."""
        rows = []
        for run in self.runs:
            for line in run.record.history:
                found = flat(line)
                if measure not in found:
                    raise ReportError(f"there is no figure '{measure}'; known: {', '.join(found)}")
                rows.append({"round": line["round"], "algorithm": run.label, measure: found[measure]})
        return _lines(rows, "algorithm", measure, measure)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report page, by default into the comparison's folder, and return its path."""
        return _report(self.runs, path, self.folder)

    def __repr__(self) -> str:
        labels = dict.fromkeys(run.label for run in self.runs)
        seeds = dict.fromkeys(run.experiment.seed for run in self.runs)
        return f"<e2fl.Comparison of {', '.join(labels)}; seeds {', '.join(map(str, seeds))}>"

    def __str__(self) -> str:
        return all_tables([run.summary for run in self.runs])

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self)[1:-1])}</p>{_html([run.summary for run in self.runs])}"

    def _together(self, frames: "Sequence[pandas.DataFrame]") -> "pandas.DataFrame":
        named = [
            frame.assign(algorithm=run.label, seed=run.experiment.seed)
            for run, frame in zip(self.runs, frames, strict=True)
        ]
        whole: pandas.DataFrame = _optional("pandas").concat(named, ignore_index=True)
        first = ["algorithm", "seed"]
        return whole[[*first, *(name for name in whole.columns if name not in first)]]


def read_run(path: str | Path) -> Run:
    """Return a finished run from its folder. Nothing that the folder names is imported; damaged files are rejected."""
    return Run(runner.read_run(path))


def _report(runs: Sequence[Run], path: str | Path | None, folder: Path | None) -> Path:
    from e2fl.report import report

    out = Path(path) if path is not None else (folder or Path()) / PAGE
    report([run.record for run in runs], out)
    return out


def _lines(rows: Sequence[Mapping[str, Any]], colour: str, title: str, value: str = "accuracy") -> "Chart":
    altair = _optional("altair")
    data = _frame(rows).rename(columns={value: "value"})
    chart: Chart = altair.Chart(data, title=title).mark_line(point=True)
    return chart.encode(
        x=altair.X("round:Q", title="round"),
        y=altair.Y("mean(value):Q", title="accuracy in percent" if value == "accuracy" else value),
        color=altair.Color(f"{colour}:N", title=colour),
    )


def _html(summaries: Sequence[Mapping[str, Any]]) -> str:
    return f"<pre>{escape(all_tables([dict(summary) for summary in summaries]))}</pre>"


def _frame(rows: Sequence[Mapping[str, Any]]) -> "pandas.DataFrame":
    made: pandas.DataFrame = _optional("pandas").DataFrame(list(rows))
    return made


def _optional(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ReportError(f"this needs {name}; install it with: pip install 'e2fl[report]'") from error
