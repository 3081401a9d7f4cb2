"""Plan: a whole network as a chain of stages, with buffers for batches of one size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from e2fl.kernels.machine_code import Float32, Int64
from e2fl.kernels.score_step import Rates
from e2fl.kernels.stages import Block, Convolution, Frozen, Linear, Shape, Stage

# Takes the outputs [examples, classes]; returns the loss and its derivative by the outputs.
OwnLoss = Callable[[Float32], tuple[Any, Float32]]

# Steps that only add up gradients, in the velocity.
_ACCUMULATE = Rates(np.float32(0), np.float32(1), np.float32(0))


class Plan:
    """The stages of a network for inputs of one shape, with buffers for batches of at most `batch`
    examples.
    """

    def __init__(self, blocks: list[Block], shape: tuple[int, ...], batch: int):
        self.batch = batch
        self.input = shape
        image = Shape(*shape) if len(shape) == 3 else Shape(int(np.prod(shape)), 1, 1)
        self.stages: dict[str, Stage] = {}
        for block in blocks:
            kind = Linear if block.kernel is None else Convolution
            stage = self.stages[block.name] = kind(block, image, batch, first=not self.stages)
            image = stage.output
        chain = list(self.stages.values())
        assert isinstance(chain[-1], Linear)
        self.last = chain[-1]
        self._chain: list[tuple[Stage, Stage | None]]
        self._chain = list(zip(chain, [*chain[1:], None], strict=True))
        self._inputs = self._view_of_inputs(chain[0])
        self._shares: Float32 = np.ones(batch, np.float32)

    def put_scores(
        self,
        scores: Mapping[str, Float32],
        weights: Mapping[str, Frozen],
        dropped: Mapping[str, int],
    ) -> None:
        """Set scores to train; those of convolutions change in place, `take` copies the others."""
        for name, stage in self.stages.items():
            stage.put_scores(scores[name], weights[name], dropped[name])

    def put_weights(
        self,
        params: Mapping[str, Float32],
        toward: Mapping[str, Float32] | None = None,
        proximal: float = 0.0,
    ) -> None:
        """Set dense weights, one-dimensional for each layer; they change as scores do."""
        for name, stage in self.stages.items():
            anchor = toward[name] if toward and proximal else None
            stage.put_weights(params[name], anchor, proximal)

    def take(self, trained: Mapping[str, Float32]) -> None:
        """Copy out the trained scores or weights of the linear layers."""
        for name, stage in self.stages.items():
            stage.take(trained[name])

    def take_gradient(self, gradient: Mapping[str, Float32]) -> None:
        """Copy out the gradients accumulated since `put_weights`."""
        for name, stage in self.stages.items():
            stage.take_velocity(gradient[name])

    def step(
        self,
        x: Float32,
        y: Int64,
        rates: Rates,
        shares: Float32 | None = None,
        own_loss: OwnLoss | None = None,
    ) -> Any:
        """Take one step on all layers; return the loss.

        shares: the weight of each example; own_loss: in place of cross-entropy.
        """
        n = len(y)
        if n > self.batch:
            raise ValueError(
                f"a batch of {n} after a first one of {self.batch}: the first must be the largest"
            )
        outputs = self.outputs(x)
        loss: Any
        if own_loss is None:
            loss = self.last.slope_of_loss(y, self._shares[:n] if shares is None else shares)
            self._back(n, rates)
        else:
            loss, slope = own_loss(outputs.copy())
            self.backward(slope, rates)
        return loss

    def outputs(self, x: Float32) -> Float32:
        """Return the logits [examples, classes] of at most one batch."""
        self._inputs[: len(x)] = x.reshape(len(x), *self._inputs.shape[1:])
        for stage, following in self._chain:
            stage.forward(len(x), following)
        return self.last.table(self.last.y, len(x))

    def backward(self, slope: Float32, rates: Rates = _ACCUMULATE) -> None:
        """Take a step from this derivative at the outputs; by default, accumulate gradients."""
        self.last.table(self.last.delta, len(slope))[:] = slope
        self._back(len(slope), rates)

    def _back(self, examples: int, rates: Rates) -> None:
        for stage, following in reversed(self._chain):
            stage.backward(examples, following, rates)

    def _view_of_inputs(self, first: Stage) -> Float32:
        """Return a view of the batch inside the first stage's buffer."""
        if isinstance(first, Linear):
            return first.x.reshape(self.batch, first.stride)[:, : first.inputs]
        by_example, _, by_row, by_column, start = first.strides
        strides = tuple(4 * stride for stride in (by_example, 1, by_row, by_column))
        return np.lib.stride_tricks.as_strided(first.x[start:], (self.batch, *self.input), strides)
