"""A cache of decoded ballots, so that a reply is not decoded a second time when it is counted after its check.

Decoding is a pure function of the message and the reference, so the cache never changes a result. Memory is bounded:
the oldest entries are dropped, and `take` removes the entry.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from e2fl.ballots import Ballot, Reference
from e2fl.e2fl_messages import Ballots, CodedBallots
from e2fl.ranking import Ranking

MOST_BALLOTS = 64
MOST_BYTES = 512 * 2**20


@dataclass(frozen=True)
class _Entry:
    message: CodedBallots  # held, so that no other message can get its id
    ballot: Ballot
    reference: Reference
    decoded: Ballots

    @property
    def ballots(self) -> int:
        return len(self.decoded.rankings)

    @property
    def bytes(self) -> int:
        return sum(rank.nbytes for ranking in self.decoded.rankings for rank in ranking.values())

    def is_of(self, message: CodedBallots, ballot: Ballot, reference: Reference) -> bool:
        return self.message is message and self.ballot == ballot and _same(self.reference, reference)


def _same(one: Reference, other: Reference) -> bool:
    """Return whether two references hold the very same arrays; cheaper than comparing them."""
    return (
        (one.keep, one.fan_in) == (other.keep, other.fan_in)
        and _same_arrays(one.ranking, other.ranking)
        and _same_arrays(one.base or {}, other.base or {})
    )


def _same_arrays(one: Ranking, other: Ranking) -> bool:
    return one.keys() == other.keys() and all(one[layer] is other[layer] for layer in one)


class DecodedBallots:
    """A bounded cache of decoded replies."""

    def __init__(self, most_ballots: int = MOST_BALLOTS, most_bytes: int = MOST_BYTES):
        self.most_ballots, self.most_bytes = most_ballots, most_bytes
        self.entries: OrderedDict[int, _Entry] = OrderedDict()
        self.lock = threading.Lock()

    def keep(self, message: CodedBallots, ballot: Ballot, reference: Reference, decoded: Ballots) -> None:
        """Store the decoded ballots of a message."""
        with self.lock:
            self.entries[id(message)] = _Entry(message, ballot, reference, decoded)
            self.entries.move_to_end(id(message))
            while self.ballots > self.most_ballots or self.bytes > self.most_bytes:
                self.entries.popitem(last=False)

    def take(self, message: CodedBallots, ballot: Ballot, reference: Reference) -> Ballots | None:
        """Remove and return the decoded ballots of this message and reference; None if they are not stored."""
        with self.lock:
            entry = self.entries.get(id(message))
            if entry is None or not entry.is_of(message, ballot, reference):
                return None
            del self.entries[id(message)]
            return entry.decoded

    @property
    def ballots(self) -> int:
        return sum(entry.ballots for entry in self.entries.values())

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries.values())


DECODED = DecodedBallots()
