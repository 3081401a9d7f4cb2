"""A grid in this process: the same apps, without processes and sockets; and what tests on it share."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from e2fl.config.experiment import Experiment
from e2fl.flower import transport
from e2fl.flower.run_config import RunConfig

Misbehaviour = Callable[
    [int, Message, Message], list[Message]
]  # takes the client, the message and the honest reply; returns the replies that are sent
QUICK = RunConfig(round_seconds=0.05, evaluate_seconds=0.05, wait_seconds=1.0, poll_seconds=0.01)
transport.GRACE_SECONDS = (
    30.0  # a pull on this grid returns at once, unless the machine is very busy
)


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
        # Outside of a run Flower cannot make messages. These are private, hence the pin to one minor version.
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

    def set_run(self, run: Run) -> None: ...

    @property
    def run(self) -> Run:
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
