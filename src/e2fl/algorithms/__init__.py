"""The algorithms.

To add one: write a subclass of `Algorithm` in a file of its own and one line in `ALGORITHMS`.
"""

from collections.abc import Mapping
from typing import Any

from e2fl.algorithms.aaggff import AAggFF
from e2fl.algorithms.afl import AFL
from e2fl.algorithms.base import (
    Algorithm,
    ClientModel,
    ClientModels,
    Description,
    Election,
    types_of,
)
from e2fl.algorithms.ditto import Ditto
from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.e2fl_steady import SteadyE2FL
from e2fl.algorithms.fairfed import FairFed
from e2fl.algorithms.fedavg import FedAvg
from e2fl.algorithms.fedfv import FedFV
from e2fl.algorithms.fedmgda import FedMGDA
from e2fl.algorithms.fedpm import FedPM
from e2fl.algorithms.fedprox import FedProx
from e2fl.algorithms.frl import FRL
from e2fl.algorithms.groupavg import GroupAvg
from e2fl.algorithms.ifca import IFCA
from e2fl.algorithms.local import Local
from e2fl.algorithms.propfair import PropFair
from e2fl.algorithms.qffl import QFFL
from e2fl.algorithms.term import TERM
from e2fl.grouping import GROUPINGS
from e2fl.rankings.ballots import BALLOTS
from e2fl.rankings.votes import VOTES

AnyAlgorithm = Algorithm[Any, Any, Any, Any]  # what the runtimes accept

ALGORITHMS: dict[str, type[AnyAlgorithm]] = {
    "local": Local,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "qffl": QFFL,
    "ifca": IFCA,
    "fairfed": FairFed,
    "ditto": Ditto,
    "afl": AFL,
    "term": TERM,
    "propfair": PropFair,
    "fedmgda": FedMGDA,
    "fedfv": FedFV,
    "aaggff": AAggFF,
    "groupavg": GroupAvg,
    "fedpm": FedPM,
    "frl": FRL,
    "e2fl": E2FL,
    "e2fl_steady": SteadyE2FL,
}

# Settings of algorithms that are sections of their own, such as grouping = { name = "known" }.
SECTION_REGISTRIES: dict[str, Mapping[str, type[Any]]] = {
    "grouping": GROUPINGS,
    "ballot": BALLOTS,
    "downlink": BALLOTS,
    "served": BALLOTS,
    "vote": VOTES,
}

__all__ = [
    "ALGORITHMS",
    "SECTION_REGISTRIES",
    "Algorithm",
    "AnyAlgorithm",
    "ClientModel",
    "ClientModels",
    "Description",
    "Election",
    "types_of",
]
