"""Groups that are known: declared on the roll, lying inside clients, or one for everybody."""

from dataclasses import dataclass

from e2fl.data.federated import ClientId, GroupId, Roll
from e2fl.errors import ConfigError
from e2fl.grouping.base import Grouping


@dataclass(frozen=True)
class Known(Grouping):
    """Each client declares its group, or the group of each of its examples."""

    def count(self, roll: Roll) -> int:
        if roll.groups < 1:
            raise ConfigError(
                "this data declares no groups; choose a grouping that finds them, "
                "such as grouping = { name = 'lowest_loss', groups = 2 }"
            )
        return roll.groups

    def declared(self, roll: Roll) -> dict[ClientId, GroupId]:
        return {client: group for client, group in roll.declared.items() if group is not None}


@dataclass(frozen=True)
class One(Grouping):
    """Everybody is in one group."""

    def count(self, roll: Roll) -> int:
        return 1

    def declared(self, roll: Roll) -> dict[ClientId, GroupId]:
        return dict.fromkeys(roll.declared, 0)
