"""The layers of a network as stages of a plan, each with its own reusable buffers.

A stage holds its input, writes its output into the input of the next stage, and in the backward
pass reads the gradient from there.  Its edges, scores or weights, are set before a fit and copied
out after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from e2fl.errors import DataError
from e2fl.kernels import convolution, linear, pooling, winograd
from e2fl.kernels.convolution import Geometry
from e2fl.kernels.machine_code import Float32, Int32, Int64, UInt16
from e2fl.kernels.score_step import Rates, ScoreStep, Threshold, WeightStep, clear_dropped
from e2fl.kernels.sorting import gather, scatter_into
from e2fl.kernels.vectors import LANES, aligned, padded, row_length


@dataclass(frozen=True)
class Block:
    """A convolution or linear layer with the ReLU, max-pool and flattening that follow it."""

    name: str  # of its weight tensor
    inputs: int
    outputs: int
    kernel: tuple[int, int] | None = None  # None: a linear layer
    padding: tuple[int, int] = (0, 0)
    relu: bool = False
    pool: tuple[int, int] | None = None


class Shape(NamedTuple):
    """An image; a flat input is an image of one pixel."""

    depth: int
    height: int
    width: int


class Frozen(NamedTuple):
    """The weights of a layer under scores, all of one magnitude."""

    weights: Float32
    magnitude: np.float32
    signs: UInt16  # one bit each, true for minus, in rows padded to whole vectors


def frozen(weights: Float32) -> Frozen | None:
    """Return weights [outputs, inputs] as frozen ones, or None if their magnitudes differ."""
    magnitude = np.abs(weights[0, 0])
    if not (np.abs(weights) == magnitude).all():
        return None
    minus = np.zeros((len(weights), row_length(weights.shape[1])), np.bool_)
    minus[:, : weights.shape[1]] = weights < 0
    signs = np.packbits(minus, bitorder="little").view(np.uint16)
    return Frozen(weights.reshape(-1), np.float32(magnitude), signs)


class Convolution:
    """A convolution, its ReLU and its max-pool."""

    def __init__(self, block: Block, image: Shape, batch: int, *, first: bool):
        assert block.kernel is not None
        self.relu, self.first, self.padding = block.relu, first, block.padding
        self.pooled, self.outputs = block.pool is not None, block.outputs
        above, beside = block.padding
        depth = image.depth if first else padded(image.depth)
        height, width = image.height + 2 * above, image.width + 2 * beside
        outputs = padded(block.outputs)
        self.size = Geometry(height, width, depth, *block.kernel, outputs, *(block.pool or (1, 1)))
        self._by_winograd = winograd.pays(self.size, block.inputs)
        rows, columns = height - block.kernel[0] + 1, width - block.kernel[1] + 1
        pool_height, pool_width = self.size[-2:]
        self.output = Shape(block.outputs, rows // pool_height, columns // pool_width)
        line = width * depth
        self.strides = (height * line, 1, line, depth, above * line + beside * depth)
        self.x = aligned(batch * height * line)
        self.dx = aligned(0 if first else batch * height * line)
        self._lay_out_weights(block.inputs)
        if self.pooled:
            self._make_room_for_pool(batch, columns)
        else:
            self._make_room_for_outputs(batch, rows, columns)

    def _lay_out_weights(self, inputs: int) -> None:
        """Compute where the loops expect each edge [o, c, y, x]."""
        _, _, depth, height, width, outputs, *_ = self.size
        shape = (self.outputs, inputs, height, width)
        o, c, y, x = (axis.reshape(-1) for axis in np.indices(shape, np.int32))
        run, length = width * depth, padded(width * depth)
        self._forward: Int32 = (y * run + x * depth + c) * outputs + o
        self._w = aligned(height * run * outputs)
        if self.pooled:
            self._back: Int32 = (o * height + y) * length + x * depth + c
            self._w_back = aligned(outputs * height * length)
            self._dw, self._dw_at = aligned(outputs * height * length), self._back
        else:
            turned = (height - 1 - y) * width * outputs + (width - 1 - x) * outputs + o
            self._back = turned * depth + c
            self._w_back = aligned(height * width * outputs * depth)
            self._dw, self._dw_at = aligned(height * run * outputs), self._forward
        self._transforms = winograd.buffers(self.size) if self._by_winograd else None
        how = (self._w, _lists(self.size)) if self._transforms is None else (self._transforms,)
        self._arguments = (self.x, *how, self.size, self.relu)

    def _make_room_for_pool(self, batch: int, columns: int) -> None:
        size, span = self.size, padded(self.output.width)
        where = np.full(batch * self.output.height * size.outputs * span, -1, np.int32)
        # Of a row of windows, or of all of them; whole vectors are read from each row.
        points = (self.output.height if self._by_winograd else 1) * self.output.width + span
        best = aligned(points * size.outputs)
        chosen = (best, np.empty(best.size, np.int32))
        buffers: tuple[Any, ...] = (where, chosen)
        if not self._by_winograd:
            buffers = (where, aligned(size.pool_height * columns * size.outputs), chosen)
        self._pool_arguments = (*self._arguments, *buffers, self.outputs)
        room = pooling.rows_at_once(size, 2) * span + LANES
        lists = (np.empty(room, np.int32), aligned(room), aligned(span))
        weights = (self.x, self.dx, self._w_back, self._dw, where)
        self._backward_arguments = (*weights, *lists, size, self.outputs, not self.first)

    def _make_room_for_outputs(self, batch: int, rows: int, columns: int) -> None:
        _, _, depth, kernel_height, kernel_width, outputs, *_ = self.size
        tall, wide = rows + 2 * (kernel_height - 1), columns + 2 * (kernel_width - 1)
        line = wide * outputs
        start = (kernel_height - 1) * line + (kernel_width - 1) * outputs
        self._dz = aligned(batch * tall * line)
        self._dz_strides = (tall * line, 1, line, outputs, start)
        # The gradient of the inputs, border included, is a convolution of dz with the kernel
        # rotated by 180 degrees.
        turn = Geometry(tall, wide, outputs, kernel_height, kernel_width, depth)
        self._turn_arguments = (self._dz, self._w_back, _lists(turn), turn, False, self.dx, (0, 0))
        self._inner = (rows, columns, self.outputs)
        self._out = aligned(batch * rows * columns * outputs)
        self._out_strides = (rows * columns * outputs, 1, columns * outputs, outputs, 0)

    def put_scores(self, scores: Float32, weights: Frozen, dropped: int) -> None:
        """Set the scores to train, which change in place."""
        self._put(ScoreStep(scores, weights.weights, dropped))

    def put_weights(self, weights: Float32, anchor: Float32 | None, proximal: float) -> None:
        """Set the weights to train, which change in place, and the anchor of the proximal term."""
        self._put(WeightStep(weights, weights if anchor is None else anchor, proximal))

    def _put(self, edges: ScoreStep | WeightStep) -> None:
        self._edges = edges
        self._show()

    def _show(self) -> None:
        """Copy the effective weights into the layouts of the loops."""
        scatter_into(self._edges.effective, self._forward, self._w)
        if self._transforms is not None:
            winograd.transform_kernels(self._w, self._transforms[0], self.size)
        if not self.first:
            scatter_into(self._edges.effective, self._back, self._w_back)

    def take(self, out: Float32) -> None:
        """Do nothing: the trained values were changed in place."""

    def take_velocity(self, out: Float32) -> None:
        """Copy out the velocity."""
        out[:] = self._edges.velocity

    def forward(self, batch: int, after: Stage | None) -> None:
        assert after is not None
        pool: Any = pooling.forward_winograd if self._by_winograd else pooling.forward
        convolve: Any = winograd.forward if self._by_winograd else convolution.forward
        if self.pooled:
            pool(*self._pool_arguments, after.x, after.strides, batch)
        elif isinstance(after, Convolution):
            convolve(*self._arguments, after.x, after.padding, batch)
        else:
            convolve(*self._arguments, self._out, (0, 0), batch)
            outputs = (self._out, self._out, self._out_strides)
            convolution.copy_slopes(*outputs, after.x, after.strides, self._inner, False, batch)

    def backward(self, batch: int, after: Stage | None, rates: Rates) -> None:
        assert after is not None
        if self.pooled:
            pooling.backward(*self._backward_arguments, after.dx, after.strides, batch)
        else:
            slopes = (after.x, after.dx, after.strides, self._dz, self._dz_strides)
            convolution.copy_slopes(*slopes, self._inner, self.relu, batch)
            convolution.backward_weights(self.x, self._dz, self._dw, self.size, batch)
            if not self.first:
                convolution.forward(*self._turn_arguments, batch)
        self._edges.advance(gather(self._dw, self._dw_at), rates)
        self._show()


def _lists(size: Geometry) -> tuple[Int32, Int32]:
    """Return buffers for the steps of a kernel's window."""
    room = size.kernel_height * padded(size.kernel_width * size.depth) + LANES
    return np.empty(room, np.int32), np.empty(room, np.int32)


