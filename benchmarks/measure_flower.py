"""Measures bytes on the wire and seconds per round, for three nodes on this machine with TLS and
node keys.

    python -m benchmarks.measure_flower [algorithm ...]

Nodes reach the server through a proxy that counts bytes. The cost of a round is the difference
between a long and a short run of the same experiment, without start-up and the last evaluation;
once with rounds that only train, and once with every round evaluated.
"""

import asyncio
import json
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import psutil

from e2fl.config.experiment import load
from e2fl.flower.client import client_app
from e2fl.flower.export import export
from e2fl.flower.run_config import RunConfig
from e2fl.flower.server import run_on
from e2fl.runs.runner import run_experiment
from tests.flower.grid import LocalGrid
from tests.flower.machines import DONE, STARTED, Machines, finished, listening, port

SHORT, LONG = 2, 6


class CountingProxy(threading.Thread):
    """Forwards connections from a port to another one of this machine, and counts bytes."""

    def __init__(self, near: int, far: int):
        super().__init__(daemon=True)
        self.near, self.far = near, far
        self.up = self.down = 0

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connect, "127.0.0.1", self.near)
        await server.serve_forever()

    async def _connect(self, read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        # The server may be gone; nodes keep trying until they are ended.
        with suppress(OSError):
            far_read, far_write = await asyncio.open_connection("127.0.0.1", self.far)
            await asyncio.gather(self._pump(read, far_write, 1), self._pump(far_read, write, 0))
        write.close()

    async def _pump(
        self, read: asyncio.StreamReader, write: asyncio.StreamWriter, upward: int
    ) -> None:
        with suppress(OSError):
            while raw := await read.read(1 << 16):
                write.write(raw)
                await write.drain()
                self.up += upward * len(raw)
                self.down += (1 - upward) * len(raw)
        write.close()


def processor_seconds(machines: Machines) -> dict[str, float]:
    """Return the processor time of each part so far, with ended processes.

    messages: the processes that handle messages; executors: ours, which wait for messages and fork;
    supernodes: Flower's, which fetch messages and send replies.
    """
    parts = ("messages", "executors", "supernodes", "superlink", "server_app")
    spent = dict.fromkeys(parts, 0.0)
    for process in machines.ours():
        try:
            words, parent = " ".join(process.cmdline()), process.parent()
            times = process.cpu_times()
            if "e2fl.flower.supernode" in words:
                forked = parent is not None and "e2fl.flower.supernode" in parent.cmdline()
                part, ended = "supernodes" if forked else "executors", "messages"
            else:
                part = "superlink" if "e2fl.flower.superlink" in words else "server_app"
                ended = "server_app"
            spent[part] += times.user + times.system
            spent[ended] += times.children_user + times.children_system
            for child in process.children():
                if child.status() == psutil.STATUS_ZOMBIE:
                    late = child.cpu_times()
                    spent[ended] += late.user + late.system
        except psutil.Error:
            continue
    return spent


def deploy(machines: Machines, algorithms: list[str]) -> dict[str, list[dict[str, float]]]:
    """Return, for each algorithm, the cost of the short and of the long run."""
    export(load("three_nodes"), machines.app)
    machines.make_keys(3)
    environment = {"PORT": str(port()), "HOST": "127.0.0.1"}
    script = str(machines.app / "scripts") + "/"
    machines.start("superlink", script + "superlink", **environment)
    machines.wait("the SuperLink", lambda: listening(int(environment["PORT"])), STARTED)
    machines.call(script + "register", **environment)
    proxy = CountingProxy(port(), int(environment["PORT"]))
    proxy.start()
    for number in range(3):
        through = environment | {"PORT": str(proxy.near), "NODE_PORT": str(port())}
        machines.start(f"node-{number}", script + "supernode", str(number), **through)
    found: dict[str, list[dict[str, float]]] = {}
    for name, evaluated in product(algorithms, (False, True)):
        what = f"{name}, evaluated" if evaluated else name
        for number, rounds in enumerate((1, SHORT, LONG)):  # the first loads what nodes need
            out = machines.folder / f"{name}-{evaluated}-{number}"
            up, down, start = proxy.up, proxy.down, time.monotonic()
            before = processor_seconds(machines)
            every = 1 if evaluated else rounds
            overrides = f"rounds={rounds}; evaluate_every={every}; algorithm.name={name}"
            machines.start(
                "run", script + "run", "-c", f"out='{out}' set='{overrides}'", **environment
            )
            machines.wait("the run", partial(finished, out), 2 * DONE)
            time.sleep(2)  # until the last processes have ended
            after = processor_seconds(machines)
            summary = json.loads((out / "summary.json").read_text())
            found.setdefault(what, []).append(
                {
                    "up": proxy.up - up,
                    "down": proxy.down - down,
                    "counted_up": summary["bytes"]["up_total"],
                    "counted_down": summary["bytes"]["down_total"],
                    "seconds": summary["seconds"]["total"],
                    "wall": time.monotonic() - start,
                    **{part: after[part] - before[part] for part in after},
                }
            )
            print(what, rounds, found[what][-1], flush=True)
    return found


def in_one_process(name: str) -> dict[str, float]:
    """Return seconds per round in the simulator with one thread, and on a grid in this process."""
    experiment = load("three_nodes", [f"algorithm.name={name}", "threads=1", "evaluate_every=10"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "experiment.toml"
        path.write_text(experiment.to_toml())
        grid = LocalGrid(client_app(path), range(3), node_config={"memory": folder})
        run_experiment(experiment)  # compiles, and loads the data
        run_on(grid, experiment, RunConfig())
        simulated, on_grid = run_experiment(experiment), run_on(grid, experiment, RunConfig())
    return {
        "simulator": simulated.summary["seconds"]["per_round"],
        "grid": on_grid.summary["seconds"]["per_round"],
    }


def main() -> None:
    algorithms = sys.argv[1:] or ["e2fl", "fedavg"]
    for name in algorithms:
        print(name, "in one process, seconds per round:", in_one_process(name), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        machines = Machines(Path(folder))
        try:
            found = deploy(machines, algorithms)
        finally:
            machines.end()
    for name, (_, short, long) in found.items():
        each = {key: (long[key] - short[key]) / (LONG - SHORT) for key in long}
        print(name, "per round:", {key: round(value, 2) for key, value in each.items()})


if __name__ == "__main__":
    main()
