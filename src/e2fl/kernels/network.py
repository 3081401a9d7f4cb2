"""A whole network in compiled code: forward and backward passes, steps, and all steps of a fit.

Stages are rows of a table with their sizes and the addresses of their buffers, so that one function
runs every chain of layers, and a fit does not return to the interpreter between its steps.
`stages.py` allocates the buffers and fills the table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.kernels import convolution, linear, pooling, winograd
from e2fl.kernels.convolution import Geometry, Strides
from e2fl.kernels.machine_code import Float32, Int64, compiled
from e2fl.kernels.score_step import (
    Rates,
    advance_scores,
    advance_weights,
    clear_dropped,
    locate,
    pack_kept,
)
from e2fl.kernels.sorting import gather, scatter_into
from e2fl.kernels.vectors import LANES, floats, int32s, uint16s, uint32s

_FLAGS = ("linear", "relu", "first", "scored", "pooled", "winograd")
_STRIDES = ("by_example", "by_channel", "by_row", "by_column", "start")  # of the input
_SIZES = ("channels", "above", "beside", "inputs", "outputs", "pitch")
_BUFFERS = (
    *("x", "dx", "y", "delta"),  # inputs, outputs, and their gradients
    *("values", "velocity", "frozen", "effective", "anchor"),  # of the edges
    *("kept", "signs", "scratch", "window", "keys"),  # of scores
    *("w", "w_back", "dw", "at_w", "at_back", "at_dw"),  # a kernel in the layouts of the loops
    *("list_a", "list_w", "turn_a", "turn_w", "kernels", "tiles", "products"),
    *("where", "rows", "best", "place", "places", "deltas", "line"),  # of a pool
    *("dz", "out"),
)
# A row of the table; a buffer is its address and size.
STAGE = np.dtype(
    [(name, np.int64) for name in (*_FLAGS, *_STRIDES, *_SIZES)]
    + [(name, np.int64) for name in Geometry._fields if name not in _SIZES]
    + [(name, np.int64, 2) for name in _BUFFERS]
    + [("magnitude", np.float32), ("proximal", np.float32)]
)


def put(row: Any, **values: Any) -> None:
    """Write numbers and buffers into a row of the table."""
    for name, value in values.items():
        buffer = isinstance(value, np.ndarray)
        row[name] = (value.ctypes.data, value.size) if buffer else value


@compiled
def _size(stage: Any) -> Geometry:
    kernel = (stage.kernel_height, stage.kernel_width)
    pool = (stage.pool_height, stage.pool_width)
    return Geometry(stage.height, stage.width, stage.depth, *kernel, stage.outputs, *pool)


@compiled
def _strides(stage: Any) -> Strides:
    rows = (stage.by_row, stage.by_column)
    return (stage.by_example, stage.by_channel, *rows, stage.start)


@compiled
def _inner(stage: Any) -> tuple[int, int, int]:
    """Return the height, width and channels of a convolution's outputs."""
    height, width = stage.height - stage.kernel_height + 1, stage.width - stage.kernel_width + 1
    return height, width, stage.channels


@compiled
def show(stages: Any, number: int) -> None:
    """Copy the effective weights of a convolution into the layouts of the loops."""
    stage = stages[number]
    effective, w = floats(stage.effective), floats(stage.w)
    scatter_into(effective, int32s(stage.at_w), w)
    if stage.winograd:
        winograd.transform_kernels(w, floats(stage.kernels), _size(stage))
    if not stage.first:
        scatter_into(effective, int32s(stage.at_back), floats(stage.w_back))


