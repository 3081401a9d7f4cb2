"""FlowerFederation: clients on Flower's nodes. The loop in `rounds` uses it like the simulator."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from flwr.app import ConfigRecord, MessageType, RecordDict
from flwr.serverapp import Grid

from e2fl import codec, wire
from e2fl.algorithms import AnyAlgorithm, types_of
from e2fl.config.experiment import Experiment
from e2fl.data.federated import Client, ClientId, FederatedData, Population
from e2fl.errors import WireError
from e2fl.evaluation import Score
from e2fl.flower import messages
from e2fl.flower.exchange import Roster, exchange
from e2fl.flower.messages import NodeId, Work
from e2fl.flower.run_config import RunConfig
from e2fl.learning.learner import Meter
from e2fl.models import Model, ModelSpec
from e2fl.rounds import Replies, RoundRequest, Traffic, UnseenScores, count_work
from e2fl.runs.store import Folder
from e2fl.simulation.simulator import SimulatedFederation

Value = TypeVar("Value")
Result = TypeVar("Result")
Inbox = Mapping[ClientId, wire.Message]
RECORD = "checkpoint/population.json"
# By the id of a message, which clients may share: its position among the payloads of a round, its
# payload, its bytes, and itself, to stay alive.
Made = dict[int, tuple[int, ConfigRecord, int, wire.Message]]
ABSENT = "missing: no node is connected for this client"


@dataclass(frozen=True)
class Started:
    """What a resumed run must know of its start."""

    run_id: str
    population: Population


class Outcome(Generic[Value]):
    """What clients were sent, and what each of them replied."""

    def __init__(self, inbox: Inbox):
        self.inbox = inbox
        self.sent: dict[ClientId, int] = {}  # bytes, to each client that was reached
        # The reply and its message, or the fault.
        self.replies: dict[ClientId, tuple[Value, RecordDict] | str] = dict.fromkeys(inbox, ABSENT)

    def send(
        self,
        clients: Sequence[ClientId],
        spec: ModelSpec,
        made: Made,
        payloads: dict[int, ConfigRecord],
    ) -> dict[ClientId, int]:
        """Return which payload is for each of these clients that has a message; add the payloads.

        A message is encoded once for all nodes, and sent to each node once.
        """
        positions = {}
        for client in [client for client in clients if client in self.inbox]:
            message = self.inbox[client]
            if id(message) not in made:
                raw = message.to_bytes(spec)
                made[id(message)] = len(made), messages.payload(raw), len(raw), message
            positions[client], payload, self.sent[client], _ = made[id(message)]
            payloads[positions[client]] = payload
        return positions

    def add(self, replies: Mapping[ClientId, Value | str], content: RecordDict) -> None:
        """Take the replies in a message; a string says why a client failed."""
        for client, reply in replies.items():
            failed = isinstance(reply, str)
            fault = f"failed: {messages.printable(reply)}"
            self.replies[client] = fault if failed else (cast(Value, reply), content)

    def read(
        self, decode: Callable[[ClientId, Value, RecordDict], Result]
    ) -> tuple[dict[ClientId, Result], dict[ClientId, str]]:
        """Return the decoded replies, in rising order of client, and the faults of the others."""
        results: dict[ClientId, Result] = {}
        faults: dict[ClientId, str] = {}
        for client, reply in sorted(self.replies.items()):
            try:
                if isinstance(reply, str):
                    faults[client] = reply
                else:
                    results[client] = decode(client, *reply)
            except WireError as error:
                faults[client] = f"malformed: {error}"
        return results, faults


class FlowerFederation:
    """Clients on the nodes of a Flower grid."""

    def __init__(
        self,
        grid: Grid,
        experiment: Experiment,
        config: RunConfig,
        data: FederatedData,
        algorithm: AnyAlgorithm,
        model: Model,
        folder: Folder | None,
    ):
        """Wait for clients to connect.

        folder: stores the population of this run; if it has one, the run is resumed with the same
        clients, and those that have not reconnected are missing from their rounds.
        """
        self.grid, self.experiment, self.config = grid, experiment, config
        self.data, self.algorithm, self.model = data, algorithm, model
        self.traffic = Traffic()
        self.resumed_from = self.oldest = -1  # before round 0, the preparation
        self.server_id = uuid.uuid4().hex
        self.new_warnings: list[str] = []  # since the last call of `warnings`
        # What clients trained in the next round, by its number, if an evaluation carried it.
        self.ahead: dict[int, Outcome[Work]] = {}
        known, warn = data.sized_population(), self.new_warnings.append
        self.roster = Roster(grid, config, known, experiment.identity(), warn)
        if folder is not None and (folder.path / RECORD).is_file():
            why = "is damaged; start the run again in another folder"
            started = folder.read(RECORD, lambda raw: codec.decode(json.loads(raw), Started), why)
            self.roster.update(len(started.population))
        else:
            self.roster.update(config.clients or len(known))
            started = Started(uuid.uuid4().hex, self.roster.population)
            if folder is not None:
                folder.write(RECORD, codec.to_json(started))
        self.run_id, self.population = started.run_id, started.population

    def train(self, request: RoundRequest) -> Replies:
        """Let every client in the inbox train; one without a usable reply is a fault."""
        outcome, ask = self.ahead.pop(request.round_number, None), request.ask
        if outcome is None:
            outcome, _ = self._exchange(request.round_number, request, {})
        kind, whole, traffic = types_of(self.algorithm).up, self.model.spec, self.traffic
        losses: dict[ClientId, float] = {}
        ups: list[int] = []

        def decode(client: ClientId, work: Work, content: RecordDict) -> wire.Message:
            raw = messages.read_payload(content, client)
            ups.append(len(raw))
            meter = Meter(work.trained_examples, work.grouping_passes, work.ballot_bits)
            count_work(traffic, meter, work.examples)
            if work.training_loss is not None:
                losses[client] = work.training_loss
            return kind.from_bytes(raw, whole.only(ask.layers))

        answers, faults = outcome.read(decode)
        down, up = sum(outcome.sent.values()), sum(ups)
        grouping = sum(request.inbox[client].grouping_bytes(whole) for client in outcome.sent)
        traffic.down += down
        traffic.up += up
        traffic.exchanges += len(outcome.sent)
        traffic.grouping_bytes += down + up if ask.kind == "prepare" else grouping
        least = self.config.least_answers
        if len(answers) < least:
            faults |= dict.fromkeys(
                answers, f"few: {len(answers)} replies; least-answers is {least}"
            )
            answers = {}
        return Replies(answers, dict(sorted(faults.items())), losses)

    def evaluate(
        self, round_number: int, inbox: Inbox, then: RoundRequest | None = None
    ) -> Mapping[ClientId, Score]:
        """Let clients evaluate what they are sent; the next round's request travels with it."""
        trained, outcome = self._exchange(round_number + 1, then, inbox)
        if then is not None:
            self.ahead = {then.round_number: trained}
        self.traffic.served += sum(outcome.sent.values())
        offered = {client: messages.offered_groups(message) for client, message in inbox.items()}

        def decode(client: ClientId, score: Score, _: RecordDict) -> Score:
            declared = self.population.declared[client]
            messages.check_score(score, declared, self.population, offered[client])
            return score

        scores, faults = outcome.read(decode)
        kept, odd = messages.comparable(scores, offered)
        for client, fault in sorted((faults | odd).items()):
            self.new_warnings.append(f"{fault} (client {client}, evaluation)")
        return kept

    def evaluate_unseen(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores:
        """Evaluate clients that never took part and have no nodes: the server has their data."""
        learner = self.experiment.build_learner(self.model)
        threads = self.experiment.threads
        simulator = SimulatedFederation(self.data, self.algorithm, learner, threads=threads)
        return simulator.evaluate_unseen(state, clients)

    def rewind(self, round_number: int) -> None:
        """Make clients continue as they were after this round; messages tell them."""
        # `oldest` stays: the checkpoint before this one must be usable until the next is saved.
        self.resumed_from = round_number

    def forget(self, before: int) -> None:
        """Let clients discard what they stored before this round; messages tell them."""
        self.oldest = before

    def warnings(self) -> list[str]:
        """Return the warnings since the last call: what went wrong besides training."""
        taken = list(self.new_warnings)
        self.new_warnings.clear()
        return taken

    def _exchange(
        self, number: int, training: RoundRequest | None, serving: Inbox
    ) -> tuple[Outcome[Work], Outcome[Score]]:
        """Let clients evaluate, and train in this round, with one message to each node."""
        self.roster.update()
        trained: Outcome[Work] = Outcome({} if training is None else training.inbox)
        scored: Outcome[Score] = Outcome(serving)
        layers = None if training is None else training.ask.layers
        spec, made = self.model.spec, Made()
        requests: dict[NodeId, messages.Request] = {}
        contents: dict[NodeId, RecordDict] = {}
        for node, clients in self.roster.by_node({*trained.inbox, *serving}).items():
            payloads: dict[int, ConfigRecord] = {}
            requests[node] = messages.Request(
                round_number=number,
                run_id=self.run_id,
                server_id=self.server_id,
                resumed_from=self.resumed_from,
                oldest=self.oldest,
                layers=None if layers is None else tuple(layers),
                train=trained.send(clients, spec, made, payloads),
                evaluate=scored.send(clients, spec, made, payloads),
            )
            contents[node] = messages.pack(requests[node], dict(sorted(payloads.items())))
        received = exchange(
            self.grid,
            MessageType.EVALUATE if training is None else MessageType.TRAIN,
            contents,
            seconds=self.config.round_seconds,
            poll_seconds=self.config.poll_seconds,
            group_id=str(number),
        )
        for node, request in requests.items():
            content = received[node]
            reply = content if isinstance(content, str) else messages.read_reply(content, request)
            if isinstance(content, str) or isinstance(reply, str):
                trained.replies |= dict.fromkeys(request.train, str(reply))
                scored.replies |= dict.fromkeys(request.evaluate, str(reply))
            else:
                trained.add(reply.trained, content)
                scored.add(reply.scores, content)
        return trained, scored
