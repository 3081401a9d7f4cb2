"""Compiled loops over the rankings of one layer: sorting, selection, votes, packing, coding and
distances.

`order[i]` is the edge at place i, lowest rank first; `rank[e]` is the place of edge e.  Both are
one-dimensional int32 arrays.  All sorts are stable: equal values keep the order of their edge
numbers.  Each function exported here has a plain twin in `tests/twins`, mostly of the same name,
that returns the same bits.

- `machine_code.py`: `@compiled`, which compiles a function, the cache of compiled code, array
  types;
- `sorting.py`: sorting and selection of edges; order, rank, mask, votes and the footrule distance;
- `packing.py`: integers in a fixed number of bits;
- `symbols.py`: rankings as buckets of places or as moves;
- `coding.py`: the entropy coder and its frequency tables;
- `score_step.py`, `stages.py` and what they call: local training;
- `warming.py`: compiles the loops ahead of time.
"""

from e2fl.kernels.coding import (
    count_symbols,
    frequencies,
    rans_decode,
    rans_encode,
    read_tables,
    rounded_counts,
    write_tables,
)
from e2fl.kernels.machine_code import (
    Bool,
    Float32,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    compiled,
    one_process,
    scratch,
)
from e2fl.kernels.packing import pack, pack_order_of_rank, packed_size, unpack, unpack_rank
from e2fl.kernels.sorting import (
    add_rank,
    first_kept,
    float_key,
    footrule,
    footrules,
    invert,
    mask_of,
    order_of,
    order_of_sums,
    rank_of,
    rank_of_sums,
    scores_from,
    threshold_of,
    top_mask,
    write_mask,
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
from e2fl.kernels.warming import warm

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
    "one_process",
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
