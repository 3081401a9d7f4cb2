"""The layers of a network as stages of a plan, each with its own reusable buffers.

A stage holds its input, writes its output into the input of the next stage, and in the backward
pass reads the gradient from there.  Its edges, scores or weights, are set before a fit and copied
out after it.
"""

from __future__ import annotations

import numpy as np

from e2fl.errors import DataError
from e2fl.kernels import (
    Float32,
    Int32,
    Int64,
    UInt16,
    convolution,
    linear,
    linear_backward,
    pooling,
)
from e2fl.kernels.convolution import Geometry, tile_for
from e2fl.kernels.score_step import Threshold, clear_dropped, pack_kept
from e2fl.kernels.shapes import ConvolutionSizes, Edges, LinearSizes, Rates, Shape, Signs, Stage
from e2fl.kernels.vectors import LANES, aligned, padded, row_length


class Convolution:
    """A convolution, its ReLU and its max-pool."""

    def __init__(
        self,
        sizes: ConvolutionSizes,
        image: Shape,
        batch: int,
        *,
        relu: bool,
        pool: tuple[int, int] | None,
        first: bool,
    ):
        self.sizes, self.relu, self.first, self.pooled = sizes, relu, first, pool is not None
        (kernel_height, kernel_width), (above, beside) = sizes.kernel, sizes.padding
        depth = image.depth if first else padded(image.depth)
        height, width = image.height + 2 * above, image.width + 2 * beside
        self.inner = (height - kernel_height + 1, width - kernel_width + 1)
        self.size = size = Geometry(
            height,
            width,
            depth,
            kernel_height,
            kernel_width,
            padded(sizes.outputs),
            *(pool or (1, 1)),
            tile_for(self.inner[1]),
        )
        self.output = Shape(
            sizes.outputs, self.inner[0] // size.pool_height, self.inner[1] // size.pool_width
        )
        line = width * depth
        self.strides = (height * line, 1, line, depth, above * line + beside * depth)
        self.x = aligned(batch * height * line)
        self.dx = aligned(0 if first else batch * height * line)
        self.gradient: Float32 = np.empty(
            sizes.outputs * sizes.inputs * kernel_height * kernel_width, np.float32
        )
        self._lists = _room_for_lists(size)
        self._lay_out_weights()
        if self.pooled:
            self._make_room_for_pool(batch)
        else:
            self._make_room_for_outputs(batch)

    def _lay_out_weights(self) -> None:
        """Compute where the loops expect each edge [o, c, y, x]."""
        size = self.size
        shape = (self.sizes.outputs, self.sizes.inputs, size.kernel_height, size.kernel_width)
        o, c, y, x = (axis.reshape(-1) for axis in np.indices(shape, np.int32))
        run = size.kernel_width * size.depth
        self._length = length = padded(run)
        self._forward: Int32 = (y * run + x * size.depth + c) * size.outputs + o
        self._by_output: Int32 = (o * size.kernel_height + y) * length + x * size.depth + c
        back = size.kernel_width * size.outputs
        self._turned: Int32 = (
            (size.kernel_height - 1 - y) * back + (size.kernel_width - 1 - x) * size.outputs + o
        ) * size.depth + c
        self._w = aligned(size.kernel_height * run * size.outputs)
        if self.pooled:
            self._w_back = aligned(size.outputs * size.kernel_height * length)
            self._dw = aligned(size.outputs * size.kernel_height * length)
        else:
            self._w_back = aligned(size.kernel_height * back * size.depth)
            self._dw = aligned(size.kernel_height * run * size.outputs)

    def _make_room_for_pool(self, batch: int) -> None:
        size, span = self.size, padded(self.output.width)
        self._where: Int32 = np.full(batch * self.output.height * size.outputs * span, -1, np.int32)
        self._rows = aligned(size.pool_height * self.inner[1] * size.outputs)
        self._best = aligned(span * size.outputs)
        self._place: Int32 = np.empty(self._best.size, np.int32)
        room = pooling.rows_at_once(size) * span + LANES
        self._places: Int32 = np.empty(room, np.int32)
        self._deltas = aligned(room)
        self._line = aligned(span)

    def _make_room_for_outputs(self, batch: int) -> None:
        size, (height, width) = self.size, self.inner
        tall, wide = height + 2 * (size.kernel_height - 1), width + 2 * (size.kernel_width - 1)
        self._dz = aligned(batch * tall * wide * size.outputs)
        line = wide * size.outputs
        start = (size.kernel_height - 1) * line + (size.kernel_width - 1) * size.outputs
        self._dz_strides = (tall * line, 1, line, size.outputs, start)
        # The gradient of the inputs, border included, is a convolution of dz with the kernel
        # rotated by 180 degrees.
        self._turn = Geometry(
            tall,
            wide,
            size.outputs,
            size.kernel_height,
            size.kernel_width,
            size.depth,
            1,
            1,
            tile_for(size.width),
        )
        self._back_lists = _room_for_lists(self._turn)
        self._out = aligned(batch * height * width * size.outputs)
        self._out_strides = (
            height * width * size.outputs,
            1,
            width * size.outputs,
            size.outputs,
            0,
        )

    def put_edges(self, edges: Edges) -> None:
        """Set the edges to train."""
        self._edges = edges
        self._show()

    def _show(self) -> None:
        """Copy the effective weights into the layouts of the loops."""
        convolution.scatter(self._edges.effective, self._forward, self._w)
        if not self.first:
            convolution.scatter(
                self._edges.effective,
                self._by_output if self.pooled else self._turned,
                self._w_back,
            )

    def forward(self, batch: int, after: Stage | None) -> None:
        assert after is not None
        if self.pooled:
            pooling.forward(
                self.x,
                self._w,
                after.x,
                self._where,
                self._rows,
                self._best,
                self._place,
                self._lists,
                batch,
                self.size,
                self.sizes.outputs,
                after.strides,
                self.relu,
            )
            return
        if isinstance(after, Convolution):
            convolution.forward(
                self.x,
                self._w,
                after.x,
                self._lists,
                batch,
                self.size,
                after.sizes.padding,
                self.relu,
            )
            return
        convolution.forward(
            self.x, self._w, self._out, self._lists, batch, self.size, (0, 0), self.relu
        )
        inner = (*self.inner, self.sizes.outputs)
        convolution.copy_image(self._out, after.x, batch, inner, self._out_strides, after.strides)

    def backward(self, batch: int, after: Stage | None, rates: Rates) -> None:
        assert after is not None
        if self.pooled:
            pooling.backward(
                self.x,
                self.dx,
                self._w_back,
                self._dw,
                self._where,
                after.dx,
                self._places,
                self._deltas,
                self._line,
                batch,
                self.size,
                self.sizes.outputs,
                after.strides,
                not self.first,
            )
            convolution.gather(self._dw, self._by_output, self.gradient)
        else:
            self._backward_dense(batch, after)
            convolution.gather(self._dw, self._forward, self.gradient)
        self._edges.advance(self.gradient, *rates)
        self._show()

    def _backward_dense(self, batch: int, after: Stage) -> None:
        inner = (*self.inner, self.sizes.outputs)
        convolution.copy_slope(
            after.x, after.dx, self._dz, batch, inner, after.strides, self._dz_strides, self.relu
        )
        convolution.backward_weights(self.x, self._dz, self._dw, batch, self.size)
        if not self.first:
            convolution.forward(
                self._dz, self._w_back, self.dx, self._back_lists, batch, self._turn, (0, 0), False
            )


