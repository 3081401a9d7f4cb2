"""Mozaffari et al., "Every Vote Counts: Ranking-Based Training of Federated Learning to Resist
Poisoning Attacks", USENIX Security 2023. Departures: those of E2FL.
"""

from dataclasses import dataclass, field
from typing import Literal

from e2fl.algorithms.e2fl import E2FL
from e2fl.grouping import Grouping, OneGroup


@dataclass(frozen=True)
class FRL(E2FL):
    """E2FL with all clients in one group: a single flat vote."""

    grouping: Grouping = field(default_factory=OneGroup, init=False)
    absent: Literal["carry_forward"] = field(default="carry_forward", init=False)
    inside: Literal["each"] = field(default="each", init=False)
