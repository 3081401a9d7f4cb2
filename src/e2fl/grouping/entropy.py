"""OneShot and Binary: a client asks which group's mask would make a mixture of all masks surer of its outputs.

The mixture gives every mask the same share; the gradient of the outputs' entropy with respect to these shares is most
negative where more of a mask would help most. No labels are used. After Wortsman et al., "Supermasks in Superposition",
NeurIPS 2020. The E2FL paper's listing of the binary search is read with the sign that agrees with its one-shot rule,
compares surviving candidates only, and drops a fixed number of them each time, so that it always ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from e2fl.data.federated import Client, GroupId
from e2fl.grouping.base import Inferring
from e2fl.learning import Learner
from e2fl.ranking import Mask


@dataclass(frozen=True)
class OneShot(Inferring):
    """Each client takes the group with the most negative gradient of entropy; one pass forward and back."""

    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        return steepest(masks, client, learner)[0]


@dataclass(frozen=True)
class Binary(Inferring):
    """Each client drops the less promising half of the groups until one is left; log2(groups) passes."""

    def find(self, masks: Sequence[Mask], client: Client, learner: Learner) -> GroupId:
        left = list(range(len(masks)))
        while len(left) > 1:
            best = steepest([masks[group] for group in left], client, learner)[: (len(left) + 1) // 2]
            left = sorted(left[place] for place in best)
        return left[0]


def steepest(masks: Sequence[Mask], client: Client, learner: Learner) -> list[int]:
    """The masks by rising gradient of entropy; one that is no number comes last, ties in the order given."""
    slopes = learner.entropy_gradient(masks, client.train)
    learner.passes.append(1.0)
    slopes[np.isnan(slopes)] = np.inf
    order: list[int] = np.argsort(slopes, kind="stable").tolist()
    return order
