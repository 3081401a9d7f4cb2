"""The order of edges, each edge number in a fixed number of bits.

Field i takes bits i*bits to (i+1)*bits of the raw bytes, lowest bit of the lowest byte first.
"""

from __future__ import annotations

import numpy as np

from e2fl.kernels.machine_code import Int32, UInt8, UInt64, compiled
from e2fl.kernels.sorting import invert


def bits_per_edge(edges: int) -> int:
    """Return the bits that number the edges of one layer: ceil(log2 edges)."""
    return (edges - 1).bit_length()


def packed_size(edges: int) -> int:
    """Return the number of bytes that the order of these edges takes."""
    return -(-edges * bits_per_edge(edges) // 8)


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
            rest = (value >> np.uint64(bits - filled - 1)) >> np.uint64(1)
            word = rest if filled < bits else np.uint64(0)
    if filled > 0:
        words[at] = word


def pack_order_of_rank(rank: Int32) -> UInt8:
    """Pack the order of a rank; unused bits of the last byte are zero."""
    bits = bits_per_edge(rank.size)
    words = np.zeros(-(-rank.size * bits // 64), np.uint64)
    if bits:
        _pack(invert(rank), bits, words)
    return words.view(np.uint8)[: packed_size(rank.size)]


@compiled
def _unpack_rank(words: UInt64, bits: int, rank: Int32) -> bool:
    mask = np.uint64((1 << bits) - 1)
    edges = np.uint64(rank.size)
    rank[:] = -1
    for i in range(rank.size):
        bit = i * bits
        shift = np.uint64(bit & 63)
        low = words[bit >> 6] >> shift
        high = (words[(bit >> 6) + 1] << np.uint64(1)) << (np.uint64(63) - shift)
        edge = (low | high) & mask
        if edge >= edges:
            return False
        rank[edge] = i
    # There are as many places as edges, so an edge that is repeated leaves another without a place.
    missing = 0
    for e in range(rank.size):
        missing += rank[e] < 0
    return missing == 0


def unpack_rank(raw: UInt8, edges: int) -> Int32:
    """Unpack an order and return its rank.

    Raises ValueError unless the bytes are what `pack_order_of_rank` writes for some rank.
    """
    bits, size = bits_per_edge(edges), packed_size(edges)
    if raw.size != size:
        raise ValueError(f"an order of {edges} edges takes {size} bytes, not {raw.size}")
    if (used := edges * bits % 8) and int(raw[-1]) >> used:
        raise ValueError(f"the unused last {8 - used} bits are not zero")
    words = np.zeros(size // 8 + 2, np.uint64)  # a spare word, so that no field is out of bounds
    words.view(np.uint8)[:size] = raw
    rank = np.empty(edges, np.int32)
    if not _unpack_rank(words, bits, rank):
        raise ValueError(f"not an order of {edges} edges: an edge is out of range or repeated")
    return rank
