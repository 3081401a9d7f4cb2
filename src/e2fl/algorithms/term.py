"""TERM: the mean of the clients' models, tilted towards those with a high loss.

Li et al., "Tilted Empirical Risk Minimization", ICLR 2021; here the tilt is over clients, once a round.
Departure: the paper tilts gradients; this tilts whole local updates, as federated averaging does. `tilt = 0` is the
plain mean, a large tilt follows the worst client, a negative one leaves outliers aside.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, average, everybody_gets, refuse_no_loss
from e2fl.algorithms.fedavg import Shared
from e2fl.data.federated import Client, ClientId, Population
from e2fl.errors import ConfigError
from e2fl.learning import Learner
from e2fl.models import Model, Params
from e2fl.wire import Message, Weights


@dataclass(frozen=True)
class Graded(Message):
    """A trained model, and the loss of the model it was trained from."""

    params: Params
    loss: float


@dataclass(frozen=True)
class TERM(Algorithm[Shared, Weights, Graded, Weights]):
    tilt: float = 1.0  # tau in the paper

    down: ClassVar[type[Message]] = Weights
    up: ClassVar[type[Message]] = Graded
    served: ClassVar[type[Message]] = Weights

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.tilt):
            raise ConfigError(f"algorithm.tilt must be a finite number, not {self.tilt}")

    def start(self, model: Model, population: Population, seed: int) -> Shared:
        return Shared(model.initial_weights(seed))

    def broadcast(self, state: Shared, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return everybody_gets(Weights(state.params), clients)

    def train(self, message: Weights, client: Client, learner: Learner) -> Graded:
        loss = learner.loss(message.params, client.train)
        return Graded(learner.fit(message.params, client.train), loss)

    def check(self, state: Shared, client: ClientId, reply: Graded) -> None:
        refuse_no_loss(reply.loss)
        refuse_no_loss(abs(self.tilt) * reply.loss)

    def aggregate(self, state: Shared, replies: Mapping[ClientId, Graded]) -> Shared:
        kept = [reply for reply in replies.values() if math.isfinite(reply.loss)]
        if not kept:
            return state
        tilted = [self.tilt * reply.loss for reply in kept]
        highest = max(tilted)  # subtracted, so that no exponential overflows
        return Shared(average([reply.params for reply in kept], [math.exp(value - highest) for value in tilted]))

    def serve(self, state: Shared, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return everybody_gets(Weights(state.params), clients)

    def models(self, state: Shared) -> Mapping[str, Params]:
        return {"global": state.params}

    def model_for(self, message: Weights, client: Client, learner: Learner) -> ClientModels:
        return ClientModels({"global": ClientModel(message.params)})
