"""Any e2fl algorithm as a Flower strategy, for pipelines built around `strategy.start`.

`server.server_app` does more: it stores checkpoints and resumes a run that was killed. Clients run `client.client_app`
of the same experiment.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from logging import INFO
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from e2fl import wire
from e2fl.config.experiment import Experiment
from e2fl.data.federated import ClientId
from e2fl.evaluation import Score, total
from e2fl.flower.exchange import Exchange, ReceivedReplies, prepare
from e2fl.flower.fairness import summarise
from e2fl.flower.records import RequestMetadata
from e2fl.flower.roster import Roster
from e2fl.flower.run_config import RunConfig
from e2fl.flower.transport import NodeId, PollingGrid, Transport
from e2fl.rounds import Server


class AlgorithmStrategy(Strategy):
    """The server side of the experiment's algorithm. The strategy keeps the state; Flower only gets the models.

    A round of Flower is a round of the algorithm. If the algorithm starts with a preparation, that is Flower's first
    round. `state`, `scores`, `faults` and `warnings` describe the last round.
    """

    def __init__(self, experiment: Experiment, config: RunConfig | None = None):
        self.experiment = experiment
        self.config = config or RunConfig()
        self.data = experiment.build_data()
        self.algorithm = experiment.build_algorithm()
        self.model = experiment.build_model(self.data)
        self.run_id, self.server_id = uuid.uuid4().hex, uuid.uuid4().hex
        self.grid: PollingGrid | None = None
        self.roster: Roster | None = None
        self.server: Server | None = None  # the loop, as in the simulator; made when the clients are known
        self.rounds: int | None = None  # as passed to `start`
        self.scores: Mapping[ClientId, Score] = {}
        self.faults: Mapping[ClientId, str] = {}
        self.warnings: list[str] = []  # besides faults: rejected nodes, and replies that are not used
        self.exchange: Exchange | None = None
        self.sent: list[tuple[NodeId, Message]] = []

    @property
    def state(self) -> Any:
        """The state of the algorithm after the last round."""
        return None if self.server is None else self.server.state

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the experiment; num_rounds and timeout default to those of the experiment and the run configuration."""
        self.grid = PollingGrid(grid, self.config.poll_seconds)
        self.rounds = num_rounds
        server, _ = self._connect(self.grid)  # how many rounds an algorithm needs depends on the clients
        result = super().start(
            self.grid,
            ArrayRecord() if initial_arrays is None else initial_arrays,
            server.last - server.done.number,
            self.config.round_seconds if timeout is None else timeout,
            train_config,
            evaluate_config,
            evaluate_fn,
        )
        server.require_replies()
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return what the clients drawn for this round train from."""
        server, roster = self._connect(grid)
        request = server.ask()
        return self._messages(MessageType.TRAIN, request.round_number, request.inbox, roster, request.ask.layers)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the usable replies."""
        assert self.server is not None
        assert self.server.request is not None
        server, request = self.server, self.server.request
        received = self._receive(replies)
        spec = self.model.spec.only(request.ask.layers)
        server.take(received.decode(server.types.up, spec, server.population, self.config))
        self.faults = server.done.faults
        counts = {"asked": len(request.inbox), "answered": len(server.done.answered)}
        return (self.models() if server.done.answered else None), MetricRecord({**counts, **self._fault_counts()})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return what every client evaluates; nothing in rounds that are not evaluated."""
        assert self.server is not None
        offered = self.server.offer()
        if offered is None:
            self.exchange, self.sent = None, []
            return []
        server, roster = self._connect(grid)
        return self._messages(MessageType.EVALUATE, server.done.number, offered, roster)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return how evenly clients are served, under the names that `fairness` documents."""
        if self.exchange is None or not self.sent:
            return None
        assert self.server is not None
        population = self.server.population
        received = self._receive(replies)
        self.scores, self.faults = received.decode_scores(self.exchange.inbox, self.model.spec, population)
        own = {client: next(iter(score.views.values())) for client, score in self.scores.items()}
        accuracies = [total(parts.values()).accuracy for parts in own.values()]
        found = summarise(accuracies, [population.declared[client] for client in own], unmeasured=len(self.faults))
        return MetricRecord({**found, **self._fault_counts()})

    def summary(self) -> None:
        """Log what will run."""
        log(INFO, "\t├──> e2fl algorithm: %s", self.algorithm)
        log(INFO, "\t└──> seed: %s, evaluated every %s rounds", self.experiment.seed, self.experiment.evaluate_every)

    def models(self) -> ArrayRecord:
        """Return the algorithm's models, named MODEL/LAYER: weights, or masks of the supernetwork as booleans."""
        return ArrayRecord(
            {
                f"{name}/{layer}": Array(value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value))
                for name, model in self.algorithm.describe(self.state).models().items()
                for layer, value in model.items()
            }
        )

    def _connect(self, grid: Grid) -> tuple[Server, Roster]:
        """Return the server and the connected nodes; the first call waits for clients and starts the run."""
        if self.roster is None or self.server is None:
            transport = Transport(grid, self.config.poll_seconds)
            fingerprint = self.experiment.fingerprint()
            self.roster = Roster(transport, self.config, known=self.data.population, fingerprint=fingerprint)
            population = self.roster.gather(self.config.clients or len(self.data.population))
            self.server = self.experiment.build_server(self.algorithm, self.model, population)
            if self.rounds is not None:
                self.server.last = self.server.done.number + self.rounds
        else:
            self.roster.update()
        return self.server, self.roster

    def _messages(
        self,
        message_type: str,
        round_number: int,
        inbox: Mapping[ClientId, wire.Message],
        roster: Roster,
        layers: tuple[str, ...] | None = None,
    ) -> list[Message]:
        metadata = RequestMetadata(round_number, self.run_id, self.server_id, -1, -1, ",".join(layers or ()))
        self.exchange = prepare(inbox, roster.nodes, self.model.spec, metadata)
        self.sent = [
            (node, Message(content, dst_node_id=node, message_type=message_type, group_id=str(round_number)))
            for node, content in self.exchange.contents.items()
        ]
        return [message for _, message in self.sent]

    def _receive(self, replies: Iterable[Message]) -> ReceivedReplies:
        assert self.roster is not None
        assert self.exchange is not None
        # Flower sets the id of a message when it sends it, after `configure_train` returned it.
        sent = {message.metadata.message_id: node for node, message in self.sent}
        rejected = self.grid.rejected if self.grid is not None else {}
        received = self.roster.transport.sort(sent, replies, rejected)
        self.warnings = self.roster.take_warnings() + [warning for _, warning in received.unexpected]
        return self.exchange.read(received)

    def _fault_counts(self) -> dict[str, int]:
        kinds = Counter(fault.split(":", 1)[0] for fault in (*self.faults.values(), *self.warnings))
        return {f"faults-{kind}": count for kind, count in sorted(kinds.items())}
