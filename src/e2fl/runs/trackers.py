"""Trackers: write the measures of a run to other tools during training, under the same names.

A name is the path of a number in a line of history.jsonl, such as clients/mean, group/worst10 or
groups/G1/accuracy. All data stays on this machine, in the folder of the run.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from e2fl.config.experiment import Experiment
from e2fl.config.overrides import flattened
from e2fl.construct import did_you_mean
from e2fl.errors import ConfigError, ReportError
from e2fl.runs.records import Json, numbers_of
from e2fl.runs.watcher import Watcher

LEFT_OUT = ("round", "metadata", "faults")


def flat(measured: Mapping[str, Any]) -> dict[str, float]:
    """Return all numbers of a line of history by path, in characters that a tracker accepts."""
    kept = {key: value for key, value in measured.items() if key not in LEFT_OUT}
    return {
        re.sub(r"[^A-Za-z0-9_.: /-]", "_", path): float(value)
        for path, value in numbers_of(kept).items()
    }


class TensorBoard(Watcher):
    """A tracker for `tensorboard --logdir DIR`; it writes into DIR/tensorboard/."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard") from error
        self.folder = folder / "tensorboard"
        self.make = SummaryWriter
        self.writer: Any = None  # typed by tensorboard, which is optional

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        name = _run_name(experiment)
        # Steps from `first` on were logged before an interruption, and are repeated.
        self.writer = self.make(str(self.folder / name), purge_step=first)

    def advance(self, number: int, measured: Json | None) -> None:
        if measured is not None:
            for name, value in flat(measured).items():
                self.writer.add_scalar(name, value, number)
            self.writer.flush()

    def end(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class MLflow(Watcher):
    """A tracker for `mlflow ui --backend-store-uri sqlite:///DIR/mlflow.db`; it contacts no server."""

    def __init__(self, folder: Path):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise _missing("mlflow") from error
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        self.folder = folder.absolute()
        self.make = MlflowClient
        self.client: Any = None  # typed by mlflow, which is optional
        self.run = ""

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        if self.client is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.client = self.make(tracking_uri=f"sqlite:///{self.folder / 'mlflow.db'}")
        known = self.client.get_experiment_by_name(experiment.name)
        place = (self.folder / "mlflow_artifacts").as_uri()
        store = (
            known.experiment_id
            if known
            else self.client.create_experiment(experiment.name, artifact_location=place)
        )
        identity = experiment.identity()
        found = self.client.search_runs(
            [store], filter_string=f"tags.`e2fl.identity` = '{identity}'"
        )
        if found:  # the same run is resumed
            self.run = found[0].info.run_id
            return
        tags = {"e2fl.identity": identity}
        self.run = self.client.create_run(
            store, run_name=_run_name(experiment), tags=tags
        ).info.run_id
        for key, value in _settings(experiment).items():
            self.client.log_param(self.run, key, value)

    def advance(self, number: int, measured: Json | None) -> None:
        if measured is None:
            return
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        values = [Metric(name, value, now, number) for name, value in flat(measured).items()]
        for start in range(0, len(values), 1000):  # the limit of one call
            self.client.log_batch(self.run, metrics=values[start : start + 1000])

    def end(self) -> None:
        if self.run:
            self.client.set_terminated(self.run)
            self.run = ""


class WeightsAndBiases(Watcher):
    """A tracker for `wandb sync DIR/wandb/offline-run-*`; offline unless WANDB_MODE says otherwise."""

    def __init__(self, folder: Path):
        os.environ.setdefault("WANDB_MODE", "offline")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it is read when wandb is imported
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb") from error
        self.folder = folder.absolute()
        self.wandb = wandb
        self.run: Any = None  # typed by wandb, which is optional

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run = self.wandb.init(
            project=re.sub(r"[^A-Za-z0-9_.-]", "_", experiment.name),
            name=_run_name(experiment),
            id=experiment.identity()[:32],  # online, a resumed run continues the same one
            resume=None if os.environ["WANDB_MODE"] == "offline" else "allow",
            dir=str(self.folder),
            config=_settings(experiment),
            settings=self.wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                save_code=False,
                x_disable_stats=True,
                x_disable_meta=True,
            ),
        )

    def advance(self, number: int, measured: Json | None) -> None:
        if measured is not None:
            self.run.log(flat(measured), step=number)

    def end(self) -> None:
        if self.run is not None:
            self.run.finish()
            self.run = None


TRACKERS: dict[str, Callable[[Path], Watcher]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def tracker(name: str, folder: Path) -> Watcher:
    """Return the tracker of this name, which writes into the folder of a run or a comparison."""
    if name not in TRACKERS:
        raise ConfigError(f"there is no tracker '{name}'{did_you_mean(name, TRACKERS)}")
    return TRACKERS[name](folder)


def _missing(name: str) -> ReportError:
    return ReportError(f"--track {name} needs {name}; install it with: pip install 'e2fl[track]'")


def _run_name(experiment: Experiment) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"{experiment.label}-seed{experiment.seed}")


def _settings(experiment: Experiment) -> dict[str, str]:
    return {name: str(value) for name, value in flattened(experiment.to_dict()).items()}
