"""The entropy coder of ballots: frequency tables, and range asymmetric numeral systems (rANS, Duda
2013).

Tables. Symbols come in segments, each with its own table. A table does not hold exact counts: a
count is written as its bit length and some of the bits after its leading one, like a small
floating-point number. That costs about a thousandth of the coded size, and makes a table a few
bytes long.

First come the bit lengths, for each symbol from segment to segment, as differences to the one
before (0 before the first): an Elias gamma code of 1 + the number of differences that are zero,
then the sign (1 for minus) and the gamma code of the next one that is not. Then come the further
bits of all counts but, in each segment, the first one of the greatest length: it follows from the
others, because the length of the segment is known. Bits fill each byte from the lowest one up.

Symbols. Two states take turns, so that the processor works on two symbols at a time. A state is at
least 2^31 and below 2^63, and moves 32 bits at a time. The bytes are the two states after the last
step of the encoder (8 bytes each), then the words in the order in which the decoder reads them. All
numbers are little-endian.
"""

from __future__ import annotations

import numpy as np

from e2fl.kernels.machine_code import Int64, UInt8, UInt32, compiled

PRECISION = 14  # bits of a frequency: those of a table add up to 1 << PRECISION
# Bits of the largest count, and of the longest run: a model has fewer than 2^31 edges.
_LONGEST = 31
_LOW = 1 << 31  # the least state, and the one an encoder begins with
_STATES = 16  # bytes of the two states


def _lengths(counts: Int64) -> Int64:
    """Return the bit length of every count."""
    return np.frexp(counts.astype(np.float64))[1].astype(np.int64)


