"""Ballots of moves: how far each edge moved, rounded."""

from dataclasses import dataclass

import numpy as np

from e2fl import compiled
from e2fl.ballots.base import Reference
from e2fl.ballots.coarse import Coarse, Plan
from e2fl.compiled import Int64, UInt8
from e2fl.errors import ConfigError, WireError
from e2fl.ranking import Ranks, dropped


@dataclass(frozen=True)
class MovesPlan(Plan):
    """How the moves of one layer are coded."""

    base: Ranks  # moves are counted from here when they are decoded
    steps: int
    finer: int
    near: tuple[int, int]  # the first place with finer steps, and the first one after it with whole steps

    @property
    def alphabet(self) -> int:
        return 2 * self.steps * self.finer + 1

    def symbols(self, rank: Ranks) -> UInt8:
        return compiled.move_symbols(rank, self.reference, self.steps, self.finer, *self.near)

    def rank(self, symbols: UInt8) -> Ranks:
        try:
            return compiled.rank_of_moves(symbols, self.reference, self.base, self.steps, self.finer, *self.near)
        except ValueError as error:
            raise WireError(f"the ballot of layer '{self.layer}' is invalid: {error}") from None


@dataclass(frozen=True)
class Moves(Coarse):
    """By how many steps of 1 / `steps` of the ranking each edge moved, rounded to the nearest.

    The rounding error is at most half a step for every edge; a bucket only tells which borders were crossed. Steps are
    `finer` times as small for edges that the broadcast has near the cut between dropped and kept edges, where small
    moves change the mask. The server adds the moves to `Reference.base`, the ranking it elected, so what was rounded
    away in the broadcast is not lost.
    """

    steps: int = 16  # in the whole ranking; more steps: finer and more bits
    finer: int = 4  # times as many steps near the cut
    near: float = 0.1  # as a fraction of the ranking, to each side of the cut

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
            layer, plan.reference, plan.borders, plan.fan_in, plan.most_cells, base, self.steps, self.finer, near
        )
