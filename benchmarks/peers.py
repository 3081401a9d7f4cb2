"""The same rounds of FedAvg in other simulators, each in its own process; start-up is not measured.

Each simulator is set up as its documentation recommends for this number of cores: one client per
core.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks import federation
from benchmarks.figures import Figure, Goal
from benchmarks.work import Pictures
from e2fl.learning import Settings

Results = tuple[list[Figure], list[Goal]]
PEERS = {"Flower": "flower_peer.py", "pfl": "pfl_peer.py"}
NEEDED = {"Flower": ("flwr", "ray"), "pfl": ("pfl",)}
LIMIT = 1800  # seconds
PYTHON = "E2FL_PEER_PYTHON"  # an interpreter with the other simulators, if they conflict with ours


@dataclass(frozen=True)
class Task:
    """One round of FedAvg, as given to every simulator."""

    model: str
    clients: int
    clients_per_round: int
    samples: int
    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    rounds: int
    cores: int


def _task(
    model: str, settings: Settings, *, clients_per_round: int, samples: int, rounds: int
) -> Task:
    return Task(
        model,
        1000,
        clients_per_round,
        samples,
        settings.epochs,
        settings.batch_size,
        settings.learning_rate,
        settings.momentum,
        settings.weight_decay,
        rounds,
        os.cpu_count() or 1,
    )


def peers(quick: bool) -> Results:
    """e2fl and the others on LeNet at paper scale, and on a tiny model, which measures overhead."""
    figures: list[Figure] = []
    goals: list[Goal] = []
    rounds = 2 if quick else 4
    tasks: list[tuple[str, Task, Callable[[int], list[float]], tuple[float, float]]] = [
        (
            "LeNet, 25 of 1000 clients",
            _task("lenet", federation.LENET, clients_per_round=25, samples=233, rounds=rounds),
            federation.fedavg_lenet,
            (1.2, 2),
        ),
        (
            "logistic regression, 10 of 1000 clients",
            _task(
                "logistic", federation.LOGISTIC, clients_per_round=10, samples=60, rounds=5 * rounds
            ),
            federation.fedavg_logistic,
            (5, 20),
        ),
    ]
    for what, task, ours, (at_least, aim) in tasks:
        own = Figure(f"round of FedAvg, {what}, e2fl", "s", tuple(ours(task.rounds)))
        figures.append(own)
        for peer in PEERS:
            theirs = _run(peer, task)
            if isinstance(theirs, str):
                figures.append(
                    Figure(f"round of FedAvg, {what}, {peer}", "s", (float("nan"),), theirs)
                )
                continue
            figures.append(Figure(f"round of FedAvg, {what}, {peer}", "s", tuple(theirs)))
            ratio = Figure(
                f"FedAvg, {what}, ours to {peer}",
                "x",
                tuple(value / own.median for value in theirs),
            )
            if peer == "Flower":
                goals.append(Goal(ratio, at_least, aim))
            else:
                figures.append(ratio)
    return figures, goals


def _run(peer: str, task: Task) -> list[float] | str:
    """The seconds of each round after the first, or the reason why there are none."""
    python = os.environ.get(PYTHON, sys.executable)
    if python == sys.executable and (
        missing := [name for name in NEEDED[peer] if find_spec(name) is None]
    ):
        return f"not measured: {', '.join(missing)} not installed; pip install 'e2fl[ray]' pfl"
    script = Path(__file__).with_name(PEERS[peer])
    with tempfile.TemporaryDirectory() as folder:
        data = Pictures(clients=task.clients, samples=task.samples)
        clients = [data.client(number).train for number in range(task.clients)]
        np.save(Path(folder) / "x.npy", np.stack([client.x for client in clients]))
        np.save(Path(folder) / "y.npy", np.stack([client.y for client in clients]))
        (Path(folder) / "task.json").write_text(
            json.dumps(asdict(task) | {"scale": clients[0].scale, "shift": clients[0].shift})
        )
        environment = os.environ | {
            "PYTHONPATH": str(Path(__file__).parents[1] / "src"),
            "RAY_DEDUP_LOGS": "0",
        }
        errors = Path(folder) / "errors.txt"
        with errors.open("w") as file:
            process = subprocess.Popen(
                [python, str(script), folder],
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
            )
            try:
                process.wait(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                return f"not measured: it took more than {LIMIT // 60} minutes"
            finally:
                _end(process.pid)
        result = Path(folder) / "seconds.json"
        if not result.exists():
            last = (errors.read_text(errors="replace").strip() or "no message").splitlines()[-1]
            return f"not measured: it failed with: {last[:200]}"
        found: list[float] = json.loads(result.read_text())
        return found[1:]


def _end(group: int) -> None:
    """End all processes the simulator started."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
