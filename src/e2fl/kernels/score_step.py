"""Compiled loops of local training: one SGD step on the scores of a layer, and the selection of the
edges to keep.

The selection does not sort.  While a step updates the scores, it counts those below a narrow window
around the last threshold and lists the edges inside; the new threshold is then selected among these
few.  If the threshold has left the window, a full radix selection finds it: slower, with the same
result.

A step is, in float32 and in this order of operations (never contracted into fused multiply-adds):

    g = gradient * weight + weight_decay * score
    velocity = momentum * velocity + g
    score = score - learning_rate * velocity
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from e2fl.kernels.machine_code import Float32, Int32, UInt16, UInt32, compiled
from e2fl.kernels.sorting import first_kept, float_key, threshold_of

# Edges updated before they are counted, so that their values are still in the L1 cache.
_STRETCH = 4096
_PIECE = 32  # edges examined one by one if any of them is in the window
_SMALL = 4096  # edges of a layer small enough to list all of them
_SAMPLE = 16384  # scores from which the first window is estimated


_NAN = np.uint32(0xFFFFFFFF)  # the key of NaN, above all others


class Rates(NamedTuple):
    """Learning rate, momentum and weight decay of a step, as float32."""

    learning_rate: np.float32
    momentum: np.float32
    weight_decay: np.float32


@compiled
def _count(scores: Float32, low: np.float32, high: np.float32) -> tuple[np.int32, np.int32]:
    under = np.int32(0)
    up_to = np.int32(0)
    for e in range(scores.size):
        under = np.int32(under + np.int32(scores[e] < low))
        up_to = np.int32(up_to + np.int32(scores[e] <= high))
    return under, up_to


@compiled
def look(
    scores: Float32, first: int, low: np.float32, high: np.float32, window: Int32, found: int
) -> tuple[int, int]:
    """Count the scores below a window and list the edges inside it; return (below, found so far).

    first: the number of the first edge.  If the list is full, returns its length as `found`.
    """
    below = 0
    room = window.size - _PIECE
    for start in range(0, scores.size, _PIECE):
        piece = scores[start : min(start + _PIECE, scores.size)]
        under, up_to = _count(piece, low, high)
        below += int(under)
        if under != up_to:
            if found > room:
                return below, window.size
            for i in range(piece.size):
                # Written always, counted only if inside: a branch here would be mispredicted half
                # the time.
                window[found] = first + start + i
                found += (piece[i] >= low) & (piece[i] <= high)
    return below, found


@compiled
def _update_and_look(
    scores: Float32,
    velocity: Float32,
    weights: Float32,
    gradient: Float32,
    rates: Rates,
    low: np.float32,
    high: np.float32,
    window: Int32,
) -> tuple[int, int]:
    """Take one step of SGD with momentum; gradient: with respect to the masked weights."""
    rate, momentum, decay = rates
    below = found = 0
    for start in range(0, scores.size, _STRETCH):
        s, v = scores[start : start + _STRETCH], velocity[start : start + _STRETCH]
        w, g = weights[start : start + _STRETCH], gradient[start : start + _STRETCH]
        for e in range(s.size):
            change = momentum * v[e] + (g[e] * w[e] + decay * s[e])
            v[e] = change
            s[e] = s[e] - rate * change
        under, found = look(s, start, low, high, window, found)
        below += under
    return below, found


# The threshold of a layer: the key of the lowest kept score and, among edges tied with it, the
# first kept edge; then the window around it, and how many edges the window should list.
LIMITS = np.dtype(
    [
        ("key", np.uint32),
        ("first_tied", np.int64),
        ("low", np.float32),
        ("high", np.float32),
        ("edges", np.int64),
        ("dropped", np.int64),
        ("wanted", np.int64),
    ]
)


class Threshold:
    """The threshold of a layer, and buffers to find the next one.

    scores: padding between the `edges` scores is NaN, which is never selected or counted.
    """

    def __init__(self, scores: Float32, edges: int, dropped: int):
        self.bits: UInt32 = scores.view(np.uint32)
        # Edges in a window: few, but enough to contain the threshold most of the time.
        wanted = max(256, edges // 1024)
        self.window: Int32 = np.empty(min(edges, 32 * wanted) + _PIECE, np.int32)
        self.keys: UInt32 = np.empty(2 * self.window.size, np.uint32)
        low, high = np.float32(-np.inf), np.float32(np.inf)
        if dropped >= edges:
            low = high
        elif edges > _SMALL:
            sample = np.sort(scores[:: max(1, scores.size // _SAMPLE)])
            place = dropped * (sample.size - 1) // scores.size
            reach = sample.size // 100
            low = sample[max(0, place - reach)]
            high = sample[min(sample.size - 1, place + reach)]
        row = (_NAN, scores.size, low, high, edges, dropped, wanted)
        self.limits: Any = np.array([row], LIMITS)
        if dropped < edges:
            below, found = look(scores, 0, low, high, self.window, 0)
            locate(self.limits, self.bits, self.window, self.keys, below, found)


@compiled
def locate(limits: Any, bits: UInt32, window: Int32, keys: UInt32, below: int, found: int) -> bool:
    """Find the threshold, given the number of scores below the window and of edges listed in it.

    limits: one row of LIMITS.  keys: a buffer, twice as large as the window.  Returns whether the
    threshold is in the window; if not, the list is of no use.
    """
    own = limits[0]
    if own.dropped >= own.edges:
        return True
    place = own.dropped - below
    full = found >= window.size
    missed = full or not 0 <= place < found
    if missed:
        words = np.empty(2 * bits.size, np.uint32)
        key, first_tied = first_kept(bits, own.dropped, words[: bits.size], words[bits.size :])
    else:
        some, spare = keys[:found], keys[window.size : window.size + found]
        for i in range(found):
            some[i] = float_key(bits[window[i]])
        key, under = threshold_of(some, place, spare)
        first_tied, equal = 0, 0
        if place > under:
            # The edges of a window are listed in the order of the loops, not by number.
            for i in range(found):
                spare[equal] = window[i]
                equal += some[i] == key
            last, _ = threshold_of(spare[:equal], place - under - 1, some)
            first_tied = int(last) + 1
    own.key, own.first_tied = key, first_tied
    if own.edges > _SMALL:
        usual = min(4.0, max(0.5, own.wanted / max(1, found)))
        _aim(limits, 4.0 if missed and not full else usual)
    return not missed


@compiled
def _aim(limits: Any, factor: float) -> None:
    """Center the next window on the threshold, wider than the last by this factor."""
    own = limits[0]
    middle = np.float64(_score_of(own.key))
    width = np.float64(own.high) - np.float64(own.low)
    reach = max(factor * width / 2, abs(middle) * 1e-6)
    if reach < 1e30:
        own.low, own.high = np.float32(middle - reach), np.float32(middle + reach)


@compiled
def _score_of(key: np.uint32) -> np.float32:
    """Return the score that a key encodes."""
    bits = np.empty(1, np.uint32)
    bits[0] = key & np.uint32(0x7FFFFFFF) if key >> np.uint32(31) else ~key
    return np.float32(bits.view(np.float32)[0])


@compiled
def _is_kept(bits: UInt32, edge: int, key: np.uint32, first_tied: int) -> bool:
    own = float_key(bits[edge])
    return bool(own > key or (own == key and edge >= first_tied))


@compiled
def pack_kept(limits: Any, bits: UInt32, kept: UInt16) -> None:
    """Set the bit of every edge that is kept; true for padding."""
    key, first_tied = limits[0].key, limits[0].first_tied
    for word in range(kept.size):
        packed = np.uint16(0)
        for i in range(16):
            edge = 16 * word + i
            packed |= np.uint16(_is_kept(bits, edge, key, first_tied)) << np.uint16(i)
        kept[word] = packed


@compiled
def clear_dropped(limits: Any, bits: UInt32, window: Int32, kept: UInt16) -> None:
    """Clear the bits of the edges in a window that are below the threshold."""
    key, first_tied = limits[0].key, limits[0].first_tied
    for i in range(window.size):
        edge = window[i]
        if not _is_kept(bits, edge, key, first_tied):
            kept[edge >> 4] &= ~np.uint16(1 << (edge & 15))


@compiled
def _select(limits: Any, scores: Float32, weights: Float32, out: Float32) -> None:
    """Copy the weights of the edges that are kept, and zero for the others."""
    key, first_tied = limits[0].key, limits[0].first_tied
    zero = np.float32(0)
    if key == _NAN:  # no score orders against it
        bits = scores.view(np.uint32)
        for e in range(out.size):
            out[e] = weights[e] if _is_kept(bits, e, key, first_tied) else zero
        return
    lowest = _score_of(key)
    s, w, tied = scores[:first_tied], weights[:first_tied], out[:first_tied]
    for e in range(tied.size):
        tied[e] = zero if s[e] <= lowest else w[e]
    s, w, rest = scores[first_tied:], weights[first_tied:], out[first_tied:]
    for e in range(rest.size):
        rest[e] = zero if s[e] < lowest else w[e]


@compiled
def advance_scores(
    edges: tuple[Float32, Float32, Float32, Float32],
    gradient: Float32,
    limits: Any,
    lists: tuple[Int32, UInt32],
    rates: Rates,
) -> None:
    """Take one step on scores and select the weights they keep.

    edges: scores, velocity, weights, selected weights.  gradient: with respect to the selected
    weights.  lists: of a `Threshold`, its window and keys.
    """
    scores, velocity, weights, effective = edges
    window, keys = lists
    low, high = limits[0].low, limits[0].high
    arrays = (scores, velocity, weights, gradient)
    below, found = _update_and_look(*arrays, rates, low, high, window)
    locate(limits, scores.view(np.uint32), window, keys, below, found)
    _select(limits, scores, weights, effective)


class ScoreStep:
    """The scores of one layer under SGD with momentum, and the weights they select."""

    def __init__(self, scores: Float32, weights: Float32, dropped: int):
        self.scores = scores
        # Not +0.0: momentum * -0.0 + g equals g also for g = -0.0.
        self.velocity: Float32 = np.full_like(scores, -0.0)
        self.threshold = Threshold(scores, scores.size, dropped)
        self.effective: Float32 = np.empty_like(weights)
        self.edges = (scores, self.velocity, weights, self.effective)
        _select(self.threshold.limits, scores, weights, self.effective)

    def advance(self, gradient: Float32, rates: Rates) -> None:
        """Take one step in place; gradient: with respect to the masked weights."""
        own = self.threshold
        advance_scores(self.edges, gradient, own.limits, (own.window, own.keys), rates)


@compiled
def advance_weights(
    weights: Float32,
    velocity: Float32,
    gradient: Float32,
    anchor: Float32,
    rates: Rates,
    proximal: np.float32,
) -> None:
    """Take one step on weights, with a proximal term toward an anchor."""
    rate, momentum, decay = rates
    for e in range(weights.size):
        pulled = gradient[e] + decay * weights[e] + proximal * (weights[e] - anchor[e])
        change = momentum * velocity[e] + pulled
        velocity[e] = change
        weights[e] = weights[e] - rate * change
