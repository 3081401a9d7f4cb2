"""What a ranking means on a client of E2FL, and the client's own vote.

`AsMask` is the paper's reading: the upper part of a ranking selects a subnetwork of frozen weights,
and training moves the scores behind the ranking. `AsWeights`: the place of an edge is its weight
(`e2fl.rankings.order`), and training moves the weights themselves.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import torch

from e2fl.algorithms.base import average, require_finite
from e2fl.data.federated import Examples, GroupId
from e2fl.learning import Learner
from e2fl.models import Model, Params
from e2fl.rankings.ballots import Reference
from e2fl.rankings.order import Mask, Ranking, Table, mask_layers, rank_of, table_of, weights_from
from e2fl.rankings.votes import Vote, elect

FOLDS = 5  # one fifth of a client's training rows decides between weights of its own vote

Trained = TypeVar("Trained", Ranking, Params)


@dataclass(frozen=True)
class Reading(ABC, Generic[Trained]):
    """How a client reads rankings, and trains from one. A subclass names what training returns."""

    learner: Learner

    @abstractmethod
    def model(self, ranking: Ranking) -> Mask | Params:
        """Return the model that a ranking stands for."""

    @abstractmethod
    def fit(self, ranking: Ranking, examples: Examples, part: int = 0) -> Trained:
        """Train from a ranking. part: numbers several fits of one client in one round."""

    @abstractmethod
    def ballot(self, trained: Trained) -> tuple[Ranking, Table]:
        """Return the ranking of what was trained, and its table, empty if there is none."""

    @abstractmethod
    def elected(self, ranking: Ranking, own: Trained, weight: float) -> Mask | Params:
        """Return the model that a group's ranking and what a client trained from it elect."""

    def own_model(
        self, ranking: Ranking, examples: Examples, weights: Sequence[float]
    ) -> Mask | Params:
        """Return the model that a group's ranking and the client's own vote elect.

        The client trains from the group's ranking on these examples. Of several weights of its
        vote, it takes the one with the lowest loss on every fifth example, after training on the
        others.
        """
        learner = self.learner
        rows = np.flatnonzero(examples.y >= 0)
        if not len(rows) or not weights:
            return self.model(ranking)
        weight = weights[0]
        if len(weights) > 1 and len(rows) >= FOLDS:
            held_out = examples.take(rows[::FOLDS])
            own = self.fit(ranking, examples.take(np.setdiff1d(rows, rows[::FOLDS])))
            losses = [
                learner.loss(learner.weights_of(self.elected(ranking, own, weight)), held_out)
                for weight in weights
            ]
            weight = weights[int(np.argmin(losses))]
        return self.elected(ranking, self.fit(ranking, examples.take(rows)), weight)


@dataclass(frozen=True)
class AsMask(Reading[Ranking]):
    """The upper part of a ranking is kept, and the weights are frozen."""

    vote: Vote

    def model(self, ranking: Ranking) -> Mask:
        return mask_layers(ranking, self.learner.model.keep)

    def fit(self, ranking: Ranking, examples: Examples, part: int = 0) -> Ranking:
        return self.learner.fit_scores(ranking, examples, part=part)

    def ballot(self, trained: Ranking) -> tuple[Ranking, Table]:
        return trained, {}

    def elected(self, ranking: Ranking, own: Ranking, weight: float) -> Mask:
        return self.model(elect([ranking], own, weight, rule=self.vote))


@dataclass(frozen=True)
class AsWeights(Reading[Params]):
    """The place of an edge is its weight, looked up in a table."""

    table: Table

    def model(self, ranking: Ranking) -> Params:
        shapes = {layer.name: layer.shape for layer in self.learner.model.spec.layers}
        return params_from(ranking, self.table, shapes)

    def fit(self, ranking: Ranking, examples: Examples, part: int = 0) -> Params:
        purpose = f"batches of part {part}" if part else "batches"
        return require_finite(self.learner.fit(self.model(ranking), examples, purpose=purpose))

    def ballot(self, trained: Params) -> tuple[Ranking, Table]:
        ranking = {layer: rank_of(values.numpy().ravel()) for layer, values in trained.items()}
        return ranking, table_of(trained)

    def elected(self, ranking: Ranking, own: Params, weight: float) -> Params:
        return average([self.model(ranking), own], [1, weight])


@dataclass(frozen=True)
class Offer:
    """What a client is served, decoded."""

    models: Mapping[GroupId, Mask | Params]  # of the groups that it may belong to
    voted: tuple[GroupId, ...]  # which of these groups have voted
    global_model: Mask | Params
    rankings: Mapping[GroupId, Ranking] = field(
        default_factory=dict
    )  # empty: only masks are served
    table: Table = field(default_factory=dict)  # where rankings are read as weights


def params_from(ranking: Ranking, table: Table, shapes: Mapping[str, Sequence[int]]) -> Params:
    """Return the weights that a ranking and a table stand for."""
    return {
        layer: torch.from_numpy(weights_from(rank, table[layer])).view(*shapes[layer])
        for layer, rank in ranking.items()
    }


def origin_of(learner: Learner) -> Reference:
    """Return the reference for what the server sends, as a client knows it from the seed."""
    return Reference(learner.supernet.ranking, fan_in_of(learner.model), learner.model.keep)


def fan_in_of(model: Model) -> dict[str, int]:
    """Return the number of inputs per unit, for every layer."""
    return {layer.name: layer.fan_in for layer in model.spec.layers}
