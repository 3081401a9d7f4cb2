"""Mutated messages are rejected with `WireError` or accepted, and none takes much longer than an
honest one.

    python -m benchmarks.fuzz_ballots --messages 1000000

Prints how many messages were refused and accepted, and the processor time of the slowest beside
that of an honest one. A ballot that is accepted must be the only way to write what it stands for.
`benchmarks.soak` runs the same campaign for a time.
"""

import argparse
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

from e2fl.errors import WireError
from e2fl.models import Model, ModelSpec
from e2fl.networks import mlp
from e2fl.rankings import coder
from e2fl.rankings.ballots import (
    Ballot,
    Boundary,
    Buckets,
    Moves,
    Reference,
    decode_mask,
    encode_mask,
    ranking_of_mask,
)
from e2fl.rankings.messages import ExactBallots
from e2fl.rankings.order import Ranking, mask_layers
from e2fl.wire import Message, Weights

SIZES = {"conv": 72, "hidden": 1200, "out": 40}
FAN_IN = {"conv": 9, "hidden": 30, "out": 10}
BATCH = 20  # messages of one kind before those of the next

Read = Callable[[bytes], object]


class Masks(Ballot):
    """A mask that is sent as its difference to a ranking, so that it can be tried like a ballot."""

    def encode(self, ranking: Ranking, reference: Reference) -> bytes:
        return encode_mask(mask_layers(ranking, reference.keep), reference)

    def decode(self, raw: bytes | memoryview, reference: Reference) -> Ranking:
        return ranking_of_mask(decode_mask(raw, reference))

    def entropy_bits(self, ranking: Ranking, reference: Reference) -> float:
        return 0.0


@dataclass
class Kind:
    """A kind of message: honest ones, what reads them, and what writes a ballot again."""

    honest: list[bytes]
    read: Read
    again: Callable[..., bytes] | None = None
    usual: float = 0.0  # seconds, the slowest honest one


@dataclass
class Outcome:
    """What came of a campaign."""

    refused: int = 0
    accepted: int = 0
    failures: list[str] = field(default_factory=list)
    honest: float = 0.0  # seconds, the slowest kind of message
    slowest: float = 3.0  # times an honest one of its kind; what is faster is not looked at twice
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def messages(self) -> int:
        return self.refused + self.accepted + len(self.failures)


def mutate(raw: bytes, others: list[bytes], rng: np.random.Generator) -> bytes:
    """Change some bits or bytes, cut, lengthen, swap, or splice with another message."""
    out = bytearray(raw)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(out))) if out else 0
        match int(rng.integers(9)):
            case 0 | 1 if out:
                out[at] ^= 1 << int(rng.integers(8))
            case 2 if out:
                out[at] = int(rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))]))
            case 3:
                del out[at : at + int(rng.integers(1, 9))]
            case 4:
                out[at:at] = rng.bytes(int(rng.integers(1, 9)))
            case 5:
                other = others[int(rng.integers(len(others)))]
                out = out[:at] + bytearray(other[at:])
            case 6:
                out[at : at + 16] = bytes(rng.choice([0, 255], 1)[0] for _ in range(16))
            case 7:
                out[at:] = rng.bytes(len(out) - at)
            case _:
                out[:4] = int(rng.integers(0, 2 * len(out) + 2)).to_bytes(4, "little")
    return bytes(out)


