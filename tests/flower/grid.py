"""A grid in this process: the same apps, without processes and sockets.

And what tests on it share.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run as FlowerRun
from flwr.supercore.task_identity import TaskIdentity

from e2fl.codec import encode
from e2fl.config.experiment import Experiment
from e2fl.flower import exchange
from e2fl.flower.client import LoadClient, client_app
from e2fl.flower.run_config import RunConfig
from e2fl.flower.server import run_on
from e2fl.runs.store import StoredRun
from e2fl.runs.watcher import Watcher

Misbehaviour = Callable[
    [int, Message, Message], list[Message]
]  # takes the client, the message and the honest reply; returns the replies that are sent
QUICK = RunConfig(round_seconds=0.05, wait_seconds=1.0, poll_seconds=0.01)
exchange.GRACE_SECONDS = 30.0  # a pull on this grid returns at once, unless the machine is busy


class LocalGrid(Grid):
    """Nodes 1000 and above, in an order unrelated to their clients."""

    def __init__(
        self,
        app: ClientApp,
        partitions: Iterable[int],
        *,
        run_config: dict[str, Any] | None = None,
        node_config: dict[str, Any] | None = None,
        misbehave: Misbehaviour | None = None,
    ):
        # Outside of a run Flower cannot make messages. These are private, hence the pin to 1.41.
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
        self.app = app
        self.misbehave = misbehave
        self.ids = itertools.count()
        self.replies: dict[str, list[Message]] = {}
        self.sent: list[Message] = []
        self.contexts = {
            1000 + (7 * place) % 101: Context(
                run_id=1,
                node_id=1000 + (7 * place) % 101,
                node_config={"partition-id": partition, **(node_config or {})},
                state=RecordDict(),
                run_config=run_config or {},
            )
            for place, partition in enumerate(reversed(list(partitions)))
        }

    def set_run(self, run: FlowerRun) -> None: ...

    @property
    def run(self) -> FlowerRun:
        raise AssertionError("not used by e2fl")

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise AssertionError("not used by e2fl")

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            name = f"message-{next(self.ids)}"
            message.metadata.__dict__["_message_id"] = name
            self.sent.append(message)
            names.append(name)
            context = self.contexts.get(message.metadata.dst_node_id)
            if context is None:
                continue
            try:
                reply = self.app(message, context)
            except Exception as error:
                reply = Message(Error(2, f"{type(error)}:<{error!r}>"), reply_to=message)
            partition = int(context.node_config.get("partition-id", -1))
            self.replies[name] = (
                self.misbehave(partition, message, reply) if self.misbehave else [reply]
            )
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [reply for name in message_ids for reply in self.replies.pop(name, [])]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))


def with_all_clients(toy: Experiment) -> Experiment:
    """Return the same experiment with all clients in every round, and every round evaluated."""
    return replace(
        toy, rounds=3, evaluate_every=1, algorithm=toy.algorithm | {"clients_per_round": 8}
    )


def grid_of(
    experiment: Experiment,
    folder: Path,
    partitions: Iterable[int] | None = None,
    load_client: LoadClient | None = None,
    kind: type[LocalGrid] = LocalGrid,
    **options: Any,
) -> LocalGrid:
    """Return a grid with a node for each client, each with its memory on disk."""
    folder.mkdir(exist_ok=True)
    path = folder / "experiment.toml"
    path.write_text(experiment.to_toml())
    nodes = experiment.build.data().population.ids if partitions is None else partitions
    memory = {"memory": str(folder / "memory")}
    return kind(client_app(path, load_client), nodes, node_config=memory, **options)


def on_flower(
    experiment: Experiment,
    folder: Path,
    config: RunConfig | None = None,
    *,
    watcher: Watcher | None = None,
    **options: Any,
) -> StoredRun:
    """Run the experiment on such a grid."""
    grid = grid_of(experiment, folder, **options)
    return run_on(grid, experiment, config or RunConfig(), watcher=watcher)


def plain(state: object) -> tuple[object, dict[str, bytes]]:
    """Return a state as plain values, so that two can be compared bit for bit."""
    arrays: dict[str, torch.Tensor] = {}
    tree = encode(state, arrays, "state")
    return tree, {name: np.asarray(tensor).tobytes() for name, tensor in arrays.items()}


def assert_equal(on_nodes: StoredRun, simulated: StoredRun) -> None:
    """Check that two runs agree to the bit."""
    assert plain(on_nodes.state) == plain(simulated.state)
    assert on_nodes.clients == simulated.clients
    assert on_nodes.history == simulated.history
    for key in ("clients", "group", "groups", "bytes", "rounds"):
        assert on_nodes.summary.get(key) == simulated.summary.get(key)
    for key in ("bits", "budget"):
        assert on_nodes.summary.get(key) == pytest.approx(simulated.summary.get(key))


class At(Watcher):
    """Does something after the training of a round."""

    def __init__(self, number: int, act: Callable[[], object]):
        self.number, self.act = number, act

    def advance(self, number: int, measured: Any) -> None:
        if number == self.number:
            self.act()


class KilledError(Exception):
    """Stands for a process that was killed."""


def killed_at(number: int) -> At:
    """Return a watcher that kills the server in a round, after its clients have trained."""

    def kill() -> None:
        raise KilledError

    return At(number, kill)
