"""FedAvg: clients train copies of one model, the server averages them.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
2017, Algorithm 1. No departures. `weighted = false` averages without regard to how much data a
client has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from typing_extensions import Doc

from e2fl.algorithms.base import GlobalModel, average, trimmed_mean
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
class Shared:
    """One model for all clients."""

    params: Params


@dataclass(frozen=True)
class FedAvg(GlobalModel[Shared, Update]):
    """FedAvg: clients train copies of one model, the server averages them.

    `weighted` averages in proportion to the clients' numbers of examples; otherwise all clients
    count the same. `trim` takes the trimmed mean or the median of every weight instead, after Yin
    et al., "Byzantine-Robust Distributed Learning", ICML 2018; then, too, all clients count the
    same.
    """

    title: ClassVar[str] = "FedAvg"
    paper: ClassVar[str] = "McMahan et al., AISTATS 2017"

    weighted: Annotated[bool, Doc("by the number of examples")] = True
    trim: Annotated[
        float,
        Doc("share of clients dropped at each end of every weight; 0: mean, 0.5: median"),
    ] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 <= self.trim <= 0.5, "trim", "0 to 0.5")

    def train(self, message: Weights, client: Client, learner: Learner) -> Update:
        return Update(learner.fit(message.params, client.train), len(client.train))

    def aggregate(self, state: Shared, replies: Mapping[ClientId, Update]) -> Shared:
        if not replies:
            return state
        if self.trim:
            return Shared(trimmed_mean([reply.params for reply in replies.values()], self.trim))
        weights = [reply.examples if self.weighted else 1 for reply in replies.values()]
        return Shared(average([reply.params for reply in replies.values()], weights))
