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
from e2fl.errors import ConfigError, WireError
from e2fl.kernels import Int64, UInt8
from e2fl.rankings.coder import CELLS, Ballot, Coarse, Plan, Reference
from e2fl.rankings.order import Mask, Ranking, Ranks, dropped, mask_layers

MOST = 256  # buckets: a symbol is a byte
CELLS_OF_BUCKET = 16  # at most
FEW_CELLS = 24  # where a table has more than 64 symbols


def bits_per_edge(edges: int) -> int:
    """Return the bits that number the edges of one layer: ceil(log2 edges)."""
    return (edges - 1).bit_length()


@dataclass(frozen=True)
class Exact(Ballot):
    """The order of the edges, lowest rank first, each edge number in ceil(log2 n) bits.

    Layers start at whole bytes.
    """

    def encode(self, ranking: Ranking, reference: Reference) -> bytes:
        parts = []
        for layer, known in reference.ranking.items():
            parts.append(
                kernels.pack_order_of_rank(ranking[layer], bits_per_edge(known.size)).tobytes()
            )
        return b"".join(parts)

    def decode(self, raw: bytes | memoryview, reference: Reference) -> Ranking:
        sizes = {
            name: (rank.size, bits_per_edge(rank.size)) for name, rank in reference.ranking.items()
        }
        expected = sum(kernels.packed_size(*size) for size in sizes.values())
        if len(raw) != expected:
            raise WireError(f"a ranking of this model takes {expected} bytes, not {len(raw)}")
        ranking: Ranking = {}
        for layer, (edges, bits) in sizes.items():
            size = kernels.packed_size(edges, bits)
            part, raw = raw[:size], raw[size:]
            try:
                ranking[layer] = kernels.unpack_rank(np.frombuffer(part, np.uint8), edges, bits)
            except ValueError as error:
                raise WireError(f"the ranking of layer '{layer}' is invalid: {error}") from None
        return ranking

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

    buckets: int = 16
    uneven: Annotated[
        tuple[float, ...],
        Doc("instead of equal buckets: the borders between them, as fractions of the ranking"),
    ] = ()
    finer: Annotated[
        int, Doc("times as many buckets near the cut between dropped and kept edges")
    ] = 1
    near: Annotated[float, Doc("as a fraction of the ranking, to each side of the cut")] = 0.1

    def __post_init__(self) -> None:
        if not 2 <= self.buckets <= MOST:
            raise ConfigError(f"buckets must be 2 to {MOST}, not {self.buckets}")
        if len(self.uneven) >= MOST:
            raise ConfigError(f"uneven takes at most {MOST - 1} borders, not {len(self.uneven)}")
        if self.uneven and self.buckets not in (Buckets.buckets, len(self.uneven) + 1):
            raise ConfigError(
                f"uneven has the borders of {len(self.uneven) + 1} buckets; "
                f"leave out buckets = {self.buckets}"
            )
        if self.finer < 1 or not 0 <= self.near <= 1:
            raise ConfigError(
                "finer must be at least 1 and near between 0 and 1, "
                f"not {self.finer} and {self.near}"
            )
        if self.finer > 1 and self.uneven:
            raise ConfigError("finer cannot be combined with uneven")
        if self.finer > 1 and self.buckets * (1 + 2 * self.near * (self.finer - 1)) > 254:
            raise ConfigError(
                f"buckets, finer and near make more than {MOST} buckets; lower one of them"
            )
        if not all(low < high for low, high in pairwise((0.0, *self.uneven, 1.0))):
            raise ConfigError(f"uneven must rise and lie between 0 and 1, not {list(self.uneven)}")

    @property
    def most_cells(self) -> int:
        if self.buckets > CELLS:
            return FEW_CELLS
        if self.uneven or self.finer > 1:
            return CELLS
        # A cell that lies in one bucket predicts better than one across a border.
        return self.buckets * min(CELLS // self.buckets, CELLS_OF_BUCKET)

    def borders(self, edges: int, reference: Reference) -> Int64:
        if self.uneven:
            inner = np.floor(np.array(self.uneven) * edges + 1e-9).astype(np.int64)
            return np.concatenate([[0], inner, [edges]]).astype(np.int64)
        if self.finer > 1:
            return self._finer_borders(edges, dropped(edges, reference.keep))
        borders: Int64 = -(-np.arange(self.buckets + 1, dtype=np.int64) * edges // self.buckets)
        return borders

    def _finer_borders(self, edges: int, cut: int) -> Int64:
        """Return the borders of all buckets, and near the cut those of the finer ones."""
        places = np.arange(self.buckets * self.finer + 1, dtype=np.int64)
        borders: Int64 = -(-places * edges // (self.buckets * self.finer))
        kept: Int64 = borders[
            (places % self.finer == 0) | (np.abs(borders - cut) <= self.near * edges)
        ]
        # In a layer of few edges, many borders fall on the same place.
        return kept if kept.size <= MOST + 1 else np.unique(kept)


@dataclass(frozen=True)
class MovesPlan(Plan):
    """How the moves of one layer are coded."""

    base: Ranks  # moves are counted from here when they are decoded
    steps: int
    finer: int
    # The first place with finer steps, and the first one after it with whole steps.
    near: tuple[int, int]

    @property
    def alphabet(self) -> int:
        return 2 * self.steps * self.finer + 1

    def symbols(self, rank: Ranks) -> UInt8:
        return kernels.move_symbols(rank, self.reference, self.steps, self.finer, *self.near)

    def rank(self, symbols: UInt8) -> Ranks:
        try:
            return kernels.rank_of_moves(
                symbols, self.reference, self.base, self.steps, self.finer, *self.near
            )
        except ValueError as error:
            raise WireError(f"the ballot of layer '{self.layer}' is invalid: {error}") from None


@dataclass(frozen=True)
class Moves(Coarse):
    """By how many steps of 1 / `steps` of the ranking each edge moved, rounded to the nearest.

    The rounding error is at most half a step for every edge; a bucket only tells which borders were
    crossed. Steps are `finer` times as small for edges that the broadcast has near the cut between
    dropped and kept edges, where small moves change the mask. The server adds the moves to
    `Reference.base`, the ranking it elected, so what was rounded away in the broadcast is not lost.
    """

    steps: Annotated[int, Doc("in the whole ranking; more steps: finer and more bits")] = 16
    finer: Annotated[int, Doc("times as many steps near the cut")] = 4
    near: Annotated[float, Doc("as a fraction of the ranking, to each side of the cut")] = 0.1

    def __post_init__(self) -> None:
        if self.steps < 2 or self.finer < 1 or self.steps * self.finer > 127:
            raise ConfigError(
                "steps must be at least 2, finer at least 1, and their product at most 127, "
                f"not {self.steps} and {self.finer}"
            )
        if not 0 <= self.near <= 1:
            raise ConfigError(f"near must be between 0 and 1, not {self.near}")

    @property
    def most_cells(self) -> int:
        return 32

    def borders(self, edges: int, reference: Reference) -> Int64:
        return np.array([0, edges], np.int64)

    def plan(self, layer: str, reference: Reference) -> Plan:
        plan = super().plan(layer, reference)
        base = plan.reference if reference.base is None else reference.base[layer]
        cut, reach = dropped(plan.size, reference.keep), int(self.near * plan.size)
        near = cut - reach, cut + reach
        return MovesPlan(
            layer,
            plan.reference,
            plan.borders,
            plan.fan_in,
            plan.most_cells,
            base,
            self.steps,
            self.finer,
            near,
        )


@dataclass(frozen=True)
class Boundary(Coarse):
    """For each edge near the cut between dropped and kept edges: whether it is below, at or above
    the cut.

    Edges that are further from the cut than `reach` in the reference ranking keep their place
    there.
    """

    reach: Annotated[float, Doc("as a fraction of the ranking, to each side of the cut")] = 0.1
    band: Annotated[
        float,
        Doc('as a fraction of the ranking: edges this close to the cut after training are "at" it'),
    ] = 0.0025

    def __post_init__(self) -> None:
        if not 0 <= self.band < self.reach <= 1:
            raise ConfigError(
                "a boundary ballot needs 0 <= band < reach <= 1, "
                f"not band {self.band} and reach {self.reach}"
            )

    @property
    def most_cells(self) -> int:
        return 10

    def borders(self, edges: int, reference: Reference) -> Int64:
        cut = dropped(edges, reference.keep)
        reach, band = int(self.reach * edges), int(self.band * edges)
        return np.clip([cut - reach, cut - band, cut + band, cut + reach], 0, edges).astype(
            np.int64
        )


def ranking_of_mask(mask: Mask) -> Ranking:
    """Return the ranking with all dropped edges first, then all kept ones, each in the order of
    edge numbers.
    """
    return {layer: _places(kept) for layer, kept in mask.items()}


def _places(kept: np.typing.NDArray[np.bool_]) -> Ranks:
    above = np.cumsum(kept, dtype=np.int32)
    below = np.arange(1, kept.size + 1, dtype=np.int32) - above
    return np.where(kept, below[-1] + above, below) - np.int32(1)


@dataclass(frozen=True)
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
    "bits_per_edge",
    "decode_mask",
    "encode_mask",
    "ranking_of_mask",
]
