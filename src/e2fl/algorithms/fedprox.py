"""Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2.
Departures: every client trains for the same number of epochs, so there are no stragglers with
partial work; clients are drawn uniformly, and models are averaged by examples as in FedAvg.
"""

from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc

from e2fl.algorithms.fedavg import FedAvg, Update
from e2fl.construct import Limits
from e2fl.data.federated import Client
from e2fl.learning import Learner
from e2fl.wire import Weights


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedProx: FedAvg with local models that are kept close to the global one."""

    proximal: Annotated[
        float,
        Doc("mu in the paper: weight of the distance to the global model; 0 is FedAvg"),
        Limits(least=0),
    ] = 0.1

    def train(self, message: Weights, client: Client, learner: Learner) -> Update:
        trained = learner.fit(
            message.params, client.train, toward=message.params, proximal=self.proximal
        )
        return Update(trained, len(client.train))
