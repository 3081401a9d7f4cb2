"""Compiled loops over the rankings of one layer: sorting, selection, votes, packing, coding and distances.

`order[i]` is the edge at place i, lowest rank first; `rank[e]` is the place of edge e.  Both are one-dimensional int32
arrays.  All sorts are stable: equal values keep the order of their edge numbers.  Each function
exported here has a plain twin in `e2fl.testing.reference` or `e2fl.testing.reference_ballots`, mostly of the same name,
that returns the same bits.

- `machine_code.py`: `@compiled`, which compiles a function, and the cache of compiled code;
- `arrays.py`: array types, and scratch memory that is reused;
- `keys.py`: float32 scores as integers with the same order;
- `sorting.py`: the order and the rank of scores or of the sums of a vote;
- `orders.py`: order to rank and back, rank to scores, a ballot added to a vote;
- `masks.py`: which edges are kept, and the threshold score;
- `packing.py`: integers in a fixed number of bits;
- `bucketing.py`: rankings as buckets of places;
- `moving.py`: rankings as moves from a reference;
- `symbol_tables.py`: the frequency tables of the entropy coder;
- `rans.py`: the entropy coder;
- `distance.py`: the footrule distance between rankings;
- `warming.py`: compiles all of these ahead of time.
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
from e2fl.compiled.moving import move_symbols, rank_of_moves
from e2fl.compiled.orders import add_rank, invert, scores_from
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
    "move_symbols",
    "moved_edges",
    "order_of",
    "order_of_sums",
    "pack",
    "pack_order_of_rank",
    "packed_size",
    "positions_by_kind",
    "rank_of",
    "rank_of_moves",
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
