"""Convolutions of stride 1 without autograd.

Images are stored channels last with their zero border: [batch, height, width, depth], flat.  The
window of a kernel is then one contiguous run for each row of the kernel, and a convolution is a
matrix product without an im2col copy: `_outputs` computes outputs and gradients of inputs, `_outer`
gradients of weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from e2fl.kernels.machine_code import Float32, Int32, compiled
from e2fl.kernels.vectors import LANES, WIDE, Emit, vector_code

# Of an example, a channel, a row and a column of an image; and the offset of the first.
Strides = tuple[int, int, int, int, int]


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
    pool_height: int = 1  # 1 without a max-pool
    pool_width: int = 1


# Vectors of outputs that a tile of points computes together: as many as fit the registers.
_ACROSS = (4, 2, 1) if WIDE else (1,)
# Weights and vectors of outputs of a tile of the weights' gradient.
_POINTS, _PAIR = (8, 2) if WIDE else (6, 1)


def _list_steps(
    emit: Emit, arrays: list[Any], at: Any, size: Any, line: Any, outputs: Any, points: int
) -> Any:
    """Emit a list of the steps of a kernel's window at which any of some points is not zero.

    After a ReLU half of the values are zero, and whole channels are where an image is uniform: this
    skips a third of the steps.  Each step is listed as an offset into the inputs and as an offset
    into the weights.  Returns the number of steps.
    """
    build = emit.builder
    a, from_a, from_w = arrays
    runs, steps, depth = size
    listed = emit.variable(emit.index(0))
    vectors = build.sdiv(emit.index(steps, LANES - 1), steps.type(LANES))
    with emit.loop(0, runs) as r, emit.loop(0, vectors) as v:
        start = emit.index(at, (r, line), (v, LANES))
        values = emit.load_integers(a, start)
        for p in range(1, points):
            values = build.or_(values, emit.load_integers(a, emit.index(start, (depth, p))))
        step = build.add(emit.spread(emit.narrow(emit.index((v, LANES)))), emit.lanes)
        inside = build.icmp_signed("<", step, emit.spread(emit.narrow(steps)))
        alive = build.and_(inside, build.icmp_unsigned("!=", values, emit.integers(0)))
        column = build.add(step, emit.spread(emit.narrow(emit.index((r, line)))))
        row = build.add(step, emit.spread(emit.narrow(emit.index((r, steps)))))
        row = build.mul(row, emit.spread(emit.narrow(outputs)))
        so_far = emit.get(listed)
        emit.compress(column, alive, from_a, so_far)
        emit.compress(row, alive, from_w, so_far)
        emit.set(listed, build.add(so_far, emit.count(alive)))
    return emit.get(listed)


def _outputs(points: int) -> Any:
    """Return code for all outputs of some neighbouring points: out[p] = sum over the steps n of
    a[p, n] * w[n].
    """

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        a, w, out, list_a, list_w = arrays
        at_a, line, runs, steps, depth, at_out, outputs = integers
        least = emit.spread(floats[0])
        size = (runs, steps, depth)
        count = _list_steps(emit, [a, list_a, list_w], at_a, size, line, outputs, points)
        width = emit.builder.sdiv(outputs, outputs.type(LANES))
        for o, vectors in emit.tiles(0, width, *_ACROSS):
            sums = [[emit.variable(emit.zero) for _ in range(vectors)] for _ in range(points)]
            with emit.loop(0, count) as n:
                from_a = emit.index(at_a, emit.wide(emit.scalar(list_a, n)))
                from_w = emit.index((o, LANES), emit.wide(emit.scalar(list_w, n)))
                columns = [emit.load(w, emit.index(from_w, LANES * v)) for v in range(vectors)]
                for p in range(points):
                    x = emit.spread(emit.scalar(a, emit.index(from_a, (depth, p))))
                    for v in range(vectors):
                        emit.set(sums[p][v], emit.fused(x, columns[v], emit.get(sums[p][v])))
            for p in range(points):
                for v in range(vectors):
                    at = emit.index(at_out, (outputs, p), (o, LANES), LANES * v)
                    emit.store(emit.clip(emit.get(sums[p][v]), least), out, at)

    return vector_code(write)


_outputs_of_4, _outputs_of_1 = _outputs(4), _outputs(1)


@compiled
def row_of_outputs(arrays: Any, at_a: int, at_out: int, size: Geometry, least: np.float32) -> None:
    """Compute one row of outputs, clipped from below at `least`.

    arrays: inputs; weights [kernel_height, kernel_width * depth, outputs]; outputs; buffers for the
    two lists of steps.
    """
    width = size.width - size.kernel_width + 1
    line, steps = size.width * size.depth, size.kernel_width * size.depth
    points = 4 if width >= 4 else 1
    for x in range(0, width, points):
        start = min(x, width - points)  # the last tile of a row may overlap the one before
        window = (at_a + start * size.depth, line, size.kernel_height, steps, size.depth)
        integers = (window, at_out + start * size.outputs, size.outputs)
        if points == 4:
            _outputs_of_4(arrays, integers, (least,))
        else:
            _outputs_of_1(arrays, integers, (least,))


def _emit_outer(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
    """Add the gradient of one row of the kernel: dw[p] += sum over rows r and columns k of
    a[r, k, p] * dz[r, k].
    """
    a, dz, dw = arrays
    at_a, a_row, a_column, at_dz, dz_row, dz_column, at_dw, rows, columns, steps = integers
    width = emit.builder.sdiv(dz_column, dz_column.type(LANES))
    for step, points in emit.tiles(0, steps, _POINTS, 3, 1):
        for o, vectors in emit.tiles(0, width, _PAIR, 1):
            first = emit.index(at_dw, (step, dz_column), (o, LANES))
            places = [
                [emit.index(first, (dz_column, p), LANES * v) for v in range(vectors)]
                for p in range(points)
            ]
            sums = [[emit.variable(emit.load(dw, at)) for at in row] for row in places]
            with emit.loop(0, rows) as r, emit.loop(0, columns) as k:
                from_a = emit.index(at_a, step, (r, a_row), (k, a_column))
                from_dz = emit.index(at_dz, (o, LANES), (r, dz_row), (k, dz_column))
                slopes = [emit.load(dz, emit.index(from_dz, LANES * v)) for v in range(vectors)]
                for p in range(points):
                    x = emit.spread(emit.scalar(a, emit.index(from_a, p)))
                    for v in range(vectors):
                        emit.set(sums[p][v], emit.fused(x, slopes[v], emit.get(sums[p][v])))
            for p in range(points):
                for v in range(vectors):
                    emit.store(emit.get(sums[p][v]), dw, places[p][v])


_outer = vector_code(_emit_outer)


@compiled
def forward(
    a: Float32,
    w: Float32,
    lists: tuple[Int32, Int32],
    size: Geometry,
    relu: bool,
    out: Float32,
    border: tuple[int, int],
    batch: int,
) -> None:
    """Convolve into an image with its own border, which is not written.

    lists: buffers for the steps of a kernel's window, with room for one vector more.
    """
    least = np.float32(0 if relu else -np.inf)
    height, width = size.height - size.kernel_height + 1, size.width - size.kernel_width + 1
    above, beside = border
    pitch = (width + 2 * beside) * size.outputs
    arrays = (a, w, out, lists[0], lists[1])
    for b in range(batch):
        for y in range(height):
            at_a = (b * size.height + y) * size.width * size.depth
            at_out = (b * (height + 2 * above) + y + above) * pitch + beside * size.outputs
            row_of_outputs(arrays, at_a, at_out, size, least)


@compiled
def backward_weights(a: Float32, dz: Float32, dw: Float32, size: Geometry, batch: int) -> None:
    """Compute the gradient of the weights, given the gradient of the outputs.

    dz: [batch, height, width, outputs] with a zero border of a kernel's size less one.
    dw: [kernel_height, kernel_width * depth, outputs].
    """
    height, width = size.height - size.kernel_height + 1, size.width - size.kernel_width + 1
    tall, wide = height + 2 * (size.kernel_height - 1), width + 2 * (size.kernel_width - 1)
    line, steps = size.width * size.depth, size.kernel_width * size.depth
    dw[:] = np.float32(0)
    arrays = (a, dz, dw)
    for b in range(batch):
        at_dz = ((b * tall + size.kernel_height - 1) * wide + size.kernel_width - 1) * size.outputs
        for ky in range(size.kernel_height):
            inputs = ((b * size.height + ky) * line, line, size.depth)
            slopes = (at_dz, wide * size.outputs, size.outputs)
            at_dw = ky * steps * size.outputs
            _outer(arrays, (inputs, slopes, at_dw, height, width, steps), ())


@compiled
def copy_slopes(
    x: Float32,
    dx: Float32,
    from_strides: Strides,
    target: Float32,
    to_strides: Strides,
    inner: tuple[int, int, int],
    relu: bool,
    batch: int,
) -> None:
    """Copy images dx of a size `inner` to another layout; after a ReLU, zero where its output x is
    zero.
    """
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
