"""The computations of a node: the client side of any algorithm, on the data of its clients."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from logging import ERROR
from pathlib import Path

import torch
from flwr.app import Context, RecordDict
from flwr.common.logger import log

from e2fl.algorithms import AnyAlgorithm, ClientModels, types_of
from e2fl.algorithms.validate import expect
from e2fl.config.experiment import Experiment, load
from e2fl.data.federated import Client, ClientId, FederatedData
from e2fl.errors import ConfigError, RunError
from e2fl.files import write_text
from e2fl.flower.records import (
    METADATA,
    Parts,
    RequestMetadata,
    Work,
    error_parts,
    identity_content,
    read_request,
    reply_content,
    reply_parts,
)
from e2fl.flower.run_config import overrides
from e2fl.flower.scores import score_parts
from e2fl.learning import Learner
from e2fl.learning.learner import Meter
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.evaluator import score_alone
from e2fl.wire import Message

LOADED: list[tuple[str, list[str], list[ClientId]]] = []  # experiments, overrides and clients
_RUN_ID = re.compile("[0-9a-f]{32}")  # comes from the server and names a folder here


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
    data = experiment.build_data()
    learner = experiment.build_learner(experiment.build_model(data))
    return Setup(experiment, data, experiment.build_algorithm(), learner)


def warm(path: str, overridden: list[str], client_ids: list[ClientId]) -> None:
    """Load what messages to these clients need, unless it is other people's code."""
    torch.set_num_threads(1)
    experiment = load(path, overridden)
    sections = (experiment.data, experiment.model, experiment.algorithm)
    names = [str(section.get("name", "")) for section in sections]
    if any(":" in name and not name.startswith("e2fl.") for name in names):
        return
    parts = setup(path, tuple(overridden))
    for client_id in client_ids:
        parts.data.client(client_id)
    parts.learner.engine.warm(lambda _: None)


@dataclass(frozen=True)
class Node:
    """One node, handling one message."""

    setup: Setup
    clients: Mapping[ClientId, Client]
    memory: Path

    @classmethod
    def from_context(
        cls,
        experiment: str | Path,
        context: Context,
        load_client: Callable[[Context], Client | Iterable[Client]] | None = None,
    ) -> "Node":
        """Return the node of this context, with its own data or its part of the experiment's."""
        torch.set_num_threads(1)  # as in the simulator: sums must not depend on the number of cores
        overridden = overrides(context.run_config)
        parts = setup(str(experiment), tuple(overridden))
        if load_client is None:
            loaded: Client | Iterable[Client] = map(parts.data.client, _partitions(context))
        else:
            loaded = load_client(context)
        clients = [loaded] if isinstance(loaded, Client) else list(loaded)
        if "group" in context.node_config:
            group = _integer("group", context.node_config["group"])
            clients = [replace(client, group=group) for client in clients]
        if load_client is None:
            LOADED.append((str(experiment), overridden, [client.id for client in clients]))
        return cls(parts, {client.id: client for client in clients}, memory_folder(context))

    def identify(self, content: RecordDict) -> RecordDict:
        """Return which clients this node has, or raise `ConfigError`."""
        expected = content.config_records[METADATA].get("fingerprint")
        if expected and expected != self.setup.experiment.identity():
            raise ConfigError(
                "the experiment of this node differs from the server's; "
                "install the same version of e2fl on both"
            )
        return identity_content({client.id: client.group for client in self.clients.values()})

    def train(self, content: RecordDict) -> RecordDict:
        """Let each client train on its message and store what it keeps; return the replies."""
        return self._reply(content, self._train)

    def evaluate(self, content: RecordDict) -> RecordDict:
        """Evaluate its message on each client's test examples; return the scores."""
        return self._reply(content, self._evaluate)

    def _reply(
        self, content: RecordDict, work: Callable[[RequestMetadata, Client, bytes], Parts]
    ) -> RecordDict:
        metadata, payloads = read_request(content)
        parts: dict[ClientId, Parts] = {}
        for client_id, raw in payloads.items():
            try:
                parts[client_id] = work(metadata, self.clients[client_id], raw)
            except Exception as error:  # a client that fails never stops the others
                log(ERROR, "client %s failed", client_id, exc_info=error)
                parts[client_id] = error_parts(error)
        return reply_content(parts, metadata.round_number)

    def _train(self, metadata: RequestMetadata, owner: Client, raw: bytes) -> Parts:
        algorithm, spec = self.setup.algorithm, self.setup.learner.model.spec
        types = types_of(algorithm)
        memories = self._memories(metadata, owner.id)
        client = replace(owner, memory=memories.load(owner.id, metadata.round_number))
        learner = self._learner(metadata, owner.id)
        trained = algorithm.train(types.down.from_bytes(raw, spec), client, learner)
        reply: Message = expect(trained, types.up, algorithm, "train")
        memories.store(client.id, metadata.round_number, client.memory)
        memories.forget(metadata.oldest)
        layers = metadata.layers.split(",") if metadata.layers else None
        encoded = reply.to_bytes(spec.only(layers))
        return reply_parts(encoded, Work.of(learner.meter, len(client.train)))

    def _evaluate(self, metadata: RequestMetadata, owner: Client, raw: bytes) -> Parts:
        algorithm, spec = self.setup.algorithm, self.setup.learner.model.spec
        memories = self._memories(metadata, owner.id)
        client = replace(owner, memory=memories.load(owner.id, metadata.round_number + 1))
        learner = self._learner(metadata, owner.id)
        served = types_of(algorithm).served.from_bytes(raw, spec)
        models = expect(
            algorithm.model_for(served, client, learner), ClientModels, algorithm, "model_for"
        )
        return score_parts(score_alone(models, client, learner))

    def _learner(self, metadata: RequestMetadata, client_id: ClientId) -> Learner:
        return replace(
            self.setup.learner,
            round_number=metadata.round_number,
            client_id=client_id,
            meter=Meter(),
        )

    def _memories(self, metadata: RequestMetadata, client_id: ClientId) -> Memories:
        """Return what this client stored in this run, without rounds that were not saved."""
        if not _RUN_ID.fullmatch(metadata.run_id):
            raise RunError(
                "the run id sent by the server is malformed; "
                "install the same version of e2fl on both"
            )
        folder = self.memory / metadata.run_id / f"client-{client_id}"
        memories = Memories(folder)
        stored = folder / "server-id"
        if not stored.is_file() or stored.read_text(encoding="utf-8") != metadata.server_id:
            memories.rewind(metadata.resumed_from)
            write_text(stored, metadata.server_id)
        return memories


def memory_folder(context: Context) -> Path:
    """Return where a node stores what clients keep.

    This is `memory` in the node configuration, or a folder in Flower's home.
    """
    folder = context.node_config.get("memory")
    if folder:
        return Path(str(folder)).expanduser()
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "e2fl-memory"


def _partitions(context: Context) -> list[ClientId]:
    """Return the ids of the node's clients: "partition-ids", or the one in "partition-id"."""
    if "partition-ids" in context.node_config:
        texts = str(context.node_config["partition-ids"]).replace(",", " ").split()
        return [
            _integer("partition-ids", int(text) if text.isdecimal() else text) for text in texts
        ]
    if "partition-id" not in context.node_config:
        raise ConfigError(
            "this node does not know which client it is; start it with "
            '--node-config "partition-id=0", or pass your own load_client to client_app'
        )
    return [_integer("partition-id", context.node_config["partition-id"])]


def _integer(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name} in the node configuration must be an integer, not {value!r}")
    return value
