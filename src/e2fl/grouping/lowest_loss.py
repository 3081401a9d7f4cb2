"""Lowest loss: a client belongs to the group whose model fits its training data best.

One forward pass over the training data for each group: O(groups).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from e2fl.data.federated import Client, GroupId
from e2fl.grouping.inferred import InferredGroups
from e2fl.learning import Learner
from e2fl.models import Params
from e2fl.rankings.order import Mask


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
