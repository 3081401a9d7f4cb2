"""The interface of ballots, and their coder: rounded places or moves, entropy-coded given the
reference ranking.

The edges of a layer are taken in the order of the reference ranking. The symbol of an edge is the
number of buckets, or steps, that it moved. Inside a bucket, edges are in the order of the reference
ranking, so that a decoded ballot is a full permutation.

Two things tell the coder how likely a move is. The first is the cell of the edge's place in the
reference ranking: an edge near the border of its bucket crosses it easily. The second, in large
layers, is how much the two units at the ends of the edge learned: where an input was zero in all
examples of a client, or a unit never fired, edges hardly move. The level of a unit is the bit
length of the number of its edges that moved. The levels are sent first, and the sum of the levels
at both ends of an edge decides its kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from e2fl import kernels
from e2fl.construct import Checked
from e2fl.errors import WireError
from e2fl.kernels import Int32, Int64, UInt8
from e2fl.rankings.order import Ranking, Ranks

MAX_CELLS = 64  # of a layer
MIN_CELL = 1024  # edges; in smaller cells a table costs more bits than it saves
MIN_CELL_WITH_KINDS = 1 << 13  # edges, where each cell has a table for every kind
LEVELS = 32  # of a unit: bit lengths of counts
KINDS = 5  # of edges between units that moved; one more for all others
MIN_EDGES_FOR_LEVELS = 1 << 16  # in smaller layers, the levels cost more bits than they save
_LENGTH = 4  # bytes of the length of the first part

Stream = tuple[UInt8, Int64, int]  # symbols, the lengths of their segments, size of the alphabet


@dataclass(frozen=True)
class Reference:
    """What server and client both know before a ballot is sent."""

    ranking: Ranking  # such as the one that was broadcast
    # Inputs per unit, by layer; layers left out do not use it.
    fan_in: Mapping[str, int] = field(default_factory=dict)
    keep: float = 0.5  # the fraction of edges a mask keeps
    # The server's ranking, of which `ranking` is a rounded copy; None: the same.
    base: Ranking | None = None

    def only(self, layers: Iterable[str]) -> "Reference":
        """Return the reference of these layers."""
        ranking = {layer: self.ranking[layer] for layer in layers}
        base = None if self.base is None else {layer: self.base[layer] for layer in ranking}
        return replace(self, ranking=ranking, base=base)


class Ballot(Checked, ABC):
    """A format for sending a ranking. Subclasses are frozen dataclasses; fields are settings."""

    section: ClassVar[str] = "ballot"

    @abstractmethod
    def encode(self, ranking: Ranking, reference: Reference) -> bytes:
        """Return the ranking as bytes. It must have the layers of the reference."""

    @abstractmethod
    def decode(self, raw: bytes | memoryview, reference: Reference) -> Ranking:
        """Return the full ranking that these bytes encode.

        Raises `WireError` unless they are exactly what `encode` writes for some ranking.
        """

    def rounded(self, ranking: Ranking, reference: Reference) -> Ranking:
        """Return the ranking after encoding and decoding."""
        return self.decode(self.encode(ranking, reference), reference)

    @abstractmethod
    def entropy_bits(self, ranking: Ranking, reference: Reference) -> float:
        """Return the bits an ideal coder with the same statistical model would need."""


@dataclass(frozen=True)
class LayerCode:
    """How one layer is coded; determined by the settings and the reference alone."""

    layer: str
    reference: Ranks
    # Where each bucket begins and where the last one ends; edges elsewhere keep their place.
    borders: Int64
    alphabet: int  # the number of symbols
    fan_in: int  # 0: levels of units are not used
    cells: int

    @property
    def low(self) -> int:
        return int(self.borders[0])

    @property
    def size(self) -> int:
        """The number of edges that are coded."""
        return int(self.borders[-1]) - self.low

    @property
    def units(self) -> list[int]:
        """The number of units that edges come from and lead to, if their levels are used."""
        return [self.fan_in, self.reference.size // self.fan_in] if self.fan_in else []

    @property
    def bucket_of(self) -> UInt8:
        """The bucket of each place that is coded."""
        return np.repeat(np.arange(self.alphabet, dtype=np.uint8), np.diff(self.borders))

    def levels(self, symbols: UInt8) -> UInt8:
        """Return the level of every unit that edges come from, then of every unit they lead to."""
        if not self.fan_in:
            return np.empty(0, np.uint8)
        moved = kernels.moved_edges(symbols, self.reference, self.low, self.fan_in)
        return np.frexp(np.concatenate(moved).astype(np.float64))[1].astype(np.uint8)

    def segments(self, levels: UInt8) -> tuple[Int32 | None, Int64]:
        """Return where each symbol goes among the segments (None: it stays), and their lengths."""
        if not self.fan_in:
            return None, np.diff(np.arange(self.cells + 1) * self.size // self.cells)
        inputs, outputs = levels[: self.fan_in], levels[self.fan_in :]
        counts = (np.bincount(units, minlength=LEVELS) for units in (inputs, outputs))
        kinds = _kinds(*counts)
        at = kernels.kinds_at(inputs, outputs, kinds, self.reference, self.low, self.size)
        return kernels.positions_by_kind(at, KINDS + 1, self.cells)


def _kinds(inputs: Int64, outputs: Int64) -> UInt8:
    """Divide edges into kinds of equal size by the sum of their units' levels: [output, input].

    inputs, outputs: how many units have each level.  Kind 0 is for edges of a unit without any edge
    that moved.
    """
    sums = np.add.outer(np.arange(LEVELS), np.arange(LEVELS))
    sums[0, :] = sums[:, 0] = 0
    sizes = np.bincount(sums.ravel(), weights=np.outer(outputs, inputs).ravel()).astype(np.int64)
    sizes[0] = 0
    middles = 2 * np.cumsum(sizes) - sizes
    kinds = 1 + np.minimum(middles * KINDS // max(1, 2 * int(sizes.sum())), KINDS - 1)
    kinds[0] = 0
    return np.asarray(kinds.astype(np.uint8)[sums], np.uint8)


class Coarse(Ballot):
    """A ballot with one symbol for each edge; in this base class, its bucket."""

    @abstractmethod
    def borders(self, edges: int, reference: Reference) -> Int64:
        """Return the places at which the buckets of a layer begin, and where the last one ends."""

    @property
    def max_cells(self) -> int:
        """The most cells of a layer: more predict better, and their tables cost more bits."""
        return MAX_CELLS

    def alphabet(self, buckets: int) -> int:
        """Return the number of symbols of a layer with this many buckets."""
        return buckets

    def symbols(self, rank: Ranks, code: LayerCode, reference: Reference) -> UInt8:
        """Return the moves of a layer, in the order of the reference."""
        known, bucket_of = code.reference, code.bucket_of
        return kernels.bucket_symbols(rank, known, code.low, bucket_of, code.alphabet)

    def rank(self, symbols: UInt8, code: LayerCode, reference: Reference) -> Ranks:
        """Return the ranks with these moves, or raise `ValueError` if no ranking has them."""
        return kernels.rank_of_symbols(symbols, code.reference, code.bucket_of, code.borders)

    def layer_codes(self, reference: Reference) -> list[LayerCode]:
        """Return how the layers are coded."""
        layers = reference.ranking.items()
        return [self._layer_code(layer, rank, reference) for layer, rank in layers]

    def _layer_code(self, layer: str, rank: Ranks, reference: Reference) -> LayerCode:
        borders, fan_in = self.borders(rank.size, reference), reference.fan_in.get(layer, 0)
        size = int(borders[-1] - borders[0])
        divides = 1 < fan_in < rank.size and rank.size % fan_in == 0
        fan_in = fan_in if divides and size >= MIN_EDGES_FOR_LEVELS else 0
        most = size // (MIN_CELL_WITH_KINDS if fan_in else MIN_CELL)
        cells = max(1, min(self.max_cells, most))
        return LayerCode(layer, rank, borders, self.alphabet(borders.size - 1), fan_in, cells)

    def encode(self, ranking: Ranking, reference: Reference) -> bytes:
        return encode_layers(*self._all_symbols(ranking, reference))

    def decode(self, raw: bytes | memoryview, reference: Reference) -> Ranking:
        codes = self.layer_codes(reference)
        symbols = decode_layers(codes, memoryview(raw))
        try:
            ranking = self._rankings(codes, symbols, reference)
        except ValueError as error:
            raise WireError(f"the ballot is invalid: {error}") from None
        if encode_layers(codes, symbols) != raw:
            raise WireError("the ballot is not in canonical form: encoded again, it differs")
        return ranking

    def rounded(self, ranking: Ranking, reference: Reference) -> Ranking:
        return self._rankings(*self._all_symbols(ranking, reference), reference)

    def entropy_bits(self, ranking: Ranking, reference: Reference) -> float:
        """Return the empirical entropy of moves, given cell and kind, and of the units' levels."""
        return sum(
            symbol_entropy(*stream) for stream in _streams(*self._all_symbols(ranking, reference))
        )

    def _all_symbols(
        self, ranking: Ranking, reference: Reference
    ) -> tuple[list[LayerCode], list[UInt8]]:
        codes = self.layer_codes(reference)
        return codes, [self.symbols(ranking[code.layer], code, reference) for code in codes]

    def _rankings(
        self, codes: list[LayerCode], symbols: list[UInt8], reference: Reference
    ) -> Ranking:
        pairs = zip(codes, symbols, strict=True)
        return {code.layer: self.rank(moves, code, reference) for code, moves in pairs}


