"""Plain twins of compiled code: a few lines of NumPy or PyTorch each, for reading and for tests."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from e2fl.kernels import Bool, Float32, Int32, Int64, UInt8
from e2fl.kernels.score_step import Rates


def order_of(values: Float32 | Int64) -> Int32:
    """Sort edges by score or sum, ascending: ties by edge number, both zeros equal, NaN last."""
    return np.argsort(values, kind="stable").astype(np.int32)


def rank_of(values: Float32 | Int64) -> Int32:
    """Return the place of each edge in `order_of(values)`."""
    return invert(order_of(values))


order_of_sums, rank_of_sums = order_of, rank_of


def invert(permutation: Int32) -> Int32:
    """Turn an order into its rank, or a rank into its order."""
    return np.argsort(permutation, kind="stable").astype(np.int32)


def scores_from(rank: Int32, sorted_scores: Float32) -> Float32:
    """Give each edge the score that belongs to its place."""
    return sorted_scores[rank]


def top_mask(scores: Float32, dropped: int) -> Bool:
    """Keep every edge but the `dropped` lowest, by sorting."""
    return rank_of(scores) >= dropped


def pack_order_of_rank(rank: Int32) -> UInt8:
    """Write the order that a rank is the inverse of, each edge in as few bits as number all."""
    fields = (invert(rank)[:, None] >> np.arange((rank.size - 1).bit_length())) & 1
    return np.packbits(fields.astype(np.uint8), bitorder="little")


def unpack_rank(raw: UInt8, count: int) -> Int32:
    """Read a packed order and return its rank.

    ValueError unless the bytes are exactly what `pack_order_of_rank` writes.
    """
    bits = (count - 1).bit_length()
    flat = np.unpackbits(raw, bitorder="little")
    if raw.size != (count * bits + 7) // 8 or flat[count * bits :].any():
        raise ValueError("wrong length, or unused bits that are not zero")
    fields = flat[: count * bits].reshape(count, bits).astype(np.int32)
    order = (fields << np.arange(bits, dtype=np.int32)).sum(axis=1, dtype=np.int32)
    if sorted(order.tolist()) != list(range(count)):
        raise ValueError("not a permutation")
    return invert(order)


def footrules(ranks: Int32, centroids: Int32) -> Int64:
    """Return the sum of absolute differences of each rank to each centroid: [clients, groups]."""
    return np.abs(ranks[:, None].astype(np.int64) - centroids).sum(axis=2)


class ScoreStep:
    """The scores of one layer under SGD with momentum, and what they select: NumPy and a sort."""

    def __init__(self, scores: Float32, weights: Float32, dropped: int):
        self.scores, self.weights, self.dropped = scores, weights, dropped
        self.velocity: Float32 | None = None
        self._select()

    def advance(self, gradient: Float32, rates: Rates) -> None:
        """Take one step in place; `gradient` is that of the masked weights."""
        g = gradient * self.weights + rates.weight_decay * self.scores
        self.velocity = g if self.velocity is None else rates.momentum * self.velocity + g
        self.scores -= rates.learning_rate * self.velocity
        self._select()

    def _select(self) -> None:
        self.effective = np.where(top_mask(self.scores, self.dropped), self.weights, np.float32(0))


class _Select(torch.autograd.Function):
    """Zero for the lowest scores, one for the others, by a full stable sort.

    The gradient passes straight through.
    """

    @staticmethod
    def forward(ctx: object, scores: Tensor, dropped: int) -> Tensor:  # torch passes it
        order = scores.flatten().sort(stable=True).indices
        mask = torch.ones(scores.numel())
        mask[order[:dropped]] = 0
        return mask.view_as(scores)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def _select(scores: Tensor, dropped: int) -> Tensor:
    mask: Tensor = _Select.apply(scores, dropped)  # type: ignore[no-untyped-call]
    return mask


def plain_edge_popup(
    network: nn.Module,
    weights: dict[str, Tensor],
    scores: dict[str, Tensor],
    batches: list[tuple[Tensor, Tensor]],
    *,
    dropped: dict[str, int],
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> dict[str, Tensor]:
    """Train scores as the public code does: a sort at each pass, autograd, torch's own SGD."""
    trained = {name: score.clone().requires_grad_() for name, score in scores.items()}
    optimizer = torch.optim.SGD(
        list(trained.values()), lr=learning_rate, momentum=momentum, weight_decay=weight_decay
    )
    for x, y in batches:
        masked = {name: weights[name] * _select(trained[name], dropped[name]) for name in trained}
        loss = nn.functional.cross_entropy(functional_call(network, masked, (x,)), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: score.detach() for name, score in trained.items()}
