"""Wang et al., "Federated Learning with Fair Averaging", IJCAI 2021, Algorithms 1 to 3. Updates
conflict if their inner product is negative. Clients are put in rising order of loss; all but the
share `alpha` with the highest loss have their update projected off each conflicting one, in that
order. The mean is then projected off the conflicting updates of clients of the last `tau` rounds
that did not take part since, and rescaled to the norm of the plain mean.

Departures: clients are drawn uniformly, ties in the loss are ordered by client, and remembered
updates are rounded to single precision. Checked against the authors' code (easyFL, FLGo), which
differs in two places: its `tau` counts the current round, so that 1 remembers no absent client; and
where 1 / `alpha` is not a whole number, it may keep one client fewer as it is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.algorithms.base import GlobalModelWithLoss, ModelAndLoss, Shared
from e2fl.construct import Limits
from e2fl.data.federated import ClientId
from e2fl.models import Params

Vector = NDArray[np.float64]
AnyVector = NDArray[np.float64] | NDArray[np.float32]


@dataclass(frozen=True)
class FedFVState(Shared):
    """One model for all clients, and the updates of the last rounds, oldest first."""

    recent: tuple[dict[ClientId, NDArray[np.float32]], ...] = ()


@dataclass(frozen=True)
class FedFV(GlobalModelWithLoss[FedFVState]):
    """FedFV: conflicts between the clients' updates are removed before they are averaged."""

    weighs_losses = False  # they decide an order

    alpha: Annotated[
        float,
        Doc("share of clients, those with the highest loss, whose update stays as it is"),
        Limits(least=0, most=1),
    ] = 0.1
    tau: Annotated[
        int, Doc("rounds that updates of absent clients are remembered for"), Limits(least=0)
    ] = 1

    def aggregate(self, state: FedFVState, replies: Mapping[ClientId, ModelAndLoss]) -> FedFVState:
        start = flat(state.params)
        graded = {client: (reply.loss, client) for client, reply in replies.items()}
        order = sorted(graded, key=graded.__getitem__)
        updates = {client: start - flat(replies[client].params) for client in order}
        unchanged = order[len(order) - math.ceil(self.alpha * len(order)) :]
        fair = [
            update
            if client in unchanged
            else without_conflicts(update, [updates[other] for other in order if other != client])
            for client, update in updates.items()
        ]
        moved = mean(fair)
        recent = [
            {client: update for client, update in past.items() if client not in updates}
            for past in state.recent
        ]
        for past in recent:
            conflicts = [update for update in past.values() if dot(moved, update) < 0]
            moved = without_conflicts(moved, [mean(conflicts)] if conflicts else [])
        if (size := norm(moved)) > 0:
            moved *= norm(mean(list(updates.values()))) / size
        recent.append({client: update.astype(np.float32) for client, update in updates.items()})
        return FedFVState(step(state.params, moved), tuple(recent[len(recent) - self.tau :]))


def without_conflicts(update: Vector, others: Sequence[Vector]) -> Vector:
    """Return an update projected, one after the other, off those it conflicts with."""
    for other in others:
        product = dot(update, other)
        if product < 0:
            update = update - product / dot(other, other) * other
    return update


# Updates of clients as flat vectors; FedMGDA+ computes with them as well.


def flat(params: Params) -> Vector:
    """Return the weights of all layers as one vector."""
    layers = [value.numpy().reshape(-1) for value in params.values()]
    return np.concatenate(layers, dtype=np.float64)


def step(params: Params, update: Vector) -> Params:
    """Return the weights minus an update."""
    ends = np.cumsum([value.numel() for value in params.values()])
    parts = np.split(update, ends[:-1])
    return {
        name: (value.double() - torch.from_numpy(part).view(value.shape)).float()
        for (name, value), part in zip(params.items(), parts, strict=True)
    }


def dot(first: AnyVector, second: AnyVector) -> float:
    """Return the inner product, in an order of summation that no number of threads changes."""
    return float(np.multiply(first, second, dtype=np.float64).sum())


def norm(vector: Vector) -> float:
    """Return the Euclidean norm."""
    return float(np.sqrt(dot(vector, vector)))


def mean(vectors: Sequence[AnyVector], weights: Sequence[float] | None = None) -> Vector:
    """Return the weighted mean of vectors, summed in double precision in the order given."""
    weights = [1] * len(vectors) if weights is None else weights
    total = np.zeros(len(vectors[0]))
    for weight, vector in zip(weights, vectors, strict=True):
        total += weight / sum(weights) * vector
    return total
