"""E2FL steady, the recommended variant of E2FL."""

from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from e2fl.algorithms.e2fl import E2FL
from e2fl.participation import StratifiedSampling


@dataclass(frozen=True)
class SteadyE2FL(E2FL):
    """E2FL as we recommend it: every group takes part in every round, and averages over rounds are
    served.

    It changes two things in the paper's algorithm, both on the server. `participation` reserves a
    seat for every group in every round, and `smoothing` averages out the noise of group votes with
    only one to three ballots. docs/paper/studies.md measures both.
    """

    title = "E2FL steady"

    smoothing: Annotated[float, Doc("weight of the ranking served before; 0: the paper")] = 5.0

    participation = StratifiedSampling()
