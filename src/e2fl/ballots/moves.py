"""Ballots of moves: how far each edge moved, rounded."""

from dataclasses import dataclass

import numpy as np

from e2fl import compiled
from e2fl.ballots.base import Reference
from e2fl.ballots.coarse import Coarse, Plan
from e2fl.compiled import Int64, UInt8
from e2fl.errors import ConfigError, WireError
from e2fl.ranking import Ranks


@dataclass(frozen=True)
class MovesPlan(Plan):
    """How the moves of one layer are coded."""

    base: Ranks  # moves are counted from here when they are decoded
    steps: int

    @property
    def alphabet(self) -> int:
        return 2 * self.steps + 1

    def symbols(self, rank: Ranks) -> UInt8:
        return compiled.move_symbols(rank, self.reference, self.steps)

    def rank(self, symbols: UInt8) -> Ranks:
        try:
            return compiled.rank_of_moves(symbols, self.reference, self.base, self.steps)
        except ValueError as error:
            raise WireError(f"the ballot of layer '{self.layer}' is invalid: {error}") from None


@dataclass(frozen=True)
class Moves(Coarse):
    """By how many steps of 1 / `steps` of the ranking each edge moved, rounded to the nearest.

    Small moves are rounded to none, larger ones by at most half a step, wherever an edge stands; a bucket tells only
    which borders were crossed. The server adds the moves to `Reference.base`, the ranking it elected, so what was
    rounded away in the broadcast is not lost.
    """

    steps: int = 24  # in the whole ranking; more steps: finer and more bits

    def __post_init__(self) -> None:
        if not 2 <= self.steps <= 127:
            raise ConfigError(f"ballot.steps must be 2 to 127, not {self.steps}")

    def borders(self, edges: int, reference: Reference) -> Int64:
        return np.array([0, edges], np.int64)

    def plan(self, layer: str, reference: Reference) -> Plan:
        plan = super().plan(layer, reference)
        base = plan.reference if reference.base is None else reference.base[layer]
        return MovesPlan(layer, plan.reference, plan.borders, plan.fan_in, base, self.steps)
