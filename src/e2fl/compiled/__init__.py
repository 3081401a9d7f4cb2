"""Compiled loops on the rankings of one layer: sorting, selecting, voting, packing and comparing.

`order[i]` is the edge in place i, least wanted first; `rank[e]` is the place of edge e.  Both are int32 arrays of one
dimension, and every sort is stable, so that equal values stand in the order of their edge numbers.  Each function
here has a plain twin of the same name in `e2fl.testing.reference`, and gives the same bits.

What is where:

- `machine_code.py`: `@compiled`, which makes a function machine code, and the cache that keeps it;
- `arrays.py`: the types of arrays, and memory that is used again;
- `keys.py`: scores as integers that sort alike;
- `sorting.py`: the order and the rank of scores, or of the sums of a vote;
- `orders.py`: an order into its rank and back, a rank into scores, a voter's rank into a vote;
- `masks.py`: which edges are kept, and the threshold they begin at;
- `packing.py`: orders in as few bits as they need;
- `distance.py`: how far rankings are from each other;
- `warming.py`: all of these compiled ahead of time.
"""

from e2fl.compiled.arrays import Bool, Float32, Int32, Int64, UInt8, UInt16, UInt32, UInt64, scratch
from e2fl.compiled.bucketing import (
    bucket_symbols,
    gather,
    kinds_at,
    moved_edges,
    positions_by_kind,
    rank_of_symbols,
    scatter,
)
from e2fl.compiled.distance import footrule, footrules
from e2fl.compiled.keys import float_key
from e2fl.compiled.machine_code import compiled
from e2fl.compiled.masks import first_kept, mask_of, threshold_of, top_mask, write_mask
from e2fl.compiled.orders import add_order, add_rank, invert, scores_from
from e2fl.compiled.packing import pack, pack_order_of_rank, packed_size, unpack, unpack_rank
from e2fl.compiled.rans import rans_decode, rans_encode
from e2fl.compiled.sorting import order_of, order_of_sums, rank_of, rank_of_sums
from e2fl.compiled.symbol_tables import count_symbols, frequencies, read_tables, rounded_counts, write_tables
from e2fl.compiled.warming import warm

__all__ = [
    "Bool",
    "Float32",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "add_order",
    "add_rank",
    "bucket_symbols",
    "compiled",
    "count_symbols",
    "first_kept",
    "float_key",
    "footrule",
    "footrules",
    "frequencies",
    "gather",
    "invert",
    "kinds_at",
    "mask_of",
    "moved_edges",
    "order_of",
    "order_of_sums",
    "pack",
    "pack_order_of_rank",
    "packed_size",
    "positions_by_kind",
    "rank_of",
    "rank_of_sums",
    "rank_of_symbols",
    "rans_decode",
    "rans_encode",
    "read_tables",
    "rounded_counts",
    "scatter",
    "scores_from",
    "scratch",
    "threshold_of",
    "top_mask",
    "unpack",
    "unpack_rank",
    "warm",
    "write_mask",
    "write_tables",
]
