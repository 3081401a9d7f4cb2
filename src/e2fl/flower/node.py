"""What a node computes: the client half of any algorithm, on the node's own data and with its own memory."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from flwr.app import Context, RecordDict

from e2fl.algorithms import AnyAlgorithm, types_of
from e2fl.config.experiment import Experiment, load
from e2fl.data.federated import Client, FederatedData
from e2fl.errors import ConfigError, RunError
from e2fl.flower.evaluation_message import fill
from e2fl.flower.records import FACTS, Claim, Errand, homeward, presenting, received
from e2fl.flower.run_config import changes
from e2fl.learning import Learner
from e2fl.learning.learner import Meter
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.evaluator import score_alone

_RUN = re.compile("[0-9a-f]{32}")  # it names a folder here, and comes from outside


@dataclass(frozen=True)
class _Parts:
    """What an experiment is made of; a process that answers many messages builds it once."""

    experiment: Experiment
    data: FederatedData
    algorithm: AnyAlgorithm
    learner: Learner


@dataclass(frozen=True)
class Node:
    """One node, answering one message."""

    parts: _Parts
    client: Client
    memory: Path

    @classmethod
    def of(
        cls, experiment: str | Path, context: Context, load_client: Callable[[Context], Client] | None = None
    ) -> "Node":
        """The node of this context; its own data, or its share of the experiment's."""
        torch.set_num_threads(1)  # as in the simulator: sums must not depend on how many cores a node has
        parts = _parts(str(experiment), tuple(changes(context.run_config)))
        client = load_client(context) if load_client else parts.data.client(_partition(context))
        if "group" in context.node_config:
            client = replace(client, group=_whole(context, "group"))
        return cls(parts, client, memory_folder(context))

    def present(self, content: RecordDict) -> RecordDict:
        """Say who this is."""
        asked = content.config_records[FACTS].get("fingerprint")
        if asked and asked != self.parts.experiment.fingerprint():
            raise ConfigError("this node has another experiment than the server; install the same version of e2fl")
        return presenting(Claim(self.client.id, self.client.group))

    def train(self, content: RecordDict) -> RecordDict:
        """Learn from what came, keep what is to be kept, answer."""
        errand, raw = received(content)
        algorithm, spec = self.parts.algorithm, self.parts.learner.model.spec
        memories = self._memories(errand)
        client = replace(self.client, memory=memories.load(self.client.id, errand.number))
        learner = replace(self.parts.learner, number=errand.number, client=client.id, meter=Meter())
        answer = algorithm.train(types_of(algorithm).down.from_bytes(raw, spec), client, learner)
        memories.store(client.id, errand.number, client.memory)
        memories.forget(errand.oldest)
        raw = answer.to_bytes(spec.only(errand.layers.split(",") if errand.layers else None))
        return homeward(raw, client.id, errand.number, learner.meter, len(client.train))

    def evaluate(self, content: RecordDict) -> RecordDict:
        """Try what came, and say how it went."""
        errand, raw = received(content)
        algorithm, spec = self.parts.algorithm, self.parts.learner.model.spec
        client = replace(self.client, memory=self._memories(errand).load(self.client.id, errand.number + 1))
        learner = replace(self.parts.learner, number=errand.number, client=client.id, meter=Meter())
        uses = algorithm.model_for(types_of(algorithm).served.from_bytes(raw, spec), client, learner)
        score = score_alone(uses, client, learner)
        return homeward(fill(score).to_bytes(spec), client.id, errand.number)

    def _memories(self, errand: Errand) -> Memories:
        """What this client kept in this run, without what a server that was killed since had it do."""
        if not _RUN.fullmatch(errand.run):
            raise RunError("the server names no run that could be a folder here")
        folder = self.memory / errand.run / f"client-{self.client.id}"
        memories = Memories(folder)
        life = folder / "life"
        if not life.is_file() or life.read_text(encoding="utf-8") != errand.life:
            memories.rewind(errand.resumed)
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / "life.partial"
            partial.write_text(errand.life, encoding="utf-8")
            partial.replace(life)
        return memories


def memory_folder(context: Context) -> Path:
    """Where a node keeps what clients remember: node configuration `memory`, else in Flower's own folder."""
    named = context.node_config.get("memory")
    if named:
        return Path(str(named)).expanduser()
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "e2fl-memory"


def _partition(context: Context) -> int:
    if "partition-id" not in context.node_config:
        raise ConfigError(
            'this node does not know which client it is: start it with --node-config "partition-id=0", '
            "or give client_app a load_client of your own"
        )
    return _whole(context, "partition-id")


def _whole(context: Context, name: str) -> int:
    value = context.node_config[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"the node configuration {name} must be a whole number, not {value!r}")
    return value


@lru_cache(maxsize=4)
def _parts(path: str, changed: tuple[str, ...]) -> _Parts:
    experiment = load(path, changed)
    data = experiment.build_data()
    return _Parts(
        experiment, data, experiment.build_algorithm(), experiment.build_learner(experiment.build_model(data))
    )
