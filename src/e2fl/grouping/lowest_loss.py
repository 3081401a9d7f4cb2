"""Lowest loss: a client belongs to the group whose model fits its training data best.

One forward pass over the training data for each group: O(groups).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from e2fl.data.federated import Client, GroupId
from e2fl.grouping.base import Inferring
from e2fl.learning import Learner
from e2fl.models import Params
from e2fl.ranking import Mask


@dataclass(frozen=True)
class LowestLoss(Inferring):
    """Each client takes the group with the lowest loss on its training data; a pass for each group."""

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
