"""How E2FL reads rankings, and how they travel: a value in place of branches in the algorithm.

`Reading` is the paper's: the upper part of a ranking selects a subnetwork of frozen weights, and
training moves the scores behind the ranking. With `WeightReading`, the place of an edge is its
weight (`e2fl.rankings.order`), and training moves the weights themselves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from e2fl.algorithms.base import average, require_finite
from e2fl.data.federated import Examples, GroupId
from e2fl.learning import Learner
from e2fl.learning.learner import Meter
from e2fl.models import Model, Params
from e2fl.rankings.ballots import Ballot, Exact, Reference
from e2fl.rankings.messages import (
    Ballots,
    CodedBallots,
    CodedInvitation,
    ExactBallots,
    ExactInvitation,
    ExactMasks,
    Invitation,
    Masks,
    RankedWeights,
    ServedRankings,
    TabledBallots,
    UncodedBallots,
)
from e2fl.rankings.order import Ranking, WeightTable, mask_layers, rank_of, table_of, weights_from
from e2fl.rankings.votes import Vote, elect

FOLDS = 5  # one fifth of a client's training rows decides between weights of its own vote

Rankings = Mapping[GroupId, Ranking]
AnyModel = Any  # a mask or weights


@dataclass(frozen=True, kw_only=True)
class ModelContext:
    """What the server and its clients know of the model."""

    keep: float
    shapes: dict[str, tuple[int, ...]]
    # What is sent is coded against this ranking, which both compute from the seed.
    initial: Ranking = field(default_factory=dict)
    table: WeightTable = field(default_factory=dict)  # where rankings are read as weights

    def reference(self, ranking: Ranking, base: Ranking | None = None) -> Reference:
        """Return the reference that a ranking is."""
        fan_in = {layer: math.prod(shape[1:]) for layer, shape in self.shapes.items()}
        return Reference(ranking, fan_in, self.keep, base)

    @property
    def origin(self) -> Reference:
        """The reference for what the server sends."""
        return self.reference(self.initial)


@dataclass(frozen=True)
class DecodedMessage:
    """What a client is sent, decoded."""

    reading: "Reading"  # with the table that was sent, if there is one
    models: Mapping[GroupId, AnyModel]  # of the groups that the client may belong to
    ranking: Ranking = field(default_factory=dict)  # the global one; empty where a mask is served
    rankings: Rankings = field(default_factory=dict)  # of the models; empty: masks were sent
    voted: tuple[GroupId, ...] = ()  # which of these groups have voted
    global_model: AnyModel = None


@dataclass(frozen=True)
class Reading:
    """The upper part of a ranking is kept, and the weights are frozen."""

    context: ModelContext
    ballot: Ballot
    downlink: Ballot
    served: Ballot | None  # the format of rankings that clients predict with; None: masks
    vote: Vote

    @property
    def replies(self) -> type[Ballots]:
        """The form of what clients send."""
        return ExactBallots if self.ballot == self.downlink == Exact() else CodedBallots

    # On the server.

    def invitation(self, ranking: Ranking, groups: Rankings) -> Invitation:
        """Return the message a client trains from. groups: the candidates for its group."""
        invitation = ExactInvitation(ranking, tuple(map(self.model, groups.values())))
        if self.replies is ExactBallots:
            return invitation
        return CodedInvitation.of(invitation, self.downlink, self.context.origin)

    def masks(self, ranking: Ranking, groups: Rankings, voted: tuple[GroupId, ...]) -> Masks:
        """Return the message a client predicts with. groups: those it may belong to.

        A group that never voted has learned nothing: the global ranking stands for its own.
        """
        global_mask, origin = self.model(ranking), self.context.origin
        if self.served is None:
            masks = tuple(map(self.model, groups.values()))
            return ExactMasks(tuple(groups), voted, masks, global_mask)
        learned = [groups[group] if group in voted else ranking for group in groups]
        codes = [self.served.encode(group_ranking, origin) for group_ranking in learned]
        return ServedRankings(tuple(groups), tuple(map(len, codes)), b"".join(codes), global_mask)

    # On a client.

    def decode(self, message: Invitation | Masks) -> DecodedMessage:
        """Return the content of a message, or raise `WireError`."""
        if isinstance(message, CodedInvitation):
            message = message.decode(self.downlink, self.context.origin)
        if isinstance(message, ExactInvitation):
            return DecodedMessage(self, dict(enumerate(message.masks)), message.ranking)
        if isinstance(message, ExactMasks):
            masks = dict(zip(message.groups, message.masks, strict=True))
            return DecodedMessage(self, masks, {}, {}, message.voted, message.global_mask)
        assert isinstance(message, ServedRankings)
        rankings = message.decode(self.served or self.downlink, self.context.origin)
        masks = {group: self.model(group_ranking) for group, group_ranking in rankings.items()}
        return DecodedMessage(self, masks, {}, rankings, message.groups, message.global_mask)

    def fit(self, ranking: Ranking, rows: Examples, learner: Learner, part: int = 0) -> Any:
        """Train from a ranking. part: numbers several fits of one client in one round."""
        return learner.fit_scores(ranking, rows, part=part)

    def ranked(self, trained: Any) -> tuple[Ranking, WeightTable]:
        """Return the ranking of trained values, and their table, empty if there is none."""
        return trained, {}

    def reply(
        self, start: Ranking, trained: Sequence[tuple[GroupId, Any]], meter: Meter
    ) -> Ballots:
        """Return the ballots of a client that trained from `start`, one for each group."""
        groups = tuple(group for group, _ in trained)
        ranked = [self.ranked(model) for _, model in trained]
        rankings = tuple(ranking for ranking, _ in ranked)
        if self.replies is ExactBallots:
            return ExactBallots(groups, rankings)
        tables = tuple(table for _, table in ranked if table)
        reference = self.context.reference(start)
        return UncodedBallots(groups, rankings, self.ballot, reference, meter, tables)

    # On both.

    def model(self, ranking: Ranking) -> AnyModel:
        """Return the model that a ranking stands for."""
        return mask_layers(ranking, self.context.keep)

    def elected(self, ranking: Ranking, trained: Any, weight: float) -> AnyModel:
        """Return the model elected by a group's ranking and the one a client trained from it."""
        return self.model(elect([ranking], trained, weight, rule=self.vote))

    def own_model(
        self, ranking: Ranking, examples: Examples, weights: Sequence[float], learner: Learner
    ) -> AnyModel:
        """Return the model that a group's ranking and the client's own vote elect.

        The client trains from the group's ranking on these examples. Of several weights of its
        vote, it takes the one with the lowest loss on every fifth example, after training on the
        others.
        """
        rows = np.flatnonzero(examples.y >= 0)
        if not len(rows):
            return self.model(ranking)
        weight = weights[0]
        if len(weights) > 1 and len(rows) >= FOLDS:
            held_out = examples.take(rows[::FOLDS])
            trained = self.fit(ranking, examples.take(np.setdiff1d(rows, rows[::FOLDS])), learner)
            models = (self.elected(ranking, trained, weight) for weight in weights)
            losses = [learner.loss(learner.weights_of(model), held_out) for model in models]
            weight = weights[int(np.argmin(losses))]
        return self.elected(ranking, self.fit(ranking, examples.take(rows), learner), weight)


