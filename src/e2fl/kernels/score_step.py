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

from typing import NamedTuple

import numpy as np

from e2fl.kernels.machine_code import Bool, Float32, Int32, UInt16, UInt32, compiled, scratch
from e2fl.kernels.sorting import first_kept, float_key, kept_edges, threshold_of

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


@compiled
def _choose(
    bits: UInt32, window: Int32, place: int, keys: UInt32, spare: UInt32
) -> tuple[np.uint32, int]:
    """Return the key at a place among the edges of a window, and how many edges with the same key
    come before it.
    """
    for i in range(window.size):
        keys[i] = float_key(bits[window[i]])
    key, below = threshold_of(keys, place, spare)
    return key, place - below


class Threshold:
    """The threshold of a layer: the key of the lowest kept score and, among edges tied with it, the
    first kept edge.

    scores: padding between the `edges` scores is NaN, which is never selected or counted.
    """

    def __init__(self, scores: Float32, edges: int, dropped: int):
        self.bits: UInt32 = scores.view(np.uint32)
        self.edges, self.dropped = edges, dropped
        self.key, self.first_tied = _NAN, scores.size
        # Edges in a window: few, but enough to contain the threshold most of the time.
        self.wanted = max(256, edges // 1024)
        self.window: Int32 = np.empty(min(edges, 32 * self.wanted) + _PIECE, np.int32)
        self._keys: UInt32 = np.empty((2, self.window.size), np.uint32)
        self.low, self.high = np.float32(-np.inf), np.float32(np.inf)
        if dropped >= edges:
            self.low = np.float32(np.inf)
            return
        if edges > _SMALL:
            sample = np.sort(scores[:: max(1, scores.size // _SAMPLE)])
            place = dropped * (sample.size - 1) // scores.size
            reach = sample.size // 100
            self.low = sample[max(0, place - reach)]
            self.high = sample[min(sample.size - 1, place + reach)]
        self.locate(*look(scores, 0, self.low, self.high, self.window, 0))

    @property
    def mask(self) -> Bool:
        """The edges kept; true for padding."""
        return kept_edges(self.bits, self.key, self.first_tied)

    def locate(self, below: int, found: int) -> bool:
        """Find the threshold, given the number of scores below the window and of edges listed in
        it.

        Return whether the threshold is in the window; if not, the list is of no use.
        """
        if self.dropped >= self.edges:
            return True
        place = self.dropped - below
        full = found >= self.window.size
        missed = full or not 0 <= place < found
        if missed:
            size = self.bits.size
            pairs, _ = scratch.of(size)
            words = pairs.view(np.uint32)
            key, first_tied = first_kept(self.bits, self.dropped, words[:size], words[size:])
        else:
            window, keys, spare = self.window[:found], self._keys[0, :found], self._keys[1, :found]
            key, tied = _choose(self.bits, window, place, keys, spare)
            # The edges of a window are listed in the order of the loops, not by number.
            first_tied = np.sort(window[keys == key])[tied - 1] + 1 if tied else 0
        self.key, self.first_tied = np.uint32(key), int(first_tied)
        if self.edges > _SMALL:
            self._aim(4.0 if missed and not full else min(4.0, max(0.5, self.wanted / found)))
        return not missed

    def _aim(self, factor: float) -> None:
        """Center the next window on the threshold, wider than the last by this factor."""
        middle = _score_of(self.key)
        reach = max(factor * (float(self.high) - float(self.low)) / 2, abs(middle) * 1e-6)
        if reach < 1e30:
            self.low, self.high = np.float32(middle - reach), np.float32(middle + reach)


@compiled
def clear_dropped(
    bits: UInt32, window: Int32, key: np.uint32, first_tied: int, kept: UInt16
) -> None:
    """Clear the bits of the edges in a window that are below the threshold."""
    for i in range(window.size):
        edge = window[i]
        own = float_key(bits[edge])
        if own < key or (own == key and edge < first_tied):
            kept[edge >> 4] &= ~np.uint16(1 << (edge & 15))


def _score_of(key: np.uint32) -> float:
    """Return the score that a key encodes."""
    bits = int(key) & 0x7FFFFFFF if int(key) >> 31 else ~int(key) & 0xFFFFFFFF
    return float(np.array(bits, np.uint32).view(np.float32))


@compiled
def _keep_from(
    lowest: np.float32, first_tied: int, scores: Float32, weights: Float32, out: Float32
) -> None:
    """Copy the weights whose score is at least the lowest kept one, and zero for the others."""
    zero = np.float32(0)
    s, w, tied = scores[:first_tied], weights[:first_tied], out[:first_tied]
    for e in range(tied.size):
        tied[e] = zero if s[e] <= lowest else w[e]
    s, w, rest = scores[first_tied:], weights[first_tied:], out[first_tied:]
    for e in range(rest.size):
        rest[e] = zero if s[e] < lowest else w[e]


class ScoreStep:
    """The scores of one layer under SGD with momentum, and the weights they select."""

    def __init__(self, scores: Float32, weights: Float32, dropped: int):
        self.scores, self.weights = scores, weights
        # Not +0.0: momentum * -0.0 + g equals g also for g = -0.0.
        self.velocity: Float32 = np.full_like(scores, -0.0)
        self.threshold = Threshold(scores, scores.size, dropped)
        self.effective: Float32 = np.empty_like(weights)
        self._select()

    def advance(self, gradient: Float32, rates: Rates) -> None:
        """Take one step in place; gradient: with respect to the masked weights."""
        limits = self.threshold
        arrays = (self.scores, self.velocity, self.weights, gradient)
        window = (limits.low, limits.high, limits.window)
        limits.locate(*_update_and_look(*arrays, rates, *window))
        self._select()

    def _select(self) -> None:
        limits = self.threshold
        if limits.key == _NAN:  # no score orders against it
            self.effective[:] = np.where(limits.mask, self.weights, np.float32(0))
            return
        lowest = np.float32(_score_of(limits.key))
        _keep_from(lowest, limits.first_tied, self.scores, self.weights, self.effective)


@compiled
def _update_weights(
    weights: Float32,
    velocity: Float32,
    gradient: Float32,
    anchor: Float32,
    rates: Rates,
    proximal: np.float32,
) -> None:
    rate, momentum, decay = rates
    for e in range(weights.size):
        pulled = gradient[e] + decay * weights[e] + proximal * (weights[e] - anchor[e])
        change = momentum * velocity[e] + pulled
        velocity[e] = change
        weights[e] = weights[e] - rate * change


class WeightStep:
    """The weights of one layer under SGD with momentum and a proximal term toward an anchor."""

    def __init__(self, weights: Float32, anchor: Float32, proximal: float):
        self.effective, self.anchor, self.proximal = weights, anchor, np.float32(proximal)
        self.velocity: Float32 = np.full_like(weights, -0.0)

    def advance(self, gradient: Float32, rates: Rates) -> None:
        """Take one step in place."""
        _update_weights(self.effective, self.velocity, gradient, self.anchor, rates, self.proximal)
