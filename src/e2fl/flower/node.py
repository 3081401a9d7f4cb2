"""The computations of a node: the client side of any algorithm, on the node's own data and stored models."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from flwr.app import Context, RecordDict

from e2fl.algorithms import AnyAlgorithm, ClientModels, types_of
from e2fl.algorithms.validate import expect
from e2fl.config.experiment import Experiment, load
from e2fl.data.federated import Client, FederatedData
from e2fl.errors import ConfigError, RunError
from e2fl.files import write_text
from e2fl.flower.evaluation_message import EvaluationMessage
from e2fl.flower.records import METADATA, Identity, RequestMetadata, identity_content, read_request, reply_content
from e2fl.flower.run_config import overrides
from e2fl.learning import Learner
from e2fl.learning.learner import Meter
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.evaluator import score_alone
from e2fl.wire import Message

_RUN_ID = re.compile("[0-9a-f]{32}")  # comes from the server and names a folder here


@dataclass(frozen=True)
class _Setup:
    """The parts of an experiment; a process that handles many messages builds them once."""

    experiment: Experiment
    data: FederatedData
    algorithm: AnyAlgorithm
    learner: Learner


@dataclass(frozen=True)
class Node:
    """One node, handling one message."""

    setup: _Setup
    client: Client
    memory: Path

    @classmethod
    def from_context(
        cls, experiment: str | Path, context: Context, load_client: Callable[[Context], Client] | None = None
    ) -> "Node":
        """Return the node of this context, with its own data or its part of the experiment's."""
        torch.set_num_threads(1)  # as in the simulator: sums must not depend on how many cores a node has
        setup = _setup(str(experiment), tuple(overrides(context.run_config)))
        client = load_client(context) if load_client else setup.data.client(_partition(context))
        if "group" in context.node_config:
            client = replace(client, group=_integer(context, "group"))
        return cls(setup, client, memory_folder(context))

    def identify(self, content: RecordDict) -> RecordDict:
        """Return which client this is; raise `ConfigError` if the server runs another experiment."""
        expected = content.config_records[METADATA].get("fingerprint")
        if expected and expected != self.setup.experiment.fingerprint():
            raise ConfigError(
                "the experiment of this node differs from the server's; install the same version of e2fl on both"
            )
        return identity_content(Identity(self.client.id, self.client.group))

    def train(self, content: RecordDict) -> RecordDict:
        """Train on the message, store what the client keeps, and return the reply."""
        metadata, raw = read_request(content)
        algorithm, spec = self.setup.algorithm, self.setup.learner.model.spec
        types = types_of(algorithm)
        memories = self._memories(metadata)
        client = replace(self.client, memory=memories.load(self.client.id, metadata.round_number))
        learner = self._learner(metadata)
        trained = algorithm.train(types.down.from_bytes(raw, spec), client, learner)
        reply: Message = expect(trained, types.up, algorithm, "train")
        memories.store(client.id, metadata.round_number, client.memory)
        memories.forget(metadata.oldest)
        layers = metadata.layers.split(",") if metadata.layers else None
        return reply_content(
            reply.to_bytes(spec.only(layers)), client.id, metadata.round_number, learner.meter, len(client.train)
        )

    def evaluate(self, content: RecordDict) -> RecordDict:
        """Evaluate the message on the client's test examples, and return the score."""
        metadata, raw = read_request(content)
        algorithm, spec = self.setup.algorithm, self.setup.learner.model.spec
        memory = self._memories(metadata).load(self.client.id, metadata.round_number + 1)
        client = replace(self.client, memory=memory)
        learner = self._learner(metadata)
        found = algorithm.model_for(types_of(algorithm).served.from_bytes(raw, spec), client, learner)
        models = expect(found, ClientModels, algorithm, "model_for")
        message = EvaluationMessage.from_score(score_alone(models, client, learner))
        return reply_content(message.to_bytes(spec), client.id, metadata.round_number)

    def _learner(self, metadata: RequestMetadata) -> Learner:
        return replace(self.setup.learner, round_number=metadata.round_number, client_id=self.client.id, meter=Meter())

    def _memories(self, metadata: RequestMetadata) -> Memories:
        """Return what this client stored in this run, without rounds that a killed server did not save."""
        if not _RUN_ID.fullmatch(metadata.run_id):
            raise RunError("the run id sent by the server is malformed; install the same version of e2fl on both")
        folder = self.memory / metadata.run_id / f"client-{self.client.id}"
        memories = Memories(folder)
        stored = folder / "server-id"
        if not stored.is_file() or stored.read_text(encoding="utf-8") != metadata.server_id:
            memories.rewind(metadata.resumed_from)
            write_text(stored, metadata.server_id)
        return memories


def memory_folder(context: Context) -> Path:
    """Return where a node stores what clients keep: node configuration `memory`, or a folder in Flower's home."""
    named = context.node_config.get("memory")
    if named:
        return Path(str(named)).expanduser()
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "e2fl-memory"


def _partition(context: Context) -> int:
    if "partition-id" not in context.node_config:
        raise ConfigError(
            'this node does not know which client it is; start it with --node-config "partition-id=0", '
            "or pass your own load_client to client_app"
        )
    return _integer(context, "partition-id")


def _integer(context: Context, name: str) -> int:
    value = context.node_config[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name} in the node configuration must be an integer, not {value!r}")
    return value


@lru_cache(maxsize=4)
def _setup(path: str, overridden: tuple[str, ...]) -> _Setup:
    experiment = load(path, overridden)
    data = experiment.build_data()
    return _Setup(
        experiment, data, experiment.build_algorithm(), experiment.build_learner(experiment.build_model(data))
    )
