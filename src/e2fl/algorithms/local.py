"""Local: each client trains alone, on its own data only.

The baseline that tells who gains from a federation at all. Every client starts from the same initial weights and trains
once, for `epochs` epochs; clients take their turn in blocks of `clients_per_round`, so a run has as many rounds as
there are blocks, whatever was asked for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, everybody_gets, finite
from e2fl.data.federated import Client, ClientId, Population
from e2fl.errors import ConfigError
from e2fl.learning import Learner
from e2fl.models import Model
from e2fl.wire import Message, Nothing


@dataclass(frozen=True)
class Alone:
    """The server of a federation that is none."""


@dataclass(frozen=True)
class Local(Algorithm[Alone, Nothing, Nothing, Nothing]):
    epochs: int = 50

    down: ClassVar[type[Message]] = Nothing
    up: ClassVar[type[Message]] = Nothing
    served: ClassVar[type[Message]] = Nothing
    improves: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs < 1:
            raise ConfigError(f"algorithm.epochs must be at least 1, not {self.epochs}")

    def start(self, model: Model, population: Population, seed: int) -> Alone:
        return Alone()

    def rounds(self, asked: int, population: Population) -> int:
        return math.ceil(len(population) / self.clients_per_round)

    def select(self, state: Alone, population: Population, number: int, rng: np.random.Generator) -> list[ClientId]:
        return list(population.ids[(number - 1) * self.clients_per_round : number * self.clients_per_round])

    def broadcast(self, state: Alone, clients: Sequence[ClientId]) -> Mapping[ClientId, Nothing]:
        return everybody_gets(Nothing(), clients)

    def train(self, message: Nothing, client: Client, learner: Learner) -> Nothing:
        client.memory["own"] = finite(learner.fit(learner.initial, client.train, epochs=self.epochs))
        return message

    def aggregate(self, state: Alone, replies: Mapping[ClientId, Nothing]) -> Alone:
        return state

    def serve(self, state: Alone, clients: Sequence[ClientId]) -> Mapping[ClientId, Nothing]:
        return everybody_gets(Nothing(), clients)

    def model_for(self, message: Nothing, client: Client, learner: Learner) -> ClientModels:
        return ClientModels({"own": ClientModel(client.memory.get("own", learner.initial))})

    def welcome(self, state: Alone, client: Client, learner: Learner) -> ClientModels:
        self.train(Nothing(), client, learner)
        return super().welcome(state, client, learner)
