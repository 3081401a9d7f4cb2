"""A convolution fused with the max-pool after it: only the selected outputs are written and
propagated back.

After a ReLU and a max-pool many outputs have no gradient.  For each output that has one, `_run`
adds its contribution to the gradients of the weights and of the inputs: with AVX-512 in two passes
that keep all rows of a kernel in registers, else in one pass, a row at a time.  The order of
additions is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from e2fl.kernels import winograd
from e2fl.kernels.convolution import row_of_outputs
from e2fl.kernels.machine_code import Float32, Int32, compiled
from e2fl.kernels.table import Geometry, Strides, geometry, output_size, strides_of
from e2fl.kernels.vectors import LANES, WIDE, Emit, floats, int32s, vector_code

_NEAR = 6144  # floats: with as many of the gradient, they fill the L1 cache of most machines


def _choose_largest(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
    """Emit code for a window: its largest output, and where that output's own window begins.

    The place is -1 if the largest output is not above `least`: then no gradient passes.
    """
    build = emit.builder
    rows, best, place = arrays
    at_rows, pitch, outputs, high, wide, origin, line, depth, at_best = integers
    least = emit.spread(floats[0])
    with emit.loop(0, build.sdiv(outputs, outputs.type(LANES))) as v:
        column = emit.index((v, LANES))
        largest = emit.variable(emit.load(rows, emit.index(at_rows, column)))
        where = emit.variable(emit.spread(emit.narrow(origin)))
        with emit.loop(0, high) as y, emit.loop(0, wide) as x:
            value = emit.load(rows, emit.index(at_rows, (y, pitch), (x, outputs), column))
            larger = build.fcmp_ordered(">", value, emit.get(largest))
            here = emit.spread(emit.narrow(emit.index(origin, (y, line), (x, depth))))
            emit.set(largest, build.select(larger, value, emit.get(largest)))
            emit.set(where, build.select(larger, here, emit.get(where)))
        alive = build.fcmp_ordered(">", emit.get(largest), least)
        at = emit.index(at_best, column)
        emit.store(emit.clip(emit.get(largest), least), best, at)
        emit.store(build.select(alive, emit.get(where), emit.integers(-1)), place, at)


_largest = vector_code(_choose_largest)


def _turn_block(*, integers_too: bool) -> Any:
    """Return code that turns sixteen channels of at most sixteen pixels from last to first."""

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        source, target = arrays
        at, step, to, stride, channels, pixels = integers
        load = emit.load_integers if integers_too else emit.load
        pixel = [load(source, emit.index(at, (step, i))) for i in range(LANES)]
        for i, channel in enumerate(emit.transposed(pixel)):
            there = emit.builder.icmp_signed("<", channels.type(i), channels)
            count = emit.builder.select(there, pixels, pixels.type(0))
            emit.store_first(channel, count, target, emit.index(to, (stride, i)))

    return vector_code(write)


_turn_floats, _turn_integers = _turn_block(integers_too=False), _turn_block(integers_too=True)


@compiled
def _hand_over(
    chosen: tuple[Float32, Int32],
    at: int,
    sizes: tuple[int, int, int],
    out: Float32,
    to: int,
    strides: Strides,
    where: Int32,
    to_where: int,
) -> None:
    """Copy a row of selected outputs to the next layer's inputs, and their places to `where`.

    sizes: pooled width, outputs with and without padding.
    """
    width, outputs, channels = sizes
    best, place = chosen
    _, by_channel, _, by_column, _ = strides
    span = -(-width // LANES) * LANES
    bests, places = (best, out), (place, where)
    for px in range(0, width, LANES):
        for o in range(0, outputs, LANES):
            start, pixels = at + px * outputs + o, width - px
            to_place = (to_where + o * span + px, span, LANES)
            _turn_integers(places, (start, outputs, to_place, pixels), ())
            if by_column == 1:
                to_best = (to + o * by_channel + px, by_channel, channels - o)
                _turn_floats(bests, (start, outputs, to_best, pixels), ())
    if by_column != 1:
        for px in range(width):
            for o in range(channels):
                out[to + o * by_channel + px * by_column] = best[at + px * outputs + o]


@compiled
def forward(stage: Any, after: Any, batch: int) -> None:
    """Run a convolution, its ReLU and its pool, a row of windows at a time.

    Of the stage's buffers, `where` [batch, pooled height, outputs, pooled width in whole vectors]
    gets the offset in its image of the kernel's window that gave the output; -1 without a gradient.
    """
    size, strides = geometry(stage), strides_of(after)
    least, lowest = np.float32(0 if stage.relu else -np.inf), np.float32(-np.inf)
    out, where, rows = floats(after.x), int32s(stage.where), floats(stage.rows)
    arrays = (floats(stage.x), floats(stage.w), rows, int32s(stage.list_a), int32s(stage.list_w))
    chosen = (floats(stage.best), int32s(stage.place))
    _, width = output_size(size)
    pooled_height, pooled_width = pooled_size(size)
    line, outputs, pitch = size.width * size.depth, size.outputs, width * size.outputs
    span, pool = -(-pooled_width // LANES) * LANES, (size.pool_height, size.pool_width)
    for b in range(batch):
        if stage.winograd:
            winograd.image(stage, b, out, 0, 0)
        for py in range(pooled_height):
            at = 0
            if stage.winograd:
                at = py * pooled_width * outputs
            else:
                top = py * size.pool_height
                for y in range(size.pool_height):
                    at_a = (b * size.height + top + y) * line
                    row_of_outputs(arrays, at_a, y * pitch, size, lowest)
                for px in range(pooled_width):
                    left = px * size.pool_width
                    window = (left * outputs, pitch, outputs)
                    origin = (top * line + left * size.depth, line, size.depth)
                    _largest((rows, *chosen), (window, pool, origin, px * outputs), (least,))
            to = strides[4] + b * strides[0] + py * strides[2]
            to_where = (b * pooled_height + py) * outputs * span
            sizes = (pooled_width, outputs, stage.channels)
            _hand_over(chosen, at, sizes, out, to, strides, where, to_where)


def _pick(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> Any:
    """Emit code that lists places and gradients of the outputs of a row with a place in a range."""
    build = emit.builder
    where, gradient, places, deltas = arrays
    at_where, at_gradient, span, low, high, before = integers
    low, high = (emit.spread(emit.narrow(end)) for end in (low, high))
    listed = emit.variable(before)
    with emit.loop(0, build.sdiv(span, span.type(LANES))) as v:
        place = emit.load_integers(where, emit.index(at_where, (v, LANES)))
        from_low, to_high = build.icmp_signed(">=", place, low), build.icmp_signed("<", place, high)
        alive = build.and_(from_low, to_high)
        so_far = emit.get(listed)
        slope = emit.load(gradient, emit.index(at_gradient, (v, LANES)))
        emit.compress(place, alive, places, so_far)
        emit.compress(slope, alive, deltas, so_far)
        emit.set(listed, build.add(so_far, emit.count(alive)))
    return emit.get(listed)


_picked = vector_code(_pick)


_MANY = 6  # vectors together; another number would add to the inputs' gradient in another order


def _run(*, weights: bool, inputs: bool) -> Any:
    """Return code for rows of the kernel: dw += d * a if `weights`, da += d * w if `inputs`."""

    tall = 1 if weights and inputs else 3

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        a, da, w, dw, places, deltas = arrays
        count, base, line, at_w, length, height = integers
        for ky, rows in emit.tiles(0, height, tall, 1):
            for k, vectors in emit.tiles(0, length, _MANY * LANES, LANES):
                grid = [(r, v) for r in range(rows) for v in range(0, vectors, LANES)]
                columns = [emit.index(at_w, (emit.index(ky, r), length), k, v) for r, v in grid]
                used = [emit.load(w, column) for column in columns] if inputs else []
                sums = [emit.variable(emit.load(dw, at)) for at in columns] if weights else []
                with emit.loop(0, count) as n:
                    d = emit.spread(emit.scalar(deltas, n))
                    start = emit.index(base, k, (ky, line), emit.wide(emit.scalar(places, n)))
                    for i, (r, v) in enumerate(grid):
                        at = emit.index(start, (line, r), v)
                        if weights:
                            total = emit.fused(d, emit.load(a, at), emit.get(sums[i]))
                            emit.set(sums[i], total)
                        if inputs:
                            emit.store(emit.fused(d, used[i], emit.load(da, at)), da, at)
                for column, total in zip(columns, sums, strict=False):
                    emit.store(emit.get(total), dw, column)

    return vector_code(write)


_run_both = _run(weights=True, inputs=True)
_run_weights, _run_inputs = _run(weights=True, inputs=False), _run(weights=False, inputs=True)


@compiled
def pooled_size(size: Geometry) -> tuple[int, int]:
    """Return the height and width of the pool's outputs."""
    height, width = output_size(size)
    return height // size.pool_height, width // size.pool_width


