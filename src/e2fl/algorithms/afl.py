"""Mohri et al., "Agnostic Federated Learning", ICML 2019, the algorithm of section 4 with full
gradients. Departures: all clients take part in every round and send the exact gradient over all
their examples, so there is no sampling noise, and neither `clients_per_round` nor seats for groups
apply; a client that is away or does not reply adds no loss in that round; a step to non-finite
weights is skipped and counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.algorithms.base import Description, GlobalModel, Shared
from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId, Population
from e2fl.errors import ConfigError
from e2fl.learning import Learner
from e2fl.models import Model, Params, is_finite
from e2fl.participation import Ask, Draw
from e2fl.wire import Message, Weights


@dataclass(frozen=True)
class AFLReply(Message, wire_name="Slope"):
    """The gradient and the loss of the received model, over all examples."""

    gradient: Params
    loss: float
    examples: int


@dataclass(frozen=True)
class AFLState(Shared):
    """The model, the mean of all models so far, and the share of each part of the mixture."""

    mean: Params
    rounds: int
    part_of: dict[ClientId, int]  # the part of each client: itself, or the group it declares
    shares: tuple[float, ...]  # of the parts; lambda in the paper
    skipped: int = 0  # steps


@dataclass(frozen=True)
class AFL(GlobalModel[AFLState, AFLReply]):
    """AFL: one model for the worst possible mixture of clients, or of groups."""

    learning_rate: Annotated[float, Doc("of the weights"), Limits(above=0)] = 0.1
    mixture_rate: Annotated[float, Doc("of the shares in the mixture"), Limits(above=0)] = 0.1
    over: Annotated[Literal["clients", "groups"], Doc("what the mixture is made of")] = "clients"

    def start(self, model: Model, population: Population, seed: int) -> AFLState:
        initial = model.initial_weights(seed)
        part_of = {client: part for part, client in enumerate(population.ids)}
        if self.over == "groups":
            declared = population.declared_groups
            if len(declared) < len(population):
                raise ConfigError(
                    "algorithm.over = 'groups' needs clients that declare a group; use 'clients'"
                )
            names = sorted(set(declared.values()))
            part_of = {client: names.index(declared[client]) for client in population.ids}
        count = max(part_of.values()) + 1
        return AFLState(initial, initial, 0, part_of, (1 / count,) * count)

    def ask(
        self, state: AFLState, population: Population, round_number: int, last: int, draw: Draw
    ) -> Ask:
        return Ask(population.ids)

    def train(self, message: Weights, client: Client, learner: Learner) -> AFLReply:
        gradient = learner.gradient(message.params, client.train)
        return AFLReply(gradient, learner.loss(message.params, client.train), len(client.train))

    def origin(self, sent: Weights, reply: AFLReply) -> Params:
        return {}

    def aggregate(self, state: AFLState, replies: Mapping[ClientId, AFLReply]) -> AFLState:
        answers, parts = list(replies.values()), [state.part_of[client] for client in replies]
        examples, lost = np.array([(reply.examples, reply.loss) for reply in answers]).T
        shares = np.asarray(state.shares)
        # The loss of a part is that of all its examples.
        weights = examples / np.bincount(parts, examples)[parts]
        losses = np.bincount(parts, weights * lost, len(shares))
        gradient = {name: torch.zeros_like(value).double() for name, value in state.params.items()}
        for reply, weight in zip(answers, (shares[parts] * weights).tolist(), strict=True):
            for name, value in reply.gradient.items():
                gradient[name].add_(value, alpha=weight)
        params = {
            name: (value.double() - self.learning_rate * gradient[name]).float()
            for name, value in state.params.items()
        }
        shares = project(shares + self.mixture_rate * losses)
        done = state.rounds + 1
        mean = {name: value + (params[name] - value) / done for name, value in state.mean.items()}
        if not (is_finite(params) and is_finite(mean)):
            return replace(state, skipped=state.skipped + 1)
        return replace(state, params=params, mean=mean, rounds=done, shares=tuple(shares.tolist()))

    def serve(self, state: AFLState, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return dict.fromkeys(clients, Weights(state.mean))

    def describe(self, state: AFLState) -> Description:
        return Description(
            models=lambda: {"global": state.mean, "last": state.params},
            metadata={
                "largest_share": max(state.shares),
                "parts_that_count": sum(share > 0 for share in state.shares),
                "steps_not_taken": state.skipped,
            },
        )


def project(point: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest point with non-negative entries that sum to 1."""
    # Subtracting a constant does not change the projection, and avoids cancellation.
    low = point - point.max()
    falling = np.sort(low)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(point) + 1)
    # Never empty: the largest entry is 0 and its excess -1.
    last = int(np.flatnonzero(falling > excess)[-1])
    nearest: NDArray[np.float64] = np.maximum(low - excess[last], 0)
    nearest /= nearest.sum()
    return nearest
