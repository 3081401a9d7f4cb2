"""Lowest loss: a client belongs to the group whose model fits its training data best.

One forward pass over the training data for each group: O(groups).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from e2fl.data.federated import Client, GroupId, Roll
from e2fl.grouping.base import Grouping, refuse_count
from e2fl.learning import Learner
from e2fl.models import Params
from e2fl.ranking import Mask


@dataclass(frozen=True)
class LowestLoss(Grouping):
    """Each client takes the group with the lowest loss on its training data; a pass for each group."""

    groups: int = 2
    warm: bool = False  # cluster the ballots of the first round instead of letting clients choose among random masks

    infers: ClassVar[bool] = True

    def count(self, roll: Roll) -> int:
        refuse_count(self.groups, roll, "algorithm.grouping.groups")
        return self.groups

    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        return lowest_loss(masks, client, learner)[0]


def lowest_loss(models: Sequence[Params] | Sequence[Mask], client: Client, learner: Learner) -> tuple[GroupId, float]:
    """The model that fits this client's training data best, and its mean loss; ties go to the lower number.

    A loss that is no number counts as infinite.
    """
    losses = np.array([learner.loss(learner.weights_of(model), client.train) for model in models])
    learner.passes.append(float(len(models)))
    losses[np.isnan(losses)] = np.inf
    group = int(losses.argmin())
    return group, float(losses[group])
