"""Valid messages of clients, and ways to damage them."""

import random
import struct
from collections.abc import Callable

from e2fl.models import Model
from e2fl.networks import mlp
from e2fl.rankings.messages import Ballots
from e2fl.wire import Weights

Reader = Callable[[bytes], object]


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """The bytes with bits flipped, or a piece overwritten, removed, repeated or cut off."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not data:
            break
        at = rng.randrange(len(data))
        piece = slice(at, at + rng.randint(1, max(1, min(64, len(data) // 4))))
        kind = rng.randrange(7)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, ord(","), ord('"'), ord("\n")))
        elif kind == 2:
            data[piece] = rng.randbytes(len(data[piece]))
        elif kind == 3:
            del data[piece]
        elif kind == 4:
            data[at:at] = data[piece]
        elif kind == 5:
            data[at : at + 4] = struct.pack(
                rng.choice("<>") + "i", rng.choice((0, -1, 2**31 - 1, -(2**31), 65536))
            )
        else:
            del data[at:]
    return bytes(data)


def readers() -> dict[str, tuple[bytes, Reader]]:
    """For each kind of message from a client, valid bytes and the function that reads them."""
    model = Model(mlp((5,), 3, hidden=(4,)))
    ballots = Ballots((0,), (model.supernet(0).ranking,)).to_bytes(model.spec)
    weights = Weights(model.initial_weights(0)).to_bytes(model.spec)
    return {
        "message with a ranking": (ballots, lambda raw: Ballots.from_bytes(raw, model.spec)),
        "message with weights": (weights, lambda raw: Weights.from_bytes(raw, model.spec)),
    }