@compiled
def _convolve(stage: Any, after: Any, batch: int) -> None:
    """Run a convolution with its ReLU and pool; `after` is the next stage."""
    size, relu = _size(stage), stage.relu != 0
    x, w, out = floats(stage.x), floats(stage.w), floats(after.x)
    lists = (int32s(stage.list_a), int32s(stage.list_w))
    transforms = (floats(stage.kernels), floats(stage.tiles), floats(stage.products))
    if stage.pooled:
        where, chosen = int32s(stage.where), (floats(stage.best), int32s(stage.place))
        to = (stage.channels, out, _strides(after), batch)
        if stage.winograd:
            pooling.forward_winograd(x, transforms, size, relu, where, chosen, *to)
        else:
            rows = floats(stage.rows)
            pooling.forward(x, w, lists, size, relu, where, rows, chosen, *to)
        return
    border = (after.above, after.beside)
    if after.linear:
        out = floats(stage.out)
    if stage.winograd:
        winograd.forward(x, transforms, size, relu, out, border, batch)
    else:
        convolution.forward(x, w, lists, size, relu, out, border, batch)
    if after.linear:
        height, width, _ = inner = _inner(stage)
        line = width * stage.outputs
        strides = (height * line, 1, line, stage.outputs, 0)
        to_strides = _strides(after)
        convolution.copy_slopes(out, out, strides, floats(after.x), to_strides, inner, False, batch)


@compiled
def _copy_inputs(inputs: Float32, first: Any) -> None:
    """Copy a batch into the buffer of the first stage."""
    x = floats(first.x)
    _, depth, height, width = inputs.shape
    for b in range(inputs.shape[0]):
        for c in range(depth):
            for y in range(height):
                at = first.start + b * first.by_example + c * first.by_channel + y * first.by_row
                row = inputs[b, c, y]
                for i in range(width):
                    x[at + i * first.by_column] = row[i]


@compiled
def outputs(stages: Any, inputs: Float32) -> None:
    """Compute the outputs of the network; inputs: [examples, depth, height, width]."""
    batch = inputs.shape[0]
    _copy_inputs(inputs, stages[0])
    for i in range(stages.size):
        stage = stages[i]
        if not stage.linear:
            _convolve(stage, stages[i + 1], batch)
            continue
        x, values, y = floats(stage.x), floats(stage.values), floats(stage.y)
        sizes = (stage.by_example, stage.outputs, stage.pitch)
        if stage.scored:
            masked = (uint16s(stage.kept), uint16s(stage.signs), floats(stage.scratch))
            linear.forward(x, values, masked, stage.magnitude, y, batch, sizes)
        else:
            linear.forward(x, values, None, np.float32(0), y, batch, sizes)
        if i + 1 < stages.size:
            after = stages[i + 1]
            copied = (stage.outputs, stage.pitch, after.by_example)
            linear.pass_on(y, floats(after.x), batch, copied, stage.relu != 0)


@compiled
def _convolve_back(stage: Any, after: Any, batch: int) -> None:
    """Compute the gradients of a convolution's weights and, unless it is the first, inputs."""
    size = _size(stage)
    x, dx = floats(stage.x), floats(stage.dx)
    w_back, dw = floats(stage.w_back), floats(stage.dw)
    slopes = floats(after.dx)
    if stage.pooled:
        lists = (int32s(stage.places), floats(stage.deltas), floats(stage.line))
        where, back = int32s(stage.where), not stage.first
        arrays = (x, dx, w_back, dw, where, *lists)
        pooling.backward(*arrays, size, stage.channels, back, slopes, _strides(after), batch)
        return
    height, width, _ = inner = _inner(stage)
    above, beside = size.kernel_height - 1, size.kernel_width - 1
    tall, wide = height + 2 * above, width + 2 * beside
    line = wide * size.outputs
    dz = floats(stage.dz)
    strides = (tall * line, 1, line, size.outputs, above * line + beside * size.outputs)
    from_strides, relu = _strides(after), stage.relu != 0
    convolution.copy_slopes(floats(after.x), slopes, from_strides, dz, strides, inner, relu, batch)
    convolution.backward_weights(x, dz, dw, size, batch)
    if not stage.first:
        # The gradient of the inputs, border included, is a convolution of dz with the kernel
        # rotated by 180 degrees.
        turn = Geometry(
            tall, wide, size.outputs, size.kernel_height, size.kernel_width, size.depth, 1, 1
        )
        turned = (int32s(stage.turn_a), int32s(stage.turn_w))
        convolution.forward(dz, w_back, turned, turn, False, dx, (0, 0), batch)


