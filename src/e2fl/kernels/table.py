"""The table that the loops of a network read, so that one function runs every chain of layers.

A row for each stage has its sizes and the addresses of its buffers.  `stages.py` fills it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from e2fl.kernels.machine_code import Float32, compiled

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


# A row of the table; a buffer is its address and size.
STAGE = np.dtype(
    [(name, np.int64) for name in (*_FLAGS, *_STRIDES, *_SIZES)]
    + [(name, np.int64) for name in Geometry._fields if name not in _SIZES]
    + [(name, np.int64, 2) for name in _BUFFERS]
    + [("magnitude", np.float32), ("proximal", np.float32)]
)


@compiled
def geometry(stage: Any) -> Geometry:
    """Return the sizes of a convolution."""
    kernel = (stage.kernel_height, stage.kernel_width)
    pool = (stage.pool_height, stage.pool_width)
    return Geometry(stage.height, stage.width, stage.depth, *kernel, stage.outputs, *pool)


@compiled
def strides_of(stage: Any) -> Strides:
    """Return how the input of a stage is laid out."""
    rows = (stage.by_row, stage.by_column)
    return (stage.by_example, stage.by_channel, *rows, stage.start)


@compiled
def output_size(size: Geometry) -> tuple[int, int]:
    """Return the height and width of a convolution's outputs, before its pool."""
    return size.height - size.kernel_height + 1, size.width - size.kernel_width + 1


@compiled
def copy_images(
    source: Float32,
    strides: Strides,
    to: Float32,
    to_strides: Strides,
    sizes: tuple[int, int, int, int],
    passed: Float32,
    relu: bool,
) -> None:
    """Copy images to another layout; if `relu`, zero where `passed`, laid out as source, is not
    above zero.

    sizes: examples, height, width, depth.
    """
    batch, height, width, depth = sizes
    by_example, by_channel, by_row, by_column, first = strides
    to_example, to_channel, to_row, to_column, to_first = to_strides
    length = max(depth, width * by_column)
    for b in range(batch):
        for y in range(height):
            at = first + b * by_example + y * by_row
            at_to = to_first + b * to_example + y * to_row
            if by_channel == 1 and to_channel == 1 and by_column == to_column:
                # Slices, because the compiler vectorises a loop only over indices that it knows to
                # be in range.
                values, signs = source[at : at + length], passed[at : at + length]
                out = to[at_to : at_to + length]
                for i in range(length):
                    out[i] = values[i] if not relu or signs[i] > 0 else np.float32(0)
                continue
            for i in range(width):
                for c in range(depth):
                    place = at + i * by_column + c * by_channel
                    value = source[place] if not relu or passed[place] > 0 else np.float32(0)
                    to[at_to + i * to_column + c * to_channel] = value
