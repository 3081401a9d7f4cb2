"""Processes of Flower on this machine, for tests and measurements.

Each user has its own Flower home, by which its processes are recognised; each is ended by its id.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

SOURCE = Path(__file__).parents[2] / "src"
BIN = Path(sys.executable).parent
STARTED = 300.0  # seconds for a process to start; generous, since a busy machine is slow
DONE = 600.0  # seconds for a run


class Machines:
    """Processes that share a Flower home; `end` ends all of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.app = folder / "app"
        commands = folder / "bin"
        commands.mkdir()
        for name in ("superlink", "supernode"):  # as pip installs them
            script = commands / f"e2fl-{name}"
            script.write_text(f'#!/bin/sh\nexec {sys.executable} -m e2fl.flower.{name} "$@"\n')
            script.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join((str(commands), str(BIN), os.environ["PATH"])),
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

    def make_keys(self, nodes: int, *hosts: str, **environment: str) -> None:
        """Make certificates and node keys with the script of the app."""
        self.call(str(self.app / "scripts/keys"), str(nodes), *hosts, **environment)

    def ours(self, name: str = "") -> list[psutil.Process]:
        """Return all processes with this Flower home, since some leave their parents and sessions.

        name: only those of this command.
        """
        processes = []
        for process in psutil.process_iter():
            try:
                home = process.environ().get("FLWR_HOME")
                words = process.cmdline()[:3]
            except psutil.Error:  # it has ended, or is somebody else's
                continue
            named = any(name in word for word in words)
            if home == str(self.home) and process.pid != os.getpid() and named:
                processes.append(process)
        return processes

    def kill(self, process: psutil.Process) -> None:
        for victim in (process, *process.children(recursive=True)):
            victim.send_signal(signal.SIGKILL)

    def logs(self) -> str:
        return "".join(
            f"--- {path.name}\n{path.read_text()[-3000:]}\n"
            for path in sorted(self.folder.glob("*.log"))
        )

    def wait(self, what: str, true: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, (
                f"{what}: not within {seconds} seconds\n{self.logs()}"
            )
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


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(number: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", number)) == 0


def finished(out: Path) -> bool:
    return (out / "summary.json").is_file()
