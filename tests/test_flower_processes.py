"""Flower with real processes on loopback: a simulation, a deployment that loses a server and a node, one with keys.

Each test has its own Flower home, by which its processes are recognised; each is ended by its id.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")
pytest.importorskip("psutil", reason="psutil finds the processes to end")

import psutil

from e2fl.config.experiment import Experiment, from_dict
from e2fl.flower.certificates import make_keys
from e2fl.flower.export import export
from e2fl.runs.folder import Folder
from e2fl.runs.runner import run_experiment

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parent.parent / "src"
BIN = Path(sys.executable).parent
STARTED = 300.0  # seconds for a process to start; generous, since a busy machine is slow
DONE = 600.0  # seconds for a run
PATIENT = f"wait-seconds={STARTED}"  # a node that is slow to start must not count as late


def experiment(rounds: int, clients: int = 3) -> Experiment:
    return from_dict(
        {
            "name": "tiny",
            "rounds": rounds,
            "evaluate_every": rounds,
            "checkpoint_seconds": 0.0,
            "data": {"name": "e2fl.testing.toy:Toy", "clients": clients},
            "model": {"name": "mlp", "hidden": [8]},
            "learner": {"learning_rate": 0.1, "batch_size": 8, "epochs": 1},
            "algorithm": {"name": "e2fl", "clients_per_round": clients},
        }
    )


class Machines:
    """Processes that share a Flower home; `end` ends all of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.app = folder / "app"
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(SOURCE),
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("wb")
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment | environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        log.close()
        self.started.append(process)
        return process

    def call(self, *command: str, **environment: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=STARTED,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ours(self) -> list[psutil.Process]:
        """Return all processes with this Flower home: some leave their parents and sessions."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("FLWR_HOME") == str(self.home) and process.pid != os.getpid():
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def named(self, name: str) -> list[psutil.Process]:
        return [process for process in self.ours() if any(name in part for part in process.cmdline()[:3])]

    def kill(self, process: psutil.Process) -> None:
        for victim in (process, *process.children(recursive=True)):
            victim.send_signal(signal.SIGKILL)

    def logs(self) -> str:
        return "".join(f"--- {path.name}\n{path.read_text()[-3000:]}\n" for path in sorted(self.folder.glob("*.log")))

    def wait(self, what: str, true: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"{what}: not within {seconds} seconds\n{self.logs()}"
            time.sleep(0.1)

    def end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.ours():
                try:
                    process.send_signal(number)
                except psutil.NoSuchProcess:
                    continue
            deadline = time.monotonic() + 60
            while self.ours() and time.monotonic() < deadline:
                time.sleep(0.1)
        assert not self.ours()
        for process in self.started:
            process.wait(timeout=600)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    try:
        yield made
    finally:
        made.end()


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(number: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", number)) == 0


def history(out: Path) -> list[dict[str, object]]:
    return Folder(out).read_history()


def finished(out: Path) -> bool:
    return (out / "summary.json").is_file()


def saved(out: Path, number: int) -> Callable[[], bool]:
    return lambda: any(int(path.name[6:]) >= number for path in out.glob("checkpoint/round-???????"))


def assert_same(out: Path, simulated: Experiment, folder: Path) -> None:
    """Check that a run wrote the files that the simulator writes."""
    run_experiment(simulated, out=folder)
    assert history(out) == history(folder)
    assert (out / "clients.csv").read_bytes() == (folder / "clients.csv").read_bytes()
    assert (out / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_simulation_with_ray_equals_the_simulator(machines: Machines, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="simulations need Ray: pip install 'e2fl[flower-simulation]'")
    export(experiment(2), machines.app)
    out = tmp_path / "run"
    machines.start("run", str(machines.app / "scripts/simulate"), "-c", f"out='{out}' {PATIENT}", PORT=str(port()))
    machines.wait("the simulation", lambda: finished(out), DONE)
    assert_same(out, experiment(2), tmp_path / "simulated")


def test_a_deployment_survives_the_loss_of_its_server_app_and_of_a_node(machines: Machines, tmp_path: Path) -> None:
    export(experiment(2), machines.app)
    address = f"127.0.0.1:{(here := port())}"
    connection = f'[superlink]\ndefault = "ci"\n[superlink.ci]\naddress = "{address}"\ninsecure = true\n'
    (machines.home / "config.toml").write_text(connection)
    machines.start("superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(here))
    machines.wait("the SuperLink", lambda: listening(here), STARTED)
    nodes = [
        machines.start(
            f"node-{number}",
            "flower-supernode", "--insecure", "--superlink", address, "--host", "127.0.0.1", "--port", str(port()),
            "--node-config", f"partition-id={number}",
        )
        for number in range(3)
    ]  # fmt: skip

    # The server app is killed after its first round, and the run resumed.
    out = tmp_path / "resumed"
    machines.call("flwr", "run", str(machines.app), "ci", "-c", f"out='{out}' {PATIENT}")
    machines.wait("the first round", saved(out, 1), DONE)
    for process in machines.named("flwr-serverapp"):
        machines.kill(process)
    assert not finished(out)
    machines.call("flwr", "run", str(machines.app), "ci", "-c", f"out='{out}' resume=true {PATIENT}")
    machines.wait("the resumed run", lambda: finished(out), DONE)
    assert_same(out, experiment(2), tmp_path / "simulated")

    # A node is killed after the first round of another run, which continues without it.
    out = tmp_path / "without-node"
    # Flower reports the lost node after about 75 seconds; the others must have time to reply on a busy machine.
    deadlines = f"round-seconds=300.0 evaluate-seconds=300.0 {PATIENT}"
    machines.call("flwr", "run", str(machines.app), "ci", "-c", f"out='{out}' {deadlines}")
    machines.wait("the first round", saved(out, 1), DONE)
    machines.kill(psutil.Process(nodes[1].pid))
    machines.wait("the run without a node", lambda: finished(out), DONE)
    (last,) = history(out)
    assert (last["asked"], last["answered"]) == (3, 2)
    faults = dict(last["faults"])  # type: ignore[call-overload]  # JSON
    assert faults.keys() <= {"missing", "lost"}
    assert sum(faults.values()) == 2  # in training, and in the evaluation
    assert [line.split(",")[0] for line in (out / "clients.csv").read_text().splitlines()] == ["client", "0", "2"]


def test_the_shipped_scripts_accept_registered_nodes_only(machines: Machines, tmp_path: Path) -> None:
    export(experiment(1, clients=2), machines.app)
    make_keys(machines.app / "keys", 2, ["fl.example.org"])  # loopback addresses are added
    make_keys(tmp_path / "other", 3, ["127.0.0.1"])
    for name in ("node-2", "node-2.pub"):
        (tmp_path / "other" / name).rename(machines.app / "keys" / name.replace("node-2", "unregistered"))
    environment = {"PORT": str(port()), "HOST": "127.0.0.1"}
    script = str(machines.app / "scripts") + "/"
    machines.start("superlink", script + "superlink", **environment)
    machines.wait("the SuperLink", lambda: listening(int(environment["PORT"])), STARTED)
    assert machines.call(script + "register", **environment).count("registered node") == 2
    for number in range(2):
        machines.start(f"node-{number}", script + "supernode", str(number), **environment, NODE_PORT=str(port()))
    unregistered = machines.start(
        "unregistered",
        "flower-supernode", "--superlink", f"127.0.0.1:{environment['PORT']}", "--host", "127.0.0.1",
        "--port", str(port()), "--root-certificates", str(machines.app / "keys/ca.crt"),
        "--auth-supernode-private-key", str(machines.app / "keys/unregistered"), "--node-config", "partition-id=0",
    )  # fmt: skip
    machines.start("run", script + "run", "-c", PATIENT, **environment)
    out = machines.app / "runs/tiny"
    machines.wait("the run", lambda: finished(out), DONE)
    machines.wait("the rejection", lambda: unregistered.poll() is not None, STARTED)
    assert unregistered.returncode != 0
    assert_same(out, experiment(1, clients=2), tmp_path / "simulated")
    assert json.loads((out / "checkpoint/population.json").read_text())["clients"].keys() == {"0", "1"}
