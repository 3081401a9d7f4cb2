"""A linear layer without autograd: forward, what lies between layers, and backward together with
the update of its edges.

The weights of a supernetwork have one magnitude, so two bits an edge describe them: its sign, and
whether it is kept. Rows are padded to whole vectors.

The gradient of the weights is never stored: it is formed for a few edges at a time from the whole
batch and used for the update at once.  Small batches take one pass over the edges, which are the
bulk of the memory traffic; larger ones take tiles of rows and columns, as a matrix product does.
Both add in the same order, so they give the same bits, whatever the size of the tiles.
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
# Vectors of a row per block of the single pass, which also holds the gradient of the inputs.
_BACKWARD = 32
_BLOCK = 48  # rows of a block whose weights, one strip of columns wide, stay in the L1 cache
_STRIP = 8  # vectors of such a strip
_TILED_FROM = 16  # examples in a batch from which tiles are faster than a single pass

# Tiles that fit the registers: 32 vectors of sixteen lanes with AVX-512, 8 with AVX2 or NEON.
_DOT_ROWS, _DOT_EXAMPLES = (3, 8) if WIDE else (2, 3)
_TILE, _ACROSS = (6, 4) if WIDE else (6, 1)
_PASS_ROWS = 4 if WIDE else 2

SCRATCH = max(_DOT_BLOCK * _FORWARD, _BLOCK * _STRIP) * LANES  # floats for masked weights

Arrays = list[Any]
Numbers = list[Any]
# Of a masked layer: bits of the edges kept, sign bits, and SCRATCH floats.
Masked = tuple[UInt16, UInt16, Float32]


def _emit_dot(emit: Emit, arrays: Arrays, integers: Numbers, floats: Numbers) -> None:
    """Add the products of a block of rows of weights with every example to the outputs."""
    x, y, weights = arrays
    batch, size, at_x, rows, at_w, length, at_y, pitch, count = integers
    for b, examples in emit.tiles(0, batch, _DOT_EXAMPLES, 1):
        for row, some in emit.tiles(0, rows, _DOT_ROWS, 1):
            first_x, first_w = emit.index(at_x, (b, size)), emit.index(at_w, (row, length))
            sums = [[emit.variable(emit.zero) for _ in range(examples)] for _ in range(some)]
            with emit.loop(0, count) as j:
                column = emit.index((j, LANES))
                places = [emit.index(first_w, (length, r), column) for r in range(some)]
                loaded = [emit.load(weights, place) for place in places]
                for n in range(examples):
                    inputs = emit.load(x, emit.index(first_x, (size, n), column))
                    for r in range(some):
                        emit.set(sums[r][n], emit.fused(inputs, loaded[r], emit.get(sums[r][n])))
            for n in range(examples):
                for r in range(some):
                    at = emit.index(at_y, (b, pitch), row, (pitch, n), r)
                    total = emit.total(emit.get(sums[r][n]))
                    place = emit.builder.gep(y, [at])
                    emit.set(place, emit.builder.fadd(emit.get(place), total))


def _emit_expand(emit: Emit, arrays: Arrays, integers: Numbers, floats: Numbers) -> None:
    """Write the masked weights of part of some rows as floats."""
    kept, sign, out = arrays
    first, words, rows, count = integers
    plus, minus = emit.spread(floats[0]), emit.spread(emit.builder.fneg(floats[0]))
    with emit.loop(0, rows) as r, emit.loop(0, count) as j:
        at = emit.index(first, (r, words), j)
        weight = emit.builder.select(emit.load_bits(sign, at), minus, plus)
        weight = emit.builder.select(emit.load_bits(kept, at), weight, emit.zero)
        emit.store(weight, out, emit.index((emit.index((r, count), j), LANES)))


_dot, _expand = vector_code(_emit_dot), vector_code(_emit_expand)


@compiled
def forward(
    x: Float32,
    weights: Float32,
    masked: Masked | None,
    magnitude: np.float32,
    y: Float32,
    batch: int,
    sizes: tuple[int, int, int],
) -> None:
    """Compute y[b, o] = sum of x[b, i] * weights[o, i], all flat.

    masked: edges of one magnitude in place of the weights.
    sizes: length of a row of x and of weights, a multiple of sixteen; outputs; length of a row of
    y.
    """
    inputs, outputs, pitch = sizes
    words = inputs // LANES
    y[: batch * pitch] = np.float32(0)
    for start in range(0, words, _FORWARD):
        count = min(_FORWARD, words - start)
        for top in range(0, outputs, _DOT_BLOCK):
            rows = min(_DOT_BLOCK, outputs - top)
            first = top * words + start
            if masked is None:
                place = (batch, inputs, start * LANES, rows, first * LANES, inputs)
                _dot((x, y, weights), (place, top, pitch, count), ())
            else:
                _expand(masked, (first, words, rows, count), (magnitude,))
                place = (batch, inputs, start * LANES, rows, 0, count * LANES)
                _dot((x, y, masked[2]), (place, top, pitch, count), ())


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
        for o in range(outputs):
            slope = slopes[o]
            out[o] = slope if not relu or values[o] > 0 else np.float32(0)


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


class _Scores:
    """Emits a step on scores, and the look at their window."""

    def __init__(self, emit: Emit, arrays: Arrays, integers: Numbers, floats: Numbers):
        self.emit = emit
        self.scores, self.velocity, self.kept, self.sign, self.window = arrays
        self.room, below, listed = integers
        self.below, self.listed = emit.variable(below), emit.variable(listed)
        magnitude, *rest = floats
        self.plus = emit.spread(magnitude)
        self.minus = emit.spread(emit.builder.fneg(magnitude))
        self.rate, self.momentum, self.decay, self.low, self.high = map(emit.spread, rest)

    def weight(self, word: Any) -> Any:
        """Return the weights of sixteen edges, kept or not."""
        return self.emit.builder.select(self.emit.load_bits(self.sign, word), self.minus, self.plus)

    def effective(self, word: Any, weight: Any) -> Any:
        """Return the weights that the forward pass used."""
        kept = self.emit.load_bits(self.kept, word)
        return self.emit.builder.select(kept, weight, self.emit.zero)

    def update(self, word: Any, weight: Any, gradient: Any) -> None:
        emit, build = self.emit, self.emit.builder
        edge = emit.index((word, LANES))
        score = emit.load(self.scores, edge)
        pulled = build.fadd(build.fmul(gradient, weight), build.fmul(self.decay, score))
        change = build.fmul(self.momentum, emit.load(self.velocity, edge))
        change = build.fadd(change, pulled)
        score = build.fsub(score, build.fmul(self.rate, change))
        emit.store(change, self.velocity, edge)
        emit.store(score, self.scores, edge)
        under = build.fcmp_ordered("<", score, self.low)
        emit.store_bits(build.not_(under), self.kept, word)
        emit.set(self.below, build.add(emit.get(self.below), emit.count(under)))
        above, most = (
            build.fcmp_ordered(">=", score, self.low),
            build.fcmp_ordered("<=", score, self.high),
        )
        inside = build.and_(above, most)
        any_inside = build.icmp_unsigned("!=", emit.word(inside), emit.word(inside).type(0))
        with emit.unlikely(any_inside):
            self._list(edge, inside)

    def _list(self, edge: Any, inside: Any) -> None:
        """Append the edges inside the window to its list, or mark the list as full."""
        emit, build = self.emit, self.emit.builder
        so_far = emit.get(self.listed)
        with build.if_else(build.icmp_signed("<=", so_far, self.room)) as (fits, full):
            with fits:
                edges = build.add(emit.spread(emit.narrow(edge)), emit.lanes)
                emit.compress(edges, inside, self.window, so_far)
                emit.set(self.listed, build.add(so_far, emit.count(inside)))
            with full:
                emit.set(self.listed, emit.index(self.room, LANES))


class _Weights:
    """Emits a step on weights."""

    def __init__(self, emit: Emit, arrays: Arrays, integers: Numbers, floats: Numbers):
        self.emit = emit
        self.weights, self.velocity, self.anchor = arrays
        _, self.below, self.listed = integers[0], *map(emit.variable, integers[1:])
        self.rate, self.momentum, self.decay, self.proximal = map(emit.spread, floats)

    def weight(self, word: Any) -> Any:
        return self.emit.load(self.weights, self.emit.index((word, LANES)))

    def effective(self, word: Any, weight: Any) -> Any:
        return weight

    def update(self, word: Any, weight: Any, gradient: Any) -> None:
        emit, build = self.emit, self.emit.builder
        edge = emit.index((word, LANES))
        pulled = build.fadd(gradient, build.fmul(self.decay, weight))
        away = build.fsub(weight, emit.load(self.anchor, edge))
        pulled = build.fadd(pulled, build.fmul(self.proximal, away))
        change = build.fmul(self.momentum, emit.load(self.velocity, edge))
        change = build.fadd(change, pulled)
        emit.store(change, self.velocity, edge)
        emit.store(build.fsub(weight, build.fmul(self.rate, change)), self.weights, edge)


def _steps(*, back: bool) -> Any:
    """Return code for a step on a block of edges; back: add to the gradient of the inputs too."""
    tall, wide = (_PASS_ROWS, 1) if back else (_TILE, _ACROSS)

    def write(emit: Emit, arrays: Arrays, integers: Numbers, floats: Numbers) -> tuple[Any, Any]:
        x, dx, delta, *own = arrays
        batch, pitch, words, top, bottom, start, stop, *rest = integers
        edges = (_Weights if len(own) == 3 else _Scores)(emit, own, rest, floats)
        size = emit.index((words, LANES))
        for row, rows in emit.tiles(top, bottom, tall, 1):
            for j, vectors in emit.tiles(start, stop, wide, 1):
                column = emit.index((j, LANES))
                first = [emit.index((emit.index(row, r), words), j) for r in range(rows)]
                weights = [edges.weight(at) for at in first] if back else []
                used = [edges.effective(at, w) for at, w in zip(first, weights, strict=False)]
                sums = [[emit.variable(emit.zero) for _ in range(vectors)] for _ in range(rows)]
                with emit.loop(0, batch) as b:
                    at = emit.index((b, size), column)
                    inputs = [emit.load(x, emit.index(at, LANES * v)) for v in range(vectors)]
                    slope = emit.load(dx, at) if back else None
                    for r in range(rows):
                        d = emit.spread(emit.scalar(delta, emit.index((b, pitch), row, r)))
                        for v in range(vectors):
                            emit.set(sums[r][v], emit.fused(d, inputs[v], emit.get(sums[r][v])))
                        slope = emit.fused(d, used[r], slope) if back else None
                    if back:
                        emit.store(slope, dx, at)
                for r in range(rows):
                    for v in range(vectors):
                        word = emit.index(first[r], v)
                        weight = weights[r] if back else edges.weight(word)
                        edges.update(word, weight, emit.get(sums[r][v]))
        return emit.get(edges.below), emit.get(edges.listed)

    return vector_code(write)


def _emit_slopes(emit: Emit, arrays: Arrays, integers: Numbers, floats: Numbers) -> None:
    """Add delta[b, r] * weights[r] of a block of rows to the gradient of a strip of all inputs."""
    dx, delta, weights = arrays
    batch, size, column, rows, row, pitch, at_w, length, count = integers
    for b, examples in emit.tiles(0, batch, _TILE, 1):
        for j, vectors in emit.tiles(0, count, _ACROSS, 1):
            first = emit.index((b, size), column, (j, LANES))
            places = [
                [emit.index(first, (size, n), LANES * v) for v in range(vectors)]
                for n in range(examples)
            ]
            sums = [[emit.variable(emit.load(dx, place)) for place in line] for line in places]
            with emit.loop(0, rows) as r:
                at = emit.index(at_w, (length, r), (j, LANES))
                loaded = [emit.load(weights, emit.index(at, LANES * v)) for v in range(vectors)]
                for n in range(examples):
                    place = emit.index((emit.index(b, n), pitch), row, r)
                    d = emit.spread(emit.scalar(delta, place))
                    for v in range(vectors):
                        emit.set(sums[n][v], emit.fused(d, loaded[v], emit.get(sums[n][v])))
            for n in range(examples):
                for v in range(vectors):
                    emit.store(emit.get(sums[n][v]), dx, places[n][v])


_single_pass, _tiles, _slopes = _steps(back=True), _steps(back=False), vector_code(_emit_slopes)


@compiled
def backward(
    x: Float32,
    dx: Float32,
    delta: Float32,
    edges: tuple[Any, ...],
    masked: Masked | None,
    room: int,
    sizes: tuple[int, int, int, int, bool],
    rates: tuple[np.float32, ...],
) -> tuple[int, int]:
    """Take one step on the edges, and compute the gradient of the inputs at the weights before it.

    edges: weights, velocity, and the anchor of the proximal term; or scores, velocity, bits of the
    edges kept, sign bits, and the list of a window with space for `room` edges and a vector.
    sizes: batch, inputs (a multiple of sixteen), outputs, length of a row of delta, dx or not.
    rates: learning rate, momentum, weight decay, strength of the proximal term; or the magnitude of
    the weights, the three rates, and the ends of the window.

    With scores, sets the bit of every edge not below the window, and returns how many edges are
    below it and how many are listed: more than `room` if there was no space for all.
    """
    batch, inputs, outputs, pitch, wanted = sizes
    words = inputs // LANES
    below = listed = 0
    arrays = (x, dx, delta, edges)
    if wanted:
        dx[: batch * inputs] = np.float32(0)
    if wanted and batch < _TILED_FROM:
        for start in range(0, words, _BACKWARD):
            block = (0, outputs, start, min(start + _BACKWARD, words))
            integers = (batch, pitch, words, block, room, below, listed)
            below, listed = _single_pass(arrays, integers, rates)
        return below, listed
    strip = _STRIP if wanted else _BACKWARD
    for start in range(0, words, strip):
        count = min(strip, words - start)
        for top in range(0, outputs, _BLOCK):
            rows = min(_BLOCK, outputs - top)
            first = top * words + start
            if wanted:
                place = (batch, inputs, start * LANES, rows, top, pitch)
                if masked is None:
                    _slopes((dx, delta, edges[0]), (place, first * LANES, inputs, count), ())
                else:
                    _expand(masked, (first, words, rows, count), rates[:1])
                    _slopes((dx, delta, masked[2]), (place, 0, count * LANES, count), ())
            block = (top, top + rows, start, start + count)
            integers = (batch, pitch, words, block, room, below, listed)
            below, listed = _tiles(arrays, integers, rates)
    return below, listed
