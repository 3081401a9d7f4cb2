"""Convolutions of stride 1 without autograd.

Images are stored channels last with their zero border: [batch, height, width, depth], flat.  The
window of a kernel is then one contiguous run for each row of the kernel, and a convolution is a
matrix product without an im2col copy: `_outputs` computes outputs and gradients of inputs, `_outer`
gradients of weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from e2fl.kernels import winograd
from e2fl.kernels.machine_code import Float32, compiled
from e2fl.kernels.table import Geometry, copy_images, geometry, output_size, strides_of
from e2fl.kernels.vectors import LANES, WIDE, Emit, floats, int32s, vector_code

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
    """Return code for all outputs of some neighbouring points p: the sum of a[p, n] * w[n]."""

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
                places = (emit.index(from_a, (depth, p)) for p in range(points))
                emit.add_products(sums, (emit.spread(emit.scalar(a, at)) for at in places), columns)
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
    """Add the gradient of a row of the kernel: dw[p] += the sum of a[r, k, p] * dz[r, k]."""
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
                inputs = (emit.scalar(a, emit.index(from_a, p)) for p in range(points))
                emit.add_products(sums, map(emit.spread, inputs), slopes)
            for p in range(points):
                for v in range(vectors):
                    emit.store(emit.get(sums[p][v]), dw, places[p][v])


_outer = vector_code(_emit_outer)


@compiled
def forward(stage: Any, after: Any, batch: int) -> None:
    """Run a convolution and its ReLU into the border of the next stage's inputs."""
    size, least = geometry(stage), np.float32(0 if stage.relu else -np.inf)
    x, out = floats(stage.x), floats(stage.out) if after.linear else floats(after.x)
    arrays = (x, floats(stage.w), out, int32s(stage.list_a), int32s(stage.list_w))
    height, width = output_size(size)
    tall, pitch = height + 2 * after.above, (width + 2 * after.beside) * size.outputs
    for b in range(batch):
        at_out = (b * tall + after.above) * pitch + after.beside * size.outputs
        if stage.winograd:
            winograd.image(stage, b, out, at_out, pitch)
        else:
            at_a = b * size.height * size.width * size.depth
            _image(arrays, at_a, at_out, pitch, size, least)
    if after.linear:
        strides = (height * pitch, 1, pitch, size.outputs, 0)
        sizes = (batch, height, width, stage.channels)
        copy_images(out, strides, floats(after.x), strides_of(after), sizes, out, False)


@compiled
def _image(
    arrays: Any, at_a: int, at_out: int, pitch: int, size: Geometry, least: np.float32
) -> None:
    """Compute the outputs of one image, in rows of a length `pitch`, as `row_of_outputs` does."""
    for y in range(size.height - size.kernel_height + 1):
        start = at_a + y * size.width * size.depth
        row_of_outputs(arrays, start, at_out + y * pitch, size, least)


@compiled
def backward(stage: Any, after: Any, batch: int) -> None:
    """Compute the gradients of the weights and, unless the stage is the first, of the inputs."""
    size = geometry(stage)
    height, width = output_size(size)
    # The gradient of the outputs gets a zero border of a kernel's size less one.
    above, beside = size.kernel_height - 1, size.kernel_width - 1
    tall, wide = height + 2 * above, width + 2 * beside
    line, dz = wide * size.outputs, floats(stage.dz)
    strides = (tall * line, 1, line, size.outputs, above * line + beside * size.outputs)
    sizes, relu = (batch, height, width, stage.channels), stage.relu != 0
    outputs, slopes, from_strides = floats(after.x), floats(after.dx), strides_of(after)
    copy_images(slopes, from_strides, dz, strides, sizes, outputs, relu)
    _weights(floats(stage.x), dz, floats(stage.dw), size, batch)
    if stage.first:
        return
    # The gradient of the inputs, border included, is a convolution of dz with the kernel rotated by
    # 180 degrees.
    kernel = (size.kernel_height, size.kernel_width)
    turn = Geometry(tall, wide, size.outputs, *kernel, size.depth, 1, 1)
    arrays = (dz, floats(stage.w_back), floats(stage.dx))
    lists, pitch = (int32s(stage.turn_a), int32s(stage.turn_w)), size.width * size.depth
    for b in range(batch):
        at = (b * tall * line, b * size.height * pitch)
        _image((*arrays, *lists), *at, pitch, turn, np.float32(-np.inf))


@compiled
def _weights(a: Float32, dz: Float32, dw: Float32, size: Geometry, batch: int) -> None:
    """Compute the gradient of the weights [kernel_height, kernel_width * depth, outputs]."""
    height, width = output_size(size)
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
