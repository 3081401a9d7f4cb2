"""The computations of a node: the client side of any algorithm, on the data of its clients."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from logging import ERROR
from pathlib import Path
from typing import TypeVar

import torch
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.common.logger import log

from e2fl.algorithms import AnyAlgorithm
from e2fl.config.experiment import Experiment, load
from e2fl.data.federated import Client, ClientId, FederatedData, Population
from e2fl.errors import ConfigError
from e2fl.evaluation import Score
from e2fl.files import write_text
from e2fl.flower import messages
from e2fl.flower.messages import Reply, Request, Work
from e2fl.flower.run_config import overrides
from e2fl.learning import Learner
from e2fl.rankings.messages import Ballots
from e2fl.runs.chain import RECEIPTS, receipt
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.simulator import SimulatedFederation

Value = TypeVar("Value")
LOADED: list[tuple[str, list[str], list[ClientId]]] = []  # experiments, overrides and clients


@dataclass(frozen=True)
class Setup:
    """The parts of an experiment; a process that handles many messages builds them once."""

    experiment: Experiment
    data: FederatedData
    algorithm: AnyAlgorithm
    learner: Learner


@lru_cache(maxsize=4)
def setup(path: str, overridden: tuple[str, ...]) -> Setup:
    """Return the parts of the experiment in this file, with these overrides."""
    experiment = load(path, overridden)
    data = experiment.build.data()
    learner = experiment.build.learner(experiment.build.model(data))
    return Setup(experiment, data, experiment.build.algorithm(), learner)


def warm(path: str, overridden: list[str], client_ids: list[ClientId]) -> None:
    """Load what messages to these clients need, unless it is other people's code."""
    torch.set_num_threads(1)
    if load(path, overridden).imports():
        return
    parts = setup(path, tuple(overridden))
    for client_id in client_ids:
        parts.data.client(client_id)
    parts.learner.engine.warm()


class OwnClients(FederatedData):
    """The clients of a node."""

    def __init__(self, clients: Mapping[ClientId, Client]):
        self.clients = clients
        self.population = Population({one.id: one.group for one in clients.values()}, 0)

    def client(self, client_id: ClientId) -> Client:
        return self.clients[client_id]


