"""A convolution fused with the max-pool after it: only the selected outputs are written and
propagated back.

After a ReLU and a max-pool most outputs have no gradient.  For each output that has one, `_run`
adds its contribution to the gradients of the weights and of the inputs, one row of the kernel at a
time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from e2fl.kernels.convolution import Geometry, row_of_outputs
from e2fl.kernels.machine_code import Float32, Int32, compiled
from e2fl.kernels.vectors import LANES, Emit, vector_code

_NEAR = 6144  # floats: with as many of the gradient, they fill the L1 cache of most machines


def _choose_largest(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
    """Emit code for one window of a max-pool: its largest output, and where the kernel's window of
    that output begins.

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
        value = build.select(
            build.fcmp_ordered("<", emit.get(largest), least), least, emit.get(largest)
        )
        emit.store(value, best, emit.index(at_best, column))
        emit.store(
            build.select(alive, emit.get(where), emit.integers(-1)),
            place,
            emit.index(at_best, column),
        )


_largest = vector_code(_choose_largest)


def _turn_block(*, integers_too: bool) -> Any:
    """Return code that transposes channels last to channels first, for up to sixteen pixels of as
    many channels.
    """

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
def forward(
    a: Float32,
    w: Float32,
    out: Float32,
    where: Int32,
    rows: Float32,
    best: Float32,
    place: Int32,
    lists: tuple[Int32, Int32],
    batch: int,
    size: Geometry,
    channels: int,
    strides: tuple[int, int, int, int, int],
    relu: bool,
) -> None:
    """Convolve and pool, a row of windows at a time.

    channels: outputs without padding.
    strides: of `out` for an example, a channel, a row and a column, and the offset.
    where: [batch, pooled height, outputs, pooled width in whole vectors]: the offset in its image
    of the kernel's window that gave the output; -1 without a gradient.
    rows, best, place: buffers for the outputs of one row of windows, and for the selected ones.
    lists: as in `convolution.forward`.
    """
    least = np.float32(0 if relu else -np.inf)
    width = size.width - size.kernel_width + 1
    pooled_height = (size.height - size.kernel_height + 1) // size.pool_height
    pooled_width = width // size.pool_width
    line = size.width * size.depth
    span = -(-pooled_width // LANES) * LANES
    by_example, by_channel, by_row, by_column, first = strides
    arrays, chosen = (a, w, rows, lists[0], lists[1]), (rows, best, place)
    bests, places = (best, out), (place, where)
    for b in range(batch):
        for py in range(pooled_height):
            top = py * size.pool_height
            for y in range(size.pool_height):
                at_a = (b * size.height + top + y) * line
                row_of_outputs(arrays, at_a, y * width * size.outputs, size, np.float32(-np.inf))
            for px in range(pooled_width):
                left = px * size.pool_width
                integers = (
                    left * size.outputs,
                    width * size.outputs,
                    size.outputs,
                    size.pool_height,
                    size.pool_width,
                    top * line + left * size.depth,
                    line,
                    size.depth,
                    px * size.outputs,
                )
                _largest(chosen, integers, (least,))
            to_where = (b * pooled_height + py) * size.outputs * span
            to = first + b * by_example + py * by_row
            for px in range(0, pooled_width, LANES):
                for o in range(0, size.outputs, LANES):
                    at, pixels = px * size.outputs + o, pooled_width - px
                    _turn_integers(
                        places,
                        (at, size.outputs, to_where + o * span + px, span, LANES, pixels),
                        (),
                    )
                    if by_column == 1:
                        beyond = (
                            at,
                            size.outputs,
                            to + o * by_channel + px,
                            by_channel,
                            channels - o,
                            pixels,
                        )
                        _turn_floats(bests, beyond, ())
            if by_column != 1:
                for px in range(pooled_width):
                    for o in range(channels):
                        out[to + o * by_channel + px * by_column] = best[px * size.outputs + o]


def _pick(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> tuple[Any, Any]:
    """Emit code that lists the outputs of a row that have a gradient: their places and their
    gradients.
    """
    build = emit.builder
    where, gradient, places, deltas = arrays
    at_where, at_gradient, span, before = integers
    found = emit.variable(before)
    with emit.loop(0, build.sdiv(span, span.type(LANES))) as v:
        place = emit.load_integers(where, emit.index(at_where, (v, LANES)))
        alive = build.icmp_signed(">=", place, emit.integers(0))
        so_far = emit.get(found)
        emit.compress(place, alive, places, so_far)
        emit.compress(
            emit.load(gradient, emit.index(at_gradient, (v, LANES))), alive, deltas, so_far
        )
        emit.set(found, build.add(so_far, emit.count(alive)))
    return emit.get(found), emit.index(0)


_picked = vector_code(_pick)


def _run(vectors: int, *, back: bool) -> Any:
    """Return code for one row of the kernel, over a list of outputs: dw += d * a and, if `back`, da
    += d * w.
    """

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        a, da, w, dw, places, deltas = arrays
        count, base, at_w = integers
        columns = [emit.index(at_w, LANES * v) for v in range(vectors)]
        weights = [emit.load(w, column) for column in columns] if back else []
        sums = [emit.variable(emit.load(dw, column)) for column in columns]
        with emit.loop(0, count) as n:
            d = emit.spread(emit.scalar(deltas, n))
            start = emit.index(base, emit.wide(emit.scalar(places, n)))
            for v in range(vectors):
                at = emit.index(start, LANES * v)
                emit.set(sums[v], emit.fused(d, emit.load(a, at), emit.get(sums[v])))
                if back:
                    emit.store(emit.fused(d, weights[v], emit.load(da, at)), da, at)
        for v in range(vectors):
            emit.store(emit.get(sums[v]), dw, columns[v])

    return vector_code(write)


_MANY = 6  # vectors of a run together; another number would add to the inputs' gradient in another order
_run_many, _run_1 = _run(_MANY, back=True), _run(1, back=True)
_first_run_many, _first_run_1 = _run(_MANY, back=False), _run(1, back=False)


@compiled
def rows_at_once(size: Geometry) -> int:
    """Return how many rows of pool windows to process together, so that their inputs stay in the L1
    cache.
    """
    lines = _NEAR // (size.width * size.depth)
    return max(1, (lines - size.kernel_height + 1) // size.pool_height)


@compiled
def backward(
    a: Float32,
    da: Float32,
    w: Float32,
    dw: Float32,
    where: Int32,
    gradient: Float32,
    places: Int32,
    deltas: Float32,
    line: Float32,
    batch: int,
    size: Geometry,
    channels: int,
    strides: tuple[int, int, int, int, int],
    back: bool,
) -> None:
    """Compute the gradients of the weights and, if `back`, of the inputs, given the gradient of the
    pool's output.

    w, dw: [outputs, kernel_height, kernel_width * depth in whole vectors].
    strides: of `gradient`, as in the forward pass.
    places, deltas: buffers for the outputs of `rows_at_once(size)` rows.
    line: a buffer for the gradients of a row, if they are not contiguous.
    """
    pooled_height = (size.height - size.kernel_height + 1) // size.pool_height
    pooled_width = (size.width - size.kernel_width + 1) // size.pool_width
    span = -(-pooled_width // LANES) * LANES
    length = -(-size.kernel_width * size.depth // LANES) * LANES
    by_example, by_channel, by_row, by_column, first = strides
    image = size.height * size.width * size.depth
    strip = rows_at_once(size)
    dw[:] = np.float32(0)
    if back:
        da[: batch * image] = np.float32(0)
    # Built outside the loops, because building a tuple counts references to each of its arrays.
    arrays, direct, gathered = (
        (a, da, w, dw, places, deltas),
        (where, gradient, places, deltas),
        (where, line, places, deltas),
    )
    for b in range(batch):
        for top in range(0, pooled_height, strip):
            for o in range(channels):
                count = 0
                for py in range(top, min(top + strip, pooled_height)):
                    at_where = ((b * pooled_height + py) * size.outputs + o) * span
                    at = first + b * by_example + py * by_row + o * by_channel
                    if by_column == 1:
                        count, _ = _picked(direct, (at_where, at, span, count), ())
                    else:
                        for px in range(pooled_width):
                            line[px] = gradient[at + px * by_column]
                        count, _ = _picked(gathered, (at_where, 0, span, count), ())
                if count == 0:
                    continue
                for ky in range(size.kernel_height):
                    base = b * image + ky * size.width * size.depth
                    at_w = (o * size.kernel_height + ky) * length
                    k = 0
                    while k + _MANY * LANES <= length:
                        if back:
                            _run_many(arrays, (count, base + k, at_w + k), ())
                        else:
                            _first_run_many(arrays, (count, base + k, at_w + k), ())
                        k += _MANY * LANES
                    while k < length:
                        if back:
                            _run_1(arrays, (count, base + k, at_w + k), ())
                        else:
                            _first_run_1(arrays, (count, base + k, at_w + k), ())
                        k += LANES