def kinds(rng: np.random.Generator) -> list[Kind]:
    """Return every kind of message; ballots with the levels of units and without."""
    ranking = {name: rng.permutation(size).astype(np.int32) for name, size in SIZES.items()}
    ballots: list[Ballot] = [Buckets(count) for count in (2, 3, 16, 64, 256)]
    ballots += [Buckets(uneven=(0.4, 0.5, 0.6)), Buckets(12, finer=8, near=0.08)]
    ballots += [Boundary(), Masks(), Moves(), Moves(127, finer=1)]
    votes = [_noisy(ranking, spread, rng) for spread in (0.0, 0.01, 0.1, 1.0)]
    found = [
        Kind(
            [ballot.encode(vote, reference) for vote in votes],
            partial(ballot.decode, reference=reference),
            # Moves are rounded before edges are ranked again: others may stand for the same.
            None if isinstance(ballot, Moves) else partial(ballot.encode, reference=reference),
        )
        for ballot in ballots
        for reference in (Reference(ranking, FAN_IN), Reference(ranking))
    ]
    model = Model(mlp((5,), 3, hidden=(4,)))
    messages = ExactBallots((0,), (model.supernet(0).ranking,)), Weights(model.initial_weights(0))
    for one in messages:
        read = partial(_read, type(one), model.spec)
        found.append(Kind([one.to_bytes(model.spec)], read))
    for kind in found:
        kind.usual = max(_fastest(kind.read, raw, 20) for raw in kind.honest)
    return found


def _read(kind: type[Message], spec: ModelSpec, raw: bytes) -> Message:
    return kind.from_bytes(raw, spec)


def _noisy(ranking: Ranking, spread: float, rng: np.random.Generator) -> Ranking:
    """Return the ranking after moves of about this share of its length."""
    places = {
        name: rank + rng.normal(0, spread * rank.size, rank.size) for name, rank in ranking.items()
    }
    return {name: np.argsort(np.argsort(own)).astype(np.int32) for name, own in places.items()}


def campaign(
    messages: int, seconds: float = float("inf"), seed: int = 0, last: Path | None = None
) -> Outcome:
    """Read this many mutated messages, or as many as fit the time, but a batch of every kind.

    last: a file for the message that is being read, as a reader may crash its process.
    """
    # So that the small model uses the levels of units.
    with patch.object(coder, "MIN_EDGES_FOR_LEVELS", 1000):
        return _campaign(messages, seconds, np.random.default_rng(seed), last)


def _campaign(
    messages: int, seconds: float, rng: np.random.Generator, last: Path | None
) -> Outcome:
    outcome = Outcome()
    began, every = time.monotonic(), kinds(rng)
    outcome.honest = max(kind.usual for kind in every)
    while outcome.messages < messages:
        for kind in every:
            for position in range(min(BATCH, messages - outcome.messages)):
                raw = mutate(kind.honest[position % len(kind.honest)], kind.honest, rng)
                if last is not None:
                    last.write_bytes(raw)
                _try(kind, raw, outcome)
        if time.monotonic() - began > seconds:
            break
    return outcome


def _try(kind: Kind, raw: bytes, outcome: Outcome) -> None:
    """Read a message, and count what comes of it."""
    start = time.thread_time()
    try:
        decoded = kind.read(raw)
        assert kind.again is None or kind.again(decoded) == raw, "not in canonical form"
        outcome.accepted += 1
    except WireError as error:
        outcome.refused += 1
        outcome.reasons[re.sub(r"\d+", "N", str(error))] += 1
    except Exception:
        outcome.failures.append(f"{traceback.format_exc(limit=-3)}{raw.hex()}")
    if time.thread_time() - start > 3 * kind.usual:  # the machine, or the message?
        outcome.slowest = max(outcome.slowest, _fastest(kind.read, raw, 5) / kind.usual)


def _fastest(read: Read, raw: bytes, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        with suppress(Exception):
            read(raw)
        times.append(time.thread_time() - start)
    return min(times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    outcome = campaign(parser.parse_args().messages)
    for reason, count in sorted(outcome.reasons.items()):
        print(f"{count:>9}  {reason}")
    print(f"{outcome.accepted:>9}  accepted, in canonical form", *outcome.failures[:20], sep="\n")
    print(f"{outcome.messages:>9}  in all, {len(outcome.failures)} failures")
    honest = f"an honest message takes up to {1e3 * outcome.honest:.2f} ms"
    print(f"{honest}; none more than {outcome.slowest:.1f} times that")
