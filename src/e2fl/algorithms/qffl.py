"""q-FFL: clients with a high loss pull harder, so that accuracy is spread more evenly.

Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2 (q-FedAvg).
Departures: clients are drawn evenly, as in every other algorithm here, not by their number of examples; a tiny constant
keeps a loss of 0 from being raised to a negative power; a step that is not a finite number is not taken, and counted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, everybody_gets, is_finite, refuse_no_loss
from e2fl.data.federated import Client, ClientId, Population
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
class Stepped:
    """One model for all, and how many steps were not taken."""

    params: Params
    skipped: int = 0


@dataclass(frozen=True)
class QFFL(Algorithm[Stepped, Weights, Step, Weights]):
    q: float = 0.1  # 0 is the plain mean; the larger, the more the clients with high loss decide

    down: ClassVar[type[Message]] = Weights
    up: ClassVar[type[Message]] = Step
    served: ClassVar[type[Message]] = Weights

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.q) and self.q >= 0):
            raise ConfigError(f"algorithm.q must be 0 or more, not {self.q}")

    def start(self, model: Model, population: Population, seed: int) -> Stepped:
        return Stepped(model.initial_weights(seed))

    def broadcast(self, state: Stepped, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return everybody_gets(Weights(state.params), clients)

    def train(self, message: Weights, client: Client, learner: Learner) -> Step:
        loss = learner.loss(message.params, client.train)
        return Step(learner.fit(message.params, client.train), loss, learner.rate)

    def check(self, state: Stepped, client: ClientId, reply: Step) -> None:
        refuse_no_loss(reply.loss)
        if not (math.isfinite(reply.learning_rate) and reply.learning_rate > 0):
            raise WireError(f"a reply claims to be trained at the rate {reply.learning_rate}")

    def aggregate(self, state: Stepped, replies: Mapping[ClientId, Step]) -> Stepped:
        if not replies:
            return state
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
        # Losses to a high power are all 0, or too large to tell: there is no step to take.
        if math.isfinite(h) and h > 0:
            stepped = {name: (value - delta[name] / h).float() for name, value in w.items()}
            if is_finite(stepped):
                return replace(state, params=stepped)
        return replace(state, skipped=state.skipped + 1)

    def serve(self, state: Stepped, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return everybody_gets(Weights(state.params), clients)

    def models(self, state: Stepped) -> Mapping[str, Params]:
        return {"global": state.params}

    def notes(self, state: Stepped) -> Mapping[str, Any]:
        return {"steps_not_taken": state.skipped}

    def model_for(self, message: Weights, client: Client, learner: Learner) -> ClientModels:
        return ClientModels({"global": ClientModel(message.params)})


def _power(base: float, exponent: float) -> float:
    """A power that is infinite where it is too large to tell."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf
