"""FlowerFederation: a federation of Flower nodes. The loop in `rounds` uses it like the simulator."""

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import MessageType
from flwr.serverapp import Grid

from e2fl.algorithms import AnyAlgorithm, types_of
from e2fl.data.federated import Client, ClientId, Population
from e2fl.errors import RunError
from e2fl.evaluation import Score
from e2fl.files import write_text
from e2fl.flower.exchange import ReceivedReplies, prepare
from e2fl.flower.records import RequestMetadata
from e2fl.flower.roster import Roster
from e2fl.flower.run_config import RunConfig
from e2fl.flower.transport import NodeReplies, Transport
from e2fl.models import ModelSpec
from e2fl.rounds import Replies, Request, Traffic, UnseenScores, count_work
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.wire import Message


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
        record: the file that stores the population of this run; if it exists, the run is resumed with the same clients.
        simulator: makes a federation for unseen clients, whose data only the server has.
        """
        self.algorithm, self.spec, self.config, self.simulator = algorithm, spec, config, simulator
        self.transport = Transport(grid, config.poll_seconds)
        self.roster = Roster(self.transport, config, known=known, fingerprint=fingerprint)
        self.traffic = Traffic()
        self.resumed_from = self.oldest = -1  # before the first round, even if that is a preparation
        self.server_id = uuid.uuid4().hex
        self.new_warnings: list[str] = []  # since the last call of `warnings`
        stored = _load_population(record)
        if stored is None:
            self.run_id, self.population = uuid.uuid4().hex, self.roster.gather(config.clients or len(known))
            _store_population(record, self.run_id, self.population)
        else:
            # Clients that have not reconnected are missing from their rounds.
            self.run_id, self.population = stored
            self.roster.gather(len(self.population))

    def train(self, request: Request) -> Replies:
        """Let every client in the inbox that can be reached train; a client without a usable reply is a fault."""
        ask = request.ask
        sizes, received = self._exchange(
            MessageType.TRAIN, request.round_number, request.inbox, self.config.round_seconds, ask.layers
        )
        for reply in received.replies.values():
            count_work(self.traffic, reply.meter, reply.examples)
        down, up = sum(sizes.values()), sum(len(reply.raw) for reply in received.replies.values())
        self.traffic.down += down
        self.traffic.up += up
        self.traffic.exchanges += len(sizes)
        if ask.kind == "prepare":
            self.traffic.grouping_bytes += up + down
        else:
            self.traffic.grouping_bytes += sum(request.inbox[client].grouping_bytes(self.spec) for client in sizes)
        return received.decode(types_of(self.algorithm).up, self.spec.only(ask.layers), self.population, self.config)

    def evaluate(self, round_number: int, inbox: Mapping[ClientId, Message]) -> Mapping[ClientId, Score]:
        """Let every client in the inbox that can be reached evaluate what it is sent."""
        sizes, received = self._exchange(MessageType.EVALUATE, round_number, inbox, self.config.evaluate_seconds)
        self.traffic.served += sum(sizes.values())
        scores, faults = received.decode_scores(inbox, self.spec, self.population)
        self.new_warnings += [f"{fault} (client {client}, evaluation)" for client, fault in faults.items()]
        return scores

    def evaluate_unseen(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores:
        """Evaluate clients that never took part. They have no nodes; the server, which has their data, does it."""
        if self.simulator is None:
            raise RunError("unseen clients cannot be evaluated: this federation was made without a simulator")
        return self.simulator().evaluate_unseen(state, clients)

    def rewind(self, round_number: int) -> None:
        """Make clients continue as they were after this round; each learns of it with its next message."""
        # `oldest` stays: the checkpoint before this one must be usable until the next one is saved.
        self.resumed_from = round_number

    def forget(self, before: int) -> None:
        """Let clients discard what they stored before this round; each learns of it with its next message."""
        self.oldest = before

    def warnings(self) -> list[str]:
        """Return the warnings since the last call: what went wrong besides training."""
        found = self.roster.take_warnings() + self.new_warnings
        self.new_warnings = []
        return found

    def _exchange(
        self,
        message_type: str,
        round_number: int,
        inbox: Mapping[ClientId, Message],
        seconds: float,
        layers: tuple[str, ...] | None = None,
    ) -> tuple[Mapping[ClientId, int], ReceivedReplies]:
        """Return how many bytes were sent to each client, and what was received."""
        self.roster.update()
        metadata = RequestMetadata(
            round_number, self.run_id, self.server_id, self.resumed_from, self.oldest, ",".join(layers or ())
        )
        exchange = prepare(inbox, self.roster.nodes, self.spec, metadata)
        received = self.transport.exchange(message_type, exchange.contents, seconds=seconds, group_id=str(round_number))
        self._warn_of_unexpected(received)
        return exchange.sizes, exchange.read(received)

    def _warn_of_unexpected(self, received: NodeReplies) -> None:
        clients = {node: client for client, node in self.roster.nodes.items()}
        for node, warning in received.unexpected:
            client = clients.get(node) if node is not None else None
            self.new_warnings.append(warning if client is None else f"{warning} (client {client})")


def _store_population(record: Path | None, run_id: str, population: Population) -> None:
    if record is None:
        return
    clients = {str(client): population.declared[client] for client in population.ids}
    write_text(record, json.dumps({"run": run_id, "groups": population.groups, "clients": clients}) + "\n")


def _load_population(record: Path | None) -> tuple[str, Population] | None:
    if record is None or not record.is_file():
        return None
    try:
        stored = json.loads(record.read_text())
        clients = {int(client): group for client, group in stored["clients"].items()}
        return str(stored["run"]), Population(clients, stored["groups"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{record} is damaged ({error}); start the run again in another folder") from error
