"""A node whose processes start at once.

Flower handles every message in a new process, and starting one takes seconds: it imports Flower,
torch and e2fl, and loads data and compiled code. Here one process of the node has all of that in
memory and forks itself for each message, so that messages are still isolated from each other. It
handles one message at a time, as Flower's SuperNode does, and takes the next when the last process
has ended: on a busy machine there are never more processes than nodes.

Flower also waits: its SuperNode for three seconds when it has no message, and the process that
looks for the SuperNode's messages for one second. Here both wait for a tenth of the time since the
last message: a busy node is quick, and an idle one costs no more than Flower's.
"""

import gc
import json
import os
import signal
import sys
import time
from argparse import ArgumentParser
from typing import Any, NoReturn

import torch
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec as superexec
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult
from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.runtime.run_clientapp import run_clientapp

SHORTEST = 0.05  # seconds
IDLE_SUPERNODE = 3.0  # seconds; fixed in Flower
IDLE_SUPEREXEC = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"  # Flower's setting, by default one second


class Clock:
    """Stands for the module `time` in Flower's loops, which use only `sleep`."""

    def __init__(self, longest: float):
        self.longest = longest  # how long the loop waits when it has nothing to do
        self.last_message = time.monotonic()

    def touch(self) -> None:
        """Take note that there is a message."""
        self.last_message = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for less than the loop would."""
        if seconds < self.longest:  # the loop has a message and waits for its client
            self.touch()
        waited = time.monotonic() - self.last_message
        time.sleep(min(seconds, max(SHORTEST, waited / 10)))


class ForkingExecutor:
    """Starts the process of a message by forking this one; an executor of Flower's SuperExec."""

    def __init__(self, supernode_pid: int, clock: Clock):
        self.supernode_pid, self.owner, self.clock = supernode_pid, os.getpid(), clock
        self.warm: set[str] = set()  # what has been loaded, as JSON

    def get_eligible_capacity(
        self, supported_task_types: set[TaskType], **_: Any
    ) -> tuple[set[TaskType], set[str]]:
        """Return that messages for clients can be handled."""
        return supported_task_types & {TaskType.CLIENT_APP}, set()

    def reconcile(self) -> None:
        """End if the SuperNode has ended."""
        pid, status = os.waitpid(self.supernode_pid, os.WNOHANG)
        if pid:
            sys.exit(os.waitstatus_to_exitcode(status))

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Handle a message in a process of its own, and wait for its end."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _handle(spec, writing)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as pipe:
            loaded = pipe.read()
        os.waitpid(pid, 0)
        self._load(loaded)
        self.clock.touch()
        return LaunchResult.accepted()

    def close(self) -> None:
        """End the SuperNode."""
        if os.getpid() == self.owner:
            os.kill(self.supernode_pid, signal.SIGTERM)

    def _load(self, loaded: str) -> None:
        """Load what the last process had to load, so that the next finds it in memory."""
        if not loaded or loaded in self.warm:
            return
        from e2fl.flower.node import warm

        self.warm.add(loaded)
        warm(*json.loads(loaded))
        gc.collect()
        gc.freeze()


def _handle(spec: ExecutionSpec, writing: int) -> NoReturn:
    """Handle one message, say what was loaded for it, and end this process."""
    torch.set_num_threads(1)  # threads of torch do not survive a fork: waiting for them never ends
    code = 1
    try:
        run_clientapp(
            spec.runtime_api_address, spec.token, spec.insecure, parent_pid=spec.parent_pid
        )
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        from e2fl.flower import node

        os.write(writing, json.dumps(node.LOADED[-1:]).encode()[1:-1])
        os._exit(code)


def main() -> None:
    """Run Flower's `flower-supernode` with the arguments of this command, and its messages."""
    torch.set_num_threads(1)
    parser = ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9094)
    options, _ = parser.parse_known_args()
    owner = os.getpid()
    pid = os.fork()
    if pid == 0:
        start_parent_process_monitor(owner)
        vars(start_client_internal)["time"] = Clock(IDLE_SUPERNODE)
        sys.argv = ["flower-supernode", *sys.argv[1:], "--isolation", "process"]
        flower_supernode()
        os._exit(0)
    import e2fl.flower.node  # noqa: F401  # with torch, so that no message waits for it

    gc.collect()
    gc.freeze()
    clock = Clock(float(os.environ.setdefault(IDLE_SUPEREXEC, "1.0")))
    executor = ForkingExecutor(pid, clock)
    vars(superexec).update(time=clock, get_executor=lambda *_, **__: executor)
    superexec.run_superexec(f"{options.host}:{options.port}", insecure=True)


if __name__ == "__main__":
    main()
