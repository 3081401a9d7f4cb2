"""Compiles all loops of rankings and scores ahead of time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from e2fl.kernels.coding import (
    count_symbols,
    frequencies,
    rans_decode,
    rans_encode,
    read_tables,
    rounded_counts,
    write_tables,
)
from e2fl.kernels.packing import pack, unpack, unpack_rank
from e2fl.kernels.score_step import ScoreStep
from e2fl.kernels.sorting import (
    add_rank,
    footrule,
    footrules,
    invert,
    order_of,
    rank_of,
    rank_of_sums,
    scores_from,
    top_mask,
)
from e2fl.kernels.symbols import (
    bucket_symbols,
    gather,
    kinds_at,
    move_symbols,
    moved_edges,
    positions_by_kind,
    rank_of_moves,
    rank_of_symbols,
    scatter,
)


def warm(tell: Callable[[str], None]) -> None:
    """Compile every loop of this package, or load it from the cache.

    Calls `tell` with the name of each one first.
    """
    order = np.array([1, 0, 2], np.int32)
    scores, sums = np.ones(3, np.float32), np.ones(3, np.int64)
    symbols, ends = np.array([0, 1, 1], np.uint8), np.array([3], np.int64)
    counts = np.array([[1, 2]], np.int64)
    tables = frequencies(counts)
    calls: dict[str, Callable[[], object]] = {
        "order_of": lambda: order_of(scores),
        "rank_of": lambda: rank_of(scores),
        "rank_of_sums": lambda: rank_of_sums(sums),
        "invert": lambda: invert(order),
        "add_rank": lambda: add_rank(sums, order),
        "scores_from": lambda: scores_from(order, scores),
        "top_mask": lambda: top_mask(scores, 1),
        "unpack": lambda: unpack(pack(order, 2), 3, 2),
        "unpack_rank": lambda: unpack_rank(pack(order, 2), 3, 2),
        "footrule": lambda: footrule(order, order),
        "footrules": lambda: footrules(order[None], order[None]),
        "bucket_symbols": lambda: bucket_symbols(order, order, 0, symbols, 2),
        "bucket_symbols of a window": lambda: bucket_symbols(order, order, 1, symbols[1:], 2),
        "rank_of_symbols": lambda: rank_of_symbols(
            symbols * 0, order, symbols, np.array([0, 1, 3])
        ),
        "move_symbols": lambda: move_symbols(order, order, 2, 1, 0, 1),
        "rank_of_moves": lambda: rank_of_moves(symbols * 0, order, order, 2, 1, 0, 1),
        "moved_edges": lambda: moved_edges(symbols, order, 0, 3),
        "kinds_at": lambda: kinds_at(symbols, symbols[:1], np.zeros((2, 2), np.uint8), order, 0, 3),
        "positions_by_kind": lambda: positions_by_kind(symbols, 2, 1),
        "scatter": lambda: scatter(symbols, order),
        "gather": lambda: gather(symbols, order),
        "count_symbols": lambda: count_symbols(symbols, ends, 2),
        "rounded_counts": lambda: rounded_counts(counts),
        "read_tables": lambda: read_tables(write_tables(counts), ends, 2),
        "rans_decode": lambda: rans_decode(rans_encode(symbols, ends, tables), ends, tables),
        "ScoreStep": lambda: ScoreStep(scores.copy(), scores, 1).advance(scores, 0.1, 0.9, 0.0),
    }
    for name, call in calls.items():
        tell(name)
        call()