class Node:
    """One node, handling one message."""

    def __init__(
        self,
        experiment: str | Path,
        context: Context,
        load_client: Callable[[Context], Client | Iterable[Client]] | None,
    ):
        """Load the node's own data, or its part of the experiment's."""
        torch.set_num_threads(1)  # as in the simulator: sums must not depend on the number of cores
        overridden, config = overrides(context.run_config), context.node_config
        self.setup = setup(str(experiment), tuple(overridden))
        if load_client is None:
            client_ids = _partitions(config)
            LOADED.append((str(experiment), overridden, client_ids))
            loaded: Client | Iterable[Client] = map(self.setup.data.client, client_ids)
        else:
            loaded = load_client(context)
        clients = [loaded] if isinstance(loaded, Client) else list(loaded)
        if "group" in config:
            clients = [replace(client, group=_integer(config["group"])) for client in clients]
        self.clients = {client.id: client for client in clients}
        home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
        # The folder for what clients keep.
        self.memory = Path(str(config.get("memory") or home / "e2fl-memory")).expanduser()

    def identify(self, content: RecordDict) -> RecordDict:
        """Return which clients this node has, or raise `ConfigError`."""
        query = messages.unpack(messages.Query, content)
        if query.fingerprint != self.setup.experiment.identity():
            raise ConfigError(
                "the experiment of this node differs from the server's; "
                "install the same version of e2fl on both"
            )
        groups = {client_id: client.group for client_id, client in self.clients.items()}
        return messages.pack(messages.Identity(clients=groups))

    def handle(self, content: RecordDict) -> RecordDict:
        """Let clients evaluate and train on their messages; return the scores and replies."""
        request = messages.unpack(Request, content)
        payloads: dict[ClientId, ConfigRecord] = {}
        evaluate = partial(self._evaluate, request)
        train = partial(self._train, request, payloads)
        scores = self._each(request.evaluate, content, evaluate)
        trained = self._each(request.train, content, train)
        number = request.round_number
        return messages.pack(Reply(round_number=number, trained=trained, scores=scores), payloads)

    def _each(
        self,
        positions: Mapping[ClientId, int],
        content: RecordDict,
        work: Callable[[Client, bytes], Value],
    ) -> dict[ClientId, Value | str]:
        """Return the result of each client, or why it failed."""
        results: dict[ClientId, Value | str] = {}
        for client_id, position in positions.items():
            try:
                raw = messages.read_payload(content, position)
                results[client_id] = work(self.clients[client_id], raw)
            except Exception as error:  # a client that fails never stops the others
                log(ERROR, "client %s failed", client_id, exc_info=error)
                results[client_id] = f"{type(error).__name__}: {error}"[: messages.MAX_REASON]
        return results

    def _train(
        self, request: Request, payloads: dict[ClientId, ConfigRecord], owner: Client, raw: bytes
    ) -> Work:
        """Let a client train and store what it keeps; its reply becomes a payload."""
        clients, number = self._simulated(request, owner), request.round_number
        spec, memories = self.setup.learner.model.spec, clients.memories
        client = replace(owner, memory=memories.load(owner.id, number))
        message = clients.types.down.from_bytes(raw, spec)
        trained = clients.train_one(client, message, number, spec.only(request.layers))
        memories.store(owner.id, number, trained.memory)
        memories.forget(request.oldest)
        payloads[owner.id] = messages.payload(trained.raw)
        if isinstance(trained.reply, Ballots) and request.layers is None:
            self._keep_receipt(request, owner.id, trained.reply)
        return Work(
            trained_examples=trained.meter.examples,
            examples=max(1, trained.examples),
            grouping_passes=trained.meter.grouping_passes,
            ballot_bits=trained.meter.ballot_bits,
            training_loss=trained.meter.losses.mean,
        )

    def _keep_receipt(self, request: Request, client_id: ClientId, reply: Ballots) -> None:
        """Keep the digests of what a client votes, for `e2fl recount RUN --receipt FILE`."""
        if counted := reply.counted_rankings():
            path = self._folder(request, client_id) / RECEIPTS
            with path.open("a", encoding="utf-8") as file:
                file.write(receipt(request.round_number, client_id, counted))

    def _evaluate(self, request: Request, owner: Client, raw: bytes) -> Score:
        """Evaluate what a client is served after the round before, on its test examples."""
        clients = self._simulated(request, owner)
        served = clients.types.served.from_bytes(raw, self.setup.learner.model.spec)
        return clients.evaluate_all(request.round_number - 1, {owner.id: served})[owner.id]

    def _folder(self, request: Request, client_id: ClientId) -> Path:
        return self.memory / request.run_id / f"client-{client_id}"

    def _simulated(self, request: Request, owner: Client) -> SimulatedFederation:
        """Return the clients of this node, this one with what it stored in this run.

        What it stored in rounds that the server did not save is dropped.
        """
        folder = self._folder(request, owner.id)
        memories = Memories(folder)
        stored = folder / "server-id"
        if not stored.is_file() or stored.read_text(encoding="utf-8") != request.server_id:
            memories.rewind(request.resumed_from)
            write_text(stored, request.server_id)
        return SimulatedFederation(
            OwnClients(self.clients),
            self.setup.algorithm,
            self.setup.learner,
            threads=1,
            memories=memories,
        )


def _partitions(config: Mapping[str, object]) -> list[ClientId]:
    """Return the ids of the node's clients: "partition-ids", or the one in "partition-id"."""
    if "partition-ids" in config:
        return [_integer(text) for text in str(config["partition-ids"]).replace(",", " ").split()]
    if "partition-id" not in config:
        raise ConfigError(
            "this node does not know which client it is; start it with "
            '--node-config "partition-id=0", or pass your own load_client to client_app'
        )
    return [_integer(config["partition-id"])]


def _integer(value: object) -> int:
    if not str(value).isdecimal():
        raise ConfigError(f"{value!r} in the node configuration must be an integer")
    return int(str(value))
