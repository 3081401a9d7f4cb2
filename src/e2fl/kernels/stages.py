"""Plan: a network as a chain of stages, its layers, each with its own reusable buffers.

A stage holds its input, writes its output into the input of the next stage, and in the backward
pass reads the gradient from there.  Its edges, scores or weights, are set before a fit and copied
out after it.  `network.py` has the loops; a stage tells them its sizes and buffers in a row of a
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import DataError
from e2fl.kernels import linear, network, pooling, winograd
from e2fl.kernels.machine_code import Float32, Int32, Int64, UInt16
from e2fl.kernels.score_step import LIMITS, Rates, ScoreStep, Threshold, pack_kept
from e2fl.kernels.table import STAGE, Geometry
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


class _Stage:
    """A row of the table, which knows buffers by their address, and the arrays behind it."""

    def __init__(self, row: Any, limits: Any):
        self.row, self.limits = row, limits
        self._arrays: dict[str, Any] = {}

    def put(self, **values: Any) -> None:
        """Write numbers and buffers into the row, and keep the buffers alive."""
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                self._arrays[name] = value
                self.row[name] = value.ctypes.data, value.size
            else:
                self.row[name] = value

    def edges(self, name: str) -> Float32:
        """Return the buffer of this name, without its padding."""
        return np.asarray(self._arrays[name])

    def put_threshold(self, threshold: Threshold) -> None:
        """Hand over the threshold of scores."""
        self.limits[:] = threshold.limits
        self.put(scored=True, window=threshold.window, keys=threshold.keys)


class Convolution(_Stage):
    """A convolution, its ReLU and its max-pool."""

    def __init__(self, row: Any, limits: Any, block: Block, image: Shape, batch: int, first: bool):
        super().__init__(row, limits)
        assert block.kernel is not None
        above, beside = block.padding
        depth = image.depth if first else padded(image.depth)
        height, width = image.height + 2 * above, image.width + 2 * beside
        size = Geometry(
            height, width, depth, *block.kernel, padded(block.outputs), *(block.pool or (1, 1))
        )
        rows, columns = height - block.kernel[0] + 1, width - block.kernel[1] + 1
        self.output = Shape(block.outputs, rows // size.pool_height, columns // size.pool_width)
        self.by_winograd = block.pool in (None, (2, 2)) and winograd.pays(size, block.inputs)
        line = width * depth
        self.put(**size._asdict(), channels=block.outputs, above=above, beside=beside)
        self.put(first=first, relu=block.relu, pooled=bool(block.pool), winograd=self.by_winograd)
        self.put(by_example=height * line, by_channel=1, by_row=line, by_column=depth)
        self.put(start=above * line + beside * depth, x=aligned(batch * height * line))
        self.put(dx=aligned(0 if first else batch * height * line))
        self._lay_out_weights(block, size)
        if block.pool:
            self._make_room_for_pool(batch, size, columns)
        else:
            self._make_room_for_outputs(batch, size, rows, columns)

    def _lay_out_weights(self, block: Block, size: Geometry) -> None:
        """Compute where the loops expect each edge [o, c, y, x]."""
        _, _, depth, height, width, outputs, *_ = size
        shape = (block.outputs, block.inputs, height, width)
        o, c, y, x = (axis.reshape(-1) for axis in np.indices(shape, np.int32))
        run, length = width * depth, padded(width * depth)
        at_w = (y * run + x * depth + c) * outputs + o
        if block.pool:
            at_back = at_dw = (o * height + y) * length + x * depth + c
            back = gradient = outputs * height * length
        else:
            turned = (height - 1 - y) * width * outputs + (width - 1 - x) * outputs + o
            at_back, at_dw = turned * depth + c, at_w
            back = gradient = height * run * outputs
        self.put(w=aligned(height * run * outputs), w_back=aligned(back), dw=aligned(gradient))
        self.put(at_w=at_w, at_back=at_back, at_dw=at_dw)
        if self.by_winograd:
            kernels, tiles, products = winograd.buffers(size)
            self.put(kernels=kernels, tiles=tiles, products=products)
        else:
            self.put(list_a=_steps(size), list_w=_steps(size))

    def _make_room_for_pool(self, batch: int, size: Geometry, columns: int) -> None:
        _, height, width = self.output
        span = padded(width)
        # Of a row of windows, or of all of them; whole vectors are read from each row.
        points = (height if self.by_winograd else 1) * width + span
        room = pooling.rows_at_once(size, 2) * span + LANES
        self.put(
            where=np.full(batch * height * size.outputs * span, -1, np.int32),
            best=aligned(points * size.outputs),
            place=np.empty(points * size.outputs, np.int32),
            rows=aligned(size.pool_height * columns * size.outputs),
            places=np.empty(room, np.int32),
            deltas=aligned(room),
            line=aligned(span),
        )

    def _make_room_for_outputs(self, batch: int, size: Geometry, rows: int, columns: int) -> None:
        tall, wide = rows + 2 * (size.kernel_height - 1), columns + 2 * (size.kernel_width - 1)
        turned = size._replace(depth=size.outputs)
        self.put(dz=aligned(batch * tall * wide * size.outputs))
        self.put(out=aligned(batch * rows * columns * size.outputs))
        self.put(turn_a=_steps(turned), turn_w=_steps(turned))

    def put_scores(self, scores: Float32, weights: Frozen, dropped: int) -> None:
        """Set the scores to train, which change in place."""
        step = ScoreStep(scores, weights.weights, dropped)
        self.put_threshold(step.threshold)
        self.put(values=scores, velocity=step.velocity, frozen=weights.weights)
        self._show(step.effective)

    def put_weights(self, weights: Float32, anchor: Float32 | None, proximal: float) -> None:
        """Set the weights to train, which change in place, and the anchor of the proximal term."""
        velocity = np.full_like(weights, -0.0)
        self.put(scored=False, values=weights, velocity=velocity, proximal=proximal)
        self.put(anchor=weights if anchor is None else anchor)
        self._show(weights)

    def _show(self, effective: Float32) -> None:
        self.put(effective=effective)
        network.show(self.row)


def _steps(size: Geometry) -> Int32:
    """Return a buffer for the steps of a kernel's window."""
    room = size.kernel_height * padded(size.kernel_width * size.depth) + LANES
    return np.empty(room, np.int32)


