"""TERM: the mean of the clients' models, tilted towards those with a high loss.

Li et al., "Tilted Empirical Risk Minimization", ICLR 2021; here the tilt is over clients, once a
round. Departure: the paper tilts gradients; this tilts whole local updates, as federated averaging
does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from typing_extensions import Doc

from e2fl.algorithms.base import GlobalModel, average
from e2fl.algorithms.fedavg import Shared
from e2fl.data.federated import Client, ClientId
from e2fl.errors import WireError
from e2fl.learning import Learner
from e2fl.models import Params
from e2fl.wire import Message, Weights


@dataclass(frozen=True)
class Graded(Message):
    """A trained model, and the loss of the model that training started from."""

    params: Params
    loss: float


@dataclass(frozen=True)
class TERM(GlobalModel[Shared, Graded]):
    """TERM: the mean of the clients' models, tilted towards those with a high loss.

    `tilt` says how far: 0 is the plain mean, a large value follows the worst client, a negative one
    ignores outliers.
    """

    title: ClassVar[str] = "TERM"
    paper: ClassVar[str] = "Li et al., ICLR 2021"

    tilt: Annotated[float, Doc("tau in the paper")] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(math.isfinite(self.tilt), "tilt", "a finite number")

    def train(self, message: Weights, client: Client, learner: Learner) -> Graded:
        loss = learner.loss(message.params, client.train)
        return Graded(learner.fit(message.params, client.train), loss)

    def check(self, state: Shared, client: ClientId, reply: Graded) -> Graded:
        if not math.isfinite(self.tilt * super().check(state, client, reply).loss):
            raise WireError(f"a reply claims a loss of {reply.loss}")
        return reply

    def aggregate(self, state: Shared, replies: Mapping[ClientId, Graded]) -> Shared:
        if not replies:
            return state
        tilted = [self.tilt * reply.loss for reply in replies.values()]
        highest = max(tilted)  # subtracted, so that no exponential overflows
        weights = [math.exp(value - highest) for value in tilted]
        return Shared(average([reply.params for reply in replies.values()], weights))
