"""Ditto: each client keeps a model of its own, held near the shared one.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1 with FedAvg for
the shared model. Departures: the personal model is trained for as many epochs as the shared one; the pull is one number
for all clients, not the best of several on each client's held-out data.
"""

import math
from dataclasses import dataclass

from e2fl.algorithms.base import ClientModel, ClientModels, finite
from e2fl.algorithms.fedavg import FedAvg, Shared, Update
from e2fl.data.federated import Client
from e2fl.errors import ConfigError
from e2fl.learning import Learner
from e2fl.wire import Weights


@dataclass(frozen=True)
class Ditto(FedAvg):
    # Lambda in the paper: 0 is training alone; large stays near the shared model, as long as learning rate x pull stays
    # below 1. Far above, each step overshoots by more than it mends, and the own model diverges.
    pull: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.pull) and self.pull >= 0):
            raise ConfigError(f"algorithm.pull must be 0 or more, not {self.pull}")

    def train(self, message: Weights, client: Client, learner: Learner) -> Update:
        own = client.memory.get("own", message.params)
        client.memory["own"] = finite(
            learner.fit(own, client.train, toward=message.params, pull=self.pull, purpose="batches of the own model")
        )
        return super().train(message, client, learner)

    def model_for(self, message: Weights, client: Client, learner: Learner) -> ClientModels:
        shared = ClientModel(message.params)
        own = client.memory.get("own")
        return ClientModels({"own": shared if own is None else ClientModel(own), "global": shared})

    def welcome(self, state: Shared, client: Client, learner: Learner) -> ClientModels:
        self.train(self.broadcast(state, [client.id])[client.id], client, learner)
        return super().welcome(state, client, learner)
