"""Sending to nodes and collecting what comes back in time.

An answer belongs to the message it was pulled for: Flower lets nobody answer but the node it was sent to, and answers
itself for a node that is gone. What an answer says of itself is only its sender's word. Flower's own waiting looks
every three seconds; this looks as often as it is told to.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

LOST = (3, 4, 5, 8)  # Flower's codes for a message, an answer, a node or a process that is gone
EXPIRY_MARGIN = 5.0  # seconds; Flower must not be asked for a message it has already dropped
TURN = 0.2  # seconds for one pull before others get their turn beside it
GRACE = 1.0  # seconds after a deadline, for pulls that have begun

IMPOSTOR = "impostor: an answer that says it answers another message"

NodeId = int


@dataclass
class Arrivals:
    """What came of a sending, by node; nodes are in one of the two."""

    answers: dict[NodeId, RecordDict] = field(default_factory=dict)
    faults: dict[NodeId, str] = field(default_factory=dict)
    others: list[tuple[NodeId | None, str]] = field(default_factory=list)  # what nobody asked for, or not any more


class Puller:
    """Pulls answers in threads. Flower's pull waits until an answer is uploaded, which its sender may draw out."""

    def __init__(self, grid: Grid):
        self.grid = grid
        self.begun: dict[str, _Pull] = {}  # not known yet what comes of it

    def pull(self, name: str, until: float) -> list[Message]:
        """What has come by now in answer to one message; a pull that takes longer is looked at again next time."""
        pull = self.begun.get(name)
        if pull is None:
            left = until - time.monotonic()
            if left <= 0:
                return []
            pull = self.begun[name] = _Pull(self.grid, name)
            pull.start()
            pull.join(min(TURN, left))
        if pull.is_alive():
            return []
        del self.begun[name]
        if pull.error is not None:
            raise pull.error
        return pull.found

    def rest(self, waiting: Iterable[str], deadline: float, seconds: float) -> bool:
        """Sleep before the next look for what is waited for; False when it is too late for one."""
        end = deadline + GRACE if any(name in self.begun for name in waiting) else deadline
        left = end - time.monotonic()
        time.sleep(max(0.0, min(seconds, left)))
        return left > 0


class _Pull(threading.Thread):
    """One pull, of answers to one message; a run that ends does not wait for it."""

    def __init__(self, grid: Grid, name: str):
        super().__init__(daemon=True)
        self.grid, self.message = grid, name
        self.found: list[Message] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.found = list(self.grid.pull_messages([self.message]))
        except Exception as error:
            self.error = error


