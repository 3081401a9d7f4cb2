"""Boundary ballots: only edges near the cut change places."""

from dataclasses import dataclass

import numpy as np

from e2fl.ballots.base import Reference
from e2fl.ballots.coarse import Coarse
from e2fl.compiled import Int64
from e2fl.errors import ConfigError
from e2fl.ranking import dropped


@dataclass(frozen=True)
class Boundary(Coarse):
    """For each edge near the cut between dropped and kept edges: whether it is below, at or above the cut.

    Edges that are further from the cut than `reach` in the reference ranking keep their place there.
    """

    reach: float = 0.1  # as a fraction of the ranking, to each side of the cut
    band: float = 0.0025  # as a fraction of the ranking: edges this close to the cut after training are "at" it

    def __post_init__(self) -> None:
        if not 0 <= self.band < self.reach <= 1:
            raise ConfigError(
                f"a boundary ballot needs 0 <= band < reach <= 1, not band {self.band} and reach {self.reach}"
            )

    @property
    def most_cells(self) -> int:
        return 10

    def borders(self, edges: int, reference: Reference) -> Int64:
        cut = dropped(edges, reference.keep)
        reach, band = int(self.reach * edges), int(self.band * edges)
        return np.clip([cut - reach, cut - band, cut + band, cut + reach], 0, edges).astype(np.int64)
