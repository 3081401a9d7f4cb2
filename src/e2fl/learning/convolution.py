"""Convolutions of stride 1 without autograd, and a backward pass through max-pools that visits only what they chose.

Images lie channels last, with their zero border: [batch, height, width, depth], flat.  A window of the kernel is then
one run of neighbouring numbers for each of the kernel's rows, and a convolution is a product of matrices that need not
be built: the same small block of code, `_tile`, computes outputs, gradients of inputs and gradients of weights.

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
    tile: int  # outputs of one row computed together: 7, 4 or 1


def tile_for(width: int) -> int:
    """The tile that wastes least on rows of this width; the last tile of a row overlaps the one before."""
    if width >= 7 and -(-width // 7) * 7 <= -(-width // 4) * 4 * 1.1:
        return 7
    return 4 if width >= 4 else 1


def _tile(points: int, vectors: int, *, add: bool) -> Any:
    """Code for a block of sums of products: out[p, v] (+)= sum over runs r and steps k of a[p, r, k] * w[r, k, v]."""

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        build = emit.builder
        a, w, out = arrays
        at_a, a_run, a_step, a_point, at_w, w_run, w_step, at_out, out_point, runs, steps = integers
        places = [[emit.index(at_out, (out_point, p), LANES * v) for v in range(vectors)] for p in range(points)]
        sums = [[emit.variable(emit.load(out, at) if add else emit.zero) for at in row] for row in places]
        with emit.loop(0, runs) as r, emit.loop(0, steps) as k:
            from_a = emit.index(at_a, (r, a_run), (k, a_step))
            from_w = emit.index(at_w, (r, w_run), (k, w_step))
            columns = [emit.load(w, emit.index(from_w, LANES * v)) for v in range(vectors)]
            for p in range(points):
                x = emit.spread(emit.scalar(a, emit.index(from_a, (a_point, p))))
                for v in range(vectors):
                    emit.set(sums[p][v], emit.fused(x, columns[v], emit.get(sums[p][v])))
        least = emit.spread(floats[0])
        for p in range(points):
            for v in range(vectors):
                value = emit.get(sums[p][v])
                value = build.select(build.fcmp_ordered("<", value, least), least, value)
                emit.store(value, out, places[p][v])

    return vector_code(write)


_tile_7_2, _tile_7_1 = _tile(7, 2, add=False), _tile(7, 1, add=False)
_tile_4_2, _tile_4_1 = _tile(4, 2, add=False), _tile(4, 1, add=False)
_tile_1_2, _tile_1_1 = _tile(1, 2, add=False), _tile(1, 1, add=False)
_add_8_2, _add_8_1 = _tile(8, 2, add=True), _tile(8, 1, add=True)
_add_3_2, _add_3_1 = _tile(3, 2, add=True), _tile(3, 1, add=True)
_add_1_2, _add_1_1 = _tile(1, 2, add=True), _tile(1, 1, add=True)


def _find_numbers(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> tuple[Any, Any]:
    """Code that tells whether there is anything but zeros in some runs of whole vectors."""
    at, run, runs, vectors = integers
    seen = emit.variable(emit.spread(emit.narrow(emit.index(0))))
    with emit.loop(0, runs) as r, emit.loop(0, vectors) as v:
        numbers = emit.load_integers(arrays[0], emit.index(at, (r, run), (v, LANES)))
        emit.set(seen, emit.builder.or_(emit.get(seen), numbers))
    zeros = emit.spread(emit.narrow(emit.index(0)))
    return emit.count(emit.builder.icmp_unsigned("!=", emit.get(seen), zeros)), emit.index(0)


_numbers_in = vector_code(_find_numbers)


@compiled
def _tiles_of_two(arrays: Any, integers: Any, floats: Any, points: int) -> None:
    if points == 7:
        _tile_7_2(arrays, integers, floats)
    elif points == 4:
        _tile_4_2(arrays, integers, floats)
    else:
        _tile_1_2(arrays, integers, floats)


@compiled
def _tiles_of_one(arrays: Any, integers: Any, floats: Any, points: int) -> None:
    if points == 7:
        _tile_7_1(arrays, integers, floats)
    elif points == 4:
        _tile_4_1(arrays, integers, floats)
    else:
        _tile_1_1(arrays, integers, floats)


@compiled
def _row(arrays: Any, at_a: int, at_out: int, size: Geometry, least: np.float32) -> None:
    """One row of outputs, none of them below `least`.

    arrays: inputs; weights [kernel_height, kernel_width * depth, outputs]; outputs.
    """
    width = size.width - size.kernel_width + 1
    steps = size.kernel_width * size.depth
    line = size.width * size.depth
    seen = -(-(size.tile + size.kernel_width - 1) * size.depth // LANES)
    for x in range(0, width, size.tile):
        start = min(x, width - size.tile)
        from_a = at_a + start * size.depth
        to = at_out + start * size.outputs
        # Images are often blank in places, and without biases nothing comes of nothing.
        if _numbers_in(arrays, (from_a, line, size.kernel_height, seen), ())[0] == 0:
            arrays[2][to : to + size.tile * size.outputs] = np.float32(0)
            continue
        for o in range(0, size.outputs, 2 * LANES):
            integers = (
                from_a,
                line,
                1,
                size.depth,
                o,
                steps * size.outputs,
                size.outputs,
                to + o,
                size.outputs,
                size.kernel_height,
                steps,
            )
            if o + LANES < size.outputs:
                _tiles_of_two(arrays, integers, (least,), size.tile)
            else:
                _tiles_of_one(arrays, integers, (least,), size.tile)


@compiled
def forward(
    a: Float32, w: Float32, out: Float32, batch: int, size: Geometry, border: tuple[int, int], relu: bool
) -> None:
    """Convolve into an image that has a border of its own, which is left as it is."""
    least = np.float32(0 if relu else -np.inf)
    height, width = size.height - size.kernel_height + 1, size.width - size.kernel_width + 1
    pitch = (width + 2 * border[1]) * size.outputs
    arrays = (a, w, out)
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
        nowhere = emit.spread(emit.narrow(emit.index(-1)))
        value = build.select(build.fcmp_ordered("<", emit.get(largest), least), least, emit.get(largest))
        emit.store(value, best, emit.index(at_best, column))
        emit.store(build.select(alive, emit.get(where), nowhere), place, emit.index(at_best, column))


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
    """
    least = np.float32(0 if relu else -np.inf)
    width = size.width - size.kernel_width + 1
    pooled_height = (size.height - size.kernel_height + 1) // size.pool_height
    pooled_width = width // size.pool_width
    line = size.width * size.depth
    span = -(-pooled_width // LANES) * LANES
    by_example, by_channel, by_row, by_column, first = strides
    arrays, chosen = (a, w, rows), (rows, best, place)
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
        alive = build.icmp_signed(">=", place, emit.spread(emit.narrow(emit.index(0))))
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
                        1,
                        at_dz + o,
                        wide * size.outputs,
                        size.outputs,
                        (ky * steps + k) * size.outputs + o,
                        size.outputs,
                        height,
                        width,
                    )
                    two = o + LANES < size.outputs
                    if points == 8 and two:
                        _add_8_2(arrays, integers, (np.float32(-np.inf),))
                    elif points == 8:
                        _add_8_1(arrays, integers, (np.float32(-np.inf),))
                    elif points == 3 and two:
                        _add_3_2(arrays, integers, (np.float32(-np.inf),))
                    elif points == 3:
                        _add_3_1(arrays, integers, (np.float32(-np.inf),))
                    elif two:
                        _add_1_2(arrays, integers, (np.float32(-np.inf),))
                    else:
                        _add_1_1(arrays, integers, (np.float32(-np.inf),))
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
