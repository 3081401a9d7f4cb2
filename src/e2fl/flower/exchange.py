"""Sends messages to nodes, receives their replies, and knows which node has which clients.

A reply belongs to the message it was pulled for: only the node that a message was sent to can reply
to it, and Flower itself replies for a node that is gone. What a reply says about itself is not
trusted. That is why each message is pulled by itself: Flower's own `send_and_receive` pulls all
messages at once and every three seconds, believes which message a reply names, and fails if one
reply cannot be read.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import RunError, WireError
from e2fl.flower.messages import POPULATION, NodeId, Query, pack, printable, read_identity
from e2fl.flower.run_config import RunConfig

LOST_CODES = (3, 4, 5, 8)  # Flower's errors if a message, a reply, a node or a process is gone
TTL_MARGIN = 10.0  # seconds; Flower must not be asked for a message it has already dropped
GRACE_SECONDS = 1.0  # after a deadline, for pulls that have started
PULLS_PER_SECOND = 100  # of all messages together; with many nodes, each is pulled less often
PULLS_AT_ONCE = 50  # below the number of connections that Flower's client opens


def exchange(
    grid: Grid,
    message_type: str,
    contents: Mapping[NodeId, RecordDict],
    *,
    seconds: float,
    poll_seconds: float,
    group_id: str = "",
) -> dict[NodeId, RecordDict | str]:
    """Send its content to each node; return replies or faults when all replied or time is up.

    A reply that comes later is not used, and Flower drops it.
    """
    messages = [
        Message(content, node, message_type, ttl=seconds + TTL_MARGIN, group_id=group_id)
        for node, content in contents.items()
    ]
    message_ids = list(grid.push_messages(messages)) if messages else []
    deadline = time.monotonic() + seconds
    pause = max(poll_seconds, len(messages) / PULLS_PER_SECOND)
    slots = threading.Semaphore(PULLS_AT_ONCE)
    pulled: dict[str, list[Message] | Exception] = {}

    def pull(message_id: str) -> None:
        """Pull the replies to one message until there are some."""
        while message_id not in pulled:
            try:
                with slots:
                    replies = list(grid.pull_messages([message_id]))
                if replies:
                    pulled[message_id] = replies
            except Exception as error:
                pulled[message_id] = error
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(0 if message_id in pulled else min(pause, left))

    # Daemons, so that a run can end: a pull lasts as long as a client takes to upload its reply.
    pulls = [threading.Thread(target=pull, args=(one,), daemon=True) for one in message_ids if one]
    for thread in pulls:
        thread.start()
    for thread in pulls:
        thread.join(max(0.0, deadline + GRACE_SECONDS - time.monotonic()))
    received: dict[NodeId, RecordDict | str] = {}
    for node, message_id in zip_longest(contents, message_ids):
        if not message_id:
            received[node] = "missing: Flower did not accept the message"
        elif message_id not in pulled:
            received[node] = f"missing: no reply within {seconds:g} seconds"
        else:
            received[node] = _first(pulled[message_id], message_id)
    return received


def _first(replies: list[Message] | Exception, message_id: str) -> RecordDict | str:
    """Return the first reply to a message, or its fault; a second reply is not used."""
    if isinstance(replies, httpx.TransportError):
        raise replies  # the network is down: not the fault of a client
    if isinstance(replies, Exception):
        reason = printable(f"{type(replies).__name__}: {replies}")
        return f"malformed: the reply cannot be read: {reason}"
    reply = replies[0]
    if reply.metadata.reply_to_message_id != message_id:
        return "impostor: the reply claims to answer another message"
    if reply.has_error():
        kind = "lost" if reply.error.code in LOST_CODES else "failed"
        return f"{kind}: {printable(reply.error.reason or f'code {reply.error.code}')}"
    return reply.content


class Roster:
    """Asks nodes which clients they have, and keeps track of those that can be reached.

    Node ids are Flower's and differ from run to run; client ids are ours and do not. So clients are
    drawn and ordered by client id, and a node id is only an address.
    """

    def __init__(
        self,
        grid: Grid,
        config: RunConfig,
        known: Population,
        fingerprint: str,
        warn: Callable[[str], None],
    ):
        """Start with no nodes. known: the only clients and groups. warn: called with faults."""
        self.grid, self.config, self.known, self.warn = grid, config, known, warn
        self.query, self.pinned = pack(Query(fingerprint=fingerprint)), config.pinned
        # By node, in the order of connecting: its clients and their groups; none: it was rejected.
        self.identities: dict[NodeId, dict[ClientId, GroupId | None]] = {}
        self.silent: set[NodeId] = set()  # nodes that once did not reply in time
        self.last_reason = ""  # why a node was rejected

    @property
    def nodes(self) -> dict[ClientId, NodeId]:
        """The node of each client: the first that has it, for as long as it is connected."""
        return {
            client: node
            for node, declared in reversed(self.identities.items())
            for client in declared
        }

    @property
    def population(self) -> Population:
        """The clients that are connected."""
        nodes = sorted(self.nodes.items())
        declared = {client: self.identities[node][client] for client, node in nodes}
        return Population(declared, self.known.groups, self.known.most_examples)

    def by_node(self, clients: Iterable[ClientId]) -> dict[NodeId, list[ClientId]]:
        """Return the nodes of these clients, each with its clients in rising order."""
        clients_of: dict[NodeId, list[ClientId]] = {}
        nodes = self.nodes
        for client in sorted(set(clients) & nodes.keys()):
            clients_of.setdefault(nodes[client], []).append(client)
        return clients_of

    def update(self, expected: int = 0) -> None:
        """Notice nodes that connected or left; wait for this many clients, or for the fewest that
        are needed.
        """
        config = self.config
        expected = max(expected, config.least_clients)
        deadline = time.monotonic() + config.wait_seconds
        while True:
            self._poll()
            if len(self.nodes) >= expected or time.monotonic() >= deadline:
                break
            time.sleep(config.poll_seconds)
        if len(self.nodes) < expected and self.silent - self.identities.keys():
            self._poll()  # on a busy machine, a node may need longer for its first reply
        if len(self.nodes) < config.least_clients:
            raise RunError(
                f"{len(self.nodes)} clients were connected after {config.wait_seconds:g} seconds, "
                f"and least-clients is {config.least_clients}{self.last_reason}; "
                "start more nodes, or allow more time with wait-seconds"
            )

    def _poll(self) -> None:
        """Ask new nodes which clients they have, and remove nodes that left."""
        listed = set(self.grid.get_node_ids())
        self.silent &= listed
        for node in self.identities.keys() - listed:
            del self.identities[node]
        config = self.config
        received = exchange(
            self.grid,
            POPULATION,
            dict.fromkeys(sorted(listed - self.identities.keys()), self.query),
            seconds=max(1.0, min(config.round_seconds, config.wait_seconds)),
            poll_seconds=config.poll_seconds,
        )
        for node, reply in received.items():
            # A lost node may come back and is asked again. One that does not reply is asked only
            # once more, since it would delay every round. One that fails would fail again.
            if not isinstance(reply, str):
                self._identify(node, reply)
            elif reply.startswith("missing") and node not in self.silent:
                self.silent.add(node)
            elif not reply.startswith("lost"):
                self._reject(node, reply)

    def _identify(self, node: NodeId, content: RecordDict) -> None:
        try:
            declared = read_identity(content, self.known)
        except WireError as error:
            self._reject(node, f"malformed: {error}")
            return
        allowed = declared.keys() if self.pinned is None else self.pinned.get(node, set())
        if forbidden := sorted(declared.keys() - allowed):
            claim = f"a node says it is client {forbidden[0]}, and pins do not allow it"
            self._reject(node, f"impostor: {claim}")
            return
        for client in sorted(declared.keys() & self.nodes.keys()):
            self.warn(f"impostor: a second node says it is client {client}; the first counts")
        self.identities[node] = declared

    def _reject(self, node: NodeId, reason: str) -> None:
        self.identities[node] = {}
        self.last_reason = f"; {reason}"
        self.warn(f"{reason} (node {node}, while connecting)")
