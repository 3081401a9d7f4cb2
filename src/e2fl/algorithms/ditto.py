"""Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
Algorithm 1 with FedAvg for the global model. Departures: the personal model is trained for as many
epochs as the global one; lambda is the same for all clients, not the best of several values on each
client's validation data.
"""

from dataclasses import dataclass, field
from typing import Annotated

from typing_extensions import Doc

from e2fl.algorithms.base import ClientModel, ClientModels, Shared, require_finite
from e2fl.algorithms.fedavg import FedAvg, Update
from e2fl.construct import Limits
from e2fl.data.federated import Client
from e2fl.learning import Learner
from e2fl.wire import Weights


@dataclass(frozen=True)
class Ditto(FedAvg):
    """Ditto: each client keeps a personal model, kept close to the global one."""

    finetune_epochs: int = field(default=0, init=False)  # its models are personal already
    # The personal model diverges if learning rate times proximal is well above 1, because each step
    # then overshoots.
    proximal: Annotated[
        float,
        Doc("lambda in the paper: 0 trains alone; a large value stays close to the global model"),
        Limits(least=0),
    ] = 1.0

    def train(self, message: Weights, client: Client, learner: Learner) -> Update:
        personal = learner.fit(
            client.memory.get("own", message.params),
            client.train,
            toward=message.params,
            proximal=self.proximal,
            purpose="batches of the own model",
        )
        client.memory["own"] = require_finite(personal)
        return super().train(message, client, learner)

    def model_for(self, message: Weights, client: Client, learner: Learner) -> ClientModels:
        global_model = ClientModel(message.params)
        personal = ClientModel(client.memory["own"]) if "own" in client.memory else global_model
        return ClientModels({"own": personal, "global": global_model})

    def for_unseen(self, state: Shared, client: Client, learner: Learner) -> ClientModels:
        self.train(self.broadcast(state, [client.id])[client.id], client, learner)
        return super().for_unseen(state, client, learner)
