"""An entropy coder: range asymmetric numeral systems (rANS, Duda 2013) with one frequency table for each segment.

Two states take turns, so that the processor works on two symbols at a time. A state is at least 2^31 and below 2^63,
and moves 32 bits at a time. The bytes are the two states after the last step of the encoder (8 bytes each), then the
words in the order in which the decoder reads them. All numbers are little-endian.
"""

from __future__ import annotations

import numpy as np

from e2fl.compiled.arrays import Int64, UInt8, UInt32
from e2fl.compiled.machine_code import compiled
from e2fl.compiled.symbol_tables import PRECISION

_LOW = 1 << 31  # the least state, and the one an encoder begins with
_STATES = 16  # bytes of the two states


@compiled
def _encode(symbols: UInt8, ends: Int64, tables: UInt32, words: UInt32) -> tuple[int, np.uint64, np.uint64]:
    """Fill `words` from its end; returns where they begin, and the states of even and of odd symbols."""
    at = words.size
    alphabet = tables.shape[1]
    starts = np.empty(alphabet, np.uint64)
    limits = np.empty(alphabet, np.uint64)
    sizes = np.empty(alphabet, np.uint64)
    other = np.uint64(_LOW)
    state = np.uint64(_LOW)  # of symbol i; the first coded is the last symbol
    for segment in range(ends.size - 1, -1, -1):
        start = np.uint64(0)
        for symbol in range(alphabet):
            size = np.uint64(tables[segment, symbol])
            starts[symbol], sizes[symbol] = start, size
            limits[symbol] = size << np.uint64(63 - PRECISION)
            start += size
        first = ends[segment - 1] if segment > 0 else 0
        for i in range(ends[segment] - 1, first - 1, -1):
            symbol = symbols[i]
            size = sizes[symbol]
            if state >= limits[symbol]:
                at -= 1
                words[at] = np.uint32(state & np.uint64(0xFFFFFFFF))
                state >>= np.uint64(32)
            quotient = state // size
            state = (quotient << np.uint64(PRECISION)) + (state - quotient * size) + starts[symbol]
            state, other = other, state
    # After symbol 0 they were exchanged once more than there are symbols between: `other` coded symbol 0.
    return at, other, state


def _most_words(symbols: int) -> int:
    """Return a number of words that is never exceeded: a symbol takes at most PRECISION bits and a little, below 16."""
    return symbols // 2 + 2


def rans_encode(symbols: UInt8, ends: Int64, tables: UInt32) -> bytes:
    """Encode symbols with the frequencies `tables` [segments, alphabet]; ends: where each segment ends.

    Every symbol must have a frequency above zero in its segment.
    """
    words = np.empty(_most_words(symbols.size), np.uint32)
    at, even, odd = _encode(symbols, ends, tables, words)
    return np.array([even, odd], "<u8").tobytes() + words[at:].astype("<u4", copy=False).tobytes()


@compiled
def _decode(words: UInt32, even: np.uint64, odd: np.uint64, ends: Int64, tables: UInt32, out: UInt8) -> bool:
    alphabet = tables.shape[1]
    slots = np.empty(1 << PRECISION, np.uint8)
    starts = np.empty(alphabet, np.uint64)
    sizes = np.empty(alphabet, np.uint64)
    low = np.uint64(_LOW)
    mask = np.uint64((1 << PRECISION) - 1)
    state, other = even, odd
    at = 0
    first = 0
    for segment in range(ends.size):
        begin = 0
        for symbol in range(alphabet):
            size = int(tables[segment, symbol])
            starts[symbol], sizes[symbol] = begin, size
            slots[begin : begin + size] = symbol
            begin += size
        for i in range(first, ends[segment]):
            slot = state & mask
            symbol = slots[slot]
            out[i] = symbol
            state = sizes[symbol] * (state >> np.uint64(PRECISION)) + slot - starts[symbol]
            if state < low:
                if at == words.size:
                    return False
                state = (state << np.uint64(32)) | np.uint64(words[at])
                at += 1
            state, other = other, state
        first = ends[segment]
    return at == words.size and state == low and other == low


def rans_decode(raw: bytes | memoryview, ends: Int64, tables: UInt32) -> UInt8:
    """Decode as many symbols as the segments have; ValueError unless the bytes end exactly there."""
    size = int(ends[-1]) if ends.size else 0
    if (len(raw) - _STATES) % 4 or not 0 <= len(raw) - _STATES <= 4 * _most_words(size):
        raise ValueError("the coded symbols have a wrong length")
    even, odd = np.frombuffer(raw[:_STATES], "<u8").astype(np.uint64)
    words = np.frombuffer(raw[_STATES:], "<u4").astype(np.uint32)
    if not all(_LOW <= int(state) < _LOW << 32 for state in (even, odd)):
        raise ValueError("the coded symbols begin with an impossible state")
    out = np.empty(size, np.uint8)
    if not _decode(words, even, odd, ends, tables, out):
        raise ValueError("the coded symbols do not end where they should")
    return out
