"""Sends messages to nodes and polls for their replies.

A reply belongs to the message it was pulled for: only the node that a message was sent to can reply to it, and Flower
itself replies for a node that is gone. What a reply says about itself is not trusted. Flower polls every three
seconds; this module polls as often as the run configuration says.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

LOST_CODES = (3, 4, 5, 8)  # Flower's error codes for a message, a reply, a node or a process that is gone
EXPIRY_MARGIN = 5.0  # seconds; Flower must not be asked for a message it has already dropped
PULL_SECONDS = 0.2  # to wait for one pull before starting others
GRACE_SECONDS = 1.0  # after a deadline, for pulls that have started

IMPOSTOR = "impostor: the reply claims to answer another message"

NodeId = int


@dataclass
class NodeReplies:
    """The outcome of an exchange; every node is in `replies` or in `faults`."""

    replies: dict[NodeId, RecordDict] = field(default_factory=dict)
    faults: dict[NodeId, str] = field(default_factory=dict)  # "kind: reason"
    unexpected: list[tuple[NodeId | None, str]] = field(default_factory=list)  # replies that are not used, and why


class Puller:
    """Pulls replies in threads: Flower's pull blocks until a reply is uploaded, which a slow client can prolong."""

    def __init__(self, grid: Grid):
        self.grid = grid
        self.running: dict[str, _Pull] = {}

    def poll(
        self,
        waiting: Collection[str],
        deadline: float,
        poll_seconds: float,
        overdue: Callable[[], Iterable[str]] = tuple,
    ) -> Iterator[tuple[str, list[Message] | Exception]]:
        """Yield the id of a message and its replies, or the error of reading them, as they arrive.

        waiting: the ids to wait for; the caller removes those that are done. Ends when it is empty or at the deadline.
        overdue: returns further ids to look for, without waiting for them.
        """
        while waiting:
            # Each message is pulled by itself, so that one unreadable reply affects no other.
            for message_id in [*waiting, *overdue()]:
                try:
                    found = self._pull(message_id, deadline + GRACE_SECONDS)
                except httpx.TransportError:
                    raise  # the network is down: not the fault of a client
                except Exception as error:
                    yield message_id, error
                else:
                    if found:
                        yield message_id, found
            if waiting and not self._wait(waiting, deadline, poll_seconds):
                return

    def _pull(self, message_id: str, until: float) -> list[Message]:
        """Return the replies that are there by now; a pull that takes longer is checked again in the next poll."""
        pull = self.running.get(message_id)
        if pull is None:
            left = until - time.monotonic()
            if left <= 0:
                return []
            pull = self.running[message_id] = _Pull(self.grid, message_id)
            pull.start()
            pull.join(min(PULL_SECONDS, left))
        if pull.is_alive():
            return []
        del self.running[message_id]
        if pull.error is not None:
            raise pull.error
        return pull.found

    def _wait(self, waiting: Iterable[str], deadline: float, seconds: float) -> bool:
        """Sleep until the next poll; return False if there is no time left for one."""
        end = deadline + GRACE_SECONDS if any(message_id in self.running for message_id in waiting) else deadline
        left = end - time.monotonic()
        time.sleep(max(0.0, min(seconds, left)))
        return left > 0


class _Pull(threading.Thread):
    """Pulls the replies to one message; a daemon, so that a run can end without it."""

    def __init__(self, grid: Grid, message_id: str):
        super().__init__(daemon=True)
        self.grid, self.message_id = grid, message_id
        self.found: list[Message] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.found = list(self.grid.pull_messages([self.message_id]))
        except Exception as error:
            self.error = error


