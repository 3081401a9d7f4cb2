"""FlowerFederation: clients on Flower's nodes. The loop in `rounds` uses it like the simulator."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import ArrayRecord, MessageType, RecordDict
from flwr.serverapp import Grid

from e2fl import wire
from e2fl.algorithms import AnyAlgorithm, types_of
from e2fl.data.federated import Client, ClientId, Population
from e2fl.errors import RunError, WireError
from e2fl.evaluation import Score
from e2fl.files import write_text
from e2fl.flower.records import (
    NodeId,
    RequestMetadata,
    payload,
    read_reply,
    request_content,
    require_reply,
)
from e2fl.flower.run_config import RunConfig
from e2fl.flower.scores import comparable, offered_groups, read_score
from e2fl.flower.transport import Roster, Transport
from e2fl.models import ModelSpec
from e2fl.rounds import Replies, Request, Traffic, UnseenScores, count_work
from e2fl.simulation.simulator import SimulatedFederation

Value = TypeVar("Value")
ABSENT = "missing: no node is connected for this client"


class FlowerFederation:
    """Clients on the nodes of a Flower grid."""

    def __init__(
        self,
        grid: Grid,
        algorithm: AnyAlgorithm,
        spec: ModelSpec,
        config: RunConfig,
        *,
        known: Population,
        fingerprint: str = "",
        record: Path | None = None,
        simulator: Callable[[], SimulatedFederation] | None = None,
    ):
        """Wait for clients to connect.

        known: the clients and groups there may be.
        record: the file that stores the population of this run; if it exists, the run is resumed
            with the same clients.
        simulator: makes a federation for unseen clients, whose data only the server has.
        """
        self.algorithm, self.spec, self.config, self.simulator = algorithm, spec, config, simulator
        self.transport = Transport(grid, config.poll_seconds)
        self.roster = Roster(self.transport, config, known=known, fingerprint=fingerprint)
        self.traffic = Traffic()
        self.resumed_from = self.oldest = -1  # before round 0, the preparation
        self.server_id = uuid.uuid4().hex
        self.sizes: dict[ClientId, int] = {}  # bytes sent to each client in the last exchange
        self.new_warnings: list[str] = []  # since the last call of `warnings`
        stored = _load_population(record)
        if stored is None:
            self.run_id = uuid.uuid4().hex
            self.population = self.roster.gather(config.clients or len(known))
            _store_population(record, self.run_id, self.population)
        else:
            # Clients that have not reconnected are missing from their rounds.
            self.run_id, population = stored
            self.population = replace(population, most_examples=known.most_examples)
            self.roster.gather(len(self.population))

    def train(self, request: Request) -> Replies:
        """Let every client in the inbox that can be reached train.

        A client without a usable reply is a fault.
        """
        inbox, ask = request.inbox, request.ask
        replies, faults = self._exchange(
            MessageType.TRAIN,
            request.round_number,
            inbox,
            self.config.round_seconds,
            read_reply,
            ask.layers,
        )
        down, up = sum(self.sizes.values()), sum(len(raw) for raw, _ in replies.values())
        self.traffic.down += down
        self.traffic.up += up
        self.traffic.exchanges += len(self.sizes)
        grouping = sum(inbox[client].grouping_bytes(self.spec) for client in self.sizes)
        self.traffic.grouping_bytes += down + up if ask.kind == "prepare" else grouping
        kind, spec = types_of(self.algorithm).up, self.spec.only(ask.layers)
        answers: dict[ClientId, wire.Message] = {}
        for client, (raw, work) in replies.items():
            count_work(self.traffic, work.meter(), work.examples)
            try:
                answers[client] = kind.from_bytes(raw, spec)
            except WireError as error:
                faults[client] = f"malformed: {error}"
        few = self._too_few(list(answers))
        counted = {client: answer for client, answer in answers.items() if client not in few}
        losses = {
            client: work.training_loss
            for client, (_, work) in replies.items()
            if work.training_loss is not None
        }
        return Replies(counted, dict(sorted((few | faults).items())), losses)

    def evaluate(
        self, round_number: int, inbox: Mapping[ClientId, wire.Message]
    ) -> Mapping[ClientId, Score]:
        """Let every client in the inbox that can be reached evaluate what it is sent."""
        offered = {client: offered_groups(message) for client, message in inbox.items()}

        def read(content: RecordDict, client: ClientId) -> Score:
            return read_score(content, client, self.population, offered[client])

        seconds = self.config.evaluate_seconds
        scores, faults = self._exchange(MessageType.EVALUATE, round_number, inbox, seconds, read)
        self.traffic.served += sum(self.sizes.values())
        kept, different = comparable(scores, offered)
        for client, fault in sorted((faults | different).items()):
            self.new_warnings.append(f"{fault} (client {client}, evaluation)")
        return kept

    def evaluate_unseen(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores:
        """Evaluate clients that never took part; they have no nodes, but the server has their data."""
        if self.simulator is None:
            raise RunError(
                "unseen clients cannot be evaluated: this federation was made without a simulator"
            )
        return self.simulator().evaluate_unseen(state, clients)

    def rewind(self, round_number: int) -> None:
        """Make clients continue as they were after this round; messages tell them."""
        # `oldest` stays: the checkpoint before this one must be usable until the next is saved.
        self.resumed_from = round_number

    def forget(self, before: int) -> None:
        """Let clients discard what they stored before this round; messages tell them."""
        self.oldest = before

    def warnings(self) -> list[str]:
        """Return the warnings since the last call: what went wrong besides training."""
        taken = self.roster.take_warnings() + self.new_warnings
        self.new_warnings = []
        return taken

    def _exchange(
        self,
        message_type: str,
        round_number: int,
        inbox: Mapping[ClientId, wire.Message],
        seconds: float,
        read: Callable[[RecordDict, ClientId], Value],
        layers: Sequence[str] | None = None,
    ) -> tuple[dict[ClientId, Value], dict[ClientId, str]]:
        """Return what each client sent, in rising order of client, and why others are missing."""
        self.roster.update()
        asked = self.roster.by_node(inbox)
        metadata = RequestMetadata(
            round_number=round_number,
            run_id=self.run_id,
            server_id=self.server_id,
            resumed_from=self.resumed_from,
            oldest=self.oldest,
            layers=",".join(layers or ()),
        )
        contents = self._contents(asked, inbox, metadata)
        received = self.transport.exchange(message_type, contents, seconds, str(round_number))
        values: dict[ClientId, Value] = {}
        faults = dict.fromkeys(inbox.keys() - self.sizes.keys(), ABSENT)
        for node, clients in asked.items():
            if node in received.faults:
                faults |= dict.fromkeys(clients, received.faults[node])
                continue
            content = received.replies[node]
            for client in clients:
                try:
                    require_reply(content, clients, round_number)
                    values[client] = read(content, client)
                except WireError as error:
                    faults[client] = f"{getattr(error, 'fault', 'malformed')}: {error}"
        for node, warning in received.unexpected:
            self.new_warnings.append(f"{warning} (client {asked[node][0]})")
        return dict(sorted(values.items())), faults

    def _contents(
        self,
        asked: Mapping[NodeId, Sequence[ClientId]],
        inbox: Mapping[ClientId, wire.Message],
        metadata: RequestMetadata,
    ) -> dict[NodeId, RecordDict]:
        """Return what each node is sent; a payload that clients share is encoded once."""
        encoded: dict[int, tuple[ArrayRecord, int]] = {}
        self.sizes = {}
        contents: dict[NodeId, RecordDict] = {}
        for node, clients in asked.items():
            payloads: dict[ClientId, ArrayRecord] = {}
            for client in clients:
                message = inbox[client]
                if id(message) not in encoded:
                    raw = message.to_bytes(self.spec)
                    encoded[id(message)] = (payload(raw), len(raw))
                payloads[client], self.sizes[client] = encoded[id(message)]
            contents[node] = request_content(payloads, metadata)
        return contents

    def _too_few(self, clients: Sequence[ClientId]) -> dict[ClientId, str]:
        """Return the clients whose replies do not count: the round or the group has too few."""
        least = self.config.least_answers
        if len(clients) < least:
            reason = f"few: {len(clients)} replies; least-answers is {least}"
            return dict.fromkeys(clients, reason)
        group, least = self.population.declared, self.config.least_answers_per_group
        present = Counter(group[client] for client in clients)
        return {
            client: f"few: {present[group[client]]} replies of group {group[client]}; "
            f"least-answers-per-group is {least}"
            for client in clients
            if group[client] is not None and present[group[client]] < least
        }


def _store_population(record: Path | None, run_id: str, population: Population) -> None:
    if record is None:
        return
    clients = {str(client): population.declared[client] for client in population.ids}
    stored = {"run": run_id, "groups": population.groups, "clients": clients}
    write_text(record, json.dumps(stored) + "\n")


def _load_population(record: Path | None) -> tuple[str, Population] | None:
    if record is None or not record.is_file():
        return None
    try:
        stored = json.loads(record.read_text(encoding="utf-8"))
        clients = {int(client): group for client, group in stored["clients"].items()}
        return str(stored["run"]), Population(clients, stored["groups"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{record} is damaged ({error}); start the run again in another folder"
        ) from error
