"""Ezzeldin et al., "FairFed: Enabling Group Fairness in Federated Learning", AAAI 2023, Algorithm
1, with equal opportunity as the measure. Group 0 is the unprivileged one, group 1 the privileged
one, class 1 the favourable outcome.

Departures: negative weights count as 0 in the mean, but are kept as they are; a client whose local
measure is undefined, because it has no favourable examples in a group, is judged by its accuracy,
and so are all clients where the global measure is undefined; sums run over the clients that
replied, which are all when all take part, and a client that replies for the first time starts with
its share of the examples.

FairFed is defined for two classes and two groups. On other data it runs with a warning: of more
classes, class 1 is compared with all others; of more groups, the first two are compared; without
two groups, clients are judged by their accuracy alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.algorithms.base import Description, GlobalModel, Shared, average
from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId, Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP, Tally
from e2fl.learning import Learner
from e2fl.models import Model, Params
from e2fl.wire import Message, Weights

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FairFedReply(Message, wire_name="Counted"):
    """A trained model, and how the received model did on the client's training examples."""

    params: Params
    examples: int
    correct: int
    positive_0: int  # examples of class 1 in group 0, and those found
    found_0: int
    positive_1: int  # the same in group 1
    found_1: int


@dataclass(frozen=True)
class FairFedState(Shared):
    """One model for all clients, and each client's weight before clipping."""

    weights: dict[ClientId, float]
    # The equal opportunity difference of the previous model, over the clients that replied.
    gap: float | None
    warning: str = ""  # why to interpret results on this data with care


@dataclass(frozen=True)
class FairFed(GlobalModel[FairFedState, FairFedReply]):
    """FairFed: clients whose local fairness is close to the global one get more weight."""

    beta: Annotated[float, Doc("step size of the weights; 0 is FedAvg"), Limits(least=0)] = 1.0

    def start(self, model: Model, population: Population, seed: int) -> FairFedState:
        warning = misfit(classes=model.classes, groups=population.groups)
        return FairFedState(model.initial_weights(seed), {}, None, warning)

    def train(self, message: Weights, client: Client, learner: Learner) -> FairFedReply:
        declared = NO_GROUP if client.group is None else client.group
        groups = np.full(len(client.train), declared)
        groups = groups if client.train.group is None else client.train.group
        tallies = {
            group: learner.tally(message.params, client.train.take(np.flatnonzero(groups == group)))
            for group in np.unique(groups).tolist()
        }
        first, second = (tallies.get(group, Tally()) for group in (0, 1))
        return FairFedReply(
            learner.fit(message.params, client.train),
            len(client.train),
            sum(tally.correct for tally in tallies.values()),
            first.positives,
            first.true_positive,
            second.positives,
            second.true_positive,
        )

    def check(self, state: FairFedState, client: ClientId, reply: FairFedReply) -> FairFedReply:
        super().check(state, client, reply)
        conditions = (
            0 <= reply.correct <= reply.examples,
            0 <= reply.found_0 <= reply.positive_0,
            0 <= reply.found_1 <= reply.positive_1,
            reply.positive_0 + reply.positive_1 <= reply.examples,
        )
        if not all(conditions):
            raise WireError("a reply counts more examples than it claims to have")
        return reply

    def aggregate(
        self, state: FairFedState, replies: Mapping[ClientId, FairFedReply]
    ) -> FairFedState:
        counted = list(replies.values())
        examples = np.array([reply.examples for reply in counted], dtype=np.float64)
        shares = examples / examples.sum()
        before = [
            state.weights.get(client, share) for client, share in zip(replies, shares, strict=True)
        ]
        distances, gap = distances_to_all(counted)
        raw = np.array(before) - self.beta * (distances - distances.mean())
        weights = np.maximum(raw, 0)
        if not weights.sum() > 0:
            weights = shares
        raw_weights = dict(zip(replies, raw.tolist(), strict=True))
        return replace(
            state,
            params=average([reply.params for reply in counted], weights.tolist()),
            weights=dict(sorted((state.weights | raw_weights).items())),
            gap=gap,
        )

    def describe(self, state: FairFedState) -> Description:
        values = list(state.weights.values()) or [0.0]
        return replace(
            super().describe(state),
            metadata={
                "gap_before": state.gap,
                "weight_smallest": min(values),
                "weight_largest": max(values),
            },
            warnings=(state.warning,) if state.warning else (),
        )


def misfit(*, classes: int, groups: int) -> str:
    """Return how FairFed treats data it is not defined for; empty if it is defined."""
    reasons = {
        f"of {classes} classes only class 1 counts as favourable": classes != 2,
        f"of {groups} groups only the first two are compared": groups > 2,
        "without groups clients are judged by accuracy alone": groups < 2,
    }
    wrong = ", and ".join(reason for reason, holds in reasons.items() if holds)
    return f"fairfed is defined for two classes and two groups: {wrong}" if wrong else ""


def distances_to_all(counted: Sequence[FairFedReply]) -> tuple[Floats, float | None]:
    """Return each client's distance to the global measure, and the global difference if defined.

    The distance is one in fairness, or in accuracy where a difference is undefined.
    """
    examples = np.array([reply.examples for reply in counted], dtype=np.float64)
    correct = np.array([reply.correct for reply in counted], dtype=np.float64)
    positive = np.array([(reply.positive_0, reply.positive_1) for reply in counted])
    hits = np.array([(reply.found_0, reply.found_1) for reply in counted])
    total = examples.sum()
    in_accuracy = np.abs(correct.sum() / total - correct / examples)
    if not positive.any(axis=0).all():
        return in_accuracy, None
    rates = np.divide(hits, positive, out=np.zeros(hits.shape), where=positive > 0)
    # The global difference is the sum of what clients add to it.
    terms = rates * (positive / examples[:, None]) / (positive.sum(axis=0) / total)
    gap = math.fsum(examples / total * (terms[:, 0] - terms[:, 1]))
    in_fairness = np.abs(gap - (rates[:, 0] - rates[:, 1]))
    return np.where(positive.all(axis=1), in_fairness, in_accuracy), gap
