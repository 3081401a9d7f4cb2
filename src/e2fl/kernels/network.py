"""A whole network in compiled code: forward and backward passes, steps, and all steps of a fit,
which does not return to the interpreter between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.kernels import convolution, linear, pooling, winograd
from e2fl.kernels.machine_code import Float32, Int64, compiled
from e2fl.kernels.score_step import Rates, advance_scores, advance_weights
from e2fl.kernels.sorting import gather, scatter_into
from e2fl.kernels.table import copy_images, geometry
from e2fl.kernels.vectors import floats, int32s, uint32s


@compiled
def show(stage: Any) -> None:
    """Copy the effective weights of a convolution into the layouts of the loops."""
    effective, w = floats(stage.effective), floats(stage.w)
    scatter_into(effective, int32s(stage.at_w), w)
    if stage.winograd:
        winograd.transform_kernels(w, floats(stage.kernels), geometry(stage))
    if not stage.first:
        scatter_into(effective, int32s(stage.at_back), floats(stage.w_back))


@compiled
def _copy_inputs(inputs: Float32, first: Any) -> None:
    """Copy a batch into the buffer of the first stage."""
    x = floats(first.x)
    _, depth, height, width = inputs.shape
    for b in range(inputs.shape[0]):
        for c in range(depth):
            for y in range(height):
                at = first.start + b * first.by_example + c * first.by_channel + y * first.by_row
                row = inputs[b, c, y]
                for i in range(width):
                    x[at + i * first.by_column] = row[i]


@compiled
def outputs(stages: Any, inputs: Float32) -> None:
    """Compute the outputs of the network; inputs: [examples, depth, height, width]."""
    batch = inputs.shape[0]
    _copy_inputs(inputs, stages[0])
    for i in range(stages.size):
        stage = stages[i]
        if stage.linear:
            linear.forward(stage, batch)
            if i + 1 < stages.size:
                linear.pass_on(stage, stages[i + 1], batch)
        elif stage.pooled:
            pooling.forward(stage, stages[i + 1], batch)
        else:
            convolution.forward(stage, stages[i + 1], batch)


@compiled
def _step_convolution(stage: Any, limits: Any, rates: Rates) -> None:
    """Take a step on the edges of a convolution, from the gradient of its weights."""
    gradient = gather(floats(stage.dw), int32s(stage.at_dw))
    velocity, effective = floats(stage.velocity), floats(stage.effective)
    if stage.scored:
        edges = (floats(stage.values), velocity, floats(stage.frozen), effective)
        lists = (int32s(stage.window), uint32s(stage.keys))
        advance_scores(edges, gradient, limits, lists, rates)
    else:
        anchor = floats(stage.anchor)
        advance_weights(effective, velocity, gradient, anchor, rates, stage.proximal)
    show(stage)


@compiled
def backward(stages: Any, limits: Any, batch: int, rates: Rates) -> None:
    """Take a step on all edges from the gradient at the outputs, in the last stage's buffer.

    limits: a row of LIMITS for each stage.
    """
    for i in range(stages.size - 1, -1, -1):
        stage, own = stages[i], limits[i : i + 1]
        if stage.linear:
            if i + 1 < stages.size:
                after = stages[i + 1]
                x, dx, delta = floats(after.x), floats(after.dx), floats(stage.delta)
                strides, to = (after.by_example, 1, 0, 0, 0), (stage.pitch, 1, 0, 0, 0)
                sizes = (batch, 1, 1, stage.outputs)
                copy_images(dx, strides, delta, to, sizes, x, stage.relu != 0)
            linear.backward(stage, own, batch, rates)
            continue
        if stage.pooled:
            pooling.backward(stage, stages[i + 1], batch)
        else:
            convolution.backward(stage, stages[i + 1], batch)
        _step_convolution(stage, own, rates)


@compiled
def fit(
    stages: Any,
    limits: Any,
    inputs: Float32,
    labels: Int64,
    ends: Int64,
    rates: Float32,
) -> NDArray[np.float64]:
    """Take one step on each batch; return their losses.

    inputs: [examples, depth, height, width].  ends: of the batches.  rates: of each batch, in the
    order of `Rates`.
    """
    losses = np.empty(ends.size, np.float64)
    last = stages[stages.size - 1]
    start = 0
    for step in range(ends.size):
        stop = ends[step]
        outputs(stages, inputs[start:stop])
        losses[step] = linear.loss_gradient(last, labels[start:stop])
        now = Rates(rates[step, 0], rates[step, 1], rates[step, 2])
        backward(stages, limits, stop - start, now)
        start = stop
    return losses
