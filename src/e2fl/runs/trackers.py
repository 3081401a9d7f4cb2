"""Trackers: write the measures of a run to other tools during training, under the same names.

A name is the path of a number in a line of history.jsonl, such as clients/mean, group/worst10 or
groups/G1/accuracy. All data stays on this machine, in the folder of the run.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from e2fl.config.experiment import Experiment
from e2fl.config.overrides import flattened
from e2fl.construct import did_you_mean
from e2fl.errors import ConfigError, ReportError
from e2fl.runs.records import Json, numbers_of
from e2fl.runs.watcher import Watcher

LEFT_OUT = ("round", "metadata", "faults")

Log = Callable[[int, dict[str, float]], None]  # called with a round and its numbers
Close = Callable[[], None]
Open = Callable[[Path, Experiment, int], tuple[Log, Close]]  # folder, experiment, first round


class Tracker(Watcher):
    """A watcher that opens a tool for each run, and passes on the numbers of evaluated rounds."""

    def __init__(self, folder: Path, opened: Open):
        self.folder, self.opened = folder.absolute(), opened
        self.tool: tuple[Log, Close] | None = None

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.tool = self.opened(self.folder, experiment, first)

    def advance(self, number: int, measured: Json | None) -> None:
        if measured is not None and self.tool is not None:
            self.tool[0](number, flat(measured))

    def end(self) -> None:
        if self.tool is not None:
            self.tool[1]()
            self.tool = None


def tensorboard(folder: Path, experiment: Experiment, first: int) -> tuple[Log, Close]:
    """Write into DIR/tensorboard/, for `tensorboard --logdir DIR`."""
    from torch.utils.tensorboard import SummaryWriter

    place = folder / "tensorboard" / _run_name(experiment)
    # Steps from `first` on were logged before an interruption, and are repeated.
    writer: Any = SummaryWriter(str(place), purge_step=first)

    def log(number: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, number)
        writer.flush()

    return log, writer.close


def mlflow(folder: Path, experiment: Experiment, first: int) -> tuple[Log, Close]:
    """Write for `mlflow ui --backend-store-uri sqlite:///DIR/mlflow.db`, without a server."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    name, identity = experiment.name, experiment.identity()
    known = client.get_experiment_by_name(name)
    artifacts = (folder / "mlflow_artifacts").as_uri()
    store = known.experiment_id if known else client.create_experiment(name, artifacts)
    tag = f"tags.`e2fl.identity` = '{identity}'"
    earlier = client.search_runs([store], filter_string=tag)  # if the same run is resumed
    tags = {"e2fl.identity": identity}
    made = earlier or [client.create_run(store, run_name=_run_name(experiment), tags=tags)]
    run = made[0].info.run_id
    for key, value in _settings(experiment).items() if not earlier else ():
        client.log_param(run, key, value)

    def log(number: int, values: dict[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(path, value, now, number) for path, value in values.items()]
        for start in range(0, len(metrics), 1000):  # the limit of one call
            client.log_batch(run, metrics=metrics[start : start + 1000])

    return log, lambda: client.set_terminated(run)


def wandb(folder: Path, experiment: Experiment, first: int) -> tuple[Log, Close]:
    """Write for `wandb sync DIR/wandb/offline-run-*`; offline unless WANDB_MODE is set."""
    os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it is read when wandb is imported
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    private = {"disable_git": True, "x_disable_stats": True, "x_disable_meta": True}
    run = wandb.init(
        project=re.sub(r"[^A-Za-z0-9_.-]", "_", experiment.name),
        name=_run_name(experiment),
        id=experiment.identity()[:32],  # online, a resumed run continues the same one
        resume=None if os.environ["WANDB_MODE"] == "offline" else "allow",
        dir=str(folder),
        config=_settings(experiment),
        settings=wandb.Settings(silent=True, console="off", save_code=False, **private),
    )
    return lambda number, values: run.log(values, step=number), run.finish


TRACKERS: dict[str, Open] = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}


def tracker(name: str, folder: Path) -> Watcher:
    """Return the tracker of this name, which writes into the folder of a run or a comparison."""
    if name not in TRACKERS:
        raise ConfigError(f"there is no tracker '{name}'{did_you_mean(name, TRACKERS)}")
    if find_spec(name) is None:
        raise ReportError(f"--track {name} needs it: pip install 'e2fl[track]'")
    return Tracker(folder, TRACKERS[name])


def flat(measured: Mapping[str, Any]) -> dict[str, float]:
    """Return all numbers of a line of history by path, in characters that a tracker accepts."""
    kept = {key: value for key, value in measured.items() if key not in LEFT_OUT}
    return {
        re.sub(r"[^A-Za-z0-9_.: /-]", "_", path): float(value)
        for path, value in numbers_of(kept).items()
    }


def _run_name(experiment: Experiment) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"{experiment.label}-seed{experiment.seed}")


def _settings(experiment: Experiment) -> dict[str, str]:
    return {name: str(value) for name, value in flattened(experiment.to_dict()).items()}
