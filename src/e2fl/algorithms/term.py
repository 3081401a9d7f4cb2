"""Li et al., "Tilted Empirical Risk Minimization", ICLR 2021; here the tilt is over clients, once a
round. Departure: the paper tilts gradients; this tilts whole local updates, as federated averaging
does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from e2fl.algorithms.base import GlobalModelWithLoss, ModelAndLoss, Shared, average
from e2fl.construct import Limits
from e2fl.data.federated import ClientId
from e2fl.errors import WireError


@dataclass(frozen=True)
class TERM(GlobalModelWithLoss[Shared]):
    """TERM: the mean of the clients' models, tilted towards those with a high loss."""

    tilt: Annotated[
        float,
        Doc(
            "tau in the paper; 0: the mean; large: the worst client; negative: outliers count less"
        ),
        Limits(),
    ] = 1.0

    def check(self, state: Shared, client: ClientId, reply: ModelAndLoss) -> ModelAndLoss:
        if not math.isfinite(self.tilt * super().check(state, client, reply).loss):
            raise WireError(f"a reply claims a loss of {reply.loss}")
        return reply

    def aggregate(self, state: Shared, replies: Mapping[ClientId, ModelAndLoss]) -> Shared:
        tilted = [self.tilt * reply.loss for reply in replies.values()]
        highest = max(tilted)  # subtracted, so that no exponential overflows
        weights = [math.exp(value - highest) for value in tilted]
        return Shared(average([reply.params for reply in replies.values()], weights))