class Linear(_Stage):
    """A linear layer and its ReLU; its edges are either scores or weights."""

    def __init__(self, row: Any, limits: Any, block: Block, image: Shape, batch: int, first: bool):
        super().__init__(row, limits)
        self.inputs, self.outputs = block.inputs, block.outputs
        self.output = Shape(block.outputs, 1, 1)
        stride, self.pitch = row_length(self.inputs), row_length(self.outputs)
        edges, pixels = self.outputs * stride, image.height * image.width
        self.y, self.delta = aligned(batch * self.pitch), aligned(batch * self.pitch)
        self._values, self._velocity = aligned(edges), aligned(edges)
        self.kept: UInt16 = np.empty(edges // LANES, np.uint16)
        self.put(linear=True, first=first, relu=block.relu, outputs=self.outputs, pitch=self.pitch)
        self.put(by_example=stride, by_channel=pixels, by_row=image.width, by_column=1)
        self.put(x=aligned(batch * stride), dx=aligned(batch * stride), y=self.y, delta=self.delta)
        self.put(values=self._values, velocity=self._velocity)
        self.put(kept=self.kept, scratch=aligned(linear.SCRATCH))

    def put_scores(self, scores: Float32, weights: Frozen, dropped: int) -> None:
        """Set the scores to train."""
        self._fill(self._values, scores, np.nan)
        self._velocity.fill(-0.0)
        threshold = Threshold(self._values, scores.size, dropped)
        self.put_threshold(threshold)
        self.put(signs=weights.signs, magnitude=weights.magnitude)
        pack_kept(threshold.limits, threshold.bits, self.kept)

    def put_weights(self, weights: Float32, anchor: Float32 | None, proximal: float) -> None:
        """Set the weights to train, and the anchor of the proximal term."""
        self._fill(self._values, weights, 0.0)
        self._velocity.fill(-0.0)
        copied = self._values
        if anchor is not None:
            copied = aligned(self._values.size)
            self._fill(copied, anchor, 0.0)
        self.put(scored=False, anchor=copied, proximal=0.0 if anchor is None else proximal)

    def edges(self, name: str) -> Float32:
        table: Float32 = super().edges(name).reshape(self.outputs, -1)
        return table[:, : self.inputs]

    def _fill(self, rows: Float32, values: Float32, rest: float) -> None:
        table = rows.reshape(self.outputs, -1)
        table[:, : self.inputs] = values.reshape(self.outputs, self.inputs)
        table[:, self.inputs :] = rest

    def rows(self, buffer: Float32, examples: int) -> Float32:
        """Return a view [examples, outputs] of the outputs `y` or of their gradient `delta`."""
        return buffer[: examples * self.pitch].reshape(examples, self.pitch)[:, : self.outputs]


Stage = Convolution | Linear

# Steps that only add up gradients, in the velocity.
_ACCUMULATE = Rates(np.float32(0), np.float32(1), np.float32(0))


class Plan:
    """The stages of a network, with buffers for batches of up to `batch` inputs of one shape."""

    def __init__(self, blocks: list[Block], shape: tuple[int, ...], batch: int):
        self.batch = batch
        self.input = shape
        image = Shape(*shape) if len(shape) == 3 else Shape(int(np.prod(shape)), 1, 1)
        self._image = image
        self.table = np.zeros(len(blocks), STAGE), np.zeros(len(blocks), LIMITS)
        self.stages: dict[str, Stage] = {}
        for number, block in enumerate(blocks):
            given = image.depth * (1 if block.kernel else image.height * image.width)
            if given != block.inputs:  # the loops would read beyond the inputs
                raise DataError(
                    f"inputs of the shape {shape} do not fit the network: its layer '{block.name}' "
                    f"reads {block.inputs} values, not {given}"
                )
            kind = Linear if block.kernel is None else Convolution
            rows, limits = (part[number : number + 1] for part in self.table)
            stage = kind(rows[0], limits, block, image, batch, number == 0)
            self.stages[block.name] = stage
            image = stage.output
        assert isinstance(stage, Linear)
        self.last = stage

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

    def take(self, out: Mapping[str, Float32], name: str = "values") -> None:
        """Copy out the trained scores or weights, or another buffer of each layer's edges.

        After `put_weights`, `velocity` holds the gradients that `backward` accumulated.
        """
        for layer, stage in self.stages.items():
            edges = stage.edges(name)
            out[layer].reshape(edges.shape)[:] = edges

    def fit(self, x: Float32, y: Int64, ends: Int64, rates: Float32) -> NDArray[np.float64]:
        """Take one step on each batch of these examples; return the losses.

        ends: of the batches.  rates: of each batch.
        """
        self._require_room(int(np.diff(ends, prepend=0).max()))
        if not 0 <= y.min() <= y.max() < self.last.outputs:
            raise DataError(
                f"labels must be 0 to {self.last.outputs - 1}, not {y.min()} to {y.max()}"
            )
        return network.fit(*self.table, self._images(x), y, ends, rates)

    def outputs(self, x: Float32) -> Float32:
        """Return the logits [examples, classes] of at most one batch."""
        self._require_room(len(x))
        network.outputs(self.table[0], self._images(x))
        return self.last.rows(self.last.y, len(x))

    def backward(self, slope: Float32, rates: Rates = _ACCUMULATE) -> None:
        """Take a step from this derivative at the outputs; by default, accumulate gradients."""
        self.last.rows(self.last.delta, len(slope))[:] = slope
        network.backward(*self.table, len(slope), rates)

    def _images(self, x: Float32) -> Float32:
        return np.ascontiguousarray(x).reshape(len(x), *self._image)

    def _require_room(self, examples: int) -> None:
        if examples > self.batch:
            raise ValueError(
                f"a batch of {examples} after a first one of {self.batch}: "
                "the first must be the largest"
            )
