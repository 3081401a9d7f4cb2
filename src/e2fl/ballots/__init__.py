"""Ballots: formats for sending a ranking, from the paper's exact one to a tenth of a bit per edge (docs/ballots.md).

A ballot is encoded relative to a `Reference` that both ends know: the ranking that was broadcast. To add one, subclass
`Ballot` and add one line to `BALLOTS`.
"""

from collections.abc import Mapping

from e2fl.ballots.base import Ballot, Reference
from e2fl.ballots.boundary import Boundary
from e2fl.ballots.buckets import Buckets
from e2fl.ballots.exact import Exact
from e2fl.ballots.masks import decode_mask, encode_mask, ranking_of_mask
from e2fl.ballots.moves import Moves

BALLOTS: Mapping[str, type[Ballot]] = {"exact": Exact, "buckets": Buckets, "moves": Moves, "boundary": Boundary}

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
