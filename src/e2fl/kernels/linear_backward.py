"""A linear layer without autograd: backward, together with the update of its edges.

The gradient of the weights is never stored: it is formed for a few edges at a time from the whole
batch and used for the update at once.  Small batches take one pass over the edges, which are the
bulk of the memory traffic; larger ones take tiles of rows and columns, as a matrix product does.
Both add in the same order, so they give the same bits, whatever the size of the tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from e2fl.kernels.linear import SCRATCH, expand
from e2fl.kernels.machine_code import Float32, Int32, UInt16, compiled
from e2fl.kernels.vectors import LANES, WIDE, Emit, vector_code

# Vectors of a row per block of the single pass, which also holds the gradient of the inputs.
_BACKWARD = 32
_BLOCK = 48  # rows of a block whose weights, one strip of columns wide, stay in the L1 cache
_STRIP = 8  # vectors of such a strip
_TILED_FROM = 16  # examples in a batch from which tiles are faster than a single pass

# Tiles that fit the registers, as in `linear`.
_TILE, _ACROSS = (6, 4) if WIDE else (6, 1)
_PASS_ROWS = 4 if WIDE else 2

assert _BLOCK * _STRIP * LANES <= SCRATCH


def _gather(examples: int, vectors: int) -> Any:
    """Return code that adds delta[b, r] * weights[r, column] to the gradients of some inputs."""

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        dx, delta, weights = arrays
        at_dx, size, at_delta, pitch, at_w, length, rows = integers
        places = [
            [emit.index(at_dx, (size, b), LANES * v) for v in range(vectors)]
            for b in range(examples)
        ]
        sums = [[emit.variable(emit.load(dx, place)) for place in line] for line in places]
        with emit.loop(0, rows) as r:
            at = emit.index(at_w, (length, r))
            loaded = [emit.load(weights, emit.index(at, LANES * v)) for v in range(vectors)]
            for b in range(examples):
                d = emit.spread(emit.scalar(delta, emit.index(at_delta, (pitch, b), r)))
                for v in range(vectors):
                    emit.set(sums[b][v], emit.fused(d, loaded[v], emit.get(sums[b][v])))
        for b in range(examples):
            for v in range(vectors):
                emit.store(emit.get(sums[b][v]), dx, places[b][v])

    return vector_code(write)


_gather_tile, _gather_line = _gather(_TILE, _ACROSS), _gather(1, _ACROSS)
_gather_tile_1, _gather_line_1 = _gather(_TILE, 1), _gather(1, 1)


@compiled
def _gather_inputs(
    arrays: Any, batch: int, vectors: int, lengths: tuple[int, int, int], places: Any
) -> None:
    """Add the contribution of a block of rows to the gradient of a strip of all inputs.

    lengths: of a row of dx, delta and weights.  places: column in dx, first row, start, rows.
    """
    size, pitch, length = lengths
    column, row, at_w, rows = places
    b = 0
    while b < batch:
        examples = _TILE if b + _TILE <= batch else 1
        v = 0
        while v < vectors:
            at = column + v * LANES
            integers = (b * size + at, size, b * pitch + row, pitch, at_w + v * LANES, length, rows)
            if v + _ACROSS <= vectors:
                if examples == _TILE:
                    _gather_tile(arrays, integers, ())
                else:
                    _gather_line(arrays, integers, ())
                v += _ACROSS
            else:
                if examples == _TILE:
                    _gather_tile_1(arrays, integers, ())
                else:
                    _gather_line_1(arrays, integers, ())
                v += 1
        b += examples


def _gradients(
    emit: Emit, arrays: list[Any], integers: list[Any], rows: int, vectors: int
) -> list[list[Any]]:
    """Emit the gradients of some columns in some rows."""
    x, delta = arrays
    batch, row, pitch, size, column = integers
    sums = [[emit.variable(emit.zero) for _ in range(vectors)] for _ in range(rows)]
    with emit.loop(0, batch) as b:
        inputs = [emit.load(x, emit.index((b, size), column, LANES * v)) for v in range(vectors)]
        for r in range(rows):
            d = emit.spread(emit.scalar(delta, emit.index((b, pitch), row, r)))
            for v in range(vectors):
                emit.set(sums[r][v], emit.fused(d, inputs[v], emit.get(sums[r][v])))
    return [[emit.get(place) for place in line] for line in sums]


def _gradients_and_back(
    emit: Emit, arrays: list[Any], integers: list[Any], effective: list[Any]
) -> list[list[Any]]:
    """Emit the gradients of sixteen columns in some rows, and add to those of their inputs."""
    x, dx, delta = arrays
    batch, row, pitch, size, column = integers
    sums = [emit.variable(emit.zero) for _ in effective]
    with emit.loop(0, batch) as b:
        at = emit.index((b, size), column)
        inputs, gathered = emit.load(x, at), emit.load(dx, at)
        for r, weight in enumerate(effective):
            d = emit.spread(emit.scalar(delta, emit.index((b, pitch), row, r)))
            emit.set(sums[r], emit.fused(d, inputs, emit.get(sums[r])))
            gathered = emit.fused(d, weight, gathered)
        emit.store(gathered, dx, at)
    return [[emit.get(place)] for place in sums]


def _score_rows(rows: int, vectors: int, *, back: bool) -> Any:
    """Return code for a step on the scores of some rows, which also looks at the window."""

    def write(
        emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]
    ) -> tuple[Any, Any]:
        build = emit.builder
        x, dx, delta, scores, velocity, kept, sign, window = arrays
        batch, row, pitch, words, start, stop, room, below_before, found_before = integers
        magnitude, *rest = floats
        plus, minus = emit.spread(magnitude), emit.spread(build.fneg(magnitude))
        rate, momentum, decay, low, high = (emit.spread(value) for value in rest)
        size = emit.index((words, LANES))
        below, found = emit.variable(below_before), emit.variable(found_before)
        with emit.loop(start, stop, vectors) as j:
            column = emit.index((j, LANES))
            first = [emit.index((emit.index(row, r), words), j) for r in range(rows)]
            places = [batch, row, pitch, size, column]
            if back:
                weights = [build.select(emit.load_bits(sign, at), minus, plus) for at in first]
                effective = [
                    build.select(emit.load_bits(kept, at), weight, emit.zero)
                    for at, weight in zip(first, weights, strict=True)
                ]
                gradients = _gradients_and_back(emit, [x, dx, delta], places, effective)
            else:
                gradients = _gradients(emit, [x, delta], places, rows, vectors)
            for r in range(rows):
                for v in range(vectors):
                    at = emit.index(first[r], v)
                    edge = emit.index((at, LANES))
                    weight = (
                        weights[r] if back else build.select(emit.load_bits(sign, at), minus, plus)
                    )
                    score = emit.load(scores, edge)
                    pulled = build.fadd(
                        build.fmul(gradients[r][v], weight), build.fmul(decay, score)
                    )
                    change = build.fadd(build.fmul(momentum, emit.load(velocity, edge)), pulled)
                    score = build.fsub(score, build.fmul(rate, change))
                    emit.store(change, velocity, edge)
                    emit.store(score, scores, edge)
                    under = build.fcmp_ordered("<", score, low)
                    emit.store_bits(build.not_(under), kept, at)
                    emit.set(below, build.add(emit.get(below), emit.count(under)))
                    inside = build.and_(
                        build.fcmp_ordered(">=", score, low), build.fcmp_ordered("<=", score, high)
                    )
                    with emit.unlikely(
                        build.icmp_unsigned("!=", emit.word(inside), emit.word(inside).type(0))
                    ):
                        _list(emit, edge, inside, window, found, room)
        return emit.get(below), emit.get(found)

    return vector_code(write)


def _list(emit: Emit, edge: Any, inside: Any, window: Any, found: Any, room: Any) -> None:
    """Emit code that appends the edges inside the window to its list, or marks the list as full."""
    build = emit.builder
    so_far = emit.get(found)
    with build.if_else(build.icmp_signed("<=", so_far, room)) as (fits, full):
        with fits:
            edges = build.add(emit.spread(emit.narrow(edge)), emit.lanes)
            emit.compress(edges, inside, window, so_far)
            emit.set(found, build.add(so_far, emit.count(inside)))
        with full:
            emit.set(found, emit.index(room, LANES))


_score_pass, _score_pass_1 = _score_rows(_PASS_ROWS, 1, back=True), _score_rows(1, 1, back=True)
_score_tile, _score_line = (
    _score_rows(_TILE, _ACROSS, back=False),
    _score_rows(1, _ACROSS, back=False),
)
_score_tile_1, _score_line_1 = _score_rows(_TILE, 1, back=False), _score_rows(1, 1, back=False)


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
    scratch: Float32,
    sizes: tuple[int, int, int, int, bool],
    rates: tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32],
) -> tuple[int, int]:
    """Take one step on the scores, and compute the gradient of the inputs at the weights before it.

    sizes: batch, inputs (a multiple of sixteen), outputs, length of a row of delta, dx or not.
    rates: magnitude of the weights; learning rate, momentum, weight decay; ends of the window.
    scratch: SCRATCH floats. Sets a bit of `kept` for every edge not below the window.  Returns how
    many edges are below it, and how many `window` lists: its length if it had no room for all.
    """
    batch, inputs, outputs, pitch, wanted = sizes
    words = inputs // LANES
    room = window.size - LANES
    below = found = 0
    if wanted:
        dx[: batch * inputs] = np.float32(0)
    arrays, bits, gathered = (
        (x, dx, delta, scores, velocity, kept, sign, window),
        (kept, sign, scratch),
        (dx, delta, scratch),
    )
    if wanted and batch < _TILED_FROM:
        for start in range(0, words, _BACKWARD):
            stop = min(start + _BACKWARD, words)
            row = 0
            while row < outputs:
                rows = _PASS_ROWS if row + _PASS_ROWS <= outputs else 1
                integers = (batch, row, pitch, words, start, stop, room, below, found)
                if rows == _PASS_ROWS:
                    below, found = _score_pass(arrays, integers, rates)
                else:
                    below, found = _score_pass_1(arrays, integers, rates)
                row += rows
        return below, found
    strip = _STRIP if wanted else _BACKWARD
    for start in range(0, words, strip):
        vectors = min(strip, words - start)
        for top in range(0, outputs, _BLOCK):
            rows = min(_BLOCK, outputs - top)
            if wanted:
                for r in range(rows):
                    expand(
                        bits, ((top + r) * words + start, r * vectors * LANES, vectors), rates[:1]
                    )
                lengths = (inputs, pitch, vectors * LANES)
                _gather_inputs(gathered, batch, vectors, lengths, (start * LANES, top, 0, rows))
            # As many columns as fill whole tiles, then the rest one vector at a time.
            middle = start + vectors // _ACROSS * _ACROSS
            row = top
            while row < top + rows:
                if row + _TILE <= top + rows:
                    integers = (batch, row, pitch, words, start, middle, room, below, found)
                    below, found = _score_tile(arrays, integers, rates)
                    integers = (
                        batch,
                        row,
                        pitch,
                        words,
                        middle,
                        start + vectors,
                        room,
                        below,
                        found,
                    )
                    below, found = _score_tile_1(arrays, integers, rates)
                    row += _TILE
                else:
                    integers = (batch, row, pitch, words, start, middle, room, below, found)
                    below, found = _score_line(arrays, integers, rates)
                    integers = (
                        batch,
                        row,
                        pitch,
                        words,
                        middle,
                        start + vectors,
                        room,
                        below,
                        found,
                    )
                    below, found = _score_line_1(arrays, integers, rates)
                    row += 1
    return below, found


def _weight_rows(rows: int, vectors: int, *, back: bool) -> Any:
    """Return code for a step on the weights of some rows."""

    def write(emit: Emit, arrays: list[Any], integers: list[Any], floats: list[Any]) -> None:
        build = emit.builder
        x, dx, delta, weights, velocity, anchor = arrays
        batch, row, pitch, words, start, stop = integers
        rate, momentum, decay, proximal = (emit.spread(value) for value in floats)
        size = emit.index((words, LANES))
        with emit.loop(start, stop, vectors) as j:
            column = emit.index((j, LANES))
            first = [emit.index((emit.index(row, r), size), column) for r in range(rows)]
            places = [batch, row, pitch, size, column]
            if back:
                before = [emit.load(weights, edge) for edge in first]
                gradients = _gradients_and_back(emit, [x, dx, delta], places, before)
            else:
                gradients = _gradients(emit, [x, delta], places, rows, vectors)
            for r in range(rows):
                for v in range(vectors):
                    edge = emit.index(first[r], LANES * v)
                    weight = before[r] if back else emit.load(weights, edge)
                    pulled = build.fadd(gradients[r][v], build.fmul(decay, weight))
                    pulled = build.fadd(
                        pulled, build.fmul(proximal, build.fsub(weight, emit.load(anchor, edge)))
                    )
                    change = build.fadd(build.fmul(momentum, emit.load(velocity, edge)), pulled)
                    emit.store(change, velocity, edge)
                    emit.store(build.fsub(weight, build.fmul(rate, change)), weights, edge)

    return vector_code(write)


_weight_pass, _weight_pass_1 = _weight_rows(_PASS_ROWS, 1, back=True), _weight_rows(1, 1, back=True)
_weight_tile, _weight_line = (
    _weight_rows(_TILE, _ACROSS, back=False),
    _weight_rows(1, _ACROSS, back=False),
)
_weight_tile_1, _weight_line_1 = _weight_rows(_TILE, 1, back=False), _weight_rows(1, 1, back=False)


@compiled
def backward_weights(
    x: Float32,
    dx: Float32,
    delta: Float32,
    weights: Float32,
    velocity: Float32,
    anchor: Float32,
    sizes: tuple[int, int, int, int, bool],
    rates: tuple[np.float32, np.float32, np.float32, np.float32],
) -> None:
    """Take one step on the weights, and compute the gradient of the inputs before it.

    sizes: batch, inputs (a multiple of sixteen), outputs, length of a row of delta, dx or not.
    rates: learning rate, momentum, weight decay, strength of the proximal term toward the anchor;
    without an anchor, 0 and the weights themselves.
    """
    batch, inputs, outputs, pitch, wanted = sizes
    words = inputs // LANES
    if wanted:
        dx[: batch * inputs] = np.float32(0)
    arrays, gathered = (x, dx, delta, weights, velocity, anchor), (dx, delta, weights)
    if wanted and batch < _TILED_FROM:
        for start in range(0, words, _BACKWARD):
            stop = min(start + _BACKWARD, words)
            row = 0
            while row < outputs:
                rows = _PASS_ROWS if row + _PASS_ROWS <= outputs else 1
                if rows == _PASS_ROWS:
                    _weight_pass(arrays, (batch, row, pitch, words, start, stop), rates)
                else:
                    _weight_pass_1(arrays, (batch, row, pitch, words, start, stop), rates)
                row += rows
        return
    strip = _STRIP if wanted else _BACKWARD
    for start in range(0, words, strip):
        vectors = min(strip, words - start)
        for top in range(0, outputs, _BLOCK):
            rows = min(_BLOCK, outputs - top)
            if wanted:
                places = (start * LANES, top, top * inputs + start * LANES, rows)
                _gather_inputs(gathered, batch, vectors, (inputs, pitch, inputs), places)
            middle = start + vectors // _ACROSS * _ACROSS  # as in `backward_scores`
            row = top
            while row < top + rows:
                if row + _TILE <= top + rows:
                    _weight_tile(arrays, (batch, row, pitch, words, start, middle), rates)
                    _weight_tile_1(
                        arrays, (batch, row, pitch, words, middle, start + vectors), rates
                    )
                    row += _TILE
                else:
                    _weight_line(arrays, (batch, row, pitch, words, start, middle), rates)
                    _weight_line_1(
                        arrays, (batch, row, pitch, words, middle, start + vectors), rates
                    )
                    row += 1
