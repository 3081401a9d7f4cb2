"""Convolutions of stride 1 without autograd.

Images are stored channels last with their zero border: [batch, height, width, depth], flat.  The
window of a kernel is then one contiguous run for each row of the kernel, and a convolution is a
matrix product without an im2col copy: `_tile` computes outputs and gradients of inputs, `_outer`
gradients of weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from e2fl.kernels.machine_code import Float32, Int32, compiled
from e2fl.kernels.vectors import LANES, WIDE, Emit, vector_code


class Geometry(NamedTuple):
    """The sizes of one convolution.

    Depths are padded to whole vectors, except for the input of the network.
    """

    height: int  # of the input, with its border
    width: int
    depth: int
    kernel_height: int
    kernel_width: int
    outputs: int  # depth of the output
    pool_height: int  # 1 without a max-pool
    pool_width: int
    tile: int  # outputs of one row computed together: 4 or 1


def tile_for(width: int) -> int:
    """Return the tile for rows of this width; the last tile of a row may overlap the previous one."""
    return 4 if width >= 4 else 1


def _steps(points: int) -> Any:
    """Return code that lists the steps of a kernel's window at which any of some neighbouring
    points is not zero.

    After a ReLU half of the values are zero, and whole channels are where an image is uniform: this
    skips a third of the steps.  Each step is listed as an offset into the inputs and as an offset
    into the weights.
    """

    def write(
        emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]
    ) -> tuple[Any, Any]:
        build = emit.builder
        a, from_a, from_w = arrays
        at, line, runs, steps, vectors, depth, outputs = integers
        found = emit.variable(emit.index(0))
        with emit.loop(0, runs) as r, emit.loop(0, vectors) as v:
            start = emit.index((r, line), (v, LANES))
            numbers = emit.load_integers(a, emit.index(at, start))
            for p in range(1, points):
                numbers = build.or_(
                    numbers, emit.load_integers(a, emit.index(at, start, (depth, p)))
                )
            step = build.add(emit.spread(emit.narrow(emit.index((v, LANES)))), emit.lanes)
            inside = build.icmp_signed("<", step, emit.spread(emit.narrow(steps)))
            alive = build.and_(inside, build.icmp_unsigned("!=", numbers, emit.integers(0)))
            row = build.add(step, emit.spread(emit.narrow(emit.index((r, steps)))))
            so_far = emit.get(found)
            emit.compress(
                build.add(step, emit.spread(emit.narrow(emit.index((r, line))))),
                alive,
                from_a,
                so_far,
            )
            emit.compress(build.mul(row, emit.spread(emit.narrow(outputs))), alive, from_w, so_far)
            emit.set(found, build.add(so_far, emit.count(alive)))
        return emit.get(found), emit.index(0)

    return vector_code(write)


_steps_of_4, _steps_of_1 = _steps(4), _steps(1)


def _tile(points: int, vectors: int) -> Any:
    """Return code for a block of outputs: out[p, v] = sum over the listed steps n of a[p, n] * w[n,
    v].
    """

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


# Vectors of outputs a tile computes together: as many as fit the registers beside the tile's four
# points.
_MANY, _FEW = (4, 2) if WIDE else (1, 1)
_tile_4_many, _tile_4_few, _tile_4_1 = _tile(4, _MANY), _tile(4, _FEW), _tile(4, 1)
_tile_1_many, _tile_1_few, _tile_1_1 = _tile(1, _MANY), _tile(1, _FEW), _tile(1, 1)


@compiled
def row_of_outputs(arrays: Any, at_a: int, at_out: int, size: Geometry, least: np.float32) -> None:
    """Compute one row of outputs, clipped from below at `least`.

    arrays: inputs; weights [kernel_height, kernel_width * depth, outputs]; outputs; buffers for the
    two lists of steps.
    """
    a, _, _, list_a, list_w = arrays
    lists = (a, list_a, list_w)
    width = size.width - size.kernel_width + 1
    steps = size.kernel_width * size.depth
    vectors = -(-steps // LANES)
    for x in range(0, width, size.tile):
        start = min(x, width - size.tile)
        from_a = at_a + start * size.depth
        window = (
            from_a,
            size.width * size.depth,
            size.kernel_height,
            steps,
            vectors,
            size.depth,
            size.outputs,
        )
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
                if left >= _MANY * LANES:
                    _tile_4_many(arrays, integers, (least,))
                elif left >= _FEW * LANES:
                    _tile_4_few(arrays, integers, (least,))
                else:
                    _tile_4_1(arrays, integers, (least,))
            elif left >= _MANY * LANES:
                _tile_1_many(arrays, integers, (least,))
            elif left >= _FEW * LANES:
                _tile_1_few(arrays, integers, (least,))
            else:
                _tile_1_1(arrays, integers, (least,))
            o += (
                _MANY * LANES
                if left >= _MANY * LANES
                else _FEW * LANES
                if left >= _FEW * LANES
                else LANES
            )


def _outer(points: int, vectors: int) -> Any:
    """Return code for a block of weights: out[p, v] += sum over rows r and columns k of a[r, k, p]
    * dz[r, k, v].
    """

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        a, dz, out = arrays
        at_a, a_row, a_column, at_dz, dz_row, dz_column, at_out, rows, columns = integers
        places = [
            [emit.index(at_out, (dz_column, p), LANES * v) for v in range(vectors)]
            for p in range(points)
        ]
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


_POINTS, _PAIR = (8, 2) if WIDE else (6, 1)
_outer_many_2, _outer_many_1 = _outer(_POINTS, _PAIR), _outer(_POINTS, 1)
_outer_3_2, _outer_3_1 = _outer(3, _PAIR), _outer(3, 1)
_outer_1_2, _outer_1_1 = _outer(1, _PAIR), _outer(1, 1)


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
    """Convolve into an image with its own border, which is not written.

    lists: buffers for the steps of a kernel's window, with room for one vector more.
    """
    least = np.float32(0 if relu else -np.inf)
    height, width = size.height - size.kernel_height + 1, size.width - size.kernel_width + 1
    pitch = (width + 2 * border[1]) * size.outputs
    arrays = (a, w, out, lists[0], lists[1])
    for b in range(batch):
        for y in range(height):
            at_a = (b * size.height + y) * size.width * size.depth
            at_out = (b * (height + 2 * border[0]) + y + border[0]) * pitch + border[
                1
            ] * size.outputs
            row_of_outputs(arrays, at_a, at_out, size, least)


@compiled
def backward_weights(a: Float32, dz: Float32, dw: Float32, batch: int, size: Geometry) -> None:
    """Compute the gradient of the weights, given the gradient of the outputs.

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
                points = _POINTS if k + _POINTS <= steps else 3 if k + 3 <= steps else 1
                for o in range(0, size.outputs, _PAIR * LANES):
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
                    two = o + _PAIR * LANES <= size.outputs
                    if points == _POINTS and two:
                        _outer_many_2(arrays, integers, ())
                    elif points == _POINTS:
                        _outer_many_1(arrays, integers, ())
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
    """Copy an image from one layout to another; strides: example, channel, row, column, and the
    offset.
    """
    height, width, depth = inner
    by_example, by_channel, by_row, by_column, first = from_strides
    to_example, to_channel, to_row, to_column, to_first = to_strides
    for b in range(batch):
        for y in range(height):
            at = first + b * by_example + y * by_row
            to = to_first + b * to_example + y * to_row
            for x in range(width):
                for c in range(depth):
                    target[to + x * to_column + c * to_channel] = source[
                        at + x * by_column + c * by_channel
                    ]


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
    """Copy a gradient dx as `copy_image` does; after a ReLU, zero where its output x is zero."""
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
def scatter(values: Float32, places: Int32, out: Float32) -> None:
    """Set out[places[e]] to values[e]."""
    for e in range(values.size):
        out[places[e]] = values[e]


@compiled
def gather(values: Float32, places: Int32, out: Float32) -> None:
    """Set out[e] to values[places[e]]."""
    for e in range(out.size):
        out[e] = values[places[e]]
