"""The roster: which node is which client.

Node ids are Flower's and differ from run to run; client ids are ours and do not. So clients are drawn and ordered by
client id, and a node id is only an address.
"""

import time

from flwr.app import ConfigRecord, RecordDict

from e2fl.data.federated import ClientId, Population
from e2fl.errors import RunError, WireError
from e2fl.flower.records import METADATA, POPULATION, Identity, read_identity
from e2fl.flower.run_config import RunConfig
from e2fl.flower.transport import NodeId, Transport


class Roster:
    """Asks nodes which client they are, and keeps track of those that can be reached."""

    def __init__(self, transport: Transport, config: RunConfig, *, known: Population, fingerprint: str = ""):
        """Start with no nodes. known: the clients and groups there may be; other nodes are rejected."""
        self.transport = transport
        self.config = config
        self.known = known
        self.fingerprint = fingerprint
        self.identities: dict[NodeId, Identity | None] = {}  # None: the node was rejected
        self.nodes: dict[ClientId, NodeId] = {}
        self.warnings: list[str] = []  # "kind: reason"
        self.unresponsive: set[NodeId] = set()  # nodes that once did not reply in time
        self.duplicates: set[NodeId] = set()  # nodes that say they are a client another node already is

    def gather(self, expected: int) -> Population:
        """Wait for this many clients, as long as the run configuration allows; return those that are connected."""
        self._wait(expected, patience=self.config.wait_seconds)
        declared = {
            client: identity.group
            for client in sorted(self.nodes)
            if (identity := self.identities[self.nodes[client]]) is not None
        }
        return Population(declared, self.known.groups)

    def update(self) -> None:
        """Notice nodes that connected or left; if there are too few, wait for more."""
        self._wait(self.config.least_clients, patience=self.config.round_seconds)

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call."""
        taken, self.warnings = self.warnings, []
        return taken

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
                f"{len(self.nodes)} clients were connected after {self.config.wait_seconds:g} seconds, and "
                f"least-clients is {self.config.least_clients}{last_warning}; start more nodes, or allow more time "
                "with wait-seconds"
            )

    def _poll(self, seconds: float) -> None:
        """Ask new nodes which client they are, and remove those that left."""
        listed = set(self.transport.grid.get_node_ids())
        self.identities = {node: identity for node, identity in self.identities.items() if node in listed}
        self.duplicates &= listed
        self.unresponsive &= listed
        query = RecordDict({METADATA: ConfigRecord({"fingerprint": self.fingerprint})})
        new = sorted(listed - self.identities.keys())
        received = self.transport.exchange(POPULATION, dict.fromkeys(new, query), seconds=seconds)
        for node, content in received.replies.items():
            self._identify(node, content)
        for node, fault in received.faults.items():
            # A lost node may come back and is asked again. One that does not reply is asked only once more, since it
            # would delay every round. One that fails would fail again.
            if fault.startswith("missing") and node not in self.unresponsive:
                self.unresponsive.add(node)
            elif not fault.startswith("lost"):
                self._reject(node, fault)
        self._assign()

    def _identify(self, node: NodeId, content: RecordDict) -> None:
        try:
            identity = read_identity(content, self.known)
        except WireError as error:
            self._reject(node, f"malformed: {error}")
            return
        pinned = self.config.pinned
        if pinned and pinned.get(node) != identity.client_id:
            client = identity.client_id
            self._reject(node, f"impostor: a node says it is client {client}, and pins do not allow it")
        else:
            self.identities[node] = identity

    def _reject(self, node: NodeId, reason: str) -> None:
        self.identities[node] = None
        self.warnings.append(f"{reason} (node {node}, while connecting)")

    def _assign(self) -> None:
        """Assign one node to each client: the first one, for as long as it is connected."""
        self.nodes = {client: node for client, node in self.nodes.items() if node in self.identities}
        for node, identity in sorted(self.identities.items(), key=lambda item: item[0]):
            if identity is None:
                continue
            client = identity.client_id
            if self.nodes.setdefault(client, node) != node and node not in self.duplicates:
                self.duplicates.add(node)
                self.warnings.append(f"impostor: a second node says it is client {client}; the first one counts")