@compiled
def _step_convolution(stage: Any, limits: Any, rates: Rates) -> None:
    """Take a step on the edges of a convolution, from the gradient of its weights."""
    gradient = gather(floats(stage.dw), int32s(stage.at_dw))
    velocity, effective = floats(stage.velocity), floats(stage.effective)
    if stage.scored:
        edges = (floats(stage.values), velocity, floats(stage.frozen), effective)
        lists = (int32s(stage.window), uint32s(stage.keys))
        advance_scores(edges, gradient, limits, lists, rates)
    else:
        anchor = floats(stage.anchor)
        advance_weights(effective, velocity, gradient, anchor, rates, stage.proximal)


@compiled
def _step_linear(stage: Any, limits: Any, batch: int, rates: Rates) -> None:
    """Compute the gradient of a linear layer's inputs, and take a step on its edges."""
    x, dx, delta = floats(stage.x), floats(stage.dx), floats(stage.delta)
    values, velocity = floats(stage.values), floats(stage.velocity)
    sizes = (batch, stage.by_example, stage.outputs, stage.pitch, not stage.first)
    rate, momentum, decay = rates
    if not stage.scored:
        edges = (values, velocity, floats(stage.anchor))
        linear.backward(
            x, dx, delta, edges, None, 0, sizes, (rate, momentum, decay, stage.proximal)
        )
        return
    kept, signs, window = uint16s(stage.kept), uint16s(stage.signs), int32s(stage.window)
    bits = values.view(np.uint32)
    window_of = (limits[0].low, limits[0].high)
    constants = (stage.magnitude, rate, momentum, decay, *window_of)
    below, listed = linear.backward(
        x,
        dx,
        delta,
        (values, velocity, kept, signs, window),
        (kept, signs, floats(stage.scratch)),
        window.size - LANES,
        sizes,
        constants,
    )
    if locate(limits, bits, window, uint32s(stage.keys), below, listed):
        clear_dropped(limits, bits, window[:listed], kept)
    else:
        pack_kept(limits, bits, kept)


@compiled
def backward(stages: Any, limits: Any, batch: int, rates: Rates) -> None:
    """Take a step on all edges from the gradient at the outputs, in the last stage's buffer.

    limits: a row of LIMITS for each stage.
    """
    for i in range(stages.size - 1, -1, -1):
        stage = stages[i]
        own = limits[i : i + 1]
        if not stage.linear:
            _convolve_back(stage, stages[i + 1], batch)
            _step_convolution(stage, own, rates)
            show(stages, i)
            continue
        if i + 1 < stages.size:
            after = stages[i + 1]
            copied = (stage.outputs, stage.pitch, after.by_example)
            x, dx, delta = floats(after.x), floats(after.dx), floats(stage.delta)
            linear.pass_back(x, dx, delta, batch, copied, stage.relu != 0)
        _step_linear(stage, own, batch, rates)


@compiled
def fit(
    stages: Any,
    limits: Any,
    inputs: Float32,
    labels: Int64,
    shares: Float32,
    ends: Int64,
    rates: Float32,
) -> NDArray[np.float64]:
    """Take one step on each batch; return their losses.

    inputs: [examples, depth, height, width].  shares: the weight of each example.  ends: of the
    batches.  rates: of each batch, in the order of `Rates`.
    """
    losses = np.empty(ends.size, np.float64)
    last = stages[stages.size - 1]
    start = 0
    for step in range(ends.size):
        stop = ends[step]
        outputs(stages, inputs[start:stop])
        y, delta = floats(last.y), floats(last.delta)
        some = (labels[start:stop], shares[start:stop])
        losses[step] = linear.loss_gradient(y, *some, delta, last.outputs, last.pitch)
        now = Rates(rates[step, 0], rates[step, 1], rates[step, 2])
        backward(stages, limits, stop - start, now)
        start = stop
    return losses