def _further(lengths: Int64) -> Int64:
    """Return how many bits after the leading one are kept of counts of these bit lengths.

    A count c that is wrong by a factor 1 + x costs about c * x^2 bits. So one bit pays for itself
    when c is above a hundred or so, and one more each time c grows by a factor of four.
    """
    return np.maximum(0, (lengths - 1) // 2 - 2)


@compiled
def count_symbols(symbols: UInt8, ends: Int64, alphabet: int) -> Int64:
    """Count each symbol in each segment: [segments, alphabet].  ends: where each segment ends."""
    counts = np.zeros((ends.size, alphabet), np.int64)
    start = 0
    for segment in range(ends.size):
        for i in range(start, ends[segment]):
            counts[segment, symbols[i]] += 1
        start = ends[segment]
    return counts


def _gamma(values: Int64) -> tuple[Int64, Int64]:
    """Return Elias gamma codes as fields: their bits, the first one lowest, and their widths."""
    extra = _lengths(values) - 1
    leading = np.left_shift(1, extra)
    return leading | (values - leading) << (extra + 1), 2 * extra + 1


def write_tables(counts: Int64) -> UInt8:
    """Write the tables of all segments, rounded; unused final bits are zero."""
    lengths = _lengths(counts)
    changes = np.diff(lengths, axis=0, prepend=0).T.ravel()
    (at,) = changes.nonzero()
    runs = _gamma(np.diff(at, prepend=-1))
    signs = ((changes[at] < 0).astype(np.int64), np.ones(at.size, np.int64))
    sizes = _gamma(np.abs(changes[at]))
    head = [np.stack(part, axis=1).ravel() for part in zip(runs, signs, sizes, strict=True)]
    zeros = changes.size - 1 - (at[-1] if at.size else -1)
    last = _gamma(np.array([1 + zeros] if zeros else [], np.int64))
    kept = _further(lengths)
    kept[np.arange(len(kept)), lengths.argmax(axis=1)] = 0
    further = (counts >> np.maximum(0, lengths - 1 - kept), kept)
    values, widths = (
        np.concatenate([first, end, rest.ravel()])
        for first, end, rest in zip(head, last, further, strict=True)
    )
    shifts = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
    bits = (np.repeat(values, widths) >> shifts) & 1
    return np.packbits(bits.astype(np.uint8), bitorder="little")


def rounded_counts(counts: Int64) -> Int64:
    """Return counts as a reader of their tables knows them: the middle of what is written alike."""
    lengths = _lengths(counts)
    lost = np.maximum(0, lengths - 1 - _further(lengths))
    rounded = (counts >> lost << lost) + (np.left_shift(1, lost) >> 1)
    return _completed(rounded, lengths.argmax(axis=1), counts.sum(axis=1))


def _completed(counts: Int64, most: Int64, sizes: Int64) -> Int64:
    """Fill in the counts that are not written: what is left of each segment, and at least 1."""
    segments = np.arange(len(counts))
    counts[segments, most] = 0
    counts[segments, most] = np.maximum(1, sizes - counts.sum(axis=1))
    return counts


@compiled
def _read_bit(raw: UInt8, at: int) -> int:
    return int(raw[at >> 3] >> (at & 7)) & 1


@compiled
def _read_gamma(raw: UInt8, at: int) -> tuple[int, int]:
    """Read a gamma code; returns its value and where it ends, or (0, 0) where there is none."""
    bits = raw.size * 8
    extra = 0
    while at < bits and extra < _LONGEST and _read_bit(raw, at) == 0:
        at += 1
        extra += 1
    if at + 1 + extra > bits or _read_bit(raw, at) == 0:
        return 0, 0
    value = 1 << extra
    for bit in range(extra):
        at += 1
        value |= _read_bit(raw, at) << bit
    return value, at + 1


@compiled
def _read_lengths(raw: UInt8, out: Int64) -> int:
    """Read the bit lengths of all counts.

    Returns how many bits they take, or -1 where the bytes are not tables.
    """
    at = 0
    bits = raw.size * 8
    zeros = -1  # differences that are still zero; -1: the next run is not read yet
    for symbol in range(out.shape[1]):
        length = 0
        for segment in range(out.shape[0]):
            if zeros < 0:
                value, at = _read_gamma(raw, at)
                if value == 0:
                    return -1
                zeros = value - 1
            if zeros == 0:
                if at >= bits:
                    return -1
                minus = _read_bit(raw, at)
                value, at = _read_gamma(raw, at + 1)
                length += -value if minus else value
                if value == 0 or length < 0 or length > _LONGEST:
                    return -1
            zeros -= 1
            out[segment, symbol] = length
    return at


def read_tables(raw: UInt8, ends: Int64, alphabet: int) -> tuple[Int64, int]:
    """Read the rounded counts [segments, alphabet], and how many bytes they take.

    Raises ValueError where the bytes are not the tables of this many segments, or where a table has
    no symbol.
    """
    lengths = np.zeros((ends.size, alphabet), np.int64)
    at = int(_read_lengths(raw, lengths))
    most, further = lengths.argmax(axis=1), _further(lengths)
    written = further.copy()
    written[np.arange(ends.size), most] = 0
    end = at + int(written.sum())
    if at < 0 or not lengths.any(axis=1).all() or end > raw.size * 8:
        raise ValueError("the frequency tables cannot be read")
    size = -(-end // 8)
    bits = np.unpackbits(raw[:size], bitorder="little")[at:end].astype(np.int64)
    widths = written.ravel()
    starts = np.cumsum(widths) - widths
    bits <<= np.arange(bits.size) - np.repeat(starts, widths)
    counts = np.where(lengths > 0, np.left_shift(1, further), 0)
    np.add.at(counts.reshape(-1), np.repeat(np.arange(widths.size), widths), bits)
    lost = np.maximum(0, lengths - 1 - further)
    counts = (counts << lost) + (np.left_shift(1, lost) >> 1)
    return _completed(counts, most, np.diff(ends, prepend=0)), size


def frequencies(rounded: Int64) -> UInt32:
    """Return frequencies in proportion to rounded counts.

    They add up to 1 << PRECISION in each segment.
    """
    present = rounded > 0
    # One for each symbol that occurs and the rest in proportion, so that none of them ends at zero.
    free = (1 << PRECISION) - present.sum(axis=1, keepdims=True)
    shares = rounded * free // rounded.sum(axis=1, keepdims=True)
    out: Int64 = shares + present
    out[np.arange(len(out)), rounded.argmax(axis=1)] += free[:, 0] - shares.sum(axis=1)
    return out.astype(np.uint32)


@compiled
def _rans_encode(
    symbols: UInt8, ends: Int64, tables: UInt32, words: UInt32
) -> tuple[int, np.uint64, np.uint64]:
    """Fill `words` from its end.

    Returns where they begin, and the states of even and of odd symbols.
    """
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
    # After symbol 0 they were exchanged once more than there are symbols between: `other` coded
    # symbol 0.
    return at, other, state


def _most_words(symbols: int) -> int:
    """Return more words than are ever needed: a symbol takes little more than PRECISION bits."""
    return symbols // 2 + 2


def rans_encode(symbols: UInt8, ends: Int64, tables: UInt32) -> bytes:
    """Encode symbols with frequencies `tables` [segments, alphabet] for segments with these ends.

    Every symbol must have a frequency above zero in its segment.
    """
    words = np.empty(_most_words(symbols.size), np.uint32)
    at, even, odd = _rans_encode(symbols, ends, tables, words)
    return np.array([even, odd], "<u8").tobytes() + words[at:].astype("<u4", copy=False).tobytes()


@compiled
def _rans_decode(
    words: UInt32, even: np.uint64, odd: np.uint64, ends: Int64, tables: UInt32, out: UInt8
) -> bool:
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
    """Decode as many symbols as the segments have; ValueError unless the bytes end there."""
    size = int(ends[-1]) if ends.size else 0
    if (len(raw) - _STATES) % 4 or not 0 <= len(raw) - _STATES <= 4 * _most_words(size):
        raise ValueError("the coded symbols have a wrong length")
    even, odd = np.frombuffer(raw[:_STATES], "<u8").astype(np.uint64)
    words = np.frombuffer(raw[_STATES:], "<u4").astype(np.uint32)
    if not all(_LOW <= int(state) < _LOW << 32 for state in (even, odd)):
        raise ValueError("the coded symbols begin with an impossible state")
    out = np.empty(size, np.uint8)
    if not _rans_decode(words, even, odd, ends, tables, out):
        raise ValueError("the coded symbols do not end where they should")
    return out
