"""Trackers: the numbers of evaluated rounds, for TensorBoard, MLflow and Weights & Biases.

A name is the path of a number in a line of history.jsonl, such as groups/G1/accuracy. All data
stays on this machine, in the folder of the run.
"""

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from e2fl.config.experiment import Experiment
from e2fl.config.overrides import flattened
from e2fl.construct import did_you_mean
from e2fl.errors import ConfigError
from e2fl.runs.records import Json, numbers_of
from e2fl.runs.watcher import Watcher

TRACKERS = ("tensorboard", "mlflow", "wandb")


class Tracker(Watcher):
    """A watcher that opens a tool for each run, and passes on the numbers of evaluated rounds."""

    def __init__(self, name: str, folder: Path):
        if name not in TRACKERS:
            raise ConfigError(f"there is no tracker '{name}'{did_you_mean(name, TRACKERS)}")
        if find_spec(name) is None:
            raise ConfigError(f"--track {name} needs it: pip install 'e2fl[track]'")
        self.tool, self.folder = name, folder.absolute()

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        name, settings = f"{experiment.label}-seed{experiment.seed}", experiment.to_dict()
        opened = _open(self.tool, self.folder, experiment.name, name, flattened(settings), first)
        self.log, self.close = opened

    def advance(self, number: int, measured: Json | None) -> None:
        if measured is not None:
            self.log(flat(measured), step=number)

    def end(self) -> None:
        self.close()


def _open(tool: str, folder: Path, title: str, name: str, settings: Json, first: int) -> Any:
    """Return what logs the numbers of a round, and what closes. first: the round to log first."""
    # What these libraries read in the environment, they read when they are imported.
    if tool == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        # Rounds from `first` on were logged before an interruption, and are repeated.
        writer: Any = SummaryWriter(str(folder / tool / safe(name)), purge_step=first)
        scalar = writer.add_scalar
        return lambda numbers, step: [scalar(*item, step) for item in numbers.items()], writer.close
    if tool == "mlflow":
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        import mlflow

        mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        mlflow.set_experiment(title)
        mlflow.start_run(run_name=safe(name))
        mlflow.log_params(settings)
        return mlflow.log_metrics, mlflow.end_run
    os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    run = wandb.init(dir=folder, project=safe(title), name=safe(name), config=settings)
    return run.log, run.finish


def flat(measured: Json) -> dict[str, float]:
    """Return all numbers of a line of history by path, in characters that a tracker accepts."""
    return {safe(path, ": /"): float(value) for path, value in numbers_of(measured).items()}


def safe(text: str, more: str = "") -> str:
    """Return a name in which only letters, digits and a few signs are left."""
    return re.sub(rf"[^A-Za-z0-9_.{more}-]", "_", text)
