"""OneShot and Binary: a client takes the mask that most reduces the output entropy of a mixture of
all masks.

The mixture gives every mask the same share. The gradient of the entropy of the outputs with respect
to these shares is most negative for the mask that would reduce the entropy most. No labels are
used. After Wortsman et al., "Supermasks in Superposition", NeurIPS 2020. The E2FL paper's listing
of the binary search is read with the sign that agrees with its one-shot rule, compares surviving
candidates only, and drops a fixed number of them each time, so that it terminates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from e2fl.data.federated import Client, GroupId
from e2fl.grouping.inferred import InferredGroups
from e2fl.learning import Learner
from e2fl.rankings.order import Mask


@dataclass(frozen=True)
class OneShot(InferredGroups):
    """Each client takes the group with the most negative entropy gradient: one forward and backward
    pass.
    """

    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        return steepest(masks, client, learner)[0]


@dataclass(frozen=True)
class Binary(InferredGroups):
    """Each client drops the worse half of the groups until one is left: log2(groups) passes."""

    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        left = list(range(len(masks)))
        while len(left) > 1:
            best = steepest([masks[group] for group in left], client, learner)[
                : (len(left) + 1) // 2
            ]
            left = sorted(left[place] for place in best)
        return left[0]


def steepest(masks: Sequence[Mask], client: Client, learner: Learner) -> list[int]:
    """Return the masks in order of rising entropy gradient; NaN comes last, ties keep their order."""
    slopes = learner.entropy_gradient(masks, client.train)
    learner.meter.grouping_passes += 1
    slopes[np.isnan(slopes)] = np.inf
    order: list[int] = np.argsort(slopes, kind="stable").tolist()
    return order
