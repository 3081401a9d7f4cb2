"""Plain twins of the compiled loops behind ballots: buckets, tables and the entropy coder."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from e2fl.kernels import Int32, Int64, UInt8, UInt32

PRECISION = 14
LOW = 1 << 31


def bucket_symbols(
    rank: Int32, reference: Int32, low: int, bucket_of: UInt8, buckets: int
) -> UInt8:
    """Return by how many buckets each edge moved, in the order of the reference ranking."""
    coded = [edge for edge in np.argsort(reference) if 0 <= reference[edge] - low < bucket_of.size]
    found = {
        edge: int(bucket_of[place])
        for place, edge in enumerate(sorted(coded, key=lambda edge: rank[edge]))
    }
    return np.array(
        [(found[edge] - int(bucket_of[i])) % buckets for i, edge in enumerate(coded)], np.uint8
    )


def rank_of_symbols(symbols: UInt8, reference: Int32, bucket_of: UInt8, borders: Int64) -> Int32:
    """Return the rank with these moves: inside a bucket in the order of the reference."""
    low, buckets = int(borders[0]), borders.size - 1
    order = np.argsort(reference)
    members: list[list[int]] = [[] for _ in range(buckets)]
    for i, symbol in enumerate(symbols):
        members[(int(symbol) + int(bucket_of[i])) % buckets].append(order[low + i])
    if [len(group) for group in members] != np.diff(borders).tolist():
        raise ValueError("a bucket has too many or too few edges")
    order[low : low + symbols.size] = [edge for group in members for edge in group]
    return np.argsort(order).astype(np.int32)


def move_symbols(
    rank: Int32, reference: Int32, steps: int, finer: int, low: int, high: int
) -> UInt8:
    """Return by how many steps each edge moved, rounded, in the order of the reference ranking."""
    out = np.empty(rank.size, np.uint8)
    for after, before in zip(rank.tolist(), reference.tolist(), strict=True):
        step = Fraction(rank.size, steps * finer if low <= before < high else steps)
        out[before] = math.floor((after - before) / step + Fraction(1, 2)) % (2 * steps * finer + 1)
    return out


def rank_of_moves(
    symbols: UInt8, reference: Int32, base: Int32, steps: int, finer: int, low: int, high: int
) -> Int32:
    """Return the ranking after these moves from `base`; ties go to the lower edge number."""
    edges, most = reference.size, steps * finer
    places = []
    for before, start in zip(reference.tolist(), base.tolist(), strict=True):
        symbol = int(symbols[before])
        step = Fraction(edges, most if low <= before < high else steps)
        length = step * (symbol - (2 * most + 1 if symbol > most else 0))
        if not -step / 2 <= before + length <= edges - 1 + step / 2:
            raise ValueError("an edge moves beyond the end of the ranking")
        places.append(start + length)
    return np.argsort(sorted(range(edges), key=lambda edge: (places[edge], edge))).astype(np.int32)


def moved_edges(symbols: UInt8, reference: Int32, low: int, fan_in: int) -> tuple[Int64, Int64]:
    """Count the edges that left their bucket, by the units they come from and lead to."""
    moved = np.zeros(reference.size, np.int64)
    moved[low : low + symbols.size] = symbols != 0
    by_unit = moved[reference].reshape(-1, fan_in)
    return by_unit.sum(axis=0), by_unit.sum(axis=1)


def kinds_at(
    inputs: UInt8, outputs: UInt8, kinds: UInt8, reference: Int32, low: int, size: int
) -> UInt8:
    """Return the kind of the edge at each of some places of the reference ranking."""
    of_edge = kinds[np.repeat(outputs, inputs.size), np.tile(inputs, outputs.size)]
    return of_edge[np.argsort(reference)][low : low + size]


def positions_by_kind(kinds: UInt8, number: int, cells: int) -> tuple[Int32, Int64]:
    """Sort places by kind, then cell: where each goes, and the size of each (kind, cell)."""
    starts = np.arange(cells) * kinds.size // cells
    cell = np.searchsorted(starts, np.arange(kinds.size), side="right") - 1
    group = kinds.astype(np.int64) * cells + cell
    positions = np.argsort(np.argsort(group, kind="stable"), kind="stable")
    return positions.astype(np.int32), np.bincount(group, minlength=number * cells)


def count_symbols(symbols: UInt8, ends: Int64, alphabet: int) -> Int64:
    """Count each symbol in each segment."""
    parts = np.split(symbols, ends[:-1])
    return np.array([np.bincount(part, minlength=alphabet) for part in parts], np.int64).reshape(
        -1, alphabet
    )


def _further(length: int) -> int:
    return max(0, (length - 1) // 2 - 2)


def _gamma(value: int) -> str:
    extra = value.bit_length() - 1
    return "0" * extra + "1" + "".join(str(value >> bit & 1) for bit in range(extra))


def write_tables(counts: Int64) -> UInt8:
    """Write the tables of all segments, rounded: bits as text first."""
    lengths = np.array([[int(count).bit_length() for count in row] for row in counts]).reshape(
        counts.shape
    )
    text, run = "", 0
    for change in np.diff(lengths, axis=0, prepend=0).T.ravel().tolist():
        if change == 0:
            run += 1
        else:
            text += _gamma(1 + run) + ("1" if change < 0 else "0") + _gamma(abs(change))
            run = 0
    text += _gamma(1 + run) if run else ""
    for row, of_row in zip(counts.tolist(), lengths.tolist(), strict=True):
        for symbol, (count, length) in enumerate(zip(row, of_row, strict=True)):
            if symbol != of_row.index(max(of_row)):
                text += "".join(
                    str(count >> bit & 1)
                    for bit in range(length - 1 - _further(length), length - 1)
                )
    return np.packbits(np.array([int(bit) for bit in text], np.uint8), bitorder="little")


def rounded_counts(counts: Int64) -> Int64:
    """Return counts as a reader of their tables knows them."""
    out = np.zeros_like(counts)
    for segment, row in enumerate(counts.tolist()):
        lengths = [count.bit_length() for count in row]
        most = lengths.index(max(lengths))
        for symbol, (count, length) in enumerate(zip(row, lengths, strict=True)):
            lost = max(0, length - 1 - _further(length))
            out[segment, symbol] = (count >> lost << lost) + (1 << lost >> 1)
        out[segment, most] = max(1, sum(row) - (out[segment].sum() - out[segment, most]))
    return out


class _Bits:
    """The bits of some bytes, one after the other; ValueError after the last."""

    def __init__(self, raw: UInt8):
        self.bits: Iterator[int] = iter(np.unpackbits(raw, bitorder="little").tolist())
        self.read = 0

    def number(self, bits: int) -> int:
        return sum(self.bit() << place for place in range(bits))

    def bit(self) -> int:
        self.read += 1
        for bit in self.bits:
            return bit
        raise ValueError("the frequency tables cannot be read")

    def gamma(self) -> int:
        extra = 0
        while self.bit() == 0:
            extra += 1
            if extra > 31:
                raise ValueError("the frequency tables cannot be read")
        return (1 << extra) + self.number(extra)


def read_tables(raw: UInt8, ends: Int64, alphabet: int) -> tuple[Int64, int]:
    """Read rounded counts and how many bytes they take.

    ValueError where the bytes are not tables.
    """
    bits = _Bits(raw)
    changes: list[int] = []
    while len(changes) < ends.size * alphabet:
        changes += [0] * min(bits.gamma() - 1, ends.size * alphabet - len(changes) + 1)
        if len(changes) < ends.size * alphabet:
            changes.append((-1 if bits.bit() else 1) * bits.gamma())
    lengths = np.cumsum(
        np.reshape(changes[: ends.size * alphabet], (alphabet, ends.size)), axis=1
    ).T
    if ends.size and (lengths.min() < 0 or lengths.max() > 31 or lengths.max(axis=1).min() == 0):
        raise ValueError("the frequency tables cannot be read")
    out = np.zeros((ends.size, alphabet), np.int64)
    for segment, size in enumerate(np.diff(ends, prepend=0).tolist()):
        most = int(lengths[segment].argmax())
        for symbol, length in enumerate(lengths[segment].tolist()):
            if symbol != most and length:
                kept = _further(length)
                lost = length - 1 - kept
                out[segment, symbol] = ((1 << kept) + bits.number(kept) << lost) + (1 << lost >> 1)
        out[segment, most] = max(1, size - out[segment].sum())
    return out, -(-bits.read // 8)


def frequencies(rounded: Int64) -> UInt32:
    """Return frequencies in proportion to rounded counts.

    They add up to 1 << PRECISION in each segment.
    """
    out = np.zeros(rounded.shape, np.uint32)
    for segment, row in enumerate(rounded.tolist()):
        free = (1 << PRECISION) - sum(count > 0 for count in row)
        shares = [count * free // sum(row) for count in row]
        out[segment] = [share + (count > 0) for share, count in zip(shares, row, strict=True)]
        out[segment, row.index(max(row))] += free - sum(shares)
    return out


def rans_encode(symbols: UInt8, ends: Int64, tables: UInt32) -> bytes:
    """Encode symbols from the last to the first, with two states that take turns."""
    states = [LOW, LOW]
    words: list[int] = []
    segment_of = np.searchsorted(ends, np.arange(symbols.size), side="right")
    for i in reversed(range(symbols.size)):
        row, symbol, state = tables[segment_of[i]].tolist(), int(symbols[i]), states[i % 2]
        size, start = row[symbol], sum(row[:symbol])
        if state >= (LOW >> PRECISION << 32) * size:
            words.append(state & 0xFFFFFFFF)
            state >>= 32
        states[i % 2] = (state // size << PRECISION) + state % size + start
    return np.array(states, "<u8").tobytes() + np.array(words[::-1], "<u4").tobytes()


def rans_decode(raw: bytes, ends: Int64, tables: UInt32) -> UInt8:
    """Decode as many symbols as the segments have.

    ValueError unless the bytes end exactly there.
    """
    if len(raw) < 16 or len(raw) % 4:
        raise ValueError("the coded symbols have a wrong length")
    states = [int(state) for state in np.frombuffer(raw[:16], "<u8")]
    words = iter(np.frombuffer(raw[16:], "<u4").tolist())
    if any(not LOW <= state < LOW << 32 for state in states):
        raise ValueError("the coded symbols begin with an impossible state")
    out = []
    total = int(ends[-1]) if ends.size else 0
    segment_of = np.searchsorted(ends, np.arange(total), side="right")
    for i in range(total):
        row, state = tables[segment_of[i]].tolist(), states[i % 2]
        slot = state % (1 << PRECISION)
        symbol = next(s for s in range(len(row)) if slot < sum(row[: s + 1]))
        state = row[symbol] * (state >> PRECISION) + slot - sum(row[:symbol])
        if state < LOW:
            word = next(words, None)
            if word is None:
                raise ValueError("the coded symbols do not end where they should")
            state = state << 32 | word
        states[i % 2] = state
        out.append(symbol)
    if next(words, None) is not None or states != [LOW, LOW]:
        raise ValueError("the coded symbols do not end where they should")
    return np.array(out, np.uint8)
