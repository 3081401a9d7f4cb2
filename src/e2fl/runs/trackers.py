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

LEFT_OUT = ("round", "metadata", "faults")


def tensorboard(folder: Path, experiment: Experiment, name: str, first: int) -> Any:
    """Write into DIR/tensorboard/; return what logs the numbers of a round, and what closes."""
    from torch.utils.tensorboard import SummaryWriter

    # Rounds from `first` on were logged before an interruption, and are repeated.
    writer: Any = SummaryWriter(str(folder / "tensorboard" / name), purge_step=first)
    scalar = writer.add_scalar
    return lambda numbers, step: [scalar(*item, step) for item in numbers.items()], writer.close


def mlflow(folder: Path, experiment: Experiment, name: str, first: int) -> Any:
    """Write into DIR/mlflow.db, without a server."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.set_experiment(experiment.name)
    mlflow.start_run(run_name=name)
    mlflow.log_params(flattened(experiment.to_dict()))
    return mlflow.log_metrics, mlflow.end_run


def wandb(folder: Path, experiment: Experiment, name: str, first: int) -> Any:
    """Write into DIR/wandb/, offline unless WANDB_MODE is set."""
    os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when it is imported
    import wandb

    settings = flattened(experiment.to_dict())
    run = wandb.init(dir=folder, project=_safe(experiment.name), name=name, config=settings)
    return run.log, run.finish


TRACKERS = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}


class Tracker(Watcher):
    """A watcher that opens a tool for each run, and passes on the numbers of evaluated rounds."""

    def __init__(self, name: str, folder: Path):
        if name not in TRACKERS:
            raise ConfigError(f"there is no tracker '{name}'{did_you_mean(name, TRACKERS)}")
        if find_spec(name) is None:
            raise ConfigError(f"--track {name} needs it: pip install 'e2fl[track]'")
        self.name, self.folder = name, folder.absolute()

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = _safe(f"{experiment.label}-seed{experiment.seed}")
        self.log, self.close = TRACKERS[self.name](self.folder, experiment, name, first)

    def advance(self, number: int, measured: Json | None) -> None:
        if measured is not None:
            self.log(flat(measured), step=number)

    def end(self) -> None:
        self.close()


def flat(measured: Json) -> dict[str, float]:
    """Return all numbers of a line of history by path, in characters that a tracker accepts."""
    kept = {key: value for key, value in measured.items() if key not in LEFT_OUT}
    return {_safe(path, ": /"): float(value) for path, value in numbers_of(kept).items()}


def _safe(text: str, more: str = "") -> str:
    return re.sub(rf"[^A-Za-z0-9_.{more}-]", "_", text)
