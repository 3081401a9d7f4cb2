"""Groups that clients infer: each client chooses, in every round, the group that fits its own data.

The server sends the masks of all groups. A group that has not voted yet has a random ranking of its
own, so that the groups differ from the first round on, as in IFCA; such a ranking never votes. With
`warm`, the server clusters the ballots of the first round instead, since clients can only guess
among random masks.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from typing_extensions import Doc

from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError
from e2fl.grouping.base import (
    BallotsByGroup,
    ExamplesByGroup,
    Grouping,
    Membership,
    Replies,
    require_count,
    require_group,
)
from e2fl.grouping.rank_clustering import RankClustering, first_rankings
from e2fl.learning import Learner
from e2fl.models import Model
from e2fl.rankings.messages import Invitation
from e2fl.rankings.order import Mask, Ranking


@dataclass(frozen=True)
class InferredGroups(Grouping):
    """Each client infers its group; a subclass defines the rule as `find`."""

    groups: int = 2
    warm: Annotated[
        bool, Doc("cluster the ballots of the first round, where clients could only guess")
    ] = False

    @abstractmethod
    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        """Return the group of this client, as an index into `masks`."""

    def begin(self, model: Model, population: Population, seed: int) -> Membership:
        require_count(self.groups, population, "algorithm.grouping.groups")
        starts = {
            group: model.random_ranking(seed, "start of a group", group)
            for group in range(self.groups)
        }
        return Membership(self.groups, {}, found=True, seed=seed, starts=starts)

    def invite(
        self,
        membership: Membership,
        clients: Sequence[ClientId],
        ranking: Ranking,
        mask_of: Callable[[GroupId], Mask],
    ) -> Mapping[ClientId, Invitation]:
        masks = tuple(mask_of(group) for group in range(membership.groups))
        return dict.fromkeys(clients, Invitation(ranking, masks))

    def check_group(self, membership: Membership, client: ClientId, group: GroupId) -> None:
        require_group(group, membership)

    def sort(self, membership: Membership, replies: Replies) -> tuple[Membership, BallotsByGroup]:
        if self.warm and replies and not membership.assignments:
            clustering = RankClustering(groups=membership.groups)
            chosen = clustering.cluster(
                first_rankings(replies), membership.groups, membership.seed
            ).assignments
        else:
            chosen = {client: reply.groups[0] for client, reply in replies.items()}
        return super().sort(
            replace(membership, assignments=membership.assignments | chosen), replies
        )

    def offer(self, membership: Membership, client: ClientId) -> tuple[GroupId, ...]:
        return tuple(range(membership.groups))

    def most_masks(self) -> int:
        return self.groups

    def examples_by_group(
        self, masks: Sequence[Mask], client: Client, learner: Learner
    ) -> ExamplesByGroup:
        return [(self._found(masks, client, learner), client.train)]

    def own_group(
        self, groups: Sequence[GroupId], masks: Sequence[Mask], client: Client, learner: Learner
    ) -> GroupId | None:
        return groups[self._found(masks, client, learner)]

    def _found(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        """Return the result of `find`, or raise an error if it is not an index into `masks`."""
        found: object = self.find(masks, client, learner)
        if (
            isinstance(found, bool)
            or not isinstance(found, int | np.integer)
            or not 0 <= found < len(masks)
        ):
            raise ConfigError(
                f"{type(self).__name__}.find returned {found!r}; it must return an index into masks, 0 to "
                f"{len(masks) - 1}"
            )
        return int(found)
