# mypy: implicit-reexport
# ruff: noqa: F401, I001
"""Compiled loops: sorting, votes, packing, coding and distances of rankings, and local training.

`order[i]` is the edge at place i, lowest rank first; `rank[e]` is the place of edge e.  Both are
one-dimensional int32 arrays.  All sorts are stable: equal values keep the order of their edge
numbers.  Each function imported here has a plain twin in `tests/twins`, mostly of the same name,
that returns the same bits.

- `machine_code.py`: `@compiled`, which compiles a function, the cache of compiled code, array
  types;
- `sorting.py`: sorting and selection of edges; order, rank, votes and the footrule distance;
- `packing.py`: an order in a fixed number of bits an edge;
- `symbols.py`: rankings as buckets of places or as moves;
- `coding.py`: the entropy coder and its frequency tables;
- `stages.py`: local training of a network, and its layers; `network.py`: all steps of a fit in one
  call, and `table.py`, what it reads; `linear.py`, `convolution.py`, `winograd.py`, `pooling.py`:
  the loops of layers, with the vector code of `vectors.py`; `score_step.py`: steps.
"""

from e2fl.kernels.coding import count_symbols, frequencies, rans_decode, rans_encode
from e2fl.kernels.coding import read_tables, rounded_counts, write_tables
from e2fl.kernels.machine_code import Bool, Float32, Int32, Int64, UInt8, UInt16, UInt32, UInt64
from e2fl.kernels.machine_code import one_process
from e2fl.kernels.packing import bits_per_edge, pack_order_of_rank, packed_size, unpack_rank
from e2fl.kernels.sorting import add_rank, footrule, footrules, gather, invert, order_of
from e2fl.kernels.sorting import order_of_sums, rank_of, rank_of_sums, scatter, scores_from
from e2fl.kernels.symbols import bucket_symbols, kinds_at, move_symbols, moved_edges
from e2fl.kernels.symbols import positions_by_kind, rank_of_moves, rank_of_symbols

# Raised whenever training gives other bits than before, with all else equal; runs record it.
ENGINE_VERSION = 2