def _room_for_lists(size: Geometry) -> tuple[Int32, Int32]:
    room = size.kernel_height * padded(size.kernel_width * size.depth) + LANES
    return np.empty(room, np.int32), np.empty(room, np.int32)


class Linear:
    """A linear layer and its ReLU; its edges are either scores or weights."""

    def __init__(self, sizes: LinearSizes, image: Shape, batch: int, *, relu: bool, first: bool):
        self.inputs, self.outputs = inputs, outputs = sizes
        self.relu, self.first = relu, first
        self.stride = stride = row_length(inputs)
        self.strides = (stride, image.height * image.width, image.width, 1, 0)
        self.x, self.dx = aligned(batch * stride), aligned(batch * stride)
        self.pitch = row_length(outputs)
        self.y, self.delta = aligned(batch * self.pitch), aligned(batch * self.pitch)
        self._values = aligned(outputs * stride)
        self._velocity = aligned(outputs * stride)
        self._kept: UInt16 = np.empty(outputs * stride // LANES, np.uint16)
        self._scratch = aligned(linear.SCRATCH)
        self._signs: Signs | None = None
        self._anchor: Float32 = self._values
        self._proximal = np.float32(0)

    def put_scores(self, scores: Float32, signs: Signs, dropped: int) -> None:
        """Set the scores to train."""
        self._fill(self._values, scores, np.nan)
        self._velocity.fill(-0.0)
        self._signs = signs
        self._threshold = Threshold(self._values, scores.size, dropped)
        pack_kept(self._threshold, self._kept)

    def put_weights(self, weights: Float32, anchor: Float32 | None, proximal: float) -> None:
        """Set the weights to train, and the anchor of the proximal term."""
        self._fill(self._values, weights, 0.0)
        self._velocity.fill(-0.0)
        self._signs = None
        self._anchor, self._proximal = self._values, np.float32(0)
        if anchor is not None:
            self._anchor, self._proximal = aligned(self._values.size), np.float32(proximal)
            self._fill(self._anchor, anchor, 0.0)

    def take(self, out: Float32) -> None:
        """Copy the trained values out of the padded rows."""
        out.reshape(self.outputs, self.inputs)[:] = self._values.reshape(self.outputs, -1)[
            :, : self.inputs
        ]

    def take_velocity(self, out: Float32) -> None:
        """Copy the velocity out of the padded rows."""
        out.reshape(self.outputs, self.inputs)[:] = self._velocity.reshape(self.outputs, -1)[
            :, : self.inputs
        ]

    def _fill(self, rows: Float32, values: Float32, rest: float) -> None:
        table = rows.reshape(self.outputs, -1)
        table[:, : self.inputs] = values.reshape(self.outputs, self.inputs)
        table[:, self.inputs :] = rest

    def forward(self, batch: int, after: Stage | None) -> None:
        sizes = (self.stride, self.outputs, self.pitch)
        if self._signs is None:
            linear.forward(self.x, self._values, self.y, batch, sizes)
        else:
            magnitude, sign = self._signs
            linear.forward_masked(
                self.x, self._kept, sign, magnitude, self.y, self._scratch, batch, sizes
            )
        if after is not None:
            linear.pass_on(
                self.y, after.x, batch, (self.outputs, self.pitch, after.strides[0]), self.relu
            )

    def backward(self, batch: int, after: Stage | None, rates: Rates) -> None:
        if after is not None:
            sizes = (self.outputs, self.pitch, after.strides[0])
            linear.pass_back(after.x, after.dx, self.delta, batch, sizes, self.relu)
        rate, momentum, decay = np.float32(rates[0]), np.float32(rates[1]), np.float32(rates[2])
        layout = (batch, self.stride, self.outputs, self.pitch, not self.first)
        if self._signs is None:
            linear_backward.backward_weights(
                self.x,
                self.dx,
                self.delta,
                self._values,
                self._velocity,
                self._anchor,
                layout,
                (rate, momentum, decay, self._proximal),
            )
            return
        magnitude, sign = self._signs
        threshold = self._threshold
        below, found = linear_backward.backward_scores(
            self.x,
            self.dx,
            self.delta,
            self._values,
            self._velocity,
            self._kept,
            sign,
            threshold.window,
            self._scratch,
            layout,
            (magnitude, rate, momentum, decay, threshold.low, threshold.high),
        )
        if threshold.locate(below, found):
            clear_dropped(
                threshold.bits,
                threshold.window[:found],
                threshold.key,
                threshold.first_tied,
                self._kept,
            )
        else:
            pack_kept(threshold, self._kept)

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

    def outputs_of(self, examples: int) -> Float32:
        """Return a view of the outputs [examples, outputs]."""
        return self.y[: examples * self.pitch].reshape(examples, self.pitch)[:, : self.outputs]

    def put_slope(self, slope: Float32) -> None:
        """Set the gradient [examples, outputs] at the outputs of this layer."""
        self.delta[: len(slope) * self.pitch].reshape(len(slope), self.pitch)[:, : self.outputs] = (
            slope
        )
