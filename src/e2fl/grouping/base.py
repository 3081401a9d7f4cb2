"""How the group of a client is found. All variants of E2FL differ only in this."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from e2fl.data.federated import Client, ClientId, GroupId, Roll
from e2fl.errors import ConfigError
from e2fl.learning import Learner
from e2fl.ranking import Mask, Ranking


@dataclass(frozen=True)
class Grouping(ABC):
    """Groups are declared, or clustered by the server, or inferred by each client."""

    clusters: ClassVar[bool] = False  # the server clusters one ballot of every client, before round 1
    infers: ClassVar[bool] = False  # each client finds its group, from the masks of all groups

    @abstractmethod
    def count(self, roll: Roll) -> int:
        """How many groups there are."""

    def declared(self, roll: Roll) -> dict[ClientId, GroupId]:
        """The groups that the server knows from the start."""
        return {}

    def cluster(self, ballots: Mapping[ClientId, Ranking], count: int, seed: int) -> dict[ClientId, GroupId]:
        """The group of every client that sent a ballot; asked where `clusters`."""
        raise ConfigError(f"{type(self).__name__} does not cluster")

    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        """The group this client is in, as an index into `masks`; asked where `infers`."""
        raise ConfigError(f"{type(self).__name__} does not infer")
