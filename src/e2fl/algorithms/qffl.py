"""q-FFL: clients with a high loss pull harder, so that accuracy is spread more evenly.

Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2 (q-FedAvg).
Departures: clients are drawn evenly, as in every other algorithm here, not by their number of examples; a tiny constant
keeps a loss of 0 from being raised to a negative power; a step that is not a finite number is not taken.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from e2fl.algorithms.base import Algorithm, Use, Uses, everybody_gets, refuse_no_loss
from e2fl.algorithms.fedavg import Shared
from e2fl.data.federated import Client, ClientId, Roll
from e2fl.errors import ConfigError, WireError
from e2fl.learning import Learner
from e2fl.models import Model, Params
from e2fl.wire import Message, Weights

TINY = 1e-10


@dataclass(frozen=True)
class Step(Message):
    """A trained model, the loss of the model it was trained from, and at what rate."""

    params: Params
    loss: float
    learning_rate: float


@dataclass(frozen=True)
class QFFL(Algorithm[Shared, Weights, Step, Weights]):
    q: float = 0.1  # 0 is the plain mean; the larger, the more the clients with high loss decide

    down: ClassVar[type[Message]] = Weights
    up: ClassVar[type[Message]] = Step
    served: ClassVar[type[Message]] = Weights

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.q) and self.q >= 0):
            raise ConfigError(f"algorithm.q must be 0 or more, not {self.q}")

    def start(self, model: Model, roll: Roll, seed: int) -> Shared:
        return Shared(model.initial_weights(seed))

    def broadcast(self, state: Shared, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return everybody_gets(Weights(state.params), clients)

    def train(self, message: Weights, client: Client, learner: Learner) -> Step:
        loss = learner.loss(message.params, client.train)
        return Step(learner.fit(message.params, client.train), loss, learner.rate)

    def check(self, state: Shared, client: ClientId, reply: Step) -> None:
        refuse_no_loss(reply.loss)
        if not (math.isfinite(reply.learning_rate) and reply.learning_rate > 0):
            raise WireError(f"a reply claims to be trained at the rate {reply.learning_rate}")

    def aggregate(self, state: Shared, replies: Mapping[ClientId, Step]) -> Shared:
        w = {name: value.double() for name, value in state.params.items()}
        delta = {name: torch.zeros_like(value) for name, value in w.items()}
        h = 0.0
        for reply in replies.values():
            if not math.isfinite(reply.loss):
                continue
            steepness = 1 / reply.learning_rate  # L, the Lipschitz constant as the paper estimates it
            loss = reply.loss + TINY
            dw = {name: steepness * (w[name] - value.double()) for name, value in reply.params.items()}
            norm = sum(float(value.square().sum()) for value in dw.values())
            for name in delta:
                delta[name] += _power(loss, self.q) * dw[name]
            h += self.q * _power(loss, self.q - 1) * norm + steepness * _power(loss, self.q)
        if not math.isfinite(h) or h <= 0:
            return state
        stepped = {name: (value - delta[name] / h).float() for name, value in w.items()}
        return Shared(stepped) if all(value.isfinite().all() for value in stepped.values()) else state

    def serve(self, state: Shared, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return everybody_gets(Weights(state.params), clients)

    def models(self, state: Shared) -> Mapping[str, Params]:
        return {"global": state.params}

    def use(self, message: Weights, client: Client, learner: Learner) -> Uses:
        return Uses({"global": Use(message.params)})


def _power(base: float, exponent: float) -> float:
    """A power that is infinite where it is too large to tell."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf
