"""All randomness of a run: independent streams, each named after its purpose."""

import hashlib

import numpy as np


def stream(seed: int, purpose: str, *place: int) -> np.random.Generator:
    """Return the random stream of one purpose at one place, such as a round and a client.

    Equal arguments give equal streams on every machine; different ones are independent.
    No global seed is set or read.
    """
    name = f"{seed}/{purpose}/{'/'.join(map(str, place))}"
    key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))
