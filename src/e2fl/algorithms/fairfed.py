"""FairFed: clients whose own fairness is close to that of everybody count more in the mean.

Ezzeldin et al., "FairFed: Enabling Group Fairness in Federated Learning", AAAI 2023, Algorithm 1, with equal
opportunity as the measure. Group 0 is the unprivileged one, group 1 the privileged one, class 1 the favourable outcome.

Departures: weights that turn negative count as 0 in the mean, but are kept as they are; a client whose own measure is
not defined, because it has no favourable examples in a group, is judged by its accuracy, and so is everybody where the
measure of all is not defined; sums are over the clients that answered, which is everybody when all take part, and a
client that answers for the first time starts with its share of their examples.

It is defined for two classes and two groups. On other data it runs, with a word of caution: of more classes, class 1 is
held against all the others; of more groups, the first two are compared; without two groups clients are judged by their
accuracy alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, average, everybody_gets, refuse_no_examples
from e2fl.data.federated import Client, ClientId, Examples, Population
from e2fl.errors import ConfigError, WireError
from e2fl.learning import Learner
from e2fl.models import Model, Params
from e2fl.wire import Message, Weights


@dataclass(frozen=True)
class Counted(Message):
    """A trained model, and what the model it was trained from got right on the client's training examples."""

    params: Params
    examples: int
    correct: int
    positive_0: int  # examples of class 1 in group 0, and those found
    found_0: int
    positive_1: int  # the same in group 1
    found_1: int


@dataclass(frozen=True)
class Weighted:
    """One model for all, and what each client weighs before it is clipped."""

    params: Params
    weights: dict[ClientId, float]
    gap: float | None  # the equal opportunity difference of the model before, over all that answered


@dataclass(frozen=True)
class FairFed(Algorithm[Weighted, Weights, Counted, Weights]):
    beta: float = 1.0  # how fast weights move; 0 is FedAvg
    reweighing: bool = False  # clients weigh their examples so that outcome and group look independent

    down: ClassVar[type[Message]] = Weights
    up: ClassVar[type[Message]] = Counted
    served: ClassVar[type[Message]] = Weights

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.beta) and self.beta >= 0):
            raise ConfigError(f"algorithm.beta must be 0 or more, not {self.beta}")

    def start(self, model: Model, population: Population, seed: int) -> Weighted:
        return Weighted(model.initial_weights(seed), {}, None)

    def caution(self, model: Model, population: Population) -> str:
        return misfit(classes=model.spec.layers[-1].shape[0], groups=population.groups)

    def broadcast(self, state: Weighted, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return everybody_gets(Weights(state.params), clients)

    def train(self, message: Weights, client: Client, learner: Learner) -> Counted:
        groups = row_groups(client)
        parts = {group: client.train.take(np.flatnonzero(groups == group)) for group in np.unique(groups).tolist()}
        tallies = {group: learner.tally(message.params, rows) for group, rows in parts.items()}
        counts = [(tally.positives, tally.true_positive) if tally else (0, 0) for tally in map(tallies.get, (0, 1))]
        weight = reweighed(client.train, groups) if self.reweighing else None
        return Counted(
            learner.fit(message.params, client.train, weight=weight),
            len(client.train),
            sum(tally.correct for tally in tallies.values()),
            *counts[0],
            *counts[1],
        )

    def check(self, state: Weighted, client: ClientId, reply: Counted) -> None:
        refuse_no_examples(reply.examples)
        pairs = ((reply.positive_0, reply.found_0), (reply.positive_1, reply.found_1), (reply.examples, reply.correct))
        if any(not 0 <= part <= whole for whole, part in pairs) or sum(p for p, _ in pairs[:2]) > reply.examples:
            raise WireError("a reply counts more examples than it has")

    def aggregate(self, state: Weighted, replies: Mapping[ClientId, Counted]) -> Weighted:
        if not replies:
            return state
        counted = list(replies.values())
        examples = np.array([reply.examples for reply in counted], dtype=np.float64)
        shares = examples / examples.sum()
        raw = np.array([state.weights.get(client, share) for client, share in zip(replies, shares, strict=True)])
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

    def serve(self, state: Weighted, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return everybody_gets(Weights(state.params), clients)

    def models(self, state: Weighted) -> Mapping[str, Params]:
        return {"global": state.params}

    def notes(self, state: Weighted) -> Mapping[str, Any]:
        values = list(state.weights.values()) or [0.0]
        return {"gap_before": state.gap, "weight_smallest": min(values), "weight_largest": max(values)}

    def model_for(self, message: Weights, client: Client, learner: Learner) -> ClientModels:
        return ClientModels({"global": ClientModel(message.params)})


def misfit(*, classes: int, groups: int) -> str:
    """What FairFed makes of data that it is not defined for; nothing where there are two classes and two groups."""
    said = []
    if classes != 2:
        said.append(f"of {classes} classes only class 1 counts as favourable")
    if groups > 2:
        said.append(f"of {groups} groups only the first two are compared")
    if groups < 2:
        said.append("without groups clients are judged by accuracy alone")
    return f"fairfed is made for two classes and two groups: {', and '.join(said)}" if said else ""


def row_groups(client: Client) -> NDArray[np.int64]:
    """The group of each training example: its own, or the one the client declares, or none (-1)."""
    if client.train.group is not None:
        return client.train.group
    return np.full(len(client.train), -1 if client.group is None else client.group, dtype=np.int64)


def reweighed(examples: Examples, groups: NDArray[np.int64]) -> NDArray[np.float32]:
    """P(group) P(class) / P(group, class) of each example: above 1 where a class is rare in a group."""
    n = len(examples)
    _, cell, size = np.unique(np.stack([groups, examples.y]), axis=1, return_inverse=True, return_counts=True)
    _, of_group, group_size = np.unique(groups, return_inverse=True, return_counts=True)
    _, of_class, class_size = np.unique(examples.y, return_inverse=True, return_counts=True)
    weights = (group_size[of_group] / n) * (class_size[of_class] / n) / (size[cell.reshape(-1)] / n)
    return weights.astype(np.float32)


def gap_of(counted: Counted) -> float | None:
    """The equal opportunity difference of one client, where it is defined."""
    if not counted.positive_0 or not counted.positive_1:
        return None
    return counted.found_0 / counted.positive_0 - counted.found_1 / counted.positive_1


def parts_of_gap(counted: Sequence[Counted]) -> list[float] | None:
    """What each client adds to the equal opportunity difference of all, where that is defined."""
    n = sum(reply.examples for reply in counted)
    whole = (sum(reply.positive_0 for reply in counted) / n, sum(reply.positive_1 for reply in counted) / n)
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
    """The equal opportunity difference over the examples of all, from what each client adds to it."""
    parts = parts_of_gap(counted)
    return None if parts is None else math.fsum(parts)


def distances_to_all(counted: Sequence[Counted]) -> list[float]:
    """How far each client is from everybody: in fairness, or in accuracy where fairness is not defined."""
    n = sum(reply.examples for reply in counted)
    accuracy = sum(reply.correct for reply in counted) / n
    everybody = gap_of_all(counted)
    distances = []
    for reply in counted:
        own = gap_of(reply)
        if own is None or everybody is None:
            distances.append(abs(accuracy - reply.correct / reply.examples))
        else:
            distances.append(abs(everybody - own))
    return distances