@dataclass(frozen=True)
class WeightReading(Reading):
    """The place of an edge is its weight, looked up in a table."""

    @property
    def replies(self) -> type[Ballots]:
        return TabledBallots

    def invitation(self, ranking: Ranking, groups: Rankings) -> RankedWeights:
        table, origin = self.context.table, self.context.origin
        return RankedWeights.of(ranking, groups, table, self.downlink, origin)

    def masks(self, ranking: Ranking, groups: Rankings, voted: tuple[GroupId, ...]) -> Masks:
        learned = {group: groups[group] if group in voted else ranking for group in groups}
        return self.invitation(ranking, learned)

    def decode(self, message: Invitation | Masks) -> DecodedMessage:
        assert isinstance(message, RankedWeights)
        ranking, rankings, table = message.decode(self.downlink, self.context.origin)
        reading = replace(self, context=replace(self.context, table=table))
        models = {group: reading.model(group_ranking) for group, group_ranking in rankings.items()}
        whole = reading.model(ranking)
        return DecodedMessage(reading, models, ranking, rankings, message.groups, whole)

    def fit(self, ranking: Ranking, rows: Examples, learner: Learner, part: int = 0) -> Params:
        purpose = f"batches of part {part}" if part else "batches"
        return require_finite(learner.fit(self.model(ranking), rows, purpose=purpose))

    def ranked(self, trained: Params) -> tuple[Ranking, WeightTable]:
        ranking = {layer: rank_of(values.numpy().ravel()) for layer, values in trained.items()}
        return ranking, table_of(trained)

    def model(self, ranking: Ranking) -> Params:
        table, shapes = self.context.table, self.context.shapes
        return {
            layer: torch.from_numpy(weights_from(rank, table[layer])).view(*shapes[layer])
            for layer, rank in ranking.items()
        }

    def elected(self, ranking: Ranking, trained: Params, weight: float) -> Params:
        return average([self.model(ranking), trained], [1, weight])


def context_of(model: Model, weights: Params | None = None) -> ModelContext:
    """Return the context of a model before the first round. weights: for the table."""
    shapes = {layer.name: layer.shape for layer in model.spec.layers}
    return ModelContext(keep=model.keep, shapes=shapes, table=table_of(weights or {}))
