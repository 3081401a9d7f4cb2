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
from e2fl.kernels.score_step import Rates, clear_dropped, locate, pack_kept
from e2fl.kernels.vectors import LANES, WIDE, Emit, floats, int32s, uint16s, uint32s, vector_code

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
_PASS_ROWS = 8 if WIDE else 2

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
            sums = [[emit.variable(emit.zero) for _ in range(some)] for _ in range(examples)]
            with emit.loop(0, count) as j:
                column = emit.index((j, LANES))
                places = [emit.index(first_w, (length, r), column) for r in range(some)]
                loaded = [emit.load(weights, place) for place in places]
                at_inputs = (emit.index(first_x, (size, n), column) for n in range(examples))
                emit.add_products(sums, (emit.load(x, at) for at in at_inputs), loaded)
            for n in range(examples):
                for r in range(some):
                    at = emit.index(at_y, (b, pitch), row, (pitch, n), r)
                    total = emit.total(emit.get(sums[n][r]))
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
def forward(stage: Any, batch: int) -> None:
    """Compute y[b, o] = sum of x[b, i] * weights[o, i]."""
    x, y, scratch = floats(stage.x), floats(stage.y), floats(stage.scratch)
    masked = (uint16s(stage.kept), uint16s(stage.signs), scratch)
    inputs, outputs, pitch = stage.by_example, stage.outputs, stage.pitch
    words = inputs // LANES
    y[: batch * pitch] = np.float32(0)
    for start in range(0, words, _FORWARD):
        count = min(_FORWARD, words - start)
        for top in range(0, outputs, _DOT_BLOCK):
            rows = min(_DOT_BLOCK, outputs - top)
            first = top * words + start
            weights, at, length = floats(stage.values), first * LANES, inputs
            if stage.scored:
                _expand(masked, (first, words, rows, count), (stage.magnitude,))
                weights, at, length = scratch, 0, count * LANES
            place = (batch, inputs, start * LANES, rows, at, length)
            _dot((x, y, weights), (place, top, pitch, count), ())


@compiled
def pass_on(stage: Any, after: Any, batch: int) -> None:
    """Copy a layer's outputs to the next layer's inputs, through a ReLU if there is one."""
    y, x, outputs = floats(stage.y), floats(after.x), stage.outputs
    least = np.float32(0 if stage.relu else -np.inf)
    for b in range(batch):
        at, to = b * stage.pitch, b * after.by_example
        # Slices, because the compiler vectorises a loop only over indices that it knows to be in
        # range.
        values, out = y[at : at + outputs], x[to : to + outputs]
        for o in range(outputs):
            value = values[o]
            out[o] = least if value < least else value


@compiled
def loss_gradient(stage: Any, labels: Int64) -> float:
    """Write the gradient of the mean cross-entropy at the logits; return the mean."""
    y, delta, outputs, pitch = floats(stage.y), floats(stage.delta), stage.outputs, stage.pitch
    batch = labels.size
    weight = 1.0 / batch
    mean = 0.0
    for b in range(batch):
        logits = y[b * pitch : b * pitch + outputs]
        largest = logits.max()
        total = 0.0
        for o in range(outputs):
            total += np.exp(np.float64(logits[o] - largest))
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
        self.room, listed = integers
        self.listed = emit.variable(listed)
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
        kept = build.not_(build.fcmp_ordered("<", score, self.low))
        emit.store_bits(kept, self.kept, word)
        inside = build.and_(kept, build.fcmp_ordered("<=", score, self.high))
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
        self.listed = emit.variable(integers[1])
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

    def write(emit: Emit, arrays: Arrays, integers: Numbers, floats: Numbers) -> Any:
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
        return emit.get(edges.listed)

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
                at_delta = (emit.index((emit.index(b, n), pitch), row, r) for n in range(examples))
                slopes = (emit.spread(emit.scalar(delta, place)) for place in at_delta)
                emit.add_products(sums, slopes, loaded)
            for n in range(examples):
                for v in range(vectors):
                    emit.store(emit.get(sums[n][v]), dx, places[n][v])


def _emit_count(emit: Emit, arrays: Arrays, integers: Numbers, floats: Numbers) -> Any:
    """Count the bits that are set."""
    total = emit.variable(emit.index(0))
    with emit.loop(0, integers[0]) as word:
        bits = emit.load_bits(arrays[0], word)
        emit.set(total, emit.builder.add(emit.get(total), emit.count(bits)))
    return emit.get(total)


_single_pass, _tiles = _steps(back=True), _steps(back=False)
_slopes, _count_kept = vector_code(_emit_slopes), vector_code(_emit_count)


@compiled
def backward(stage: Any, limits: Any, batch: int, rates: Rates) -> None:
    """Take one step on the edges, and compute the gradient of the inputs at the weights before it.

    limits: a row of LIMITS.
    """
    values, velocity = floats(stage.values), floats(stage.velocity)
    rate, momentum, decay = rates
    if not stage.scored:
        edges_of = (values, velocity, floats(stage.anchor))
        _descend(stage, edges_of, None, 0, batch, (rate, momentum, decay, stage.proximal))
        return
    kept, signs, window = uint16s(stage.kept), uint16s(stage.signs), int32s(stage.window)
    edges, masked = (values, velocity, kept, signs, window), (kept, signs, floats(stage.scratch))
    ends = (limits[0].low, limits[0].high)
    constants = (stage.magnitude, rate, momentum, decay, *ends)
    listed = _descend(stage, edges, masked, window.size - LANES, batch, constants)
    below = kept.size * LANES - _count_kept((kept,), (kept.size,), ())
    bits = values.view(np.uint32)
    if locate(limits, bits, window, uint32s(stage.keys), below, listed):
        clear_dropped(limits, bits, window[:listed], kept)
    else:
        pack_kept(limits, bits, kept)


@compiled
def _descend(
    stage: Any,
    edges: tuple[Any, ...],
    masked: Masked | None,
    room: int,
    batch: int,
    rates: tuple[np.float32, ...],
) -> int:
    """Take one step on the edges, and compute the gradient of the inputs unless they are data.

    edges: weights, velocity, and the anchor of the proximal term; or scores, velocity, bits of the
    edges kept, sign bits, and the list of a window with space for `room` edges and a vector.
    rates: learning rate, momentum, weight decay, strength of the proximal term; or the magnitude of
    the weights, the three rates, and the ends of the window.

    With scores, sets the bit of every edge not below the window, and returns how many edges are
    listed: more than `room` if there was no space for all.
    """
    x, dx, delta = floats(stage.x), floats(stage.dx), floats(stage.delta)
    inputs, outputs, pitch, wanted = stage.by_example, stage.outputs, stage.pitch, not stage.first
    words = inputs // LANES
    listed = 0
    arrays = (x, dx, delta, edges)
    if wanted:
        dx[: batch * inputs] = np.float32(0)
    if wanted and batch < _TILED_FROM:
        for start in range(0, words, _BACKWARD):
            block = (0, outputs, start, min(start + _BACKWARD, words))
            integers = (batch, pitch, words, block, room, listed)
            listed = _single_pass(arrays, integers, rates)
        return listed
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
            integers = (batch, pitch, words, block, room, listed)
            listed = _tiles(arrays, integers, rates)
    return listed
