"""Masks as differences to a ranking or a mask that both ends know."""

from dataclasses import dataclass

import numpy as np

from e2fl.ballots.base import Reference
from e2fl.ballots.coarse import Coarse
from e2fl.compiled import Int64
from e2fl.ranking import Mask, Ranking, Ranks, dropped, mask_layers


def ranking_of_mask(mask: Mask) -> Ranking:
    """Return the ranking with all dropped edges first, then all kept ones, each in the order of edge numbers."""
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
