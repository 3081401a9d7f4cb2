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
from e2fl.data.federated import ClientId, Population
from e2fl.errors import RunError, WireError
from e2fl.evaluation import Score, total
from e2fl.flower.fairness import summarised
from e2fl.flower.federation import encode_once, enough, opened, scores_in
from e2fl.flower.records import Answer, Errand, outward
from e2fl.flower.roster import Roster
from e2fl.flower.run_config import Options
from e2fl.flower.transport import Arrivals, NodeId, Post, Prompt
from e2fl.randomness import stream
from e2fl.rounds import Replies, admit


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
        self.population = Population({})
        self.last: int | None = None  # the round that ends the run, where somebody said so
        self.state: Any = None
        self.scores: Mapping[ClientId, Score] = {}
        self.faults: Mapping[ClientId, str] = {}
        self.notices: list[str] = []  # what went wrong beside answers: strange nodes, and what nobody asked for
        self.ever_answered = False
        self.given: Mapping[ClientId, wire.Message] = {}
        self.sent: list[tuple[ClientId, NodeId, Message]] = []
        self.absent: list[ClientId] = []

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
        self._present(self.prompt)  # how many rounds an algorithm has use for depends on who is there
        before = self.algorithm.first_round - 1
        self.last = None if num_rounds is None else before + num_rounds
        result = super().start(
            self.prompt,
            ArrayRecord() if initial_arrays is None else initial_arrays,
            self._last() - before,
            self.options.round_seconds if timeout is None else timeout,
            train_config,
            evaluate_config,
            evaluate_fn,
        )
        if not self.ever_answered:
            reason = next(iter(self.faults.values()), "no client was asked")
            raise RunError(f"no client ever sent a usable answer, so nothing was learnt; the last reason was: {reason}")
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """What the clients drawn for this round train from."""
        roster = self._present(grid)
        number = self._number(server_round)
        asked = self.algorithm.finale(self.state, self.population) if number == self._last() else None
        if asked is None:
            asked = self.algorithm.select(
                self.state, self.population, number, stream(self.experiment.seed, "select", number)
            )
        return self._letters(MessageType.TRAIN, number, self.algorithm.broadcast(self.state, asked), roster)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next state, from whoever answered well."""
        number = self._number(server_round)
        came, faults = self._open(replies, number)
        spec = self.algorithm.reply_spec(number, self.model.spec)
        answers: dict[ClientId, wire.Message] = {}
        for client, answer in came.items():
            try:
                answers[client] = self.algorithm.up.from_bytes(answer.raw, spec)
            except WireError as error:
                faults[client] = f"malformed: {error}"
        counted, few = enough(answers, self.population, self.options)
        admitted, self.faults = admit(self.algorithm, self.state, Replies(counted, few | faults))
        self.state = self.algorithm.aggregate(self.state, admitted)
        self.ever_answered = self.ever_answered or bool(admitted)
        counts = {"asked": len(self.sent) + len(self.absent), "answered": len(admitted)}
        facts = MetricRecord({**counts, **_kinds((*self.faults.values(), *self.notices))})
        return (self.models() if admitted else None), facts

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """What every client is given to use, in the rounds that are evaluated."""
        number = self._number(server_round)
        due = self.algorithm.improves and number > 0 and number % self.experiment.evaluate_every == 0
        if not due and number != self._last():
            self.sent = []
            return []
        roster = self._present(grid)
        self.given = self.algorithm.serve(self.state, self.population.ids)
        return self._letters(MessageType.EVALUATE, number, self.given, roster)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """How evenly clients are served, under the names that `fairness` explains."""
        if not self.sent:
            return None
        came, faults = self._open(replies, self._number(server_round))
        self.scores, odd = scores_in(came, self.given, self.model.spec, self.population)
        self.faults = faults | odd
        own = {client: next(iter(score.views.values())) for client, score in self.scores.items()}
        accuracies = [total(parts.values()).accuracy for parts in own.values()]
        found = summarised(
            accuracies, [self.population.declared[client] for client in own], unmeasured=len(self.faults)
        )
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
                for name, model in self.algorithm.models(self.state).items()
                for layer, value in model.items()
            }
        )

    def _number(self, server_round: int) -> int:
        return server_round + self.algorithm.first_round - 1

    def _last(self) -> int:
        return self.algorithm.rounds(self.experiment.rounds, self.population) if self.last is None else self.last

    def _present(self, grid: Grid) -> Roster:
        """Who is there; the first time, the population is called and the state made."""
        if self.roster is None:
            post = Post(grid, self.options.poll_seconds)
            fingerprint = self.experiment.fingerprint()
            self.roster = Roster(post, self.options, known=self.data.population, fingerprint=fingerprint)
            self.population = self.roster.gather(self.options.clients or len(self.data.population))
            self.state = self.algorithm.start(self.model, self.population, self.experiment.seed)
        else:
            self.roster.update()
        return self.roster

    def _letters(self, kind: str, number: int, inbox: Mapping[ClientId, Any], roster: Roster) -> list[Message]:
        before = self.algorithm.first_round - 1
        errand = Errand(number, self.name, self.life, before, before)
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
