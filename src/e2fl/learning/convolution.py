"""Convolutions of stride 1 without autograd, and a backward pass through max-pools that visits only what they chose.

Images lie channels last, with their zero border: [batch, height, width, depth], flat.  A window of the kernel is then
one run of neighbouring numbers for each of the kernel's rows, and a convolution is a product of matrices that need not
be built: a small block of code, `_tile`, computes outputs and gradients of inputs, another, `_outer`, those of weights.

Behind a ReLU and a max-pool most outputs have no gradient.  For each output that has one, `_run` adds its share to the
gradient of the weights and to that of the inputs, run by run, and touches nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from e2fl.compiled import Float32, Int32, compiled
from e2fl.learning.vectors import LANES, Emit, vector_code

_NEAR = 6144  # numbers: with as many of the gradient, they fill the nearest cache of most machines


class Geometry(NamedTuple):
    """The sizes of one convolution; depths are as stored, in whole vectors except for the network's input."""

    height: int  # of the input, with its border
    width: int
    depth: int
    kernel_height: int
    kernel_width: int
    outputs: int  # depth of the output
    pool_height: int  # 1 where nothing is pooled
    pool_width: int
    tile: int  # outputs of one row computed together: 4 or 1


def tile_for(width: int) -> int:
    """The tile for rows of this width; the last tile of a row may overlap the one before."""
    return 4 if width >= 4 else 1


def _steps(points: int) -> Any:
    """Code that lists the steps of a kernel's window at which any of some neighbouring points has a number.

    Behind a ReLU half the numbers are zeros, and whole channels are where an image is even: a third of the steps is
    spared.  Each step is listed twice, as its place in the inputs and as the place of its weights.
    """

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> tuple[Any, Any]:
        build = emit.builder
        a, from_a, from_w = arrays
        at, line, runs, steps, vectors, depth, outputs = integers
        found = emit.variable(emit.index(0))
        with emit.loop(0, runs) as r, emit.loop(0, vectors) as v:
            start = emit.index((r, line), (v, LANES))
            numbers = emit.load_integers(a, emit.index(at, start))
            for p in range(1, points):
                numbers = build.or_(numbers, emit.load_integers(a, emit.index(at, start, (depth, p))))
            step = build.add(emit.spread(emit.narrow(emit.index((v, LANES)))), emit.lanes)
            inside = build.icmp_signed("<", step, emit.spread(emit.narrow(steps)))
            alive = build.and_(inside, build.icmp_unsigned("!=", numbers, emit.integers(0)))
            row = build.add(step, emit.spread(emit.narrow(emit.index((r, steps)))))
            so_far = emit.get(found)
            emit.compress(build.add(step, emit.spread(emit.narrow(emit.index((r, line))))), alive, from_a, so_far)
            emit.compress(build.mul(row, emit.spread(emit.narrow(outputs))), alive, from_w, so_far)
            emit.set(found, build.add(so_far, emit.count(alive)))
        return emit.get(found), emit.index(0)

    return vector_code(write)


_steps_of_4, _steps_of_1 = _steps(4), _steps(1)


def _tile(points: int, vectors: int) -> Any:
    """Code for a block of outputs: out[p, v] = sum over the listed steps n of a[p, n] * w[n, v]."""

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        build = emit.builder
        a, w, out, list_a, list_w = arrays
        at_a, depth, at_w, at_out, outputs, count = integers
        sums = [[emit.variable(emit.zero) for _ in range(vectors)] for _ in range(points)]
        with emit.loop(0, count) as n:
            from_a = emit.index(at_a, emit.wide(emit.scalar(list_a, n)))
            from_w = emit.index(at_w, emit.wide(emit.scalar(list_w, n)))
            columns = [emit.load(w, emit.index(from_w, LANES * v)) for v in range(vectors)]
            for p in range(points):
                x = emit.spread(emit.scalar(a, emit.index(from_a, (depth, p))))
                for v in range(vectors):
                    emit.set(sums[p][v], emit.fused(x, columns[v], emit.get(sums[p][v])))
        least = emit.spread(floats[0])
        for p in range(points):
            for v in range(vectors):
                value = emit.get(sums[p][v])
                value = build.select(build.fcmp_ordered("<", value, least), least, value)
                emit.store(value, out, emit.index(at_out, (outputs, p), LANES * v))

    return vector_code(write)


