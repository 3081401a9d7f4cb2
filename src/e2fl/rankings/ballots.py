"""Ballots: formats for sending a ranking, from the paper's exact one to a tenth of a bit per edge.

A ballot is encoded relative to a `Reference` that both ends know: the ranking that was broadcast.
To add one, subclass `Ballot` and add one line to `BALLOTS`. docs/ballots.md compares them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
from typing_extensions import Doc

from e2fl import kernels
from e2fl.construct import Limits
from e2fl.kernels import Int64, UInt8
from e2fl.rankings.coder import MAX_CELLS, Ballot, Coarse, LayerCode, Reference
from e2fl.rankings.order import (
    Mask,
    Ranking,
    Ranks,
    dropped,
    edges_of,
    mask_layers,
    read_ranking,
    write_ranking,
)

MAX_BUCKETS = 256  # buckets: a symbol is a byte
MAX_CELLS_PER_BUCKET = 16  # at most
MAX_CELLS_OF_MANY_BUCKETS = 24  # where a table has more than 64 symbols


@dataclass(frozen=True)
class Exact(Ballot):
    """The order of the edges, lowest rank first, each edge number in ceil(log2 n) bits."""

    def encode(self, ranking: Ranking, reference: Reference) -> bytes:
        return write_ranking(ranking, reference.ranking)

    def decode(self, raw: bytes | memoryview, reference: Reference) -> Ranking:
        return read_ranking(raw, edges_of(reference.ranking))

    def rounded(self, ranking: Ranking, reference: Reference) -> Ranking:
        return ranking

    def entropy_bits(self, ranking: Ranking, reference: Reference) -> float:
        """Return log2(n!) for each layer: every ranking is equally likely."""
        return sum(math.lgamma(rank.size + 1) / math.log(2) for rank in reference.ranking.values())


@dataclass(frozen=True)
class Buckets(Coarse):
    """Bucket floor(buckets * place / edges) of each edge.

    With at least as many buckets as edges, the exact ranking.
    """

    buckets: Annotated[
        int, Doc("how many; near the cut more"), Limits(least=2, most=MAX_BUCKETS)
    ] = 16
    uneven: Annotated[
        tuple[float, ...],
        Doc("instead of equal buckets: the borders between them, as fractions of the ranking"),
        Limits(above=0, below=1),
    ] = ()
    finer: Annotated[
        int,
        Doc("times as many buckets near the cut between dropped and kept edges"),
        Limits(least=1),
    ] = 1
    near: Annotated[
        float, Doc("as a fraction of the ranking, to each side of the cut"), Limits(least=0, most=1)
    ] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        alone = self.finer == 1 and self.buckets in (Buckets.buckets, len(self.uneven) + 1)
        rising = all(low < high for low, high in pairwise(self.uneven))
        fit = not self.uneven or (alone and rising and len(self.uneven) < MAX_BUCKETS)
        rule = f"at most {MAX_BUCKETS - 1} rising borders, without buckets and finer"
        self.require(fit, "uneven", rule)
        most = self.buckets * (1 + 2 * self.near * (self.finer - 1))
        self.require(
            self.finer == 1 or most <= 254, "finer", f"less: at most {MAX_BUCKETS} buckets in all"
        )

    @property
    def max_cells(self) -> int:
        if self.buckets > MAX_CELLS:
            return MAX_CELLS_OF_MANY_BUCKETS
        if self.uneven or self.finer > 1:
            return MAX_CELLS
        # A cell that lies in one bucket predicts better than one across a border.
        return self.buckets * min(MAX_CELLS // self.buckets, MAX_CELLS_PER_BUCKET)

    def borders(self, edges: int, reference: Reference) -> Int64:
        if self.uneven:
            inner = np.floor(np.array(self.uneven) * edges + 1e-9).astype(np.int64)
            return np.concatenate([[0], inner, [edges]]).astype(np.int64)
        positions = np.arange(self.buckets * self.finer + 1, dtype=np.int64)
        borders: Int64 = -(-positions * edges // (self.buckets * self.finer))
        if self.finer == 1:
            return borders
        # The borders of all buckets, and near the cut those of the finer ones.
        reach = np.abs(borders - dropped(edges, reference.keep)) <= self.near * edges
        kept: Int64 = borders[(positions % self.finer == 0) | reach]
        # In a layer of few edges, many borders fall on the same place.
        return kept if kept.size <= MAX_BUCKETS + 1 else np.unique(kept)


@dataclass(frozen=True)
class Moves(Coarse):
    """By how many steps of 1 / `steps` of the ranking each edge moved, rounded to the nearest.

    The rounding error is at most half a step for every edge; a bucket only tells which borders were
    crossed. Steps are `finer` times as small for edges that the broadcast has near the cut between
    dropped and kept edges, where small moves change the mask. The server adds the moves to
    `Reference.base`, the ranking it elected, so what was rounded away in the broadcast is not lost.
    """

    steps: Annotated[
        int, Doc("in the whole ranking; more steps: finer and more bits"), Limits(least=2)
    ] = 16
    finer: Annotated[int, Doc("times as many steps near the cut"), Limits(least=1)] = 4
    near: Annotated[
        float, Doc("as a fraction of the ranking, to each side of the cut"), Limits(least=0, most=1)
    ] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        few = self.steps * self.finer <= MAX_BUCKETS // 2 - 1
        self.require(few, "steps", f"at most {MAX_BUCKETS // 2 - 1} when multiplied by finer")

    @property
    def max_cells(self) -> int:
        return 32

    def borders(self, edges: int, reference: Reference) -> Int64:
        return np.array([0, edges], np.int64)

    def alphabet(self, buckets: int) -> int:
        return 2 * self.steps * self.finer + 1

    def symbols(self, rank: Ranks, code: LayerCode, reference: Reference) -> UInt8:
        near = self._near(code, reference)
        return kernels.move_symbols(rank, code.reference, self.steps, self.finer, *near)

    def rank(self, symbols: UInt8, code: LayerCode, reference: Reference) -> Ranks:
        near = self._near(code, reference)
        base = code.reference if reference.base is None else reference.base[code.layer]
        return kernels.rank_of_moves(symbols, code.reference, base, self.steps, self.finer, *near)

    def _near(self, code: LayerCode, reference: Reference) -> tuple[int, int]:
        """Return the first place with finer steps, and the first one after it with whole steps."""
        cut, reach = dropped(code.size, reference.keep), int(self.near * code.size)
        return cut - reach, cut + reach


@dataclass(frozen=True)
class Boundary(Coarse):
    """Whether each edge near the cut between dropped and kept edges is below, at or above it.

    Edges that are further from the cut than `reach` in the reference ranking keep their place
    there.
    """

    reach: Annotated[
        float, Doc("as a fraction of the ranking, to each side of the cut"), Limits(above=0, most=1)
    ] = 0.1
    band: Annotated[
        float,
        Doc('as a fraction of the ranking: edges this close to the cut after training are "at" it'),
        Limits(least=0),
    ] = 0.0025

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.band < self.reach, "band", f"below reach, which is {self.reach}")

    @property
    def max_cells(self) -> int:
        return 10

    def borders(self, edges: int, reference: Reference) -> Int64:
        cut = dropped(edges, reference.keep)
        reach, band = int(self.reach * edges), int(self.band * edges)
        positions = np.array([cut - reach, cut - band, cut + band, cut + reach], np.int64)
        return positions.clip(0, edges)


def ranking_of_mask(mask: Mask) -> Ranking:
    """Return the ranking of all dropped, then all kept edges, both by edge number."""
    ranking: Ranking = {}
    for layer, kept in mask.items():
        above = np.cumsum(kept, dtype=np.int32)
        below = np.arange(1, kept.size + 1, dtype=np.int32) - above
        ranking[layer] = np.where(kept, below[-1] + above, below) - np.int32(1)
    return ranking


class _TwoSides(Coarse):
    """Whether each edge is dropped or kept."""

    def borders(self, edges: int, reference: Reference) -> Int64:
        return np.array([0, dropped(edges, reference.keep), edges], np.int64)


def encode_mask(mask: Mask, reference: Reference) -> bytes:
    """Return a mask as bytes; it keeps the fraction `reference.keep` of every layer.

    Where only a mask is known at both ends, `ranking_of_mask` makes a reference of it.
    """
    return _TwoSides().encode(ranking_of_mask(mask), reference)


def decode_mask(raw: bytes | memoryview, reference: Reference) -> Mask:
    """Return the decoded mask, or raise `WireError`."""
    return mask_layers(_TwoSides().decode(raw, reference), reference.keep)


BALLOTS: Mapping[str, type[Ballot]] = {
    "exact": Exact,
    "buckets": Buckets,
    "moves": Moves,
    "boundary": Boundary,
}

__all__ = [
    "BALLOTS",
    "Ballot",
    "Boundary",
    "Buckets",
    "Exact",
    "Moves",
    "Reference",
    "decode_mask",
    "encode_mask",
    "ranking_of_mask",
]
