"""Integers packed in a fixed number of bits.

Field i takes bits i*bits to (i+1)*bits of the raw bytes, lowest bit of the lowest byte first.
"""

from __future__ import annotations

import numpy as np

from e2fl.kernels.machine_code import Int32, UInt8, UInt64, compiled
from e2fl.kernels.sorting import invert


def packed_size(count: int, bits: int) -> int:
    """Return the number of bytes that `count` fields of `bits` bits take."""
    return -(-count * bits // 8)


@compiled
def _pack(values: Int32, bits: int, words: UInt64) -> None:
    word = np.uint64(0)
    filled = 0
    at = 0
    for i in range(values.size):
        value = np.uint64(values[i])
        word |= value << np.uint64(filled)
        filled += bits
        if filled >= 64:
            words[at] = word
            at += 1
            filled -= 64
            # Two shifts, because a shift by 64 is undefined.
            word = (
                (value >> np.uint64(bits - filled - 1)) >> np.uint64(1)
                if filled < bits
                else np.uint64(0)
            )
    if filled > 0:
        words[at] = word


def pack(values: Int32, bits: int) -> UInt8:
    """Pack values of `bits` bits each (0 to 31); unused bits of the last byte are zero."""
    if values.size and (int(values.min()) < 0 or int(values.max()) >> bits):
        raise ValueError(f"values must fit in {bits} bits; found {values.min()} to {values.max()}")
    words = np.zeros(-(-values.size * bits // 64), np.uint64)
    if bits:
        _pack(values, bits, words)
    return words.view(np.uint8)[: packed_size(values.size, bits)]


def _words(raw: UInt8, count: int, bits: int) -> UInt64:
    """Copy raw bytes to words, with one spare word at the end so that no field is read out of
    bounds.
    """
    size = packed_size(count, bits)
    if raw.size != size:
        raise ValueError(f"{count} fields of {bits} bits take {size} bytes, not {raw.size}")
    if used := count * bits % 8:
        last = int(raw[-1])
        if last >> used:
            raise ValueError(f"the unused last {8 - used} bits are not zero")
    words = np.empty(size // 8 + 2, np.uint64)
    words[-2:] = 0
    words.view(np.uint8)[:size] = raw
    return words


@compiled
def _field(words: UInt64, bit: int, mask: np.uint64) -> np.uint64:
    shift = np.uint64(bit & 63)
    low = words[bit >> 6] >> shift
    high = (words[(bit >> 6) + 1] << np.uint64(1)) << (np.uint64(63) - shift)
    return np.uint64((low | high) & mask)


@compiled
def _unpack(words: UInt64, bits: int, out: Int32) -> None:
    mask = np.uint64((1 << bits) - 1)
    for i in range(out.size):
        out[i] = np.int32(_field(words, i * bits, mask))


def unpack(raw: UInt8, count: int, bits: int) -> Int32:
    """Unpack `count` values of `bits` bits.

    Raises ValueError if the bytes are not exactly what `pack` writes.
    """
    out = np.empty(count, np.int32)
    _unpack(_words(raw, count, bits), bits, out)
    return out


@compiled
def _unpack_rank(words: UInt64, bits: int, rank: Int32) -> bool:
    mask = np.uint64((1 << bits) - 1)
    edges = np.uint64(rank.size)
    for e in range(rank.size):
        rank[e] = -1
    for i in range(rank.size):
        edge = _field(words, i * bits, mask)
        if edge >= edges:
            return False
        rank[edge] = i
    # There are as many places as edges, so an edge that is repeated leaves another without a place.
    missing = 0
    for e in range(rank.size):
        missing += rank[e] < 0
    return missing == 0


def pack_order_of_rank(rank: Int32, bits: int) -> UInt8:
    """Pack the order of a rank."""
    return pack(invert(rank), bits)


def unpack_rank(raw: UInt8, count: int, bits: int) -> Int32:
    """Unpack an order and return its rank.

    Raises ValueError unless it is a permutation of 0 to count - 1.
    """
    rank = np.empty(count, np.int32)
    if not _unpack_rank(_words(raw, count, bits), bits, rank):
        raise ValueError(f"not an order of {count} edges: an edge is out of range or repeated")
    return rank
