"""The paper's ballot: the place of every edge, at a fixed width."""

import math
from dataclasses import dataclass

import numpy as np

from e2fl import compiled
from e2fl.ballots.base import Ballot, Reference
from e2fl.errors import WireError
from e2fl.ranking import Ranking


def bits_per_edge(edges: int) -> int:
    """Return the bits that number the edges of one layer: ceil(log2 edges)."""
    return (edges - 1).bit_length()


@dataclass(frozen=True)
class Exact(Ballot):
    """The order of the edges, lowest rank first, each edge number in ceil(log2 n) bits; layers start at whole bytes."""

    def encode(self, ranking: Ranking, reference: Reference) -> bytes:
        parts = []
        for layer, known in reference.ranking.items():
            parts.append(compiled.pack_order_of_rank(ranking[layer], bits_per_edge(known.size)).tobytes())
        return b"".join(parts)

    def decode(self, raw: bytes | memoryview, reference: Reference) -> Ranking:
        sizes = {name: (rank.size, bits_per_edge(rank.size)) for name, rank in reference.ranking.items()}
        expected = sum(compiled.packed_size(*size) for size in sizes.values())
        if len(raw) != expected:
            raise WireError(f"a ranking of this model takes {expected} bytes, not {len(raw)}")
        ranking: Ranking = {}
        for layer, (edges, bits) in sizes.items():
            size = compiled.packed_size(edges, bits)
            part, raw = raw[:size], raw[size:]
            try:
                ranking[layer] = compiled.unpack_rank(np.frombuffer(part, np.uint8), edges, bits)
            except ValueError as error:
                raise WireError(f"the ranking of layer '{layer}' is invalid: {error}") from None
        return ranking

    def rounded(self, ranking: Ranking, reference: Reference) -> Ranking:
        return ranking

    def entropy_bits(self, ranking: Ranking, reference: Reference) -> float:
        """Return log2(n!) for each layer: every ranking is equally likely."""
        return sum(math.lgamma(rank.size + 1) / math.log(2) for rank in reference.ranking.values())
