"""Groups that are known: declared in the population, lying inside clients, or one for everybody."""

from dataclasses import dataclass

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import ConfigError
from e2fl.grouping.base import Grouping


@dataclass(frozen=True)
class KnownGroups(Grouping):
    """Each client declares its group, or the group of each of its examples."""

    def count(self, population: Population) -> int:
        if population.groups < 1:
            raise ConfigError(
                "this data declares no groups; choose a grouping that finds them, "
                "such as grouping = { name = 'lowest_loss', groups = 2 }"
            )
        return population.groups

    def declared(self, population: Population) -> dict[ClientId, GroupId]:
        return {client: group for client, group in population.declared.items() if group is not None}


@dataclass(frozen=True)
class OneGroup(Grouping):
    """Everybody is in one group."""

    def count(self, population: Population) -> int:
        return 1

    def declared(self, population: Population) -> dict[ClientId, GroupId]:
        return dict.fromkeys(population.declared, 0)