class Linear:
    """A linear layer and its ReLU; its edges are either scores or weights."""

    def __init__(self, block: Block, image: Shape, batch: int, *, first: bool):
        self.inputs, self.outputs, self.relu = block.inputs, block.outputs, block.relu
        self.output = Shape(block.outputs, 1, 1)
        self.first = first
        self.stride = stride = row_length(self.inputs)
        self.pitch = row_length(self.outputs)
        self.strides = (stride, image.height * image.width, image.width, 1, 0)
        self.x, self.dx = aligned(batch * stride), aligned(batch * stride)
        self.y, self.delta = aligned(batch * self.pitch), aligned(batch * self.pitch)
        self._values = aligned(self.outputs * stride)
        self._velocity = aligned(self.outputs * stride)
        self._kept: UInt16 = np.empty(self.outputs * stride // LANES, np.uint16)
        self._scratch = aligned(linear.SCRATCH)
        self._threshold: Threshold | None = None

    def put_scores(self, scores: Float32, weights: Frozen, dropped: int) -> None:
        """Set the scores to train."""
        self._fill(self._values, scores, np.nan)
        self._velocity.fill(-0.0)
        self._magnitude = weights.magnitude
        self._threshold = Threshold(self._values, scores.size, dropped)
        self._masked = (self._kept, weights.signs, self._scratch)
        own = (self._values, self._velocity, self._kept, weights.signs, self._threshold.window)
        self._edges: tuple[Any, ...] = own
        self._pack_kept(self._threshold)

    def put_weights(self, weights: Float32, anchor: Float32 | None, proximal: float) -> None:
        """Set the weights to train, and the anchor of the proximal term."""
        self._fill(self._values, weights, 0.0)
        self._velocity.fill(-0.0)
        self._threshold = None
        self._edges = (self._values, self._velocity, self._values)
        self._proximal = np.float32(0)
        if anchor is not None:
            copied = aligned(self._values.size)
            self._fill(copied, anchor, 0.0)
            self._edges = (self._values, self._velocity, copied)
            self._proximal = np.float32(proximal)

    def take(self, out: Float32) -> None:
        """Copy the trained values out of the padded rows."""
        self._copy_out(self._values, out)

    def take_velocity(self, out: Float32) -> None:
        """Copy the velocity out of the padded rows."""
        self._copy_out(self._velocity, out)

    def _copy_out(self, rows: Float32, out: Float32) -> None:
        table = rows.reshape(self.outputs, -1)[:, : self.inputs]
        out.reshape(self.outputs, self.inputs)[:] = table

    def _fill(self, rows: Float32, values: Float32, rest: float) -> None:
        table = rows.reshape(self.outputs, -1)
        table[:, : self.inputs] = values.reshape(self.outputs, self.inputs)
        table[:, self.inputs :] = rest

    def _pack_kept(self, threshold: Threshold) -> None:
        self._kept[:] = np.packbits(threshold.mask, bitorder="little").view(np.uint16)

    def forward(self, batch: int, after: Stage | None) -> None:
        sizes = (self.stride, self.outputs, self.pitch)
        if self._threshold is None:
            linear.forward(self.x, self._values, None, np.float32(0), self.y, batch, sizes)
        else:
            edges = (self._values, self._masked, self._magnitude)
            linear.forward(self.x, *edges, self.y, batch, sizes)
        if after is not None:
            copied = (self.outputs, self.pitch, after.strides[0])
            linear.pass_on(self.y, after.x, batch, copied, self.relu)

    def backward(self, batch: int, after: Stage | None, rates: Rates) -> None:
        if after is not None:
            copied = (self.outputs, self.pitch, after.strides[0])
            linear.pass_back(after.x, after.dx, self.delta, batch, copied, self.relu)
        sizes = (batch, self.stride, self.outputs, self.pitch, not self.first)
        slopes = (self.x, self.dx, self.delta, self._edges)
        limits = self._threshold
        if limits is None:
            linear.backward(*slopes, None, 0, sizes, (*rates, self._proximal))
            return
        constants = (self._magnitude, *rates, limits.low, limits.high)
        room = limits.window.size - LANES
        below, listed = linear.backward(*slopes, self._masked, room, sizes, constants)
        if limits.locate(below, listed):
            window = limits.window[:listed]
            clear_dropped(limits.bits, window, limits.key, limits.first_tied, self._kept)
        else:
            self._pack_kept(limits)

    def slope_of_loss(self, labels: Int64, shares: Float32) -> float:
        """Set the gradient of the loss at the outputs of this layer, the last of the network.

        Return the loss.
        """
        if not 0 <= labels.min() <= labels.max() < self.outputs:
            raise DataError(
                f"labels must be 0 to {self.outputs - 1}, not {labels.min()} to {labels.max()}"
            )
        return float(
            linear.loss_gradient(self.y, labels, shares, self.delta, self.outputs, self.pitch)
        )

    def table(self, rows: Float32, examples: int) -> Float32:
        """Return a view [examples, outputs] of the outputs `y` or of their gradient `delta`."""
        return rows[: examples * self.pitch].reshape(examples, self.pitch)[:, : self.outputs]


Stage = Convolution | Linear
