"""Known groups: declared by clients or for each example, or one group for all."""

from collections.abc import Sequence
from dataclasses import dataclass

from e2fl.data.federated import Client, GroupId, Population
from e2fl.errors import ConfigError
from e2fl.evaluation import NO_GROUP
from e2fl.grouping.base import ExamplesByGroup, Grouping, Membership
from e2fl.learning import Learner
from e2fl.models import Model
from e2fl.rankings.order import Mask


@dataclass(frozen=True)
class KnownGroups(Grouping):
    """Each client declares its group, or the group of each of its examples."""

    def begin(self, model: Model, population: Population, seed: int) -> Membership:
        if population.groups < 1:
            raise ConfigError(
                "this data declares no groups; count them with `e2fl groups` and let clients find "
                "them: algorithm = { name = 'e2fl_steady', absent = 'members', own_vote = [0.33, "
                "1], grouping = { name = 'lowest_loss', groups = 2, clustered = 10 } }"
            )
        declared = dict(population.declared_groups)
        return Membership(population.groups, declared, inside=not declared)

    def examples_by_group(
        self, masks: Sequence[Mask], client: Client, learner: Learner
    ) -> ExamplesByGroup:
        if client.train.group is None:
            return [(NO_GROUP, client.train)]
        return [(group, client.train.of_group(group)) for group in client.groups()]

    def own_group(
        self, groups: Sequence[GroupId], masks: Sequence[Mask], client: Client, learner: Learner
    ) -> GroupId | None:
        if len(groups) > 1 and client.group in groups:
            return client.group
        return super().own_group(groups, masks, client, learner)


@dataclass(frozen=True)
class OneGroup(Grouping):
    """All clients are in one group."""

    def begin(self, model: Model, population: Population, seed: int) -> Membership:
        return Membership(1, dict.fromkeys(population.declared, 0))