_tile_4_4, _tile_4_2, _tile_4_1 = _tile(4, 4), _tile(4, 2), _tile(4, 1)
_tile_1_4, _tile_1_2, _tile_1_1 = _tile(1, 4), _tile(1, 2), _tile(1, 1)


@compiled
def _row(arrays: Any, at_a: int, at_out: int, size: Geometry, least: np.float32) -> None:
    """One row of outputs, none of them below `least`.

    arrays: inputs; weights [kernel_height, kernel_width * depth, outputs]; outputs; room for the two lists of steps.
    """
    a, _, _, list_a, list_w = arrays
    lists = (a, list_a, list_w)
    width = size.width - size.kernel_width + 1
    steps = size.kernel_width * size.depth
    vectors = -(-steps // LANES)
    for x in range(0, width, size.tile):
        start = min(x, width - size.tile)
        from_a = at_a + start * size.depth
        window = (from_a, size.width * size.depth, size.kernel_height, steps, vectors, size.depth, size.outputs)
        to = at_out + start * size.outputs
        if size.tile == 4:
            count, _ = _steps_of_4(lists, window, ())
        else:
            count, _ = _steps_of_1(lists, window, ())
        o = 0
        while o < size.outputs:
            integers = (from_a, size.depth, o, to + o, size.outputs, count)
            left = size.outputs - o
            if size.tile == 4:
                if left >= 4 * LANES:
                    _tile_4_4(arrays, integers, (least,))
                elif left >= 2 * LANES:
                    _tile_4_2(arrays, integers, (least,))
                else:
                    _tile_4_1(arrays, integers, (least,))
            elif left >= 4 * LANES:
                _tile_1_4(arrays, integers, (least,))
            elif left >= 2 * LANES:
                _tile_1_2(arrays, integers, (least,))
            else:
                _tile_1_1(arrays, integers, (least,))
            o += 4 * LANES if left >= 4 * LANES else 2 * LANES if left >= 2 * LANES else LANES


def _outer(points: int, vectors: int) -> Any:
    """Code for a block of weights: out[p, v] += sum over rows r and columns k of a[r, k, p] * dz[r, k, v]."""

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        a, dz, out = arrays
        at_a, a_row, a_column, at_dz, dz_row, dz_column, at_out, rows, columns = integers
        places = [[emit.index(at_out, (dz_column, p), LANES * v) for v in range(vectors)] for p in range(points)]
        sums = [[emit.variable(emit.load(out, at)) for at in row] for row in places]
        with emit.loop(0, rows) as r, emit.loop(0, columns) as k:
            from_a = emit.index(at_a, (r, a_row), (k, a_column))
            from_dz = emit.index(at_dz, (r, dz_row), (k, dz_column))
            slopes = [emit.load(dz, emit.index(from_dz, LANES * v)) for v in range(vectors)]
            for p in range(points):
                x = emit.spread(emit.scalar(a, emit.index(from_a, p)))
                for v in range(vectors):
                    emit.set(sums[p][v], emit.fused(x, slopes[v], emit.get(sums[p][v])))
        for p in range(points):
            for v in range(vectors):
                emit.store(emit.get(sums[p][v]), out, places[p][v])

    return vector_code(write)


_outer_8_2, _outer_8_1 = _outer(8, 2), _outer(8, 1)
_outer_3_2, _outer_3_1 = _outer(3, 2), _outer(3, 1)
_outer_1_2, _outer_1_1 = _outer(1, 2), _outer(1, 1)


@compiled
def forward(
    a: Float32,
    w: Float32,
    out: Float32,
    lists: tuple[Int32, Int32],
    batch: int,
    size: Geometry,
    border: tuple[int, int],
    relu: bool,
) -> None:
    """Convolve into an image that has a border of its own, which is left as it is.

    lists: room for the steps of a kernel's window, each with a vector to spare.
    """
    least = np.float32(0 if relu else -np.inf)
    height, width = size.height - size.kernel_height + 1, size.width - size.kernel_width + 1
    pitch = (width + 2 * border[1]) * size.outputs
    arrays = (a, w, out, lists[0], lists[1])
    for b in range(batch):
        for y in range(height):
            at_a = (b * size.height + y) * size.width * size.depth
            at_out = (b * (height + 2 * border[0]) + y + border[0]) * pitch + border[1] * size.outputs
            _row(arrays, at_a, at_out, size, least)


def _choose_largest(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
    """Code for one window of a max-pool: the largest of its outputs, and where its kernel's window begins.

    The place is -1 for a largest output not above `least`, through which no gradient passes.
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
        value = build.select(build.fcmp_ordered("<", emit.get(largest), least), least, emit.get(largest))
        emit.store(value, best, emit.index(at_best, column))
        emit.store(build.select(alive, emit.get(where), emit.integers(-1)), place, emit.index(at_best, column))


_largest = vector_code(_choose_largest)


def _turn_block(*, integers_too: bool) -> Any:
    """Code that turns channels last into channels first, for up to sixteen pixels of up to sixteen channels."""

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
def forward_pooled(
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

    channels: outputs that are not there only to fill a vector.
    strides: of `out` for an example, a channel, a row and a column, and where it begins.
    where: [batch, pooled height, outputs, pooled width in whole vectors]: the start of the kernel's window that gave
    the output, counted from the start of its image; -1 without a gradient.
    rows, best, place: room for the outputs of one row of windows, and for what is chosen of them.
    lists: as in `forward`.
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
                _row(arrays, at_a, y * width * size.outputs, size, np.float32(-np.inf))
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
                    _turn_integers(places, (at, size.outputs, to_where + o * span + px, span, LANES, pixels), ())
                    if by_column == 1:
                        beyond = (at, size.outputs, to + o * by_channel + px, by_channel, channels - o, pixels)
                        _turn_floats(bests, beyond, ())
            if by_column != 1:
                for px in range(pooled_width):
                    for o in range(channels):
                        out[to + o * by_channel + px * by_column] = best[px * size.outputs + o]


def _pick(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> tuple[Any, Any]:
    """Code that puts a row's outputs that have a gradient on a list: places and gradients, side by side."""
    build = emit.builder
    where, gradient, places, deltas = arrays
    at_where, at_gradient, span, before = integers
    found = emit.variable(before)
    with emit.loop(0, build.sdiv(span, span.type(LANES))) as v:
        place = emit.load_integers(where, emit.index(at_where, (v, LANES)))
        alive = build.icmp_signed(">=", place, emit.integers(0))
        so_far = emit.get(found)
        emit.compress(place, alive, places, so_far)
        emit.compress(emit.load(gradient, emit.index(at_gradient, (v, LANES))), alive, deltas, so_far)
        emit.set(found, build.add(so_far, emit.count(alive)))
    return emit.get(found), emit.index(0)


_picked = vector_code(_pick)


def _run(vectors: int, *, back: bool) -> Any:
    """Code for one run of the kernel, over a list of outputs: dw += d * a and, if wanted back, da += d * w."""

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


_run_6, _run_1 = _run(6, back=True), _run(1, back=True)
_first_run_6, _first_run_1 = _run(6, back=False), _run(1, back=False)


@compiled
def rows_at_once(size: Geometry) -> int:
    """Rows of a pool's windows to go back through together: so few that their inputs stay in the nearest cache."""
    lines = _NEAR // (size.width * size.depth)
    return max(1, (lines - size.kernel_height + 1) // size.pool_height)


@compiled
def backward_pooled(
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
    """The gradients of the weights and, if wanted back, of the inputs, from that of what the pool gave out.

    w, dw: [outputs, kernel_height, kernel_width * depth in whole vectors].
    strides: of `gradient`, as in the forward pass.
    places, deltas: room for the outputs of `rows_at_once(size)` rows.
    line: room for the gradients of a row, where they do not lie side by side.
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
    # Made here and not in the loops, because making a tuple counts references to each of its arrays.
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
                    while k + 6 * LANES <= length:
                        if back:
                            _run_6(arrays, (count, base + k, at_w + k), ())
                        else:
                            _first_run_6(arrays, (count, base + k, at_w + k), ())
                        k += 6 * LANES
                    while k < length:
                        if back:
                            _run_1(arrays, (count, base + k, at_w + k), ())
                        else:
                            _first_run_1(arrays, (count, base + k, at_w + k), ())
                        k += LANES


@compiled
def backward_weights(a: Float32, dz: Float32, dw: Float32, batch: int, size: Geometry) -> None:
    """The gradient of the weights from that of all outputs.

    dz: [batch, height, width, outputs] with a zero border of a kernel's size less one.
    dw: [kernel_height, kernel_width * depth, outputs].
    """
    height, width = size.height - size.kernel_height + 1, size.width - size.kernel_width + 1
    tall, wide = height + 2 * (size.kernel_height - 1), width + 2 * (size.kernel_width - 1)
    steps = size.kernel_width * size.depth
    dw[:] = np.float32(0)
    arrays = (a, dz, dw)
    for b in range(batch):
        at_dz = ((b * tall + size.kernel_height - 1) * wide + size.kernel_width - 1) * size.outputs
        for ky in range(size.kernel_height):
            k = 0
            while k < steps:
                points = 8 if k + 8 <= steps else 3 if k + 3 <= steps else 1
                for o in range(0, size.outputs, 2 * LANES):
                    integers = (
                        (b * size.height + ky) * size.width * size.depth + k,
                        size.width * size.depth,
                        size.depth,
                        at_dz + o,
                        wide * size.outputs,
                        size.outputs,
                        (ky * steps + k) * size.outputs + o,
                        height,
                        width,
                    )
                    two = o + LANES < size.outputs
                    if points == 8 and two:
                        _outer_8_2(arrays, integers, ())
                    elif points == 8:
                        _outer_8_1(arrays, integers, ())
                    elif points == 3 and two:
                        _outer_3_2(arrays, integers, ())
                    elif points == 3:
                        _outer_3_1(arrays, integers, ())
                    elif two:
                        _outer_1_2(arrays, integers, ())
                    else:
                        _outer_1_1(arrays, integers, ())
                k += points


@compiled
def copy_image(
    source: Float32,
    target: Float32,
    batch: int,
    inner: tuple[int, int, int],
    from_strides: tuple[int, int, int, int, int],
    to_strides: tuple[int, int, int, int, int],
) -> None:
    """Copy an image from one layout to another; strides: example, channel, row, column, and where it begins."""
    height, width, depth = inner
    by_example, by_channel, by_row, by_column, first = from_strides
    to_example, to_channel, to_row, to_column, to_first = to_strides
    for b in range(batch):
        for y in range(height):
            at = first + b * by_example + y * by_row
            to = to_first + b * to_example + y * to_row
            for x in range(width):
                for c in range(depth):
                    target[to + x * to_column + c * to_channel] = source[at + x * by_column + c * by_channel]


@compiled
def copy_slope(
    x: Float32,
    dx: Float32,
    target: Float32,
    batch: int,
    inner: tuple[int, int, int],
    from_strides: tuple[int, int, int, int, int],
    to_strides: tuple[int, int, int, int, int],
    relu: bool,
) -> None:
    """`copy_image` of a gradient dx; behind a ReLU, zero where its output x is."""
    height, width, depth = inner
    by_example, by_channel, by_row, by_column, first = from_strides
    to_example, to_channel, to_row, to_column, to_first = to_strides
    for b in range(batch):
        for y in range(height):
            at = first + b * by_example + y * by_row
            to = to_first + b * to_example + y * to_row
            if by_channel == 1 and to_channel == 1 and by_column == to_column:
                values, slopes = x[at : at + width * by_column], dx[at : at + width * by_column]
                out = target[to : to + width * by_column]
                for i in range(width * by_column):
                    out[i] = slopes[i] if not relu or values[i] > 0 else np.float32(0)
                continue
            for i in range(width):
                for c in range(depth):
                    source = at + i * by_column + c * by_channel
                    slope = dx[source] if not relu or x[source] > 0 else np.float32(0)
                    target[to + i * to_column + c * to_channel] = slope


@compiled
def deal(values: Float32, places: Int32, out: Float32) -> None:
    """out[places[e]] = values[e]."""
    for e in range(values.size):
        out[places[e]] = values[e]


@compiled
def collect(values: Float32, places: Int32, out: Float32) -> None:
    """out[e] = values[places[e]]."""
    for e in range(out.size):
        out[e] = values[places[e]]
