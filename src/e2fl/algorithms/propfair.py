"""Zhang et al., "Proportional Fairness in Federated Learning", TMLR 2023, Algorithm 1. Every batch
minimises -log(1 - loss / M), so that a client with a high loss has a larger gradient; where M -
loss is below a threshold, loss / M in its place, which keeps the logarithm defined. Departures:
clients are drawn uniformly, and the training loss in the history is the one that is minimised. The
loss was checked against the authors' code; its second form near M, loss / threshold, is left out.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from typing_extensions import Doc

from e2fl.algorithms.fedavg import FedAvg, Update
from e2fl.construct import Limits
from e2fl.data.federated import Client
from e2fl.learning import Learner
from e2fl.wire import Weights

THRESHOLD = 0.2  # epsilon in the paper


@dataclass(frozen=True)
class PropFair(FedAvg):
    """PropFair: FedAvg with a local loss that weighs relative gains of clients."""

    baseline: Annotated[
        float,
        Doc("M in the paper; a smaller one gives clients with a high loss more weight"),
        Limits(above=THRESHOLD),
    ] = 5.0  # the paper tries 2, 3 and 5

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of one batch."""
        mean = cross_entropy(outputs, labels)
        if float(mean.detach()) > self.baseline - THRESHOLD:
            return mean / self.baseline
        return -torch.log1p(-mean / self.baseline)

    def train(self, message: Weights, client: Client, learner: Learner) -> Update:
        trained = learner.fit(message.params, client.train, loss=self.loss)
        return Update(trained, len(client.train))