def _streams(codes: list[LayerCode], symbols: list[UInt8]) -> tuple[Stream, Stream]:
    """Return the levels of the units, and the symbols of all layers by segment."""
    levels = [code.levels(moves) for code, moves in zip(codes, symbols, strict=True)]
    ordered, lengths = [], []
    for code, moves, unit_levels in zip(codes, symbols, levels, strict=True):
        positions, length = code.segments(unit_levels)
        ordered.append(moves if positions is None else kernels.scatter(moves, positions))
        lengths.append(length)
    all_moves = np.concatenate(ordered), np.concatenate(lengths), _alphabet(codes)
    return (np.concatenate(levels), _units(codes), LEVELS), all_moves


def _alphabet(codes: Sequence[LayerCode]) -> int:
    """Return the number of symbols in the tables.

    Where buckets are finer near the cut, layers may differ by a few.
    """
    return max(code.alphabet for code in codes)


def _units(codes: Sequence[LayerCode]) -> Int64:
    return np.array([count for code in codes for count in code.units], np.int64)


def encode_layers(codes: list[LayerCode], symbols: list[UInt8]) -> bytes:
    """Encode the symbols of all layers."""
    levels, moves = _streams(codes, symbols)
    first = encode_symbols(*levels) if levels[1].size else b""
    return b"".join((len(first).to_bytes(_LENGTH, "little"), first, encode_symbols(*moves)))


