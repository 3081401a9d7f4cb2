"""McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017, Algorithm 1. No departures. `trim` is not in the paper: it takes the trimmed mean or
the median of every weight, after Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from typing_extensions import Doc

from e2fl.algorithms.base import GlobalModel, Shared, average
from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId
from e2fl.learning import Learner
from e2fl.models import Params
from e2fl.wire import Message, Weights


@dataclass(frozen=True)
class Update(Message):
    """A trained model, and the number of examples it was trained on."""

    params: Params
    examples: int


@dataclass(frozen=True)
class FedAvg(GlobalModel[Shared, Update]):
    """FedAvg: clients train copies of one model, the server averages them."""

    weighted: Annotated[
        bool, Doc("by the number of examples; false, or with trim: all clients count the same")
    ] = True
    trim: Annotated[
        float,
        Doc("share of clients dropped at each end of every weight; 0: mean, 0.5: median"),
        Limits(least=0, most=0.5),
    ] = 0.0

    def train(self, message: Weights, client: Client, learner: Learner) -> Update:
        return Update(learner.fit(message.params, client.train), len(client.train))

    def aggregate(self, state: Shared, replies: Mapping[ClientId, Update]) -> Shared:
        models = [reply.params for reply in replies.values()]
        if self.trim:
            return Shared(trimmed_mean(models, self.trim))
        weights = [reply.examples if self.weighted else 1 for reply in replies.values()]
        return Shared(average(models, weights))


def trimmed_mean(models: Sequence[Params], trim: float) -> Params:
    """Return the mean of every weight without this share at each end; 0.5: the median."""
    cut = min(int(trim * len(models) + 1e-9), (len(models) - 1) // 2)
    mean: Params = {}
    for name in models[0]:
        values = np.sort(np.stack([params[name].numpy() for params in models]), axis=0)
        middle = values[cut : len(models) - cut].astype(np.float64)
        mean[name] = torch.from_numpy(middle.mean(axis=0).astype(np.float32))
    return mean
