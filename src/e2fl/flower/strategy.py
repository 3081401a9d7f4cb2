"""Any e2fl algorithm as a Flower strategy, for pipelines that are built around `strategy.start`.

`server.server_app` does more: it keeps checkpoints and goes on after being killed. This fits where a Strategy is asked
for. Clients run `client.client_app` of the same experiment.
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
from e2fl.flower.fairness import summarised
from e2fl.flower.federation import decoded, encode_once, enough, opened, scores_in
from e2fl.flower.records import Answer, Errand, outward
from e2fl.flower.roster import Roster
from e2fl.flower.run_config import Options
from e2fl.flower.transport import Arrivals, NodeId, Post, Prompt
from e2fl.rounds import Replies, Server


class AlgorithmStrategy(Strategy):
    """The server half of the experiment's algorithm. Its state stays here; Flower is handed the models to look at.

    A round of Flower's is a round of the algorithm. Where that begins with a round of preparation, Flower's first round
    is that one. `state`, `scores`, `faults` and `notices` are of the last round, and free to be read.
    """

    def __init__(self, experiment: Experiment, options: Options | None = None):
        self.experiment = experiment
        self.options = options or Options()
        self.data = experiment.build_data()
        self.algorithm = experiment.build_algorithm()
        self.model = experiment.build_model(self.data)
        self.name, self.life = uuid.uuid4().hex, uuid.uuid4().hex
        self.prompt: Prompt | None = None
        self.roster: Roster | None = None
        self.server: Server | None = None  # the loop, as in the simulator; made when the clients are known
        self.rounds: int | None = None  # where `start` says so
        self.scores: Mapping[ClientId, Score] = {}
        self.faults: Mapping[ClientId, str] = {}
        self.notices: list[str] = []  # what went wrong beside answers: strange nodes, and what nobody asked for
        self.given: Mapping[ClientId, wire.Message] = {}
        self.sent: list[tuple[ClientId, NodeId, Message]] = []
        self.absent: list[ClientId] = []

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
        """Run; rounds and deadlines are those of the experiment and the options unless said otherwise."""
        self.prompt = Prompt(grid, self.options.poll_seconds)
        self.rounds = num_rounds
        server, _ = self._present(self.prompt)  # how many rounds an algorithm needs depends on the clients
        result = super().start(
            self.prompt,
            ArrayRecord() if initial_arrays is None else initial_arrays,
            server.last - server.done.number,
            self.options.round_seconds if timeout is None else timeout,
            train_config,
            evaluate_config,
            evaluate_fn,
        )
        server.require_replies()
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """What the clients drawn for this round train from."""
        server, roster = self._present(grid)
        request = server.ask()
        return self._letters(MessageType.TRAIN, request.round_number, request.inbox, roster, request.ask.layers)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the usable answers."""
        assert self.server is not None
        assert self.server.request is not None
        request = self.server.request
        came, faults = self._open(replies, request.round_number)
        answers, malformed = decoded(came, self.server.types.up, self.model.spec.only(request.ask.layers))
        counted, few = enough(answers, self.server.population, self.options)
        self.server.take(Replies(counted, few | faults | malformed))
        done = self.server.done
        self.faults = done.faults
        counts = {"asked": len(self.sent) + len(self.absent), "answered": len(done.answered)}
        facts = MetricRecord({**counts, **_kinds((*self.faults.values(), *self.notices))})
        return (self.models() if done.answered else None), facts

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """What every client evaluates, in the rounds that are evaluated."""
        assert self.server is not None
        offered = self.server.offer()
        if offered is None:
            self.sent = []
            return []
        server, roster = self._present(grid)
        self.given = offered
        return self._letters(MessageType.EVALUATE, server.done.number, offered, roster)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """How evenly clients are served, under the names that `fairness` explains."""
        if not self.sent:
            return None
        assert self.server is not None
        population = self.server.population
        came, faults = self._open(replies, self.server.done.number)
        self.scores, odd = scores_in(came, self.given, self.model.spec, population)
        self.faults = faults | odd
        own = {client: next(iter(score.views.values())) for client, score in self.scores.items()}
        accuracies = [total(parts.values()).accuracy for parts in own.values()]
        found = summarised(accuracies, [population.declared[client] for client in own], unmeasured=len(self.faults))
        return MetricRecord({**found, **_kinds((*self.faults.values(), *self.notices))})

    def summary(self) -> None:
        """Say what will run."""
        log(INFO, "\t├──> e2fl algorithm: %s", self.algorithm)
        log(INFO, "\t└──> seed: %s, evaluated every %s rounds", self.experiment.seed, self.experiment.evaluate_every)

    def models(self) -> ArrayRecord:
        """The algorithm's models, named MODEL/LAYER: weights, or masks of the supernetwork as booleans."""
        return ArrayRecord(
            {
                f"{name}/{layer}": Array(value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value))
                for name, model in self.algorithm.describe(self.state).models().items()
                for layer, value in model.items()
            }
        )

    def _present(self, grid: Grid) -> tuple[Server, Roster]:
        """The server and the nodes; the first time, the clients are gathered and the run starts."""
        if self.roster is None or self.server is None:
            post = Post(grid, self.options.poll_seconds)
            fingerprint = self.experiment.fingerprint()
            self.roster = Roster(post, self.options, known=self.data.population, fingerprint=fingerprint)
            population = self.roster.gather(self.options.clients or len(self.data.population))
            self.server = self.experiment.build_server(self.algorithm, self.model, population)
            if self.rounds is not None:
                self.server.last = self.server.done.number + self.rounds
        else:
            self.roster.update()
        return self.server, self.roster

    def _letters(
        self,
        kind: str,
        number: int,
        inbox: Mapping[ClientId, Any],
        roster: Roster,
        layers: tuple[str, ...] | None = None,
    ) -> list[Message]:
        errand = Errand(number, self.name, self.life, -1, -1, ",".join(layers or ()))
        encoded = encode_once(inbox, self.model.spec)
        self.sent = [
            (
                client,
                node,
                Message(outward(encoded[client][0], errand), dst_node_id=node, message_type=kind, group_id=str(number)),
            )
            for client, node in sorted(roster.nodes.items())
            if client in inbox
        ]
        self.absent = sorted(inbox.keys() - roster.nodes.keys())
        return [message for _, _, message in self.sent]

    def _open(self, replies: Iterable[Message], number: int) -> tuple[dict[ClientId, Answer], dict[ClientId, str]]:
        assert self.roster is not None
        # Flower gives a message its id when it is sent, which was after it was handed over.
        waiting = {message.metadata.message_id: node for _, node, message in self.sent}
        arrivals, self.roster.post.settled = Arrivals(), {}
        for name, reason in (self.prompt.refused if self.prompt is not None else {}).items():
            if name in waiting:
                node = self.roster.post.settled[name] = waiting.pop(name)
                arrivals.faults[node] = reason
        for reply in replies:
            self.roster.post.take(reply.metadata.reply_to_message_id, reply, waiting, arrivals)
        arrivals.faults |= dict.fromkeys(waiting.values(), "missing: no answer in time")
        came, faults = opened(arrivals, {client: node for client, node, _ in self.sent}, number)
        self.notices = self.roster.notices + [notice for _, notice in arrivals.others]
        self.roster.notices = []
        return came, faults | dict.fromkeys(self.absent, "missing: no node is there for this client")


def _kinds(faults: Iterable[str]) -> dict[str, int]:
    kinds = Counter(fault.split(":", 1)[0] for fault in faults)
    return {f"faults-{kind}": count for kind, count in sorted(kinds.items())}
