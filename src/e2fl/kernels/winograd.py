"""Forward pass of 3x3 convolutions by Winograd's method F(4x4, 3x3): a tile of 4x4 outputs from 6x6
inputs with 36 products instead of 144.

    outputs = A' [ (G kernel G') * (B' inputs B) ] A

Inputs and kernels are transformed, multiplied as 36 matrix products over the channels, and their
sum is transformed back.  Tiles at the right and lower edge overlap their neighbours, so that no
tile reaches beyond the image, and an output does not depend on what lies there.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from e2fl.kernels.machine_code import Float32, compiled
from e2fl.kernels.table import Geometry, geometry
from e2fl.kernels.vectors import LANES, WIDE, Emit, aligned, floats, int32s, vector_code

POINTS = 36  # products of a tile
TILES = 12  # processed together: their transforms stay in the L2 cache
_ROWS, _ACROSS = (6, 4) if WIDE else (6, 1)  # tiles and vectors of outputs that fit the registers


def pays(size: Geometry, channels: int) -> bool:
    """Return whether the method is faster than the direct one, and fits the kernel."""
    height, width = _used(size)
    square = (size.kernel_height, size.kernel_width) == (3, 3)
    tiles = -(-height // 4) * -(-width // 4)
    # Twice the products, for the transforms and for the zeros that the direct method skips.
    enough = min(height, width) >= 4 and 2 * POINTS * tiles <= 9 * height * width
    return square and enough and channels >= LANES and size.depth % LANES == 0


def buffers(size: Geometry) -> tuple[Float32, Float32, Float32]:
    """Return space for the transforms of all kernels, and of the inputs and outputs of tiles."""
    rows = TILES * POINTS
    kernels = aligned(POINTS * size.depth * size.outputs)
    return kernels, aligned(rows * size.depth), aligned(rows * size.outputs)


@compiled
def _used(size: Geometry) -> tuple[int, int]:
    """Return the height and width of the outputs that the pool uses."""
    height, width = size.height - 2, size.width - 2
    return height - height % size.pool_height, width - width % size.pool_width


def _kernel_side(emit: Emit, g: list[Any]) -> list[Any]:
    """Emit G g: six values from three."""
    build = emit.builder
    minus = emit.constant(-1 / 6)
    ends = build.fadd(g[0], g[2])
    far = emit.fused(emit.constant(1 / 6), g[2], build.fmul(emit.constant(1 / 24), g[0]))
    return [
        build.fmul(emit.constant(0.25), g[0]),
        build.fmul(minus, build.fadd(ends, g[1])),
        build.fmul(minus, build.fsub(ends, g[1])),
        emit.fused(emit.constant(1 / 12), g[1], far),
        emit.fused(emit.constant(-1 / 12), g[1], far),
        g[2],
    ]


def _input_side(emit: Emit, d: list[Any]) -> list[Any]:
    """Emit B' d: six values from six."""
    build = emit.builder
    four, minus_four, minus_five = (emit.constant(x) for x in (4, -4, -5))
    even, odd = emit.fused(minus_four, d[2], d[4]), emit.fused(minus_four, d[1], d[3])
    near, far = build.fsub(d[4], d[2]), build.fmul(emit.constant(2), build.fsub(d[3], d[1]))
    return [
        emit.fused(four, d[0], emit.fused(minus_five, d[2], d[4])),
        build.fadd(even, odd),
        build.fsub(even, odd),
        build.fadd(near, far),
        build.fsub(near, far),
        emit.fused(four, d[1], emit.fused(minus_five, d[3], d[5])),
    ]


def _output_side(emit: Emit, m: list[Any]) -> list[Any]:
    """Emit A' m: four values from six."""
    build = emit.builder
    near, near_odd = build.fadd(m[1], m[2]), build.fsub(m[1], m[2])
    far, far_odd = build.fadd(m[3], m[4]), build.fsub(m[3], m[4])
    return [
        build.fadd(build.fadd(m[0], near), far),
        emit.fused(emit.constant(2), far_odd, near_odd),
        emit.fused(emit.constant(4), far, near),
        build.fadd(emit.fused(emit.constant(8), far_odd, near_odd), m[5]),
    ]


