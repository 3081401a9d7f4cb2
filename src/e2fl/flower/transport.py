"""Sends messages to nodes, receives their replies, and knows which node has which clients.

A reply belongs to the message it was pulled for: only the node that a message was sent to can reply
to it, and Flower itself replies for a node that is gone. What a reply says about itself is not
trusted. That is why each message is pulled by itself: Flower's own `send_and_receive` pulls all
messages at once, believes which message a reply names, and fails if one reply cannot be read.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import RunError, WireError
from e2fl.flower.records import METADATA, POPULATION, NodeId, printable, read_identity
from e2fl.flower.run_config import RunConfig

LOST_CODES = (
    3,
    4,
    5,
    8,
)  # Flower's errors for a message, a reply, a node or a process that is gone
TTL_MARGIN = 10.0  # seconds; Flower must not be asked for a message it has already dropped
GRACE_SECONDS = 1.0  # after a deadline, for pulls that have started
PULLS_PER_SECOND = 100  # of all messages together; with many nodes, each is pulled less often
PULLS_AT_ONCE = 50  # below the number of connections that Flower's client opens

IMPOSTOR = "impostor: the reply claims to answer another message"
REPEATED = "repeated: a second reply to one message; the first one counts"


@dataclass
class NodeReplies:
    """The outcome of an exchange; every node is in `replies` or in `faults`."""

    replies: dict[NodeId, RecordDict] = field(default_factory=dict)
    faults: dict[NodeId, str] = field(default_factory=dict)  # "kind: reason"
    unexpected: list[tuple[NodeId, str]] = field(default_factory=list)  # replies that are not used


class _Pull(threading.Thread):
    """Pulls the replies to one message until there are some; a daemon, so that a run can end.

    Flower's pull blocks until a reply is uploaded, which a slow client can prolong.
    """

    def __init__(self, transport: "Transport", message_id: str, deadline: float, pause: float):
        super().__init__(daemon=True)
        self.grid, self.slots = transport.grid, transport.slots
        self.message_id, self.deadline, self.pause = message_id, deadline, pause
        self.replies: list[Message] = []
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        while True:
            try:
                with self.slots:
                    self.replies = list(self.grid.pull_messages([self.message_id]))
            except Exception as error:
                self.error = error
            left = self.deadline - time.monotonic()
            if self.replies or self.error or left <= 0:
                return
            time.sleep(min(self.pause, left))

    def wait(self, until: float) -> bool:
        """Wait at most until this time; return whether there is a reply or an error."""
        self.join(max(0.0, until - time.monotonic()))
        return not self.is_alive() and bool(self.replies or self.error)


class Transport:
    """Exchanges messages with nodes, and recognises replies that are repeated or forged."""

    def __init__(self, grid: Grid, poll_seconds: float):
        self.grid = grid
        self.poll_seconds = poll_seconds
        self.slots = threading.Semaphore(PULLS_AT_ONCE)

    def exchange(
        self,
        message_type: str,
        contents: Mapping[NodeId, RecordDict],
        seconds: float,
        group_id: str = "",
    ) -> NodeReplies:
        """Send its content to each node; return when all have replied or time is up.

        A reply that comes later is not used, and Flower drops it.
        """
        received = NodeReplies()
        if not contents:
            return received
        messages = [
            Message(content, node, message_type, ttl=seconds + TTL_MARGIN, group_id=group_id)
            for node, content in contents.items()
        ]
        deadline = time.monotonic() + seconds
        ids = list(self.grid.push_messages(messages))
        ids += [""] * (len(messages) - len(ids))
        deadline = max(deadline, time.monotonic())
        pause = max(self.poll_seconds, len(ids) / PULLS_PER_SECOND)
        pulls = {
            node: _Pull(self, message_id, deadline, pause) if message_id else None
            for node, message_id in zip(contents, ids, strict=True)
        }
        for node, pull in pulls.items():
            if pull is None:
                received.faults[node] = "missing: Flower did not accept the message"
            elif pull.wait(deadline + GRACE_SECONDS):
                _record(node, pull, received)
            else:
                received.faults[node] = f"missing: no reply within {seconds:g} seconds"
        return received


def _record(node: NodeId, pull: _Pull, received: NodeReplies) -> None:
    """Record what was pulled for the message to this node."""
    if isinstance(pull.error, httpx.TransportError):
        raise pull.error  # the network is down: not the fault of a client
    if pull.error is not None:
        reason = f"{type(pull.error).__name__}: {pull.error}"
        received.faults[node] = f"malformed: the reply cannot be read: {reason}"
        return
    first, *others = pull.replies
    if first.metadata.reply_to_message_id != pull.message_id:
        received.faults[node] = IMPOSTOR
    elif first.has_error():
        kind = "lost" if first.error.code in LOST_CODES else "failed"
        reason = first.error.reason or f"code {first.error.code}"
        received.faults[node] = f"{kind}: {printable(reason)}"
    else:
        received.replies[node] = first.content
    for reply in others:
        genuine = reply.metadata.reply_to_message_id == pull.message_id
        received.unexpected.append((node, REPEATED if genuine else IMPOSTOR))


class Roster:
    """Asks nodes which clients they have, and keeps track of those that can be reached.

    Node ids are Flower's and differ from run to run; client ids are ours and do not. So clients are
    drawn and ordered by client id, and a node id is only an address.
    """

    def __init__(
        self, transport: Transport, config: RunConfig, *, known: Population, fingerprint: str = ""
    ):
        """Start with no nodes. known: the clients and groups there may be; others are rejected."""
        self.transport, self.config = transport, config
        self.known, self.fingerprint, self.pinned = known, fingerprint, config.pinned
        # The clients of each node and their groups; none: the node was rejected.
        self.identities: dict[NodeId, dict[ClientId, GroupId | None]] = {}
        self.nodes: dict[ClientId, NodeId] = {}
        self.warnings: list[str] = []  # "kind: reason"
        self.unresponsive: set[NodeId] = set()  # nodes that once did not reply in time
        self.duplicates: set[tuple[NodeId, ClientId]] = set()  # a client another node already is

    def gather(self, expected: int) -> Population:
        """Wait for this many clients, at most `wait_seconds`; return those that are connected."""
        self._wait(expected, patience=self.config.wait_seconds)
        declared = {
            client: self.identities[self.nodes[client]][client] for client in sorted(self.nodes)
        }
        return Population(declared, self.known.groups, self.known.most_examples)

    def update(self) -> None:
        """Notice nodes that connected or left; if there are too few, wait for more."""
        self._wait(self.config.least_clients, patience=self.config.round_seconds)

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call."""
        taken, self.warnings = self.warnings, []
        return taken

    def by_node(self, clients: Iterable[ClientId]) -> dict[NodeId, list[ClientId]]:
        """Return the nodes of these clients, each with its clients in rising order."""
        found: dict[NodeId, list[ClientId]] = {}
        for client in sorted(set(clients) & self.nodes.keys()):
            found.setdefault(self.nodes[client], []).append(client)
        return found

    def _wait(self, expected: int, *, patience: float) -> None:
        deadline = time.monotonic() + self.config.wait_seconds
        while True:
            self._poll(max(1.0, min(patience, deadline - time.monotonic())))
            if len(self.nodes) >= expected or time.monotonic() >= deadline:
                break
            time.sleep(self.config.poll_seconds)
        if len(self.nodes) < expected and self.unresponsive - self.identities.keys():
            # A node that connected shortly before the deadline had little time to reply.
            self._poll(max(1.0, min(self.config.round_seconds, self.config.wait_seconds)))
        if len(self.nodes) < self.config.least_clients:
            last_warning = f"; {self.warnings[-1]}" if self.warnings else ""
            raise RunError(
                f"{len(self.nodes)} clients were connected after {self.config.wait_seconds:g} "
                f"seconds, and least-clients is {self.config.least_clients}{last_warning}; "
                "start more nodes, or allow more time with wait-seconds"
            )

    def _poll(self, seconds: float) -> None:
        """Ask new nodes which clients they have, and remove nodes that left."""
        listed = set(self.transport.grid.get_node_ids())
        self.identities = {node: self.identities[node] for node in self.identities.keys() & listed}
        self.duplicates = {pair for pair in self.duplicates if pair[0] in listed}
        self.unresponsive &= listed
        query = RecordDict({METADATA: ConfigRecord({"fingerprint": self.fingerprint})})
        new = sorted(listed - self.identities.keys())
        received = self.transport.exchange(POPULATION, dict.fromkeys(new, query), seconds)
        for node, content in received.replies.items():
            self._identify(node, content)
        for node, fault in received.faults.items():
            # A lost node may come back and is asked again. One that does not reply is asked only
            # once more, since it would delay every round. One that fails would fail again.
            if fault.startswith("missing") and node not in self.unresponsive:
                self.unresponsive.add(node)
            elif not fault.startswith("lost"):
                self._reject(node, fault)
        self._assign()

    def _identify(self, node: NodeId, content: RecordDict) -> None:
        try:
            declared = read_identity(content, self.known)
        except WireError as error:
            self._reject(node, f"malformed: {error}")
            return
        allowed = declared.keys() if self.pinned is None else self.pinned.get(node, set())
        forbidden = sorted(declared.keys() - allowed)
        if forbidden:
            claim = f"a node says it is client {forbidden[0]}, and pins do not allow it"
            self._reject(node, f"impostor: {claim}")
        else:
            self.identities[node] = declared

    def _reject(self, node: NodeId, reason: str) -> None:
        self.identities[node] = {}
        self.warnings.append(f"{reason} (node {node}, while connecting)")

    def _assign(self) -> None:
        """Assign one node to each client: the first one, for as long as it is connected."""
        self.nodes = {
            client: node for client, node in self.nodes.items() if node in self.identities
        }
        for node, declared in sorted(self.identities.items()):
            for client in declared:
                if self.nodes.setdefault(client, node) == node:
                    continue
                if (node, client) not in self.duplicates:
                    self.duplicates.add((node, client))
                    claim = f"a second node says it is client {client}; the first one counts"
                    self.warnings.append(f"impostor: {claim}")
