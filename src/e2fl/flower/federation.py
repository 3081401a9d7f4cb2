"""FlowerFederation: clients on Flower's nodes. The loop in `rounds` uses it like the simulator."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import Array, MessageType, RecordDict
from flwr.serverapp import Grid

from e2fl import codec, wire
from e2fl.algorithms import AnyAlgorithm, types_of
from e2fl.config.experiment import Experiment
from e2fl.data.federated import Client, ClientId, FederatedData, Population
from e2fl.errors import RunError, WireError
from e2fl.evaluation import Score
from e2fl.files import write_text
from e2fl.flower import messages
from e2fl.flower.exchange import Roster, exchange
from e2fl.flower.messages import ClientReply, Work
from e2fl.flower.run_config import RunConfig
from e2fl.learning.learner import Meter
from e2fl.models import Model
from e2fl.rounds import Replies, Request, Traffic, UnseenScores, count_work
from e2fl.simulation.simulator import SimulatedFederation

Value = TypeVar("Value")
Read = Callable[[ClientReply, ClientId, RecordDict], Value]
ABSENT = "missing: no node is connected for this client"


@dataclass(frozen=True)
class Started:
    """What a resumed run must know of its start."""

    run_id: str
    population: Population


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
        *,
        record: Path | None = None,
    ):
        """Wait for clients to connect.

        record: the file that stores the population of this run; if it exists, the run is resumed
        with the same clients, and those that have not reconnected are missing from their rounds.
        """
        self.grid, self.experiment, self.config = grid, experiment, config
        self.data, self.algorithm, self.model = data, algorithm, model
        self.traffic = Traffic()
        self.resumed_from = self.oldest = -1  # before round 0, the preparation
        self.server_id = uuid.uuid4().hex
        self.new_warnings: list[str] = []  # since the last call of `warnings`
        known, warn = data.sized_population(), self.new_warnings.append
        self.roster = Roster(grid, config, known, experiment.identity(), warn)
        if record is not None and record.is_file():
            started = _load(record)
            self.roster.gather(len(started.population))
        else:
            started = Started(uuid.uuid4().hex, self.roster.gather(config.clients or len(known)))
            if record is not None:
                write_text(record, json.dumps(codec.to_json(started)) + "\n")
        self.run_id, self.population = started.run_id, started.population

    def train(self, request: Request) -> Replies:
        """Let every client in the inbox that can be reached train.

        A client without a usable reply is a fault.
        """

        def read(reply: ClientReply, client: ClientId, content: RecordDict) -> tuple[bytes, Work]:
            work = messages.require_part(reply.work, reply)
            return messages.read_payload(content, client), work

        inbox, ask = request.inbox, request.ask
        replies, faults, sizes = self._exchange(
            MessageType.TRAIN, request.round_number, inbox, read, ask.layers
        )
        down, up = sum(sizes.values()), sum(len(raw) for raw, _ in replies.values())
        self.traffic.down += down
        self.traffic.up += up
        self.traffic.exchanges += len(sizes)
        grouping = sum(inbox[client].grouping_bytes(self.model.spec) for client in sizes)
        self.traffic.grouping_bytes += down + up if ask.kind == "prepare" else grouping
        kind, spec = types_of(self.algorithm).up, self.model.spec.only(ask.layers)
        answers: dict[ClientId, wire.Message] = {}
        losses: dict[ClientId, float] = {}
        for client, (raw, work) in replies.items():
            meter = Meter(work.trained_examples, work.grouping_passes, work.ballot_bits)
            count_work(self.traffic, meter, work.examples)
            if work.training_loss is not None:
                losses[client] = work.training_loss
            try:
                answers[client] = kind.from_bytes(raw, spec)
            except WireError as error:
                faults[client] = messages.fault_of(error)
        few = self._too_few(answers)
        counted = {client: answer for client, answer in answers.items() if client not in few}
        return Replies(counted, dict(sorted((few | faults).items())), losses)

    def evaluate(
        self, round_number: int, inbox: Mapping[ClientId, wire.Message]
    ) -> Mapping[ClientId, Score]:
        """Let every client in the inbox that can be reached evaluate what it is sent."""
        offered = {client: messages.offered_groups(message) for client, message in inbox.items()}

        def read(reply: ClientReply, client: ClientId, _: RecordDict) -> Score:
            declared = self.population.declared[client]
            return messages.read_score(reply, declared, self.population, offered[client])

        scores, faults, sizes = self._exchange(MessageType.EVALUATE, round_number, inbox, read)
        self.traffic.served += sum(sizes.values())
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
        self,
        message_type: str,
        round_number: int,
        inbox: Mapping[ClientId, wire.Message],
        read: Read[Value],
        layers: Sequence[str] | None = None,
    ) -> tuple[dict[ClientId, Value], dict[ClientId, str], dict[ClientId, int]]:
        """Return what each client sent, in rising order of client, why others are missing, and how
        many bytes each was sent.
        """
        config, trains = self.config, message_type == MessageType.TRAIN
        self.roster.update()
        asked = self.roster.by_node(inbox)
        contents, sizes = self._contents(asked, inbox, round_number, layers)

        def warn(node: int, warning: str) -> None:
            self.new_warnings.append(f"{warning} (client {asked[node][0]})")

        received = exchange(
            self.grid,
            message_type,
            contents,
            seconds=config.round_seconds if trains else config.evaluate_seconds,
            poll_seconds=config.poll_seconds,
            group_id=str(round_number),
            warn=warn,
        )
        values: dict[ClientId, Value] = {}
        faults = dict.fromkeys(inbox.keys() - sizes.keys(), ABSENT)
        for node, content in received.items():
            if isinstance(content, str):
                faults |= dict.fromkeys(asked[node], content)
                continue
            try:
                replies = messages.read_reply(content, asked[node], round_number)
            except WireError as error:
                faults |= dict.fromkeys(asked[node], messages.fault_of(error))
                continue
            for client, reply in replies.items():
                try:
                    values[client] = read(reply, client, content)
                except WireError as error:
                    faults[client] = messages.fault_of(error)
        return dict(sorted(values.items())), faults, sizes

    def _contents(
        self,
        asked: Mapping[int, Sequence[ClientId]],
        inbox: Mapping[ClientId, wire.Message],
        round_number: int,
        layers: Sequence[str] | None,
    ) -> tuple[dict[int, RecordDict], dict[ClientId, int]]:
        """Return what each node is sent, and the bytes for each client.

        A message that clients share is encoded once, and sent to a node once.
        """
        encoded: dict[int, tuple[int, Array, int, wire.Message]] = {}  # the last keeps its id alive
        sizes: dict[ClientId, int] = {}
        contents: dict[int, RecordDict] = {}
        for node, clients in asked.items():
            arrays: dict[int, Array] = {}
            positions: dict[ClientId, int] = {}
            for client in clients:
                message = inbox[client]
                if id(message) not in encoded:
                    raw = message.to_bytes(self.model.spec)
                    encoded[id(message)] = (len(encoded), messages.payload(raw), len(raw), message)
                positions[client], array, sizes[client], _ = encoded[id(message)]
                arrays[positions[client]] = array
            request = messages.Request(
                round_number=round_number,
                run_id=self.run_id,
                server_id=self.server_id,
                resumed_from=self.resumed_from,
                oldest=self.oldest,
                layers=None if layers is None else tuple(layers),
                payloads=positions,
            )
            contents[node] = messages.pack(request, arrays)
        return contents, sizes

    def _too_few(self, clients: Collection[ClientId]) -> dict[ClientId, str]:
        """Return the clients whose replies do not count: the round or the group has too few."""
        config, groups = self.config, self.population.declared
        if len(clients) < config.least_answers:
            reason = f"few: {len(clients)} replies; least-answers is {config.least_answers}"
            return dict.fromkeys(clients, reason)
        present = Counter(groups[client] for client in clients)
        return {
            client: f"few: {present[group]} replies of group {group}"
            for client, group in ((client, groups[client]) for client in clients)
            if group is not None and present[group] < config.least_answers_per_group
        }


def _load(record: Path) -> Started:
    try:
        started: Started = codec.decode(json.loads(record.read_text(encoding="utf-8")), Started)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{record} is damaged; start the run again in another folder") from error
    return started