class Transport:
    """Exchanges messages with nodes, and recognises replies that are late, repeated or forged."""

    def __init__(self, grid: Grid, poll_seconds: float):
        self.grid = grid
        self.puller = Puller(grid)
        self.poll_seconds = poll_seconds
        self.overdue: dict[str, tuple[NodeId, float]] = {}  # not replied to in time: the node, and when Flower drops it
        self.replied: dict[str, NodeId] = {}  # messages of the current exchange that have been replied to

    def exchange(
        self, message_type: str, contents: Mapping[NodeId, RecordDict], *, seconds: float, group_id: str = ""
    ) -> NodeReplies:
        """Send its content to each node; return when all have replied or time is up."""
        received = NodeReplies()
        if not contents:
            return received
        ttl = 3 * seconds + 2 * EXPIRY_MARGIN  # long enough to tell a late reply from none
        deadline, expiry = time.monotonic() + seconds, time.monotonic() + ttl - EXPIRY_MARGIN
        waiting = self._send(message_type, contents, ttl, group_id, received)
        self.replied = {}
        deadline = max(deadline, time.monotonic())
        for message_id, found in self.puller.poll(waiting, deadline, self.poll_seconds, self._still_overdue):
            if isinstance(found, Exception):
                self._record_unreadable(message_id, unreadable(found), waiting, received)
                continue
            for reply in found:
                self._record(message_id, reply, waiting, received)
        for message_id, node in waiting.items():
            received.faults[node] = f"missing: no reply within {seconds:g} seconds"
            self.overdue[message_id] = (node, expiry)
        return received

    def sort(self, sent: Mapping[str, NodeId], replies: Iterable[Message], rejected: Mapping[str, str]) -> NodeReplies:
        """Sort replies that another grid pulled.

        sent: the node of each message, by its id; rejected: why the replies to some messages were not handed on.
        """
        received, waiting = NodeReplies(), dict(sent)
        self.replied = {}
        for message_id, reason in rejected.items():
            self._record_unreadable(message_id, reason, waiting, received)
        for reply in replies:
            self._record(reply.metadata.reply_to_message_id, reply, waiting, received)
        received.faults |= dict.fromkeys(waiting.values(), "missing: no reply in time")
        return received

    def _send(
        self,
        message_type: str,
        contents: Mapping[NodeId, RecordDict],
        ttl: float,
        group_id: str,
        received: NodeReplies,
    ) -> dict[str, NodeId]:
        """Send the messages; return the node of each that Flower accepted, by message id."""
        messages = [
            Message(content, dst_node_id=node, message_type=message_type, ttl=ttl, group_id=group_id)
            for node, content in contents.items()
        ]
        message_ids = list(self.grid.push_messages(messages))
        message_ids += [""] * (len(messages) - len(message_ids))
        for message_id, node in zip(message_ids, contents, strict=True):
            if not message_id:
                received.faults[node] = "missing: Flower did not accept the message"
        return {message_id: node for message_id, node in zip(message_ids, contents, strict=True) if message_id}

    def _still_overdue(self) -> list[str]:
        now = time.monotonic()
        for message_id in [message_id for message_id, (_, expiry) in self.overdue.items() if expiry <= now]:
            del self.overdue[message_id]
            self.puller.running.pop(message_id, None)
        return list(self.overdue)

    def _record_unreadable(
        self, message_id: str, reason: str, waiting: MutableMapping[str, NodeId], received: NodeReplies
    ) -> None:
        if message_id in waiting:
            node = self.replied[message_id] = waiting.pop(message_id)
            received.faults[node] = reason
        elif message_id in self.overdue:
            received.unexpected.append((self.overdue.pop(message_id)[0], reason))

    def _record(
        self, message_id: str, reply: Message, waiting: MutableMapping[str, NodeId], received: NodeReplies
    ) -> None:
        """Record a reply to this message; `waiting` holds the messages without a reply, and their nodes."""
        genuine = reply.metadata.reply_to_message_id == message_id
        if message_id in waiting:
            node = self.replied[message_id] = waiting.pop(message_id)
            if not genuine:
                received.faults[node] = IMPOSTOR
            elif reply.has_error():
                kind = "lost" if reply.error.code in LOST_CODES else "failed"
                received.faults[node] = f"{kind}: {reply.error.reason or f'code {reply.error.code}'}"
            else:
                received.replies[node] = reply.content
        elif message_id in self.replied:
            repeated = "repeated: a second reply to one message; the first one counts"
            received.unexpected.append((self.replied[message_id], repeated if genuine else IMPOSTOR))
        elif message_id in self.overdue:
            node, _ = self.overdue.pop(message_id)
            self.replied[message_id] = node
            if not reply.has_error():  # the message is already counted as missing
                late = "late: a reply arrived after its round had ended"
                received.unexpected.append((node, late if genuine else IMPOSTOR))
        else:
            received.unexpected.append((None, "unasked: a reply to no message of this run"))


def unreadable(error: Exception) -> str:
    """Return the fault of a reply that Flower cannot decode."""
    return f"malformed: the reply cannot be read: {type(error).__name__}: {error}"


class PollingGrid(Grid):
    """A grid that polls for replies more often than every three seconds, for Flower's own strategies."""

    def __init__(self, grid: Grid, poll_seconds: float):
        self.grid = grid
        self.poll_seconds = poll_seconds
        self.rejected: dict[str, str] = {}  # why replies to messages of the last call are not returned

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send, then wait until all nodes have replied or time is up. Every reply returned names its own message."""
        self.rejected = {}
        waiting = dict.fromkeys(message_id for message_id in self.grid.push_messages(messages) if message_id)
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        for message_id, found in Puller(self.grid).poll(waiting, deadline, self.poll_seconds):
            waiting.pop(message_id)
            if isinstance(found, Exception):
                self.rejected[message_id] = unreadable(found)
            elif any(reply.metadata.reply_to_message_id != message_id for reply in found):
                self.rejected[message_id] = IMPOSTOR
            else:
                replies += found
        return replies

    @property
    def run(self) -> Any:
        return self.grid.run

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self.grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.grid.pull_messages(message_ids)
