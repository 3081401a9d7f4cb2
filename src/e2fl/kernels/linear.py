"""A linear layer without autograd: forward, and what lies between layers.

`linear_backward` has the rest.

The weights of a supernetwork have one magnitude, so two bits an edge describe them: its sign, and
whether it is kept. Rows are padded to whole vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from e2fl.kernels.machine_code import Float32, Int64, UInt16, compiled
from e2fl.kernels.vectors import LANES, WIDE, Emit, vector_code

# Vectors of a row per block: the inputs of a tile of examples stay in the L1 and L2 caches.
_FORWARD = 128
# Rows that every example meets before the next ones: their weights stay in the L2 cache.
_DOT_BLOCK = 24

# Tiles that fit the registers: 32 vectors of sixteen lanes with AVX-512, 8 with AVX2 or NEON.
_DOT_ROWS, _DOT_EXAMPLES = (3, 8) if WIDE else (2, 3)

SCRATCH = _DOT_BLOCK * _FORWARD * LANES  # floats that the masked functions need


def _dot(rows: int, examples: int) -> Any:
    """Return code for the products of some rows of weights with some examples, added to the
    outputs.
    """

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        x, y, weights = arrays
        first_x, size, first_w, length, first_y, pitch, count = integers
        sums = [[emit.variable(emit.zero) for _ in range(examples)] for _ in range(rows)]
        with emit.loop(0, count) as j:
            column = emit.index((j, LANES))
            loaded = [
                emit.load(weights, emit.index(first_w, (length, r), column)) for r in range(rows)
            ]
            for n in range(examples):
                inputs = emit.load(x, emit.index(first_x, (size, n), column))
                for r in range(rows):
                    emit.set(sums[r][n], emit.fused(inputs, loaded[r], emit.get(sums[r][n])))
        for n in range(examples):
            for r in range(rows):
                place = emit.builder.gep(y, [emit.index(first_y, (pitch, n), r)])
                emit.set(
                    place, emit.builder.fadd(emit.get(place), emit.total(emit.get(sums[r][n])))
                )

    return vector_code(write)


_dot_tile, _dot_row = _dot(_DOT_ROWS, _DOT_EXAMPLES), _dot(1, _DOT_EXAMPLES)
_dot_tile_1, _dot_row_1 = _dot(_DOT_ROWS, 1), _dot(1, 1)


@compiled
def _dot_block(
    arrays: Any, rows: int, batch: int, size: int, places: tuple[int, int, int, int, int, int]
) -> None:
    """Add the products of a block of rows with every example to the outputs.

    places: start in x; start and row length of the weights; start and row length of y; vectors.
    """
    at_x, at_w, length, at_y, pitch, count = places
    b = 0
    while b < batch:
        examples = _DOT_EXAMPLES if b + _DOT_EXAMPLES <= batch else 1
        row = 0
        while row < rows:
            integers = (
                at_x + b * size,
                size,
                at_w + row * length,
                length,
                at_y + b * pitch + row,
                pitch,
                count,
            )
            if row + _DOT_ROWS <= rows:
                if examples == _DOT_EXAMPLES:
                    _dot_tile(arrays, integers, ())
                else:
                    _dot_tile_1(arrays, integers, ())
                row += _DOT_ROWS
            else:
                if examples == _DOT_EXAMPLES:
                    _dot_row(arrays, integers, ())
                else:
                    _dot_row_1(arrays, integers, ())
                row += 1
        b += examples


@compiled
def forward(
    x: Float32, weights: Float32, y: Float32, batch: int, sizes: tuple[int, int, int]
) -> None:
    """Compute y[b, o] = sum of x[b, i] * weights[o, i], all flat.

    sizes: length of a row of x and of weights, a multiple of sixteen; outputs; length of a row of
    y.
    """
    inputs, outputs, pitch = sizes
    y[: batch * pitch] = np.float32(0)
    arrays = (x, y, weights)
    for start in range(0, inputs, _FORWARD * LANES):
        count = min(_FORWARD, (inputs - start) // LANES)
        for top in range(0, outputs, _DOT_BLOCK):
            rows = min(_DOT_BLOCK, outputs - top)
            _dot_block(
                arrays,
                rows,
                batch,
                inputs,
                (start, top * inputs + start, inputs, top, pitch, count),
            )


def _expand_row(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
    """Emit code that writes the masked weights of part of a row as floats."""
    kept, sign, out = arrays
    first, to, count = integers
    plus, minus = emit.spread(floats[0]), emit.spread(emit.builder.fneg(floats[0]))
    with emit.loop(0, count) as j:
        at = emit.index(first, j)
        weight = emit.builder.select(emit.load_bits(sign, at), minus, plus)
        weight = emit.builder.select(emit.load_bits(kept, at), weight, emit.zero)
        emit.store(weight, out, emit.index(to, (j, LANES)))


expand = vector_code(_expand_row)


@compiled
def forward_masked(
    x: Float32,
    kept: UInt16,
    sign: UInt16,
    magnitude: np.float32,
    y: Float32,
    scratch: Float32,
    batch: int,
    sizes: tuple[int, int, int],
) -> None:
    """Compute `forward` for weights of one magnitude: each edge has a bit of `kept` and one of
    `sign` (true is minus).

    scratch: SCRATCH floats.
    """
    inputs, outputs, pitch = sizes
    y[: batch * pitch] = np.float32(0)
    arrays, bits = (x, y, scratch), (kept, sign, scratch)
    words = inputs // LANES
    for start in range(0, words, _FORWARD):
        count = min(_FORWARD, words - start)
        for top in range(0, outputs, _DOT_BLOCK):
            rows = min(_DOT_BLOCK, outputs - top)
            for r in range(rows):
                expand(bits, ((top + r) * words + start, r * count * LANES, count), (magnitude,))
            _dot_block(
                arrays, rows, batch, inputs, (start * LANES, 0, count * LANES, top, pitch, count)
            )


@compiled
def pass_on(y: Float32, x: Float32, batch: int, sizes: tuple[int, int, int], relu: bool) -> None:
    """Copy a layer's outputs to the next layer's inputs, through a ReLU if there is one.

    sizes: outputs, length of a row of y, length of a row of x.
    """
    outputs, pitch, stride = sizes
    least = np.float32(0 if relu else -np.inf)
    for b in range(batch):
        # Slices, because the compiler vectorises a loop only over indices that it knows to be in
        # range.
        values, out = y[b * pitch : b * pitch + outputs], x[b * stride : b * stride + outputs]
        for o in range(outputs):
            value = values[o]
            out[o] = least if value < least else value


@compiled
def pass_back(
    x: Float32, dx: Float32, delta: Float32, batch: int, sizes: tuple[int, int, int], relu: bool
) -> None:
    """Copy the gradient of the next layer's inputs to that of this layer's outputs.

    Sizes as in `pass_on`.
    """
    outputs, pitch, stride = sizes
    for b in range(batch):
        values, slopes = x[b * stride : b * stride + outputs], dx[b * stride : b * stride + outputs]
        out = delta[b * pitch : b * pitch + outputs]
        if relu:
            for o in range(outputs):
                slope = slopes[o]
                out[o] = slope if values[o] > 0 else np.float32(0)
        else:
            out[:] = slopes


@compiled
def loss_gradient(
    y: Float32, labels: Int64, weights: Float32, delta: Float32, outputs: int, pitch: int
) -> float:
    """Write the gradient of the mean cross-entropy at the logits, and return the mean; weights: of
    each example.
    """
    batch = labels.size
    mean = 0.0
    for b in range(batch):
        logits = y[b * pitch : b * pitch + outputs]
        largest = logits.max()
        total = 0.0
        for o in range(outputs):
            total += np.exp(np.float64(logits[o] - largest))
        weight = np.float64(weights[b]) / batch
        mean += weight * (np.log(total) - np.float64(logits[labels[b]] - largest))
        for o in range(outputs):
            probability = np.exp(np.float64(logits[o] - largest)) / total
            delta[b * pitch + o] = weight * (probability - (1.0 if o == labels[b] else 0.0))
    return mean
