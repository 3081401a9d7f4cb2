"""Ballots of buckets: each edge's place, rounded."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from e2fl.ballots.base import Reference
from e2fl.ballots.coarse import CELLS, Coarse
from e2fl.compiled import Int64
from e2fl.errors import ConfigError
from e2fl.ranking import dropped

MOST = 256  # buckets: a symbol is a byte
CELLS_OF_BUCKET = 16  # at most
FEW_CELLS = 24  # where a table has more than 64 symbols


@dataclass(frozen=True)
class Buckets(Coarse):
    """Bucket floor(buckets * place / edges) of each edge; with at least as many buckets as edges, the exact ranking."""

    buckets: int = 16
    uneven: tuple[float, ...] = ()  # instead of equal buckets: the borders between them, as fractions of the ranking
    finer: int = 1  # times as many buckets near the cut between dropped and kept edges
    near: float = 0.1  # as a fraction of the ranking, to each side of the cut

    def __post_init__(self) -> None:
        if not 2 <= self.buckets <= MOST:
            raise ConfigError(f"buckets must be 2 to {MOST}, not {self.buckets}")
        if len(self.uneven) >= MOST:
            raise ConfigError(f"uneven takes at most {MOST - 1} borders, not {len(self.uneven)}")
        if self.uneven and self.buckets not in (Buckets.buckets, len(self.uneven) + 1):
            raise ConfigError(
                f"uneven has the borders of {len(self.uneven) + 1} buckets; leave out buckets = {self.buckets}"
            )
        if self.finer < 1 or not 0 <= self.near <= 1:
            raise ConfigError(f"finer must be at least 1 and near between 0 and 1, not {self.finer} and {self.near}")
        if self.finer > 1 and self.uneven:
            raise ConfigError("finer cannot be combined with uneven")
        if self.finer > 1 and self.buckets * (1 + 2 * self.near * (self.finer - 1)) > 254:
            raise ConfigError(f"buckets, finer and near make more than {MOST} buckets; lower one of them")
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
        kept: Int64 = borders[(places % self.finer == 0) | (np.abs(borders - cut) <= self.near * edges)]
        # In a layer of few edges, many borders fall on the same place.
        return kept if kept.size <= MOST + 1 else np.unique(kept)
