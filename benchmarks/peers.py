"""The same rounds of FedAvg in other simulators, each in its own process; start-up is not measured.

Each simulator is set up as its documentation recommends for this number of cores: one client per
core.
"""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import federation
from benchmarks.measure import Figure, scaled
from benchmarks.work import Pictures
from e2fl.learning import Settings

PEERS = {"Flower": "flower_peer.py", "pfl": "pfl_peer.py"}
NEEDED = {"Flower": ("flwr", "ray"), "pfl": ("pfl",)}
LIMIT = 1800  # seconds
# An interpreter with the other simulators, if they conflict with this environment.
PYTHON = "E2FL_PEER_PYTHON"


def task_of(
    model: str, settings: Settings, clients_per_round: int, samples: int, rounds: int
) -> dict[str, Any]:
    """Return rounds of FedAvg as every simulator is given them."""
    sizes = {"clients": 1000, "clients_per_round": clients_per_round, "samples": samples}
    return asdict(settings) | sizes | {
        "model": model, "rounds": rounds, "cores": os.cpu_count() or 1
    }  # fmt: skip


def peers(quick: bool) -> list[Figure]:
    """Measure all on LeNet at paper scale, and on a tiny model, which measures overhead."""
    rounds = 2 if quick else 4
    lenet = task_of("lenet", federation.LENET, 25, 233, rounds)
    tiny = task_of("logistic", federation.LOGISTIC, 10, 60, 5 * rounds)
    tasks: list[tuple[str, dict[str, Any], Callable[[int], list[float]], tuple[float, float]]] = [
        ("LeNet, 25 of 1000 clients", lenet, federation.fedavg_lenet, (1.2, 2)),
        ("logistic regression, 10 of 1000 clients", tiny, federation.fedavg_logistic, (5, 20)),
    ]
    figures: list[Figure] = []
    for what, task, ours, goal in tasks:
        own = Figure(f"round of FedAvg, {what}, e2fl", "s", ours(task["rounds"]))
        figures.append(own)
        for peer in PEERS:
            theirs = run_peer(peer, task)
            title = f"round of FedAvg, {what}, {peer}"
            if isinstance(theirs, str):
                figures.append(Figure(title, "s", [math.nan], theirs))
                continue
            gain = scaled(theirs, 1 / own.median)
            wanted = goal if peer == "Flower" else None
            figures.append(Figure(title, "s", theirs))
            figures.append(Figure(f"FedAvg, {what}, ours to {peer}", "x", gain, goal=wanted))
    return figures


def run_peer(peer: str, task: Mapping[str, Any]) -> list[float] | str:
    """Return the seconds of each round after the first, or the reason why there are none."""
    python = os.environ.get(PYTHON, sys.executable)
    missing = [name for name in NEEDED[peer] if find_spec(name) is None]
    if python == sys.executable and missing:
        return f"not measured: {', '.join(missing)} not installed; pip install 'e2fl[ray]' pfl"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = Pictures(clients=task["clients"], samples=task["samples"])
        clients = [data.client(client).train for client in range(task["clients"])]
        np.save(folder / "x.npy", np.stack([client.x for client in clients]))
        np.save(folder / "y.npy", np.stack([client.y for client in clients]))
        scale = {"scale": clients[0].scale, "shift": clients[0].shift}
        (folder / "task.json").write_text(json.dumps({**task, **scale}))
        source = str(Path(__file__).parents[1] / "src")
        environment = os.environ | {"PYTHONPATH": source, "RAY_DEDUP_LOGS": "0"}
        command = [python, str(Path(__file__).with_name(PEERS[peer])), name]
        with (folder / "errors.txt").open("w") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=file, env=environment, start_new_session=True
            )
            try:
                process.wait(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                return f"not measured: it took more than {LIMIT // 60} minutes"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # all that the simulator started
        result = folder / "seconds.json"
        if not result.exists():
            text = (folder / "errors.txt").read_text(errors="replace").strip() or "no message"
            return f"not measured: it failed with: {text.splitlines()[-1][:200]}"
        times: list[float] = json.loads(result.read_text())
        return times[1:]
