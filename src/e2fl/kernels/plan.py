"""Plan: a whole network as a chain of stages, with buffers for batches of one size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from e2fl.kernels.machine_code import Float32, Int64
from e2fl.kernels.score_step import WeightStep
from e2fl.kernels.shapes import ConvolutionSizes, LinearSizes, Rates, Shape, Stage
from e2fl.kernels.stages import Convolution, Linear

# Takes the outputs [examples, classes]; returns the loss and its derivative by the outputs.
OwnLoss = Callable[[Float32], tuple[Any, Float32]]


@dataclass(frozen=True)
class Block:
    """A convolution or linear layer with the ReLU, max-pool and flattening that follow it."""

    name: str  # of its weight tensor
    layer: ConvolutionSizes | LinearSizes
    relu: bool = False
    pool: tuple[int, int] | None = None


class Plan:
    """The stages of a network for inputs of one shape, with buffers for batches of at most `batch`
    examples.
    """

    def __init__(self, blocks: list[Block], shape: tuple[int, ...], batch: int):
        self.batch = batch
        self.input = shape
        image = Shape(*shape) if len(shape) == 3 else Shape(int(np.prod(shape)), 1, 1)
        self.stages: dict[str, Convolution | Linear] = {}
        for number, block in enumerate(blocks):
            first = number == 0
            stage: Convolution | Linear
            if isinstance(block.layer, ConvolutionSizes):
                stage = Convolution(
                    block.layer, image, batch, relu=block.relu, pool=block.pool, first=first
                )
                image = stage.output
            else:
                stage = Linear(block.layer, image, batch, relu=block.relu, first=first)
                image = Shape(block.layer.outputs, 1, 1)
            self.stages[block.name] = stage
        # Of the convolutions, while dense weights are trained.
        self._steps: dict[str, WeightStep] = {}
        self._chain: list[Convolution | Linear] = list(self.stages.values())
        self._after: list[Stage | None] = [*self._chain[1:], None]
        self._inputs = self._view_of_inputs()
        self._shares: Float32 = np.ones(batch, np.float32)

    def put_weights(
        self,
        params: Mapping[str, Float32],
        toward: Mapping[str, Float32] | None = None,
        proximal: float = 0.0,
    ) -> None:
        """Set dense weights, one-dimensional for each layer.

        Training changes those of convolutions in place, and `take` copies out the others.
        """
        for name, stage in self.stages.items():
            weights = params[name]
            anchor = toward[name] if toward is not None and proximal else None
            if isinstance(stage, Linear):
                stage.put_weights(weights, anchor, proximal)
            else:
                self._steps[name] = WeightStep(
                    weights, weights if anchor is None else anchor, proximal
                )
                stage.put_edges(self._steps[name])

    def take(self, trained: Mapping[str, Float32]) -> None:
        """Copy out the trained scores or weights of the linear layers."""
        for name, stage in self.stages.items():
            if isinstance(stage, Linear):
                stage.take(trained[name])

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
        last = self._forward(x)
        loss: Any
        if own_loss is None:
            loss = last.slope_of_loss(y, self._shares[:n] if shares is None else shares)
        else:
            loss, slope = own_loss(last.outputs_of(n).copy())
            last.put_slope(slope)
        for stage, following in zip(reversed(self._chain), reversed(self._after), strict=True):
            stage.backward(n, following, rates)
        return loss

    def outputs(self, x: Float32) -> Float32:
        """Return the logits [examples, classes] of at most one batch."""
        return self._forward(x).outputs_of(len(x))

    def backward(self, slope: Float32) -> None:
        """Accumulate gradients from this derivative at the outputs: steps with learning rate 0 and
        momentum 1.
        """
        last = self._chain[-1]
        assert isinstance(last, Linear)
        last.put_slope(slope)
        for stage, following in zip(reversed(self._chain), reversed(self._after), strict=True):
            stage.backward(len(slope), following, Rates(0.0, 1.0, 0.0))

    def take_gradient(self, gradient: Mapping[str, Float32]) -> None:
        """Copy out the gradients accumulated since `put_weights`."""
        for name, stage in self.stages.items():
            if isinstance(stage, Linear):
                stage.take_velocity(gradient[name])
            else:
                gradient[name][:] = self._steps[name].velocity

    def _forward(self, x: Float32) -> Linear:
        self._place(x)
        for stage, following in zip(self._chain, self._after, strict=True):
            stage.forward(len(x), following)
        last = self._chain[-1]
        assert isinstance(last, Linear)
        return last

    def _place(self, x: Float32) -> None:
        self._inputs[: len(x)] = x.reshape(len(x), *self._inputs.shape[1:])

    def _view_of_inputs(self) -> Float32:
        """Return a view of the batch inside the first stage's buffer."""
        first = self._chain[0]
        if isinstance(first, Linear):
            return first.x.reshape(self.batch, first.stride)[:, : first.inputs]
        by_example, _, by_row, by_column, start = first.strides
        strides = tuple(4 * stride for stride in (by_example, 1, by_row, by_column))
        return np.lib.stride_tricks.as_strided(first.x[start:], (self.batch, *self.input), strides)
