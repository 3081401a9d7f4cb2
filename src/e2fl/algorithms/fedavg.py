"""FedAvg: clients train copies of one model, the server averages them.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, Algorithm 1.
No departures. `weighted = false` averages without regard to how much data a client has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, average, everybody_gets, refuse_no_examples
from e2fl.data.federated import Client, ClientId, Population
from e2fl.learning import Learner
from e2fl.models import Model, Params
from e2fl.wire import Message, Weights


@dataclass(frozen=True)
class Update(Message):
    """A trained model, and on how many examples."""

    params: Params
    examples: int


@dataclass(frozen=True)
class Shared:
    """One model for all."""

    params: Params


@dataclass(frozen=True)
class FedAvg(Algorithm[Shared, Weights, Update, Weights]):
    weighted: bool = True  # by the number of examples

    down: ClassVar[type[Message]] = Weights
    up: ClassVar[type[Message]] = Update
    served: ClassVar[type[Message]] = Weights

    def start(self, model: Model, population: Population, seed: int) -> Shared:
        return Shared(model.initial_weights(seed))

    def broadcast(self, state: Shared, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return everybody_gets(Weights(state.params), clients)

    def train(self, message: Weights, client: Client, learner: Learner) -> Update:
        return Update(learner.fit(message.params, client.train), len(client.train))

    def check(self, state: Shared, client: ClientId, reply: Update) -> None:
        refuse_no_examples(reply.examples)

    def aggregate(self, state: Shared, replies: Mapping[ClientId, Update]) -> Shared:
        if not replies:
            return state
        weights = [reply.examples if self.weighted else 1 for reply in replies.values()]
        return Shared(average([reply.params for reply in replies.values()], weights))

    def serve(self, state: Shared, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return everybody_gets(Weights(state.params), clients)

    def models(self, state: Shared) -> Mapping[str, Params]:
        return {"global": state.params}

    def model_for(self, message: Weights, client: Client, learner: Learner) -> ClientModels:
        return ClientModels({"global": ClientModel(message.params)})