class Post:
    """The post office of a server app."""

    def __init__(self, grid: Grid, poll_seconds: float):
        self.grid = grid
        self.puller = Puller(grid)
        self.poll_seconds = poll_seconds
        self.overdue: dict[str, tuple[NodeId, float]] = {}  # not answered in time: the node, and when Flower drops it
        self.settled: dict[str, NodeId] = {}  # of the sending at hand

    def exchange(self, kind: str, letters: Mapping[NodeId, RecordDict], *, seconds: float, about: str = "") -> Arrivals:
        """Send a letter to each of these nodes; come back when all have answered or time is up."""
        arrivals = Arrivals()
        if not letters:
            return arrivals
        keep = 3 * seconds + 2 * EXPIRY_MARGIN  # a late answer can still be told from none at all
        deadline, expiry = time.monotonic() + seconds, time.monotonic() + keep - EXPIRY_MARGIN
        waiting = self._send(kind, letters, keep, about, arrivals)
        self.settled = {}
        deadline = max(deadline, time.monotonic())
        while waiting:
            for name in [*waiting, *self._still_overdue()]:
                for reply in self._pull(name, deadline + GRACE, waiting, arrivals):
                    self.take(name, reply, waiting, arrivals)
            if not waiting or not self.puller.rest(waiting, deadline, self.poll_seconds):
                break
        for name, node in waiting.items():
            arrivals.faults[node] = f"missing: no answer within {seconds:g} seconds"
            self.overdue[name] = (node, expiry)
        return arrivals

    def _send(
        self, kind: str, letters: Mapping[NodeId, RecordDict], keep: float, about: str, arrivals: Arrivals
    ) -> dict[str, NodeId]:
        messages = [
            Message(content, dst_node_id=node, message_type=kind, ttl=keep, group_id=about)
            for node, content in letters.items()
        ]
        names = list(self.grid.push_messages(messages))
        names += [""] * (len(messages) - len(names))
        for name, node in zip(names, letters, strict=True):
            if not name:
                arrivals.faults[node] = "missing: Flower did not take the message"
        return {name: node for name, node in zip(names, letters, strict=True) if name}

    def _still_overdue(self) -> list[str]:
        now = time.monotonic()
        for name in [name for name, (_, expiry) in self.overdue.items() if expiry <= now]:
            del self.overdue[name]
            self.puller.begun.pop(name, None)
        return list(self.overdue)

    def _pull(self, name: str, until: float, waiting: dict[str, NodeId], arrivals: Arrivals) -> list[Message]:
        """Answers to one message. Each is pulled by itself: one that cannot be read takes no other with it."""
        try:
            return self.puller.pull(name, until)
        except httpx.TransportError:
            raise  # the network is gone, and with it everybody: no client is to blame
        except Exception as error:
            reason = unreadable(error)
            if name in waiting:
                node = self.settled[name] = waiting.pop(name)
                arrivals.faults[node] = reason
            elif name in self.overdue:
                arrivals.others.append((self.overdue.pop(name)[0], reason))
            return []

    def take(self, name: str, reply: Message, waiting: dict[str, NodeId], arrivals: Arrivals) -> None:
        """Put the answer to this message where it belongs; `waiting` has those without any yet, and their nodes."""
        honest = reply.metadata.reply_to_message_id == name
        if name in waiting:
            node = self.settled[name] = waiting.pop(name)
            if not honest:
                arrivals.faults[node] = IMPOSTOR
            elif reply.has_error():
                kind = "lost" if reply.error.code in LOST else "failed"
                arrivals.faults[node] = f"{kind}: {reply.error.reason or f'code {reply.error.code}'}"
            else:
                arrivals.answers[node] = reply.content
        elif name in self.settled:
            repeated = "repeated: a second answer to one message; the first counts"
            arrivals.others.append((self.settled[name], repeated if honest else IMPOSTOR))
        elif name in self.overdue:
            node, _ = self.overdue.pop(name)
            self.settled[name] = node
            if not reply.has_error():  # an error would only say once more what is known
                late = "late: an answer came after its round was over"
                arrivals.others.append((node, late if honest else IMPOSTOR))
        else:
            arrivals.others.append((None, "unasked: an answer to no message of this run"))


def unreadable(error: Exception) -> str:
    return f"malformed: the answer cannot be read: {type(error).__name__}: {error}"


class Prompt(Grid):
    """The same grid, looked at more often than every three seconds while answers are awaited."""

    def __init__(self, grid: Grid, poll_seconds: float):
        self.grid = grid
        self.poll_seconds = poll_seconds
        self.refused: dict[str, str] = {}  # of the last sending: messages whose answer is not handed on, and why

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send, then wait until everybody has answered or time is up. Whatever comes back answers what it says."""
        self.refused = {}
        waiting = dict.fromkeys(name for name in self.grid.push_messages(messages) if name)
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        puller, replies = Puller(self.grid), list[Message]()
        while waiting:
            for name in list(waiting):
                try:
                    found = puller.pull(name, deadline + GRACE)
                except httpx.TransportError:
                    raise
                except Exception as error:
                    self.refused[name] = unreadable(error)
                    waiting.pop(name)
                    continue
                if any(reply.metadata.reply_to_message_id != name for reply in found):
                    self.refused[name] = IMPOSTOR
                else:
                    replies += found
                if found:
                    waiting.pop(name)
            if not waiting or not puller.rest(waiting, deadline, self.poll_seconds):
                break
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
