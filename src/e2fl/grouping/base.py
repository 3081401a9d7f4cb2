"""How the group of a client is found. All variants of E2FL differ only in this."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError
from e2fl.learning import Learner
from e2fl.models import ModelSpec
from e2fl.ranking import Mask, Ranking


@dataclass(frozen=True)
class Clustering:
    """What clustering found: who is in which group, what each group looks like, and figures about it."""

    assigned: dict[ClientId, GroupId]
    centroids: dict[GroupId, Ranking]  # of the layers, and the edges in them, that were looked at
    facts: dict[str, float | None]  # None: cannot be told


def refuse_count(count: int, population: Population, where: str) -> None:
    """There must be a group, and somebody for each."""
    if count < 1:
        raise ConfigError(f"{where} must be at least 1, not {count}")
    if count > len(population):
        raise ConfigError(f"{where} is {count}, but there are only {len(population)} clients")


@dataclass(frozen=True)
class Grouping(ABC):
    """Groups are declared, or clustered by the server, or inferred by each client."""

    clusters: ClassVar[bool] = False  # the server clusters one ballot of every client, before round 1
    infers: ClassVar[bool] = False  # each client finds its group, from the masks of all groups

    warm = False  # where a setting: the first ballots are clustered, where clients could only guess their group

    @abstractmethod
    def count(self, population: Population) -> int:
        """How many groups there are."""

    def declared(self, population: Population) -> dict[ClientId, GroupId]:
        """The groups that the server knows from the start."""
        return {}

    def reads(self, model: ModelSpec) -> ModelSpec:
        """The layers that clustering looks at; ballots that are only clustered need no others."""
        return model

    def cluster(self, ballots: Mapping[ClientId, Ranking], count: int, seed: int) -> Clustering:
        """The group of every client that sent a ballot; asked where `clusters`. Ballots are read one at a time."""
        raise ConfigError(f"{type(self).__name__} does not cluster")

    def nearest(self, ballot: Ranking, centroids: Mapping[GroupId, Ranking], seed: int) -> GroupId:
        """The group of a client whose ballot comes after the clustering; asked where `clusters`."""
        raise ConfigError(f"{type(self).__name__} does not cluster")

    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        """The group this client is in, as an index into `masks`; asked where `infers`."""
        raise ConfigError(f"{type(self).__name__} does not infer")


@dataclass(frozen=True)
class Inferring(Grouping):
    """Each client finds its own group, by a rule that a subclass gives as `find`."""

    groups: int = 2
    warm: bool = False  # cluster the ballots of the first round instead of letting clients choose among random masks

    infers: ClassVar[bool] = True

    def count(self, population: Population) -> int:
        refuse_count(self.groups, population, "algorithm.grouping.groups")
        return self.groups
