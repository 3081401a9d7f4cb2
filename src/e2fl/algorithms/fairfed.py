"""FairFed: clients whose local fairness is close to the global fairness get more weight in the
mean.

Ezzeldin et al., "FairFed: Enabling Group Fairness in Federated Learning", AAAI 2023, Algorithm 1,
with equal opportunity as the measure. Group 0 is the unprivileged one, group 1 the privileged one,
class 1 the favourable outcome.

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
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.algorithms.base import Description, GlobalModel, average, require_examples
from e2fl.data.federated import Client, ClientId, Examples, Population
from e2fl.errors import ConfigError, WireError
from e2fl.learning import Learner
from e2fl.models import Model, Params
from e2fl.wire import Message, Weights


@dataclass(frozen=True)
class Counted(Message):
    """A trained model, and how the received model did on the client's training examples."""

    params: Params
    examples: int
    correct: int
    positive_0: int  # examples of class 1 in group 0, and those found
    found_0: int
    positive_1: int  # the same in group 1
    found_1: int


@dataclass(frozen=True)
class Weighted:
    """One model for all clients, and each client's weight before clipping."""

    params: Params
    weights: dict[ClientId, float]
    # The equal opportunity difference of the previous model, over the clients that replied.
    gap: float | None
    warning: str = ""  # why to interpret results on this data with care


@dataclass(frozen=True)
class FairFed(GlobalModel[Weighted, Counted]):
    """FairFed: clients whose local fairness is close to the global fairness get more weight in the
    mean.

    `beta` is the step size of the weights; 0 is FedAvg. `reweighing` lets clients weight their
    examples so that label and group are independent.
    """

    title: ClassVar[str] = "FairFed"
    paper: ClassVar[str] = "Ezzeldin et al., AAAI 2023"

    beta: Annotated[float, Doc("step size of the weights; 0 is FedAvg")] = 1.0
    reweighing: Annotated[
        bool, Doc("clients reweight their examples so that outcome and group are independent")
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.beta) and self.beta >= 0):
            raise ConfigError(f"algorithm.beta must be 0 or more, not {self.beta}")

    def start(self, model: Model, population: Population, seed: int) -> Weighted:
        warning = misfit(classes=model.classes, groups=population.groups)
        return Weighted(model.initial_weights(seed), {}, None, warning)

    def train(self, message: Weights, client: Client, learner: Learner) -> Counted:
        groups = row_groups(client)
        parts = {
            group: client.train.take(np.flatnonzero(groups == group))
            for group in np.unique(groups).tolist()
        }
        tallies = {group: learner.tally(message.params, rows) for group, rows in parts.items()}
        counts = [
            (tally.positives, tally.true_positive) if tally else (0, 0)
            for tally in map(tallies.get, (0, 1))
        ]
        weight = reweighed(client.train, groups) if self.reweighing else None
        return Counted(
            learner.fit(message.params, client.train, weight=weight),
            len(client.train),
            sum(tally.correct for tally in tallies.values()),
            *counts[0],
            *counts[1],
        )

    def check(self, state: Weighted, client: ClientId, reply: Counted) -> Counted:
        require_examples(reply.examples)
        pairs = (
            (reply.positive_0, reply.found_0),
            (reply.positive_1, reply.found_1),
            (reply.examples, reply.correct),
        )
        if (
            any(not 0 <= part <= whole for whole, part in pairs)
            or sum(p for p, _ in pairs[:2]) > reply.examples
        ):
            raise WireError("a reply counts more examples than it claims to have")
        return reply

    def aggregate(self, state: Weighted, replies: Mapping[ClientId, Counted]) -> Weighted:
        if not replies:
            return state
        counted = list(replies.values())
        examples = np.array([reply.examples for reply in counted], dtype=np.float64)
        shares = examples / examples.sum()
        raw = np.array(
            [
                state.weights.get(client, share)
                for client, share in zip(replies, shares, strict=True)
            ]
        )
        distances = np.array(distances_to_all(counted))
        raw = raw - self.beta * (distances - distances.mean())
        weights = np.maximum(raw, 0)
        if not weights.sum() > 0:
            weights = shares
        kept = dict(zip(replies, raw.tolist(), strict=True))
        return replace(
            state,
            params=average([reply.params for reply in counted], weights.tolist()),
            weights=dict(sorted((state.weights | kept).items())),
            gap=gap_of_all(counted),
        )

    def describe(self, state: Weighted) -> Description:
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
    """Return how FairFed treats data it is not defined for; empty for two classes and two groups."""
    said = []
    if classes != 2:
        said.append(f"of {classes} classes only class 1 counts as favourable")
    if groups > 2:
        said.append(f"of {groups} groups only the first two are compared")
    if groups < 2:
        said.append("without groups clients are judged by accuracy alone")
    return (
        f"fairfed is defined for two classes and two groups: {', and '.join(said)}" if said else ""
    )


def row_groups(client: Client) -> NDArray[np.int64]:
    """Return the group of each training example: its own, or the client's, or -1 for none."""
    if client.train.group is not None:
        return client.train.group
    return np.full(len(client.train), -1 if client.group is None else client.group, dtype=np.int64)


def reweighed(examples: Examples, groups: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return P(group) P(class) / P(group, class) for each example: above 1 where a class is rare in
    a group.
    """
    n = len(examples)
    _, cell, size = np.unique(
        np.stack([groups, examples.y]), axis=1, return_inverse=True, return_counts=True
    )
    _, of_group, group_size = np.unique(groups, return_inverse=True, return_counts=True)
    _, of_class, class_size = np.unique(examples.y, return_inverse=True, return_counts=True)
    weights = (group_size[of_group] / n) * (class_size[of_class] / n) / (size[cell.reshape(-1)] / n)
    return weights.astype(np.float32)


def gap_of(counted: Counted) -> float | None:
    """Return the equal opportunity difference of one client, where it is defined."""
    if not counted.positive_0 or not counted.positive_1:
        return None
    return counted.found_0 / counted.positive_0 - counted.found_1 / counted.positive_1


def parts_of_gap(counted: Sequence[Counted]) -> list[float] | None:
    """Return each client's contribution to the global equal opportunity difference, where that is
    defined.
    """
    n = sum(reply.examples for reply in counted)
    whole = (
        sum(reply.positive_0 for reply in counted) / n,
        sum(reply.positive_1 for reply in counted) / n,
    )
    if not all(whole):
        return None

    def part(reply: Counted) -> float:
        terms = []
        for found, positive, everywhere in zip(
            (reply.found_0, reply.found_1), (reply.positive_0, reply.positive_1), whole, strict=True
        ):
            rate = found / positive if positive else 0.0
            terms.append(rate * (positive / reply.examples) / everywhere)
        return reply.examples / n * (terms[0] - terms[1])

    return [part(reply) for reply in counted]


def gap_of_all(counted: Sequence[Counted]) -> float | None:
    """Return the global equal opportunity difference: the sum of the clients' contributions."""
    parts = parts_of_gap(counted)
    return None if parts is None else math.fsum(parts)


def distances_to_all(counted: Sequence[Counted]) -> list[float]:
    """Return each client's distance to the global measure: in fairness, or in accuracy where that
    is undefined.
    """
    n = sum(reply.examples for reply in counted)
    accuracy = sum(reply.correct for reply in counted) / n
    global_gap = gap_of_all(counted)
    distances = []
    for reply in counted:
        own = gap_of(reply)
        if own is None or global_gap is None:
            distances.append(abs(accuracy - reply.correct / reply.examples))
        else:
            distances.append(abs(global_gap - own))
    return distances
