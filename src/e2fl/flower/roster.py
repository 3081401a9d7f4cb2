"""Who is there: which node speaks for which client.

Node ids are Flower's and differ from run to run; clients are ours and do not. So everything that is drawn or ordered is
drawn and ordered by client, and a node is only where a client is reached.
"""

import time

from flwr.app import ConfigRecord, RecordDict

from e2fl.data.federated import ClientId, Population
from e2fl.errors import RunError, WireError
from e2fl.flower.records import FACTS, ROLL, Claim, presented
from e2fl.flower.run_config import Options
from e2fl.flower.transport import NodeId, Post


class Roster:
    """Asks nodes who they are, and keeps track of who can be reached."""

    def __init__(self, post: Post, options: Options, *, known: Population, fingerprint: str = ""):
        """known: the clients and groups there may be; any other node is refused."""
        self.post = post
        self.options = options
        self.known = known
        self.fingerprint = fingerprint
        self.claims: dict[NodeId, Claim | None] = {}  # None: it did not say anything that makes sense
        self.nodes: dict[ClientId, NodeId] = {}
        self.notices: list[str] = []
        self.silent: set[NodeId] = set()  # nodes that did not answer in time, once
        self.disputed: set[NodeId] = set()

    def gather(self, expected: int) -> Population:
        """Wait until so many clients are there, or for as long as the options allow; then that is the population."""
        self._wait(expected, patience=self.options.wait_seconds)
        declared = {client: claim.group for client in sorted(self.nodes) if (claim := self.claims[self.nodes[client]])}
        return Population(declared, self.known.groups)

    def update(self) -> None:
        """See who came and who left; with too few, wait a while for more."""
        self._wait(self.options.least_clients, patience=self.options.round_seconds)

    def _wait(self, expected: int, *, patience: float) -> None:
        deadline = time.monotonic() + self.options.wait_seconds
        while True:
            self._look(max(1.0, min(patience, deadline - time.monotonic())))
            if len(self.nodes) >= expected or time.monotonic() >= deadline:
                break
            time.sleep(self.options.poll_seconds)
        if len(self.nodes) < expected and self.silent - self.claims.keys():
            # Whoever came just before time was up had less of it than others to answer.
            self._look(max(1.0, min(self.options.round_seconds, self.options.wait_seconds)))
        if len(self.nodes) < self.options.least_clients:
            said = f"; {self.notices[-1]}" if self.notices else ""
            raise RunError(
                f"{len(self.nodes)} clients were there after {self.options.wait_seconds:g} seconds, and least-clients "
                f"is {self.options.least_clients}{said}; start more nodes, or allow more time with wait-seconds"
            )

    def _look(self, seconds: float) -> None:
        """Ask the nodes that are new; take note of those that are gone."""
        listed = set(self.post.grid.get_node_ids())
        self.claims = {node: claim for node, claim in self.claims.items() if node in listed}
        self.disputed &= listed
        self.silent &= listed
        question = RecordDict({FACTS: ConfigRecord({"fingerprint": self.fingerprint})})
        new = sorted(listed - self.claims.keys())
        pinned = self.options.pinned
        found = self.post.exchange(ROLL, dict.fromkeys(new, question), seconds=seconds)
        for node, content in found.answers.items():
            try:
                claim = presented(content, self.known)
            except WireError as error:
                self._refuse(node, f"malformed: {error}")
                continue
            if pinned and pinned.get(node) != claim.client:
                self._refuse(node, f"impostor: a node that is not pinned to client {claim.client} says it is")
            else:
                self.claims[node] = claim
        for node, fault in found.faults.items():
            # A node that is lost may come back, and is asked again. One that is silent is asked again once: it would
            # hold up every round. One that fails would fail for ever.
            if fault.startswith("missing") and node not in self.silent:
                self.silent.add(node)
            elif not fault.startswith("lost"):
                self._refuse(node, fault)
        self._settle()

    def _refuse(self, node: NodeId, reason: str) -> None:
        self.claims[node] = None
        self.notices.append(f"{reason} (when the population was called)")

    def _settle(self) -> None:
        """One node for each client: whoever was first keeps its place for as long as it is there."""
        self.nodes = {client: node for client, node in self.nodes.items() if node in self.claims}
        for node, claim in sorted(self.claims.items(), key=lambda item: item[0]):
            if claim is None:
                continue
            holder = self.nodes.setdefault(claim.client, node)
            if holder != node and node not in self.disputed:
                self.disputed.add(node)
                self.notices.append(f"impostor: a second node says it is client {claim.client}; the first counts")