@compiled
def rows_at_once(size: Geometry, passes: int = 1) -> int:
    """Return how many rows of windows to process together: their inputs stay in the L1 cache."""
    lines = passes * _NEAR // (size.width * size.depth)
    return max(1, (lines - size.kernel_height + 1) // size.pool_height)


_WEIGHTS, _INPUTS, _BOTH = 1, 2, 3  # what a pass computes the gradient of


@compiled
def backward(stage: Any, after: Any, batch: int) -> None:
    """Compute the gradients of the weights [outputs, kernel_height, kernel_width * depth in whole
    vectors] and, unless the stage is the first, of the inputs.
    """
    floats(stage.dw)[:] = np.float32(0)
    if not stage.first:
        floats(stage.dx)[: batch * stage.height * stage.width * stage.depth] = np.float32(0)
    # Rows of a kernel that takes several tiles take turns, so that the order stays the same.
    vectors = -(-stage.kernel_width * stage.depth // LANES)
    apart = WIDE and vectors in (1, _MANY)
    if stage.first or apart:
        _sweep(stage, after, batch, _WEIGHTS)
    if not stage.first:
        _sweep(stage, after, batch, _INPUTS if apart else _BOTH)


@compiled
def _sweep(stage: Any, after: Any, batch: int, what: int) -> None:
    """Make one pass over the outputs with a gradient."""
    size = geometry(stage)
    gradient, buffer, where = floats(after.dx), floats(stage.line), int32s(stage.where)
    lists = (int32s(stage.places), floats(stage.deltas))
    arrays = (floats(stage.x), floats(stage.dx), floats(stage.w_back), floats(stage.dw), *lists)
    pooled_height, pooled_width = pooled_size(size)
    span = -(-pooled_width // LANES) * LANES
    length = -(-size.kernel_width * size.depth // LANES) * LANES
    by_example, by_channel, by_row, by_column, first = strides_of(after)
    slopes = gradient if by_column == 1 else buffer
    line = size.width * size.depth
    image = size.height * line
    strip = rows_at_once(size, 2 if what == _WEIGHTS else 1)
    for b in range(batch):
        for top in range(0, pooled_height, strip):
            stop = min(top + strip, pooled_height)
            for o in range(stage.channels):
                count = 0
                for row in range(top, stop):
                    # All rows of a kernel together: lower windows first, as with one row at a time.
                    py = top + stop - 1 - row if what == _INPUTS else row
                    at_where = ((b * pooled_height + py) * size.outputs + o) * span
                    at = first + b * by_example + py * by_row + o * by_channel
                    if by_column != 1:
                        for px in range(pooled_width):
                            buffer[px] = gradient[at + px * by_column]
                    low, high = 0, image
                    for y in range(size.pool_height if what == _INPUTS else 1):
                        if what == _INPUTS:
                            low = ((py + 1) * size.pool_height - 1 - y) * line
                            high = low + line
                        begin = at if by_column == 1 else 0
                        window = (at_where, begin, span, low, high, count)
                        count = _picked((where, slopes, *lists), window, ())
                if count == 0:
                    continue
                at_w = o * size.kernel_height * length
                integers = (count, b * image, line, at_w, length, size.kernel_height)
                if what == _WEIGHTS:
                    _run_weights(arrays, integers, ())
                elif what == _INPUTS:
                    _run_inputs(arrays, integers, ())
                else:
                    _run_both(arrays, integers, ())
