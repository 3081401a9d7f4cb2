"""Symbols in segments as bytes: a frequency table for each segment, then the entropy-coded symbols."""

import numpy as np

from e2fl import compiled
from e2fl.compiled import Int64, UInt8
from e2fl.errors import WireError


def encode_symbols(symbols: UInt8, lengths: Int64, alphabet: int) -> bytes:
    """Encode symbols below `alphabet`. lengths: of the segments; each has its own statistics."""
    ends, counts = _counted(symbols, lengths, alphabet)
    tables = compiled.frequencies(compiled.rounded_counts(counts))
    return compiled.write_tables(counts).tobytes() + compiled.rans_encode(symbols, ends, tables)


def decode_symbols(raw: memoryview, lengths: Int64, alphabet: int) -> UInt8:
    """Decode as many symbols as the segments have, or raise `WireError`.

    Whether the bytes are what `encode_symbols` writes is left to the caller, who can encode the symbols again.
    """
    ends = np.cumsum(lengths[lengths > 0])
    try:
        counts, size = compiled.read_tables(np.frombuffer(raw, np.uint8), ends, alphabet)
        return compiled.rans_decode(raw[size:], ends, compiled.frequencies(counts))
    except ValueError as error:
        raise WireError(f"the ballot is malformed: {error}") from None


def symbol_entropy(symbols: UInt8, lengths: Int64, alphabet: int) -> float:
    """Return the empirical entropy in bits: each symbol costs -log2 of its share of its segment."""
    _, counts = _counted(symbols, lengths, alphabet)
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float(-(counts * np.log2(np.where(counts > 0, shares, 1.0))).sum())


def _counted(symbols: UInt8, lengths: Int64, alphabet: int) -> tuple[Int64, Int64]:
    """Return the ends of the non-empty segments, and how often each symbol occurs in them."""
    ends = np.cumsum(lengths[lengths > 0])
    return ends, compiled.count_symbols(symbols, ends, alphabet)
