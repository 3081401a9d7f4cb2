"""Mutated ballots are rejected with `WireError` or accepted, and none takes much longer than an
honest one.

    python -m benchmarks.fuzz_ballots --messages 1000000

Prints how many messages were refused and accepted, and the processor time of the slowest beside
that of an honest one. Every message that is accepted must be the only way to write what it stands
for.
"""

import argparse
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from e2fl.errors import WireError
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
from e2fl.rankings.order import Ranking, mask_layers

SIZES = {"conv": 72, "hidden": 1200, "out": 40}
FAN_IN = {"conv": 9, "hidden": 30, "out": 10}


class Masks(Ballot):
    """A mask that is sent as its difference to a ranking, so that it can be tried like a ballot."""

    def encode(self, ranking: Ranking, reference: Reference) -> bytes:
        return encode_mask(mask_layers(ranking, reference.keep), reference)

    def decode(self, raw: bytes | memoryview, reference: Reference) -> Ranking:
        return ranking_of_mask(decode_mask(raw, reference))

    def entropy_bits(self, ranking: Ranking, reference: Reference) -> float:
        return 0.0


@dataclass
class Outcome:
    """What came of a campaign."""

    messages: int = 0
    refused: int = 0
    accepted: int = 0
    honest: float = 0.0  # seconds, the slowest kind of ballot
    slowest: float = 3.0  # times an honest one of its kind; what is faster is not looked at twice
    reasons: dict[str, int] = field(default_factory=dict)


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


def kinds() -> list[tuple[Ballot, Reference]]:
    """Return every kind of message, with the levels of units and without."""
    rng = np.random.default_rng(0)
    ranking = {name: rng.permutation(size).astype(np.int32) for name, size in SIZES.items()}
    ballots: list[Ballot] = [Buckets(count) for count in (2, 3, 16, 64, 256)]
    ballots += [Buckets(uneven=(0.4, 0.5, 0.6)), Buckets(12, finer=8, near=0.08)]
    ballots += [Boundary(), Masks(), Moves(), Moves(127, finer=1)]
    references = (Reference(ranking, FAN_IN), Reference(ranking))
    return [(ballot, reference) for ballot in ballots for reference in references]


def noisy(ranking: Ranking, spread: float, rng: np.random.Generator) -> Ranking:
    """Return the ranking after moves of about this share of its length."""
    moved = {
        name: rank + rng.normal(0, spread * rank.size, rank.size) for name, rank in ranking.items()
    }
    return {name: np.argsort(np.argsort(places)).astype(np.int32) for name, places in moved.items()}


def campaign(messages: int, seconds: float = float("inf"), seed: int = 0) -> Outcome:
    """Decode this many mutated messages, or as many as fit the time.

    Raises what is not a `WireError`.
    """
    coder.LARGE = 1000  # so that the small model uses the levels of units
    outcome = Outcome()
    rng = np.random.default_rng(seed)
    began = time.monotonic()
    cases = kinds()
    share = -(-messages // len(cases))
    for ballot, reference in cases:
        honest = [
            ballot.encode(noisy(reference.ranking, spread, rng), reference)
            for spread in (0.0, 0.01, 0.1, 1.0)
        ]
        usual = max(_fastest(ballot, raw, reference, 20) for raw in honest)
        outcome.honest = max(outcome.honest, usual)
        for number in range(min(share, messages - outcome.messages)):
            if number % 256 == 0 and time.monotonic() - began > seconds:
                return outcome
            raw = mutate(honest[number % len(honest)], honest, rng)
            outcome.messages += 1
            start = time.thread_time()
            try:
                decoded = ballot.decode(raw, reference)
                outcome.accepted += 1
                # Moves are rounded before edges are ranked again: others may stand for the same.
                if not isinstance(ballot, Moves):
                    assert ballot.encode(decoded, reference) == raw, "not in canonical form"
            except WireError as error:
                outcome.refused += 1
                reason = re.sub(r"\d+", "N", str(error))
                outcome.reasons[reason] = outcome.reasons.get(reason, 0) + 1
            if time.thread_time() - start > 3 * usual:  # the machine, or the message?
                outcome.slowest = max(outcome.slowest, _fastest(ballot, raw, reference, 5) / usual)
    return outcome


def _fastest(ballot: Ballot, raw: bytes, reference: Reference, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        with suppress(WireError):
            ballot.decode(raw, reference)
        times.append(time.thread_time() - start)
    return min(times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcome = campaign(options.messages, seed=options.seed)
    for reason, count in sorted(outcome.reasons.items()):
        print(f"{count:>9}  {reason}")
    print(f"{outcome.accepted:>9}  accepted, in canonical form")
    print(f"{outcome.messages:>9}  in all")
    honest = f"an honest message takes up to {1e3 * outcome.honest:.2f} ms"
    print(f"{honest}; none more than {outcome.slowest:.1f} times that")
