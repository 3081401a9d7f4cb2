"""Groups that clients infer: each client chooses, in every round, the group that fits its own data.

The server sends the masks of all groups. A group that has not voted yet has a random ranking of its
own, so that the groups differ from the first round on, as in IFCA; such a ranking never votes.
Among random masks clients can only guess. With `forced`, the first rounds are in groups of equal
size, drawn at random; with `clustered`, in groups that the server clusters from one ballot of every
client before round 1, as rank clustering does.

`OneShot` and `Binary` take the mask that most reduces the output entropy of an even mixture of all
masks: the one with the most negative gradient of the entropy with respect to its share. No labels
are used. After Wortsman et al., "Supermasks in Superposition", NeurIPS 2020. The E2FL paper's
listing of the binary search is read with the sign that agrees with its one-shot rule, compares
surviving candidates only, and drops a fixed number of them each time, so that it terminates.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, cast

import numpy as np
from typing_extensions import Doc

from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError
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
from e2fl.grouping.known import OneGroup
from e2fl.grouping.rank_clustering import RankClustering
from e2fl.learning import Learner
from e2fl.models import Model, Params
from e2fl.randomness import stream
from e2fl.rankings.order import Mask


@dataclass(frozen=True)
class InferredGroups(Grouping):
    """Each client infers its group; a subclass defines the rule as `find`."""

    groups: Annotated[int, Doc("how many")] = 2
    clustered: Annotated[
        int,
        Doc("rounds in groups from rank clustering of all clients, before clients choose; 0: none"),
        Limits(least=0),
    ] = 0
    forced: Annotated[
        int,
        Doc("rounds in random groups of equal size, before clients choose; 0: none"),
        Limits(least=0),
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clustered and self.forced:
            raise ConfigError(
                "algorithm.grouping: clustered and forced are two ways to start; choose one"
            )

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
        if self.clustered:
            clustering = RankClustering(groups=self.groups).begin(model, population, seed)
            return replace(membership, origin=clustering.origin)
        if self.forced:
            drawn = stream(seed, "forced start").permutation(sorted(population.declared)).tolist()
            assignments = {client: position % self.groups for position, client in enumerate(drawn)}
            return replace(membership, assignments=assignments)
        return membership

    def current(self, membership: Membership) -> Grouping:
        if membership.rounds < self.clustered:
            return RankClustering(groups=self.groups)
        return DrawnGroups() if membership.rounds < self.forced else self

    def candidate_groups(self, membership: Membership) -> tuple[GroupId, ...]:
        return tuple(range(membership.groups))

    def check_group(self, membership: Membership, client: ClientId, group: GroupId) -> None:
        require_group(group, membership)

    def sort(self, membership: Membership, replies: Replies) -> tuple[Membership, BallotsByGroup]:
        chosen = {client: reply.groups[0] for client, reply in replies.items()}
        assignments = membership.assignments | chosen
        return super().sort(replace(membership, assignments=assignments), replies)

    def served_groups(self, membership: Membership, client: ClientId) -> tuple[GroupId, ...]:
        return tuple(range(membership.groups))

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
class DrawnGroups(OneGroup):
    """Clients vote in the groups that were drawn for them: the rounds of a forced start."""

    def sort(self, membership: Membership, replies: Replies) -> tuple[Membership, BallotsByGroup]:
        return super().sort(replace(membership, rounds=membership.rounds + 1), replies)


@dataclass(frozen=True)
class LowestLoss(InferredGroups):
    """Each client takes the group with the lowest loss on its training data."""

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
    """Each client takes the group with the most negative entropy gradient, found in one pass."""

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
