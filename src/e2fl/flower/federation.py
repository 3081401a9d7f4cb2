"""FlowerFederation: clients on Flower's nodes. The loop in `rounds` uses it like the simulator."""

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from flwr.app import ConfigRecord, MessageType, RecordDict
from flwr.serverapp import Grid

from e2fl import codec, wire
from e2fl.algorithms import AnyAlgorithm
from e2fl.config.experiment import Experiment
from e2fl.data.federated import ClientId, FederatedData, Population
from e2fl.errors import WireError
from e2fl.evaluation import Score
from e2fl.flower import messages
from e2fl.flower.exchange import Roster, exchange
from e2fl.flower.messages import NodeId, Work
from e2fl.flower.run_config import RunConfig
from e2fl.learning.autograd import Losses
from e2fl.learning.learner import Meter
from e2fl.models import Model, ModelSpec
from e2fl.rounds import Replies, RoundRequest
from e2fl.runs.store import Folder
from e2fl.simulation.simulator import SimulatedFederation, Trained

Value = TypeVar("Value")
Inbox = Mapping[ClientId, wire.Message]
RECORD = "checkpoint/population.json"
ABSENT = "missing: no node is connected for this client"


@dataclass(frozen=True)
class Started:
    """What a resumed run must know of its start."""

    run_id: str
    population: Population


@dataclass
class Outcome(Generic[Value]):
    """What clients were sent, and what each of them replied."""

    replies: dict[ClientId, Value | str]  # the reply, or the fault
    sent: dict[ClientId, int] = field(default_factory=dict)  # bytes, to clients that were reached


class FlowerFederation(SimulatedFederation):
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
        # The server evaluates clients that never took part and have no nodes, and needs no GPU.
        learner = replace(experiment, device="cpu").build.learner(model)
        super().__init__(data, algorithm, learner, threads=experiment.threads)
        self.grid, self.config = grid, config
        self.resumed_from = self.oldest = -1  # before round 0, the preparation
        self.server_id = uuid.uuid4().hex
        self.new_warnings: list[str] = []  # since the last call of `warnings`
        # What clients trained in the next round, by its number, if an evaluation carried it.
        self.ahead: dict[int, Outcome[Trained]] = {}
        known, warn = self.population, self.new_warnings.append
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
        replies = super().train(request)
        answers, least = replies.answers, self.config.least_answers
        if len(answers) >= least:
            return replies
        few = dict.fromkeys(answers, f"few: {len(answers)} replies; least-answers is {least}")
        return Replies({}, dict(sorted({**replies.faults, **few}.items())), replies.losses)

    def _trained(
        self, request: RoundRequest, spec: ModelSpec
    ) -> tuple[Mapping[ClientId, int], Iterator[tuple[ClientId, Trained | str]]]:
        outcome = self.ahead.pop(request.round_number, None)
        if outcome is None:
            outcome, _ = self._exchange(request.round_number, request, {})
        return outcome.sent, iter(sorted(outcome.replies.items()))

    def evaluate(
        self, round_number: int, inbox: Inbox, then: RoundRequest | None = None
    ) -> Mapping[ClientId, Score]:
        """Let clients evaluate what they are sent; the next round's request travels with it."""
        trained, outcome = self._exchange(round_number + 1, then, inbox)
        if then is not None:
            self.ahead = {then.round_number: trained}
        self.traffic.served += sum(outcome.sent.values())
        offered = {client: messages.offered_groups(message) for client, message in inbox.items()}
        scores: dict[ClientId, Score] = {}
        faults: dict[ClientId, str] = {}
        for client, score in sorted(outcome.replies.items()):
            if isinstance(score, str):
                faults[client] = score
                continue
            try:
                declared = self.population.declared[client]
                messages.check_score(score, declared, self.population, offered[client])
                scores[client] = score
            except WireError as error:
                faults[client] = f"malformed: {error}"
        kept, odd = messages.comparable(scores, offered)
        for client, fault in sorted((faults | odd).items()):
            self.new_warnings.append(f"{fault} (client {client}, evaluation)")
        return kept

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
    ) -> tuple[Outcome[Trained], Outcome[Score]]:
        """Let clients evaluate, and train in this round, with one message to each node."""
        self.roster.update()
        inboxes = {"train": {} if training is None else training.inbox, "evaluate": serving}
        delivered, sizes = self._deliver(
            {
                (task, client): one
                for task, inbox in inboxes.items()
                for client, one in inbox.items()
            }
        )
        records = list({id(record): record for record in delivered.values()}.values())
        places = {id(record): place for place, record in enumerate(records)}
        trained: Outcome[Trained] = Outcome(dict.fromkeys(inboxes["train"], ABSENT))
        scored: Outcome[Score] = Outcome(dict.fromkeys(serving, ABSENT))
        layers = None if training is None else training.ask.layers
        requests: dict[NodeId, messages.Request] = {}
        contents: dict[NodeId, RecordDict] = {}
        for node, clients in self.roster.by_node({*inboxes["train"], *serving}).items():
            asked = {
                task: {c: places[id(delivered[task, c])] for c in clients if c in inbox}
                for task, inbox in inboxes.items()
            }
            requests[node] = messages.Request(
                round_number=number,
                run_id=self.run_id,
                server_id=self.server_id,
                resumed_from=self.resumed_from,
                oldest=self.oldest,
                layers=None if layers is None else tuple(layers),
                **asked,
            )
            used = sorted({place for own in asked.values() for place in own.values()})
            contents[node] = messages.pack(
                requests[node], {place: records[place] for place in used}
            )
        received = exchange(
            self.grid,
            MessageType.EVALUATE if training is None else MessageType.TRAIN,
            contents,
            seconds=self.config.round_seconds,
            poll_seconds=self.config.poll_seconds,
            group_id=str(number),
        )
        for node, request in requests.items():
            trained.sent |= {client: sizes["train", client] for client in request.train}
            scored.sent |= {client: sizes["evaluate", client] for client in request.evaluate}
            content = received[node]
            reply = content if isinstance(content, str) else messages.read_reply(content, request)
            if isinstance(content, str) or isinstance(reply, str):
                trained.replies |= dict.fromkeys(request.train, str(reply))
                scored.replies |= dict.fromkeys(request.evaluate, str(reply))
                continue
            for client, work in reply.trained.items():
                trained.replies[client] = _work(client, work, content)
            for client, score in reply.scores.items():
                scored.replies[client] = _failed(score) if isinstance(score, str) else score
        return trained, scored

    def _received(self, message: wire.Message, raw: bytes) -> ConfigRecord:
        """Return a message as a record, which is uploaded once for all nodes."""
        return messages.payload(raw)


def _work(client: ClientId, work: Work | str, content: RecordDict) -> Trained | str:
    """Return what a client did, with the reply in this message, or why it failed."""
    if isinstance(work, str):
        return _failed(work)
    losses = Losses() if work.training_loss is None else Losses(work.training_loss, 1)
    meter = Meter(work.trained_examples, work.grouping_passes, work.ballot_bits, losses)
    try:
        raw = messages.read_payload(content, client)
    except WireError as error:
        return f"malformed: {error}"
    return Trained(raw, meter, work.examples, {}, None)


def _failed(reason: str) -> str:
    return f"failed: {messages.printable(reason)}"