def decode_layers(codes: list[LayerCode], raw: memoryview) -> list[UInt8]:
    """Decode the symbols of all layers, or raise `WireError`."""
    end = _LENGTH + int.from_bytes(raw[:_LENGTH], "little")
    if len(raw) < end:
        raise WireError(f"the ballot has {len(raw)} bytes; its first part alone takes {end}")
    units = _units(codes)
    levels = (
        decode_symbols(raw[_LENGTH:end], units, LEVELS) if units.size else np.empty(0, np.uint8)
    )
    ends = np.cumsum([sum(code.units) for code in codes], dtype=np.int64)
    by_layer = zip(codes, np.split(levels, ends[:-1]), strict=True)
    segments = [code.segments(unit_levels) for code, unit_levels in by_layer]
    lengths = np.concatenate([lengths for _, lengths in segments])
    flat = decode_symbols(raw[end:], lengths, _alphabet(codes))
    symbols = []
    for code, (positions, _) in zip(codes, segments, strict=True):
        moves, flat = flat[: code.size], flat[code.size :]
        if moves.max(initial=0) >= code.alphabet:
            raise WireError(f"the ballot of layer '{code.layer}' has a symbol of other layers")
        symbols.append(moves if positions is None else kernels.gather(moves, positions))
    return symbols


def encode_symbols(symbols: UInt8, lengths: Int64, alphabet: int) -> bytes:
    """Encode symbols below `alphabet`. lengths: of the segments; each has its own statistics."""
    ends, counts = _counted(symbols, lengths, alphabet)
    tables = kernels.frequencies(kernels.rounded_counts(counts))
    return kernels.write_tables(counts).tobytes() + kernels.rans_encode(symbols, ends, tables)


def decode_symbols(raw: memoryview, lengths: Int64, alphabet: int) -> UInt8:
    """Decode as many symbols as the segments have, or raise `WireError`.

    Whether the bytes are what `encode_symbols` writes is left to the caller, who can encode the
    symbols again.
    """
    ends = np.cumsum(lengths[lengths > 0])
    try:
        counts, size = kernels.read_tables(np.frombuffer(raw, np.uint8), ends, alphabet)
        return kernels.rans_decode(raw[size:], ends, kernels.frequencies(counts))
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
    return ends, kernels.count_symbols(symbols, ends, alphabet)
