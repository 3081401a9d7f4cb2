"""Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2 (q-FedAvg).
Departures: clients are drawn uniformly, as in every other algorithm here, not in proportion to
their examples; a tiny constant keeps a loss of 0 from being raised to a negative power; a step that
is not finite is skipped and counted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from typing_extensions import Doc

from e2fl.algorithms.base import Description, GlobalModel, Shared, squared_norm
from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId
from e2fl.learning import Learner
from e2fl.models import Params, is_finite
from e2fl.wire import Message, Weights

TINY = 1e-10


@dataclass(frozen=True)
class QFFLReply(Message, wire_name="Step"):
    """A trained model, the loss of the model that training started from, and the learning rate."""

    params: Params
    loss: float
    learning_rate: float


@dataclass(frozen=True)
class QFFLState(Shared):
    """One model for all clients, and how many steps were skipped."""

    skipped: int = 0


@dataclass(frozen=True)
class QFFL(GlobalModel[QFFLState, QFFLReply]):
    """q-FFL: clients with a high loss get more weight, so that accuracy is spread more evenly."""

    title = "q-FFL"

    q: Annotated[
        float,
        Doc("0 is the plain mean; larger values give clients with a high loss more weight"),
        Limits(least=0),
    ] = 0.1

    def train(self, message: Weights, client: Client, learner: Learner) -> QFFLReply:
        loss = learner.loss(message.params, client.train)
        return QFFLReply(learner.fit(message.params, client.train), loss, learner.rate)

    def aggregate(self, state: QFFLState, replies: Mapping[ClientId, QFFLReply]) -> QFFLState:
        w = {name: value.double() for name, value in state.params.items()}
        delta = {name: torch.zeros_like(value) for name, value in w.items()}
        h = 0.0
        for reply in replies.values():
            lipschitz = 1 / reply.learning_rate  # as the paper estimates it
            loss = reply.loss + TINY
            weight = _power(loss, self.q)
            dw = {name: lipschitz * (w[name] - value) for name, value in reply.params.items()}
            for name in delta:
                delta[name] += weight * dw[name]
            h += self.q * _power(loss, self.q - 1) * squared_norm(dw) + lipschitz * weight
        # High powers of the losses underflow to 0 or overflow: there is no step to take.
        if math.isfinite(h) and h > 0:
            stepped = {name: (value - delta[name] / h).float() for name, value in w.items()}
            if is_finite(stepped):
                return replace(state, params=stepped)
        return replace(state, skipped=state.skipped + 1)

    def describe(self, state: QFFLState) -> Description:
        return replace(super().describe(state), metadata={"steps_not_taken": state.skipped})


def _power(base: float, exponent: float) -> float:
    """Return a power, infinite where it overflows."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf
