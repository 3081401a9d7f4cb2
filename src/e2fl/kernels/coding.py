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
_ENTRY = 24  # bits an entry can take: an empty run, a sign, a difference of up to 31, and 13 further bits
_LOW = 1 << 31  # the least state, and the one an encoder begins with
_STATES = 16  # bytes of the two states


@compiled
def _length(count: int) -> int:
    length = 0
    while count > 0:
        count >>= 1
        length += 1
    return length


@compiled
def _further(length: int) -> int:
    """Return how many bits after the leading one are kept of a count of this bit length.

    A count c that is wrong by a factor 1 + x costs about c * x^2 bits. So one bit pays for itself
    when c is above a hundred or so, and one more each time c grows by a factor of four.
    """
    return max(0, (length - 1) // 2 - 2)


@compiled
def _longest(counts: Int64) -> int:
    """Return the first symbol whose count has the greatest bit length."""
    most = 0
    for symbol in range(1, counts.size):
        if _length(counts[symbol]) > _length(counts[most]):
            most = symbol
    return most


@compiled
def _count(symbols: UInt8, ends: Int64, counts: Int64) -> None:
    start = 0
    for segment in range(ends.size):
        for i in range(start, ends[segment]):
            counts[segment, symbols[i]] += 1
        start = ends[segment]


def count_symbols(symbols: UInt8, ends: Int64, alphabet: int) -> Int64:
    """Count each symbol in each segment: [segments, alphabet].  ends: where each segment ends."""
    counts = np.zeros((ends.size, alphabet), np.int64)
    _count(symbols, ends, counts)
    return counts


@compiled
def _write_bit(out: UInt8, at: int, bit: int) -> int:
    out[at >> 3] |= np.uint8(bit << (at & 7))
    return at + 1


@compiled
def _write_gamma(out: UInt8, at: int, value: int) -> int:
    extra = _length(value) - 1
    at = _write_bit(out, at + extra, 1)
    for bit in range(extra):
        at = _write_bit(out, at, (value >> bit) & 1)
    return at


@compiled
def _write(counts: Int64, out: UInt8) -> int:
    at = 0
    run = 0
    for symbol in range(counts.shape[1]):
        before = 0
        for segment in range(counts.shape[0]):
            length = _length(counts[segment, symbol])
            change = length - before
            before = length
            if change == 0:
                run += 1
                continue
            at = _write_gamma(out, at, 1 + run)
            at = _write_bit(out, at, 1 if change < 0 else 0)
            at = _write_gamma(out, at, abs(change))
            run = 0
    if run > 0:
        at = _write_gamma(out, at, 1 + run)
    for segment in range(counts.shape[0]):
        most = _longest(counts[segment])
        for symbol in range(counts.shape[1]):
            length = _length(counts[segment, symbol])
            if symbol != most:
                for bit in range(length - 1 - _further(length), length - 1):
                    at = _write_bit(out, at, (counts[segment, symbol] >> bit) & 1)
    return at


def write_tables(counts: Int64) -> UInt8:
    """Write the tables of all segments, rounded; unused final bits are zero."""
    out = np.zeros(counts.size * _ENTRY // 8 + 8, np.uint8)
    bits = int(_write(counts, out))
    return out[: -(-bits // 8)]


@compiled
def _complete(known: Int64, most: int, size: int) -> None:
    """Fill in the count that was not written: what is left of the segment, and at least 1."""
    known[most] = 0
    known[most] = max(1, size - known.sum())


@compiled
def _round(counts: Int64, out: Int64) -> None:
    for segment in range(counts.shape[0]):
        for symbol in range(counts.shape[1]):
            count = counts[segment, symbol]
            length = _length(count)
            lost = max(0, length - 1 - _further(length))
            out[segment, symbol] = ((count >> lost) << lost) + (1 << lost >> 1)
        _complete(out[segment], _longest(counts[segment]), counts[segment].sum())


def rounded_counts(counts: Int64) -> Int64:
    """Return counts as a reader of their tables knows them: the middle of the interval that shares
    what is written.
    """
    out = np.empty_like(counts)
    _round(counts, out)
    return out


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


@compiled
def _read(raw: UInt8, ends: Int64, out: Int64) -> int:
    """Read rounded counts; returns how many bits they take, or -1 where the bytes are not tables."""
    at = _read_lengths(raw, out)
    if at < 0:
        return -1
    start = 0
    for segment in range(ends.size):
        most = out[segment].argmax()
        if out[segment, most] == 0:
            return -1
        for symbol in range(out.shape[1]):
            length = out[segment, symbol]
            kept = _further(length)
            count = 1 << kept if length > 0 else 0
            if symbol != most:
                if at + kept > raw.size * 8:
                    return -1
                for bit in range(kept):
                    count |= _read_bit(raw, at) << bit
                    at += 1
            lost = max(0, length - 1 - kept)
            out[segment, symbol] = (count << lost) + (1 << lost >> 1)
        _complete(out[segment], most, ends[segment] - start)
        start = ends[segment]
    return at


def read_tables(raw: UInt8, ends: Int64, alphabet: int) -> tuple[Int64, int]:
    """Read the rounded counts [segments, alphabet], and how many bytes they take.

    Raises ValueError where the bytes are not the tables of this many segments, or where a table has
    no symbol.
    """
    out = np.empty((ends.size, alphabet), np.int64)
    bits = int(_read(raw, ends, out))
    if bits < 0:
        raise ValueError("the frequency tables cannot be read")
    return out, -(-bits // 8)


@compiled
def _normalise(counts: Int64, out: UInt32) -> None:
    for segment in range(counts.shape[0]):
        total = 0
        present = 0
        most = 0
        for symbol in range(counts.shape[1]):
            total += counts[segment, symbol]
            present += counts[segment, symbol] > 0
            if counts[segment, symbol] > counts[segment, most]:
                most = symbol
        # One for each symbol that occurs and the rest in proportion, so that none of them ends at
        # zero.
        free = (1 << PRECISION) - present
        left = free
        for symbol in range(counts.shape[1]):
            share = counts[segment, symbol] * free // total
            left -= share
            out[segment, symbol] = share + (counts[segment, symbol] > 0)
        out[segment, most] += left


def frequencies(rounded: Int64) -> UInt32:
    """Return frequencies in proportion to rounded counts.

    They add up to 1 << PRECISION in each segment.
    """
    out = np.empty(rounded.shape, np.uint32)
    _normalise(rounded, out)
    return out


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
    """Return a number of words that is never exceeded: a symbol takes at most PRECISION bits and a
    little, below 16.
    """
    return symbols // 2 + 2


def rans_encode(symbols: UInt8, ends: Int64, tables: UInt32) -> bytes:
    """Encode symbols with the frequencies `tables` [segments, alphabet]; ends: where each segment
    ends.

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
    """Decode as many symbols as the segments have; ValueError unless the bytes end exactly there."""
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
