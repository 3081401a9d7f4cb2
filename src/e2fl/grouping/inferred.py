"""Groups that clients infer: each client chooses, in every round, the group that fits its own data.

The server sends the masks of all groups. A group that has not voted yet has a random ranking of its
own, so that the groups differ from the first round on, as in IFCA; such a ranking never votes.
Among random masks clients can only guess, so the server may form the first groups: with `warm` it
clusters the ballots of round 1; with `clustered` it clusters one ballot of every client before
round 1, as rank clustering does, and keeps these groups for some rounds.

`OneShot` and `Binary` take the mask that most reduces the output entropy of an even mixture of all
masks: the one with the most negative gradient of the entropy with respect to its share. No labels
are used. After Wortsman et al., "Supermasks in Superposition", NeurIPS 2020. The E2FL paper's
listing of the binary search is read with the sign that agrees with its one-shot rule, compares
surviving candidates only, and drops a fixed number of them each time, so that it terminates.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, cast

import numpy as np
from typing_extensions import Doc

from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError, require_setting
from e2fl.evaluation import NO_GROUP
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
from e2fl.models import Model, Params
from e2fl.participation import Ask
from e2fl.rankings.messages import Invitation
from e2fl.rankings.order import Mask, Ranking


@dataclass(frozen=True)
class InferredGroups(Grouping):
    """Each client infers its group; a subclass defines the rule as `find`."""

    groups: int = 2
    warm: Annotated[
        bool, Doc("cluster the ballots of the first round, where clients could only guess")
    ] = False
    clustered: Annotated[
        int,
        Doc("rounds in groups from rank clustering of all clients, before clients choose; 0: none"),
    ] = 0

    def __post_init__(self) -> None:
        rule = "0 or more rounds, and 0 with warm"
        allowed = self.clustered >= 0 and not (self.warm and self.clustered)
        require_setting(allowed, "algorithm.grouping.clustered", rule, self.clustered)

    @abstractmethod
    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        """Return the group of this client, as an index into `masks`."""

    def begin(self, model: Model, population: Population, seed: int) -> Membership:
        require_count(self.groups, population, "algorithm.grouping.groups")
        starts = {
            group: model.random_ranking(seed, "start of a group", group)
            for group in range(self.groups)
        }
        membership = Membership(self.groups, {}, found=True, seed=seed, starts=starts)
        clustering = self._placing(membership)
        origin = clustering.begin(model, population, seed).origin if clustering else {}
        return replace(membership, origin=origin)

    def _placing(self, membership: Membership) -> RankClustering | None:
        """Return the clustering that places clients in this round; None: they choose."""
        placed = membership.rounds < self.clustered
        return RankClustering(groups=self.groups) if placed else None

    def ask(self, membership: Membership, population: Population) -> Ask | None:
        clustering = self._placing(membership)
        return clustering.ask(membership, population) if clustering else None

    def ask_layers(self, membership: Membership) -> tuple[str, ...] | None:
        clustering = self._placing(membership)
        return clustering.ask_layers(membership) if clustering else None

    def start_for(self, membership: Membership, client: ClientId, ranking: Ranking) -> Ranking:
        clustering = self._placing(membership)
        return clustering.start_for(membership, client, ranking) if clustering else ranking

    def is_late(self, membership: Membership, client: ClientId) -> bool:
        clustering = self._placing(membership)
        return clustering is not None and clustering.is_late(membership, client)

    def invite(
        self,
        membership: Membership,
        clients: Sequence[ClientId],
        ranking: Ranking,
        mask_of: Callable[[GroupId], Mask],
    ) -> Mapping[ClientId, Invitation]:
        if clustering := self._placing(membership):
            return clustering.invite(membership, clients, ranking, mask_of)
        masks = tuple(mask_of(group) for group in range(membership.groups))
        return dict.fromkeys(clients, Invitation(ranking, masks))

    def check_group(self, membership: Membership, client: ClientId, group: GroupId) -> None:
        if clustering := self._placing(membership):
            clustering.check_group(membership, client, group)
        else:
            require_group(group, membership)

    def sort(self, membership: Membership, replies: Replies) -> tuple[Membership, BallotsByGroup]:
        if clustering := self._placing(membership):
            placed, by_group = clustering.sort(membership, replies)
            return replace(placed, rounds=membership.rounds + bool(by_group)), by_group
        if self.warm and replies and not membership.assignments:
            chosen = (
                RankClustering(groups=membership.groups)
                .cluster(first_rankings(replies), membership.groups, membership.seed)
                .assignments
            )
        else:
            chosen = {client: reply.groups[0] for client, reply in replies.items()}
        return super().sort(
            replace(membership, assignments=membership.assignments | chosen), replies
        )

    def offer(self, membership: Membership, client: ClientId) -> tuple[GroupId, ...]:
        return tuple(range(membership.groups))

    def needs_rankings(self) -> bool:
        return self.warm or self.clustered > 0

    def most_masks(self) -> int:
        return self.groups

    def examples_by_group(
        self, masks: Sequence[Mask], client: Client, learner: Learner
    ) -> ExamplesByGroup:
        # Without masks, the server knows the group.
        group = self._found(masks, client, learner) if masks else NO_GROUP
        return [(group, client.train)]

    def own_group(
        self, groups: Sequence[GroupId], masks: Sequence[Mask], client: Client, learner: Learner
    ) -> GroupId | None:
        return groups[self._found(masks, client, learner)]

    def _found(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        """Return the result of `find`, or raise an error if it is not an index into `masks`."""
        group: object = self.find(masks, client, learner)
        whole = isinstance(group, int | np.integer) and not isinstance(group, bool)
        if whole and group in range(len(masks)):
            return int(cast(int, group))
        raise ConfigError(
            f"{type(self).__name__}.find returned {group!r}; it must return an index into masks, "
            f"0 to {len(masks) - 1}"
        )


@dataclass(frozen=True)
class LowestLoss(InferredGroups):
    """Each client takes the group with the lowest loss on its training data: one forward pass per
    group.
    """

    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        return lowest_loss(masks, client, learner)[0]


def lowest_loss(
    models: Sequence[Params] | Sequence[Mask], client: Client, learner: Learner
) -> tuple[GroupId, float]:
    """Return the model with the lowest mean loss on this client's training data, and that loss.

    Ties go to the lower number. A loss of NaN counts as infinite.
    """
    losses = np.array([learner.loss(learner.weights_of(model), client.train) for model in models])
    learner.meter.grouping_passes += len(models)
    losses[np.isnan(losses)] = np.inf
    group = int(losses.argmin())
    return group, float(losses[group])


@dataclass(frozen=True)
class OneShot(InferredGroups):
    """Each client takes the group with the most negative entropy gradient: one forward and backward
    pass.
    """

    def needs_rankings(self) -> bool:
        return True

    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        return self.steepest(masks, client, learner)[0]

    def steepest(self, masks: Sequence[Mask], client: Client, learner: Learner) -> list[int]:
        """Return the masks in order of rising entropy gradient; NaN comes last."""
        slopes = learner.entropy_gradient(masks, client.train)
        learner.meter.grouping_passes += 1
        slopes[np.isnan(slopes)] = np.inf
        order: list[int] = np.argsort(slopes, kind="stable").tolist()
        return order


@dataclass(frozen=True)
class Binary(OneShot):
    """Each client drops the worse half of the groups until one is left: log2(groups) passes."""

    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        left = list(range(len(masks)))
        while len(left) > 1:
            order = self.steepest([masks[group] for group in left], client, learner)
            left = sorted(left[position] for position in order[: (len(left) + 1) // 2])
        return left[0]
