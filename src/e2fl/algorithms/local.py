"""The baseline that shows which clients gain from a federation at all. Every client starts from the
same initial weights and trains once, for `epochs` epochs. Clients take turns in blocks of
`clients_per_round`, so a run has as many rounds as there are blocks: the setting `rounds` does not
apply, and `epochs` is the training budget of a client. Nor does `participation` apply, since
training alone needs no server.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, require_finite
from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId, Population
from e2fl.learning import Learner
from e2fl.models import Model
from e2fl.participation import Ask, Draw
from e2fl.wire import Nothing


@dataclass(frozen=True)
class NoState:
    """An empty state: the server keeps nothing."""


@dataclass(frozen=True)
class Local(Algorithm[NoState, Nothing, Nothing, Nothing]):
    """Local: each client trains alone, on its own data only."""

    epochs: Annotated[int, Doc("of each client, in its single training"), Limits(least=1)] = 50

    def start(self, model: Model, population: Population, seed: int) -> NoState:
        return NoState()

    def rounds(self, asked: int, population: Population) -> int:
        return math.ceil(len(population) / self.clients_per_round)

    def ask(
        self, state: NoState, population: Population, round_number: int, last: int, draw: Draw
    ) -> Ask:
        first = max(0, round_number - 1) * self.clients_per_round
        return Ask(population.ids[first : first + self.clients_per_round], evaluate=False)

    def broadcast(self, state: NoState, clients: Sequence[ClientId]) -> Mapping[ClientId, Nothing]:
        return dict.fromkeys(clients, Nothing())

    def train(self, message: Nothing, client: Client, learner: Learner) -> Nothing:
        trained = learner.fit(learner.initial, client.train, epochs=self.epochs)
        client.memory["own"] = require_finite(trained)
        return message

    def aggregate(self, state: NoState, replies: Mapping[ClientId, Nothing]) -> NoState:
        return state

    def serve(self, state: NoState, clients: Sequence[ClientId]) -> Mapping[ClientId, Nothing]:
        return dict.fromkeys(clients, Nothing())

    def model_for(self, message: Nothing, client: Client, learner: Learner) -> ClientModels:
        return ClientModels({"own": ClientModel(client.memory.get("own", learner.initial))})

    def for_unseen(self, state: NoState, client: Client, learner: Learner) -> ClientModels:
        self.train(Nothing(), client, learner)
        return super().for_unseen(state, client, learner)
