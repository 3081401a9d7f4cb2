"""Flower with processes on loopback: a simulation, deployments that lose parts, one with keys."""

import json
import os
import sys

import psutil
import pytest

from e2fl.flower.export import export
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import Folder
from tests.flower.machines import DONE, STARTED, Machines, finished, listening, port
from tests.toys import toy_with

pytestmark = pytest.mark.slow

PATIENT = f"wait-seconds={STARTED}"  # a node that is slow to start must not count as late
ANY = f"pins='any' {PATIENT}"


def experiment(rounds, clients=3):
    few = {"data": {"clients": clients}, "algorithm": {"clients_per_round": clients}}
    return toy_with(name="tiny", rounds=rounds, evaluate_every=rounds, **few)


@pytest.fixture
def machines(tmp_path):
    made = Machines(tmp_path)
    try:
        yield made
    finally:
        made.end()


def history(out):
    return Folder(out).read_history()


def saved(out, number):
    return lambda: any(int(path.stem[6:]) >= number for path in out.glob("checkpoint/round-*"))


def assert_same(out, simulated, folder):
    """Check that a run wrote the files that the simulator writes."""
    run_experiment(simulated, out=folder)
    assert history(out) == history(folder)
    assert (out / "clients.csv").read_bytes() == (folder / "clients.csv").read_bytes()
    assert (out / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_simulation_with_ray_equals_the_simulator(machines, tmp_path):
    pytest.importorskip("ray", reason="simulations need Ray: pip install 'e2fl[ray]'")
    export(experiment(2), machines.app)
    out = tmp_path / "run"
    machines.start(
        "run",
        str(machines.app / "scripts/simulate"),
        "-c",
        f"out='{out}' {PATIENT}",
        PORT=str(port()),
    )
    machines.wait("the simulation", lambda: finished(out), DONE)
    assert_same(out, experiment(2), tmp_path / "simulated")


def test_a_deployment_survives_the_loss_of_its_server_app_and_of_a_node(machines, tmp_path):
    export(experiment(2), machines.app)
    address = f"127.0.0.1:{(here := port())}"
    connection = (
        f'[superlink]\ndefault = "ci"\n[superlink.ci]\naddress = "{address}"\ninsecure = true\n'
    )
    (machines.home / "config.toml").write_text(connection)
    machines.start(
        "superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(here)
    )
    machines.wait("the SuperLink", lambda: listening(here), STARTED)
    nodes = [
        machines.start(
            f"node-{number}",
            "flower-supernode", "--insecure", "--superlink", address,
            "--host", "127.0.0.1", "--port", str(port()), "--node-config", f"partition-id={number}",
        )
        for number in range(3)
    ]  # fmt: skip

    # The server app is killed after its first round, and the run resumed.
    out = tmp_path / "resumed"
    machines.call("flwr", "run", str(machines.app), "ci", "-c", f"out='{out}' {ANY}")
    machines.wait("the first round", saved(out, 1), DONE)
    for process in machines.ours("flwr-serverapp"):
        machines.kill(process)
    assert not finished(out)
    machines.call("flwr", "run", str(machines.app), "ci", "-c", f"out='{out}' resume=true {ANY}")
    machines.wait("the resumed run", lambda: finished(out), DONE)
    assert_same(out, experiment(2), tmp_path / "simulated")

    # A node is killed after the first round of another run, which continues without it.
    out = tmp_path / "without-node"
    # Flower reports the lost node after about 75 seconds; the others need time on a busy machine.
    deadlines = f"round-seconds=300.0 {ANY}"
    machines.call("flwr", "run", str(machines.app), "ci", "-c", f"out='{out}' {deadlines}")
    machines.wait("the first round", saved(out, 1), DONE)
    machines.kill(psutil.Process(nodes[1].pid))
    machines.wait("the run without a node", lambda: finished(out), DONE)
    (last,) = history(out)
    assert (last["asked"], last["answered"]) == (3, 2)
    faults = dict(last["faults"])
    assert faults.keys() <= {"missing", "lost"}
    assert sum(faults.values()) == 2  # in training, and in the evaluation
    rows = (out / "clients.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["client", "0", "2"]


def deploy_with_keys(machines, stated, nodes):
    """Start the server and the nodes with the shipped scripts; return their environment."""
    export(stated, machines.app)
    machines.make_keys(nodes, HOST="fl.example.org")  # loopback is added
    environment = {"PORT": str(port()), "HOST": "127.0.0.1"}
    script = str(machines.app / "scripts") + "/"
    machines.start("superlink", script + "superlink", **environment)
    machines.wait("the SuperLink", lambda: listening(int(environment["PORT"])), STARTED)
    assert machines.call(script + "register", **environment).count("registered node") == nodes
    for number in range(nodes):
        own = environment | {"NODE_PORT": str(port())}
        machines.start(f"node-{number}", script + "supernode", str(number), **own)
    return environment


def test_a_busy_machine_has_at_most_one_process_for_each_node(machines, tmp_path):
    """Flower starts another process if the first is slow, and so makes a busy machine busier."""
    spinning = "import os\nwhile os.getppid() != 1: sum(range(10**5))"
    for number in range(4 * (os.cpu_count() or 1)):
        machines.start(f"busy-{number}", sys.executable, "-c", spinning)
    stated = experiment(2, clients=2)
    environment = deploy_with_keys(machines, stated, 2)
    script = str(machines.app / "scripts/run")
    machines.start("run", script, "-c", PATIENT, **environment)
    out = machines.app / "runs/tiny"
    most = 0

    def done():
        nonlocal most
        listed = machines.ours("supernode")  # one may end, and the next start, during the listing
        most = max(most, sum(process.is_running() for process in listed))
        assert not machines.ours("clientapp")  # Flower's process for a message, which starts slowly
        return finished(out)

    machines.wait("the run", done, 2 * DONE)
    assert most <= 3 * 2  # for each node: Flower's process, ours, and the one of the message
    assert_same(out, stated, tmp_path / "simulated")


def test_the_shipped_scripts_accept_registered_nodes_only(machines, tmp_path):
    environment = deploy_with_keys(machines, experiment(1, clients=2), 2)
    machines.make_keys(3, KEYS=str(tmp_path / "other"))
    for name in ("node-2", "node-2.pub"):
        target = machines.app / "keys" / name.replace("node-2", "unregistered")
        (tmp_path / "other" / name).rename(target)
    script = str(machines.app / "scripts") + "/"
    unregistered = machines.start(
        "unregistered",
        "flower-supernode", "--superlink", f"127.0.0.1:{environment['PORT']}",
        "--host", "127.0.0.1", "--port", str(port()),
        "--root-certificates", str(machines.app / "keys/ca.crt"),
        "--auth-supernode-private-key", str(machines.app / "keys/unregistered"),
        "--node-config", "partition-id=0",
    )  # fmt: skip
    machines.start("run", script + "run", "-c", PATIENT, **environment)
    out = machines.app / "runs/tiny"
    machines.wait("the run", lambda: finished(out), DONE)
    machines.wait("the rejection", lambda: unregistered.poll() is not None, STARTED)
    assert unregistered.returncode != 0
    assert_same(out, experiment(1, clients=2), tmp_path / "simulated")
    started = json.loads((out / "checkpoint/population.json").read_text())
    assert [client for client, _ in started["population"]["declared"]] == [0, 1]
