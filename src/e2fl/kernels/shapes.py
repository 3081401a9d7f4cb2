"""What layers are described by: their sizes, the rates of a step, and what stages have in common."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from e2fl.kernels.machine_code import Float32, UInt16

# Of an example, a channel, a row and a column; and the offset of the first.
Strides = tuple[int, int, int, int, int]


class Rates(NamedTuple):
    """Learning rate, momentum and weight decay of a step."""

    learning_rate: float
    momentum: float
    weight_decay: float


class Signs(NamedTuple):
    """Weights of one magnitude: one sign bit each, true for minus, in rows padded to whole vectors."""

    magnitude: np.float32
    bits: UInt16


class Shape(NamedTuple):
    """An image; a flat input is an image of one pixel."""

    depth: int
    height: int
    width: int


class Stage(Protocol):
    """One layer with the ReLU and the max-pool that follow it."""

    x: Float32
    dx: Float32
    strides: Strides  # of x and dx

    def forward(self, batch: int, after: Stage | None) -> None: ...

    def backward(self, batch: int, after: Stage | None, rates: Rates) -> None: ...


class Edges(Protocol):
    """The edges of a convolution in training: a `ScoreStep` or a `WeightStep`."""

    effective: Float32

    def advance(
        self, gradient: Float32, learning_rate: float, momentum: float, weight_decay: float
    ) -> None: ...


class ConvolutionSizes(NamedTuple):
    """The sizes of an nn.Conv2d."""

    inputs: int
    outputs: int
    kernel: tuple[int, int]
    padding: tuple[int, int]


class LinearSizes(NamedTuple):
    """The sizes of an nn.Linear."""

    inputs: int
    outputs: int
