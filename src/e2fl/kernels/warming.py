"""Compiles all loops of rankings and scores ahead of time."""

from __future__ import annotations

import numpy as np

from e2fl.kernels import coding, packing, sorting, symbols
from e2fl.kernels.score_step import Rates, ScoreStep


def warm() -> None:
    """Compile every loop of rankings and scores, or load it from the cache."""
    _warm_sorting()
    _warm_symbols()
    _warm_coding()
    scores = np.ones(3, np.float32)
    rates = Rates(np.float32(0.1), np.float32(0.9), np.float32(0.0))
    ScoreStep(scores.copy(), scores, 1).advance(scores, rates)


_ORDER = np.array([1, 0, 2], np.int32)
_SYMBOLS, _ENDS = np.array([0, 1, 1], np.uint8), np.array([3], np.int64)


def _warm_sorting() -> None:
    scores, sums = np.ones(3, np.float32), np.ones(3, np.int64)
    sorting.rank_of(scores)
    sorting.rank_of_sums(sums)
    sorting.add_rank(sums, _ORDER)
    sorting.scores_from(_ORDER, scores)
    sorting.footrule(_ORDER, _ORDER)
    sorting.footrules(_ORDER[None], _ORDER[None])
    packing.unpack_rank(packing.pack_order_of_rank(_ORDER), 3)


def _warm_symbols() -> None:
    zeros, levels = np.zeros_like(_SYMBOLS), np.zeros((2, 2), np.uint8)
    symbols.bucket_symbols(_ORDER, _ORDER, 0, _SYMBOLS, 2)
    symbols.rank_of_symbols(zeros, _ORDER, _SYMBOLS, np.array([0, 1, 3]))
    symbols.move_symbols(_ORDER, _ORDER, 2, 1, 0, 1)
    symbols.rank_of_moves(zeros, _ORDER, _ORDER, 2, 1, 0, 1)
    symbols.moved_edges(_SYMBOLS, _ORDER, 0, 3)
    symbols.kinds_at(_SYMBOLS, _SYMBOLS[:1], levels, _ORDER, 0, 3)
    symbols.positions_by_kind(_SYMBOLS, 2, 1)
    sorting.gather(sorting.scatter(_SYMBOLS, _ORDER), _ORDER)


def _warm_coding() -> None:
    counts = coding.count_symbols(_SYMBOLS, _ENDS, 2)
    raw = np.frombuffer(coding.write_tables(counts).tobytes(), np.uint8)
    tables = coding.frequencies(coding.read_tables(raw, _ENDS, 2)[0])
    coding.rans_decode(coding.rans_encode(_SYMBOLS, _ENDS, tables), _ENDS, tables)
