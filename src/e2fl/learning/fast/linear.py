"""A linear layer at small batches: forward, and backward together with the update, in one pass over its edges.

The gradient of the weights is never stored.  It is formed for sixteen edges at a time from the batch, used for the
update, and forgotten; the gradient of the inputs is gathered on the way.  Rows are padded to whole vectors.

The weights of a supernetwork are one magnitude with a sign, kept or not: two bits an edge are all a forward pass reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from e2fl.compiled import Float32, Int32, Int64, UInt16, compiled
from e2fl.learning.fast.vectors import LANES, Emit, vector_code

_FORWARD = 128  # vectors of a row taken at once: the batch's inputs for them stay in the nearest caches
_BACKWARD = 32  # fewer, because the gradient of the inputs needs its place there too


def _signed(emit: Emit, magnitude: Any) -> tuple[Any, Any]:
    return emit.spread(magnitude), emit.spread(emit.builder.fneg(magnitude))


def _dot_rows(rows: int, examples: int, *, masked: bool) -> Any:
    """Code for the products of some rows of weights with some examples, added to the outputs."""

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        x, y, *edges = arrays
        first_x, first_y, row, start, stop, words, outputs = integers
        size = emit.index((words, LANES))
        if masked:
            plus, minus = _signed(emit, floats[0])
        sums = [[emit.variable(emit.zero) for _ in range(examples)] for _ in range(rows)]
        with emit.loop(start, stop) as j:
            weights = []
            for r in range(rows):
                at = emit.index((emit.index(row, r), words), j)
                if masked:
                    kept, sign = emit.load_bits(edges[0], at), emit.load_bits(edges[1], at)
                    weight = emit.builder.select(kept, emit.builder.select(sign, minus, plus), emit.zero)
                else:
                    weight = emit.load(edges[0], emit.index((at, LANES)))
                weights.append(weight)
            for n in range(examples):
                inputs = emit.load(x, emit.index(first_x, (size, n), (j, LANES)))
                for r in range(rows):
                    emit.set(sums[r][n], emit.fused(inputs, weights[r], emit.get(sums[r][n])))
        for n in range(examples):
            for r in range(rows):
                place = emit.builder.gep(y, [emit.index(first_y, (outputs, n), row, r)])
                emit.set(place, emit.builder.fadd(emit.get(place), emit.total(emit.get(sums[r][n]))))

    return vector_code(write)


_dot_2_8, _dot_2_1 = _dot_rows(2, 8, masked=False), _dot_rows(2, 1, masked=False)
_dot_1_1 = _dot_rows(1, 1, masked=False)
_dot_masked_2_8, _dot_masked_2_1 = _dot_rows(2, 8, masked=True), _dot_rows(2, 1, masked=True)
_dot_masked_1_1 = _dot_rows(1, 1, masked=True)


@compiled
def forward(x: Float32, weights: Float32, y: Float32, batch: int, inputs: int, outputs: int) -> None:
    """y[b, o] = sum of x[b, i] * weights[o, i]; all flat, `inputs` a multiple of sixteen, y of stride `outputs`."""
    words = inputs // LANES
    y[: batch * outputs] = np.float32(0)
    arrays = (x, y, weights)
    for start in range(0, words, _FORWARD):
        stop = min(start + _FORWARD, words)
        for row in range(0, outputs - 1, 2):
            b = 0
            while b + 8 <= batch:
                _dot_2_8(arrays, (b * inputs, b * outputs, row, start, stop, words, outputs), ())
                b += 8
            while b < batch:
                _dot_2_1(arrays, (b * inputs, b * outputs, row, start, stop, words, outputs), ())
                b += 1
        if outputs % 2:
            for b in range(batch):
                _dot_1_1(arrays, (b * inputs, b * outputs, outputs - 1, start, stop, words, outputs), ())


@compiled
def forward_masked(
    x: Float32, kept: UInt16, sign: UInt16, magnitude: np.float32, y: Float32, batch: int, inputs: int, outputs: int
) -> None:
    """`forward`, with weights of one magnitude: a bit of `kept` and a bit of `sign` (true is minus) for each edge."""
    words = inputs // LANES
    y[: batch * outputs] = np.float32(0)
    arrays = (x, y, kept, sign)
    for start in range(0, words, _FORWARD):
        stop = min(start + _FORWARD, words)
        for row in range(0, outputs - 1, 2):
            b = 0
            while b + 8 <= batch:
                places = (b * inputs, b * outputs, row, start, stop, words, outputs)
                _dot_masked_2_8(arrays, places, (magnitude,))
                b += 8
            while b < batch:
                places = (b * inputs, b * outputs, row, start, stop, words, outputs)
                _dot_masked_2_1(arrays, places, (magnitude,))
                b += 1
        if outputs % 2:
            for b in range(batch):
                places = (b * inputs, b * outputs, outputs - 1, start, stop, words, outputs)
                _dot_masked_1_1(arrays, places, (magnitude,))


def _through_batch(
    emit: Emit, arrays: list[Any], integers: list[Any], effective: list[Any], *, back: bool
) -> list[Any]:
    """Emit the gradients of sixteen weights in each row and, if wanted back, gather those of their inputs."""
    x, dx, delta = arrays
    batch, row, outputs, size, column = integers
    gradients = [emit.variable(emit.zero) for _ in effective]
    with emit.loop(0, batch) as b:
        at = emit.index((b, size), column)
        inputs = emit.load(x, at)
        gathered = emit.load(dx, at) if back else None
        for r, weight in enumerate(effective):
            d = emit.spread(emit.scalar(delta, emit.index((b, outputs), row, r)))
            emit.set(gradients[r], emit.fused(d, inputs, emit.get(gradients[r])))
            if back:
                gathered = emit.fused(d, weight, gathered)
        if back:
            emit.store(gathered, dx, at)
    return [emit.get(gradient) for gradient in gradients]


def _score_rows(rows: int, *, back: bool) -> Any:
    """Code for a step on the scores of some rows; it counts scores below a window and notes the edges inside it."""

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> tuple[Any, Any]:
        build = emit.builder
        x, dx, delta, scores, velocity, kept, sign, window = arrays
        batch, row, outputs, words, start, stop, room, below_before, found_before = integers
        magnitude, *rest = floats
        plus, minus = _signed(emit, magnitude)
        rate, momentum, decay, low, high = (emit.spread(value) for value in rest)
        size = emit.index((words, LANES))
        below, found = emit.variable(below_before), emit.variable(found_before)
        with emit.loop(start, stop) as j:
            column = emit.index((j, LANES))
            at = [emit.index((emit.index(row, r), words), j) for r in range(rows)]
            weights = [build.select(emit.load_bits(sign, at[r]), minus, plus) for r in range(rows)]
            effective = [build.select(emit.load_bits(kept, at[r]), weights[r], emit.zero) for r in range(rows)]
            gradients = _through_batch(emit, [x, dx, delta], [batch, row, outputs, size, column], effective, back=back)
            for r in range(rows):
                edge = emit.index((at[r], LANES))
                score = emit.load(scores, edge)
                pulled = build.fadd(build.fmul(gradients[r], weights[r]), build.fmul(decay, score))
                change = build.fadd(build.fmul(momentum, emit.load(velocity, edge)), pulled)
                score = build.fsub(score, build.fmul(rate, change))
                emit.store(change, velocity, edge)
                emit.store(score, scores, edge)
                under = build.fcmp_ordered("<", score, low)
                emit.store_bits(build.not_(under), kept, at[r])
                emit.set(below, build.add(emit.get(below), emit.count(under)))
                inside = build.and_(build.fcmp_ordered(">=", score, low), build.fcmp_ordered("<=", score, high))
                with emit.unlikely(build.icmp_unsigned("!=", emit.word(inside), emit.word(inside).type(0))):
                    _note(emit, edge, inside, window, found, room)
        return emit.get(below), emit.get(found)

    return vector_code(write)


def _note(emit: Emit, edge: Any, inside: Any, window: Any, found: Any, room: Any) -> None:
    """Emit: put the edges inside the window on its list, or, where the list has no room, mark it as full."""
    build = emit.builder
    so_far = emit.get(found)
    with build.if_else(build.icmp_signed("<=", so_far, room)) as (fits, full):
        with fits:
            edges = build.add(emit.spread(emit.narrow(edge)), emit.lanes)
            emit.compress(edges, inside, window, so_far)
            emit.set(found, build.add(so_far, emit.count(inside)))
        with full:
            emit.set(found, emit.index(room, LANES))


_score_rows_4, _score_rows_1 = _score_rows(4, back=True), _score_rows(1, back=True)
_first_score_rows_4, _first_score_rows_1 = _score_rows(4, back=False), _score_rows(1, back=False)


@compiled
def backward_scores(
    x: Float32,
    dx: Float32,
    delta: Float32,
    scores: Float32,
    velocity: Float32,
    kept: UInt16,
    sign: UInt16,
    window: Int32,
    sizes: tuple[int, int, int, bool],
    rates: tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32],
) -> tuple[int, int]:
    """One step on the scores, and the gradient of the inputs at the weights before it.

    sizes: batch, inputs (a multiple of sixteen), outputs, and whether dx is wanted.
    rates: magnitude of the weights; learning rate, momentum, weight decay; low and high end of the window.
    Leaves in `kept` every edge not below the window; returns how many are below, and how many were noted in `window`,
    whose length is returned when it had no room for all.
    """
    batch, inputs, outputs, wanted = sizes
    words = inputs // LANES
    room = window.size - LANES
    below = found = 0
    if wanted:
        dx[: batch * inputs] = np.float32(0)
    arrays = (x, dx, delta, scores, velocity, kept, sign, window)
    for start in range(0, words, _BACKWARD):
        stop = min(start + _BACKWARD, words)
        row = 0
        while row + 4 <= outputs:
            integers = (batch, row, outputs, words, start, stop, room, below, found)
            if wanted:
                below, found = _score_rows_4(arrays, integers, rates)
            else:
                below, found = _first_score_rows_4(arrays, integers, rates)
            row += 4
        while row < outputs:
            integers = (batch, row, outputs, words, start, stop, room, below, found)
            if wanted:
                below, found = _score_rows_1(arrays, integers, rates)
            else:
                below, found = _first_score_rows_1(arrays, integers, rates)
            row += 1
    return below, found


def _weight_rows(rows: int, *, back: bool) -> Any:
    """Code for a step on the weights of some rows."""

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        build = emit.builder
        x, dx, delta, weights, velocity, anchor = arrays
        batch, row, outputs, words, start, stop = integers
        rate, momentum, decay, pull = (emit.spread(value) for value in floats)
        size = emit.index((words, LANES))
        with emit.loop(start, stop) as j:
            column = emit.index((j, LANES))
            edges = [emit.index((emit.index(row, r), size), column) for r in range(rows)]
            before = [emit.load(weights, edge) for edge in edges]
            gradients = _through_batch(emit, [x, dx, delta], [batch, row, outputs, size, column], before, back=back)
            for r, edge in enumerate(edges):
                weight = before[r]
                pulled = build.fadd(gradients[r], build.fmul(decay, weight))
                pulled = build.fadd(pulled, build.fmul(pull, build.fsub(weight, emit.load(anchor, edge))))
                change = build.fadd(build.fmul(momentum, emit.load(velocity, edge)), pulled)
                emit.store(change, velocity, edge)
                emit.store(build.fsub(weight, build.fmul(rate, change)), weights, edge)

    return vector_code(write)


_weight_rows_4, _weight_rows_1 = _weight_rows(4, back=True), _weight_rows(1, back=True)
_first_weight_rows_4, _first_weight_rows_1 = _weight_rows(4, back=False), _weight_rows(1, back=False)


@compiled
def backward_weights(
    x: Float32,
    dx: Float32,
    delta: Float32,
    weights: Float32,
    velocity: Float32,
    anchor: Float32,
    sizes: tuple[int, int, int, bool],
    rates: tuple[np.float32, np.float32, np.float32, np.float32],
) -> None:
    """One step on the weights, and the gradient of the inputs at the weights before it.

    sizes: batch, inputs (a multiple of sixteen), outputs, and whether dx is wanted.
    rates: learning rate, momentum, weight decay, and the pull toward the anchor; without one, 0 and the weights.
    """
    batch, inputs, outputs, wanted = sizes
    words = inputs // LANES
    if wanted:
        dx[: batch * inputs] = np.float32(0)
    arrays = (x, dx, delta, weights, velocity, anchor)
    for start in range(0, words, _BACKWARD):
        stop = min(start + _BACKWARD, words)
        row = 0
        while row + 4 <= outputs:
            if wanted:
                _weight_rows_4(arrays, (batch, row, outputs, words, start, stop), rates)
            else:
                _first_weight_rows_4(arrays, (batch, row, outputs, words, start, stop), rates)
            row += 4
        while row < outputs:
            if wanted:
                _weight_rows_1(arrays, (batch, row, outputs, words, start, stop), rates)
            else:
                _first_weight_rows_1(arrays, (batch, row, outputs, words, start, stop), rates)
            row += 1


@compiled
def hand_on(y: Float32, x: Float32, batch: int, outputs: int, stride: int, relu: bool) -> None:
    """Make a layer's outputs the next layer's inputs, rows `stride` apart, through a ReLU if there is one."""
    least = np.float32(0 if relu else -np.inf)
    for b in range(batch):
        for o in range(outputs):
            value = y[b * outputs + o]
            x[b * stride + o] = least if value < least else value


@compiled
def hand_back(x: Float32, dx: Float32, delta: Float32, batch: int, outputs: int, stride: int, relu: bool) -> None:
    """Make the gradient of the next layer's inputs that of this layer's outputs."""
    for b in range(batch):
        for o in range(outputs):
            alive = not relu or x[b * stride + o] > 0
            delta[b * outputs + o] = dx[b * stride + o] if alive else np.float32(0)


@compiled
def slope_of_loss(y: Float32, labels: Int64, shares: Float32, delta: Float32, outputs: int) -> None:
    """The gradient of the mean cross-entropy; shares: how much each example counts."""
    batch = labels.size
    for b in range(batch):
        logits = y[b * outputs : (b + 1) * outputs]
        largest = logits.max()
        total = 0.0
        for o in range(outputs):
            total += np.exp(np.float64(logits[o] - largest))
        share = np.float64(shares[b]) / batch
        for o in range(outputs):
            probability = np.exp(np.float64(logits[o] - largest)) / total
            delta[b * outputs + o] = share * (probability - (1.0 if o == labels[b] else 0.0))