def _both_sides(emit: Emit, table: list[list[Any]], side: Any) -> list[list[Any]]:
    """Emit a transform of the columns of a table, then of its rows."""
    columns = [side(emit, list(column)) for column in zip(*table, strict=True)]
    return [side(emit, list(row)) for row in zip(*columns, strict=True)]


def _emit_kernels(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
    """Transform all kernels: w [3, 3, depth, outputs] to u [36, depth, outputs]."""
    w, u = arrays
    (size,) = integers
    with emit.loop(0, size, LANES) as at:
        taps = [
            [emit.load(w, emit.index(at, (size, 3 * y + x))) for x in range(3)] for y in range(3)
        ]
        for y, row in enumerate(_both_sides(emit, taps, _kernel_side)):
            for x, value in enumerate(row):
                emit.store(value, u, emit.index(at, (size, 6 * y + x)))


def _emit_inputs(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
    """Transform the inputs of one tile: to [36, depth]."""
    a, v = arrays
    at, line, depth, to = integers
    with emit.loop(0, depth, LANES) as c:
        pixels = [
            [emit.load(a, emit.index(at, c, (line, y), (depth, x))) for x in range(6)]
            for y in range(6)
        ]
        for y, row in enumerate(_both_sides(emit, pixels, _input_side)):
            for x, value in enumerate(row):
                emit.store(value, v, emit.index(to, c, (depth, 6 * y + x)))


def _emit_products(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
    """Multiply the transforms: m[t, k] = sum over channels c of v[t, k, c] * u[k, c]."""
    v, u, m = arrays
    tiles, depth, outputs = integers
    width = emit.builder.sdiv(outputs, outputs.type(LANES))
    with emit.loop(0, POINTS) as k:
        for o, vectors in emit.tiles(0, width, _ACROSS, 2 if WIDE else 1, 1):
            for t, rows in emit.tiles(0, tiles, _ROWS, 1):
                first_v = emit.index((emit.index((t, POINTS), k), depth))
                first_u = emit.index((emit.index((k, depth)), outputs), (o, LANES))
                first_m = emit.index((emit.index((t, POINTS), k), outputs), (o, LANES))
                sums = [[emit.variable(emit.zero) for _ in range(vectors)] for _ in range(rows)]
                with emit.loop(0, depth) as c:
                    at = emit.index(first_u, (c, outputs))
                    kernels = [emit.load(u, emit.index(at, LANES * i)) for i in range(vectors)]
                    places = (emit.index(first_v, c, (depth, POINTS * r)) for r in range(rows))
                    inputs = (emit.spread(emit.scalar(v, place)) for place in places)
                    emit.add_products(sums, inputs, kernels)
                for r in range(rows):
                    for i in range(vectors):
                        at = emit.index(first_m, (outputs, POINTS * r), LANES * i)
                        emit.store(emit.get(sums[r][i]), m, at)


def _outputs_of_tile(emit: Emit, m: Any, at: Any, outputs: Any) -> list[list[Any]]:
    """Emit the 4x4 outputs of a tile, for sixteen channels."""
    table = [
        [emit.load(m, emit.index(at, (outputs, 6 * y + x))) for x in range(6)] for y in range(6)
    ]
    return _both_sides(emit, table, _output_side)


def _emit_outputs(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
    """Write the outputs of one tile, clipped from below, into an image."""
    m, out = arrays
    at_m, outputs, to, line = integers
    least = emit.spread(floats[0])
    with emit.loop(0, outputs, LANES) as o:
        table = _outputs_of_tile(emit, m, emit.index(at_m, o), outputs)
        for y, row in enumerate(table):
            for x, value in enumerate(row):
                place = emit.index(to, o, (line, y), (outputs, x))
                emit.store(emit.clip(value, least), out, place)


def _emit_pooled(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
    """Write the largest output of each 2x2 window of one tile, and where the kernel's window of
    that output begins; -1 if it is not above `least`: then no gradient passes.
    """
    build = emit.builder
    m, best, place = arrays
    at_m, outputs, to, row_length, origin, line, depth = integers
    least = emit.spread(floats[0])
    with emit.loop(0, outputs, LANES) as o:
        table = _outputs_of_tile(emit, m, emit.index(at_m, o), outputs)
        for py, px in product(range(2), repeat=2):
            largest = where = None
            for y, x in product((2 * py, 2 * py + 1), (2 * px, 2 * px + 1)):
                here = emit.spread(emit.narrow(emit.index(origin, (line, y), (depth, x))))
                value = table[y][x]
                if largest is None:
                    largest, where = value, here
                    continue
                larger = build.fcmp_ordered(">", value, largest)
                largest = build.select(larger, value, largest)
                where = build.select(larger, here, where)
            alive = build.fcmp_ordered(">", largest, least)
            at = emit.index(to, o, (row_length, py), (outputs, px))
            emit.store(emit.clip(largest, least), best, at)
            emit.store(build.select(alive, where, emit.integers(-1)), place, at)


_kernels, _inputs, _products = map(vector_code, (_emit_kernels, _emit_inputs, _emit_products))
_outputs, _pooled = vector_code(_emit_outputs), vector_code(_emit_pooled)


@compiled
def transform_kernels(w: Float32, u: Float32, size: Geometry) -> None:
    """Transform all kernels: w [3, 3, depth, outputs] to u [36, depth, outputs]."""
    _kernels((w, u), (size.depth * size.outputs,), ())


@compiled
def _corner(tile: int, across: int, height: int, width: int) -> tuple[int, int]:
    """Return the first row and column of a tile; the last ones overlap those before."""
    return min(tile // across * 4, height - 4), min(tile % across * 4, width - 4)


# A function of its own: compiled as a part of `image`, its loops are a few percent slower.
@compiled
def _multiply(
    arrays: tuple[Float32, Float32, Float32, Float32],
    at_a: int,
    size: Geometry,
    first: int,
    count: int,
) -> None:
    """Transform the inputs of some tiles of an image and multiply them with the kernels."""
    a, u, v, m = arrays
    height, width = _used(size)
    line = size.width * size.depth
    for t in range(count):
        y, x = _corner(first + t, -(-width // 4), height, width)
        start = at_a + y * line + x * size.depth
        _inputs((a, v), (start, line, size.depth, t * POINTS * size.depth), ())
    _products((v, u, m), (count, size.depth, size.outputs), ())


@compiled
def image(stage: Any, b: int, out: Float32, at_out: int, pitch: int) -> None:
    """Compute the outputs of one image of a batch, in rows of a length `pitch`.

    With a pool, writes the largest output of each window to the stage's buffer `best`, and where
    the kernel's window of that output begins to `place`, in place of `out`.
    """
    size, least = geometry(stage), np.float32(0 if stage.relu else -np.inf)
    a, u, v, m = floats(stage.x), floats(stage.kernels), floats(stage.tiles), floats(stage.products)
    chosen, pooled = (m, floats(stage.best), int32s(stage.place)), stage.pooled != 0
    height, width = _used(size)
    across = -(-width // 4)
    tiles = -(-height // 4) * across
    line, pooled_row = size.width * size.depth, width // 2 * size.outputs
    for first in range(0, tiles, TILES):
        count = min(TILES, tiles - first)
        _multiply((a, u, v, m), b * size.height * line, size, first, count)
        for t in range(count):
            y, x = _corner(first + t, across, height, width)
            place = (t * POINTS * size.outputs, size.outputs)
            if pooled:
                to = y // 2 * pooled_row + x // 2 * size.outputs
                window = (y * line + x * size.depth, line, size.depth)
                _pooled(chosen, (place, to, pooled_row, window), (least,))
            else:
                to = at_out + y * pitch + x * size.outputs
                _outputs((m, out), (place, to, pitch), (least,))
