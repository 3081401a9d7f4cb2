"""Order, rank, footrule and mask: pure functions on permutations of the edges of a layer.

`order[i]` is the edge at place i, least important first; `rank[e]` is the place of edge e. Each is
the inverse of the other. A ranking is stored as ranks, because votes, distances, masks and scores
all look up the place of an edge. Every sort is stable: ties go to the lower edge number, so that
every machine computes the same ranking.

Read as weights, the edge at place i of a ranking has the i-th smallest weight of its layer. A table
holds these weights at a few places, closer together at both ends, where sorted weights are steep;
those between are interpolated. After Zhou et al., "LaPerm: Train by Reconnect", NeurIPS 2020.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from e2fl import kernels
from e2fl.errors import WireError
from e2fl.kernels import footrule as footrule
from e2fl.kernels import invert as invert
from e2fl.kernels import order_of as order_of
from e2fl.kernels import rank_of as rank_of
from e2fl.kernels import scores_from as scores_from

Order = NDArray[np.int32]
Ranks = NDArray[np.int32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

Ranking = dict[str, Ranks]  # the rank of every edge, layer by layer
Mask = dict[str, Bools]  # which edges are kept, layer by layer
WeightTable = dict[str, Floats]  # the weights at `places` of each layer, rising

TABLE_STEPS = 128  # from an end of a layer to its middle
# A client's weights count as at most this many times the largest weight that it was sent.
MAX_GROWTH = 10.0


def dropped(edges: int, keep: float) -> int:
    """Return how many edges are dropped when the fraction `keep` of a layer is kept."""
    # In binary, 1 - 0.9 is slightly below 0.1: without the offset, keep = 0.9 would drop none of 10
    # edges.
    return math.floor((1 - keep) * edges + 1e-9)


def mask_of(rank: Ranks, keep: float) -> Bools:
    """Return the mask of one layer: all edges but the least important are kept."""
    return rank >= dropped(len(rank), keep)


def mask_layers(ranking: Ranking, keep: float) -> Mask:
    """Return the mask of every layer."""
    return {layer: mask_of(rank, keep) for layer, rank in ranking.items()}


def edges_of(ranking: Ranking) -> dict[str, int]:
    """Return the number of edges of each layer."""
    return {layer: rank.size for layer, rank in ranking.items()}


def ranking_size(edges: Mapping[str, int]) -> int:
    """Return the bytes of an exact ranking of layers with this many edges."""
    return sum(map(kernels.packed_size, edges.values()))


def write_ranking(ranking: Ranking, layers: Iterable[str]) -> bytes:
    """Return the exact ranking of these layers as bytes; layers start at whole bytes."""
    return b"".join(kernels.pack_order_of_rank(ranking[layer]).tobytes() for layer in layers)


def read_ranking(raw: bytes | memoryview, edges: Mapping[str, int]) -> Ranking:
    """Return the exact ranking of layers with this many edges, or raise `WireError`."""
    if len(raw) != (expected := ranking_size(edges)):
        raise WireError(f"a ranking of this model takes {expected} bytes, not {len(raw)}")
    ranking: Ranking = {}
    for layer, count in edges.items():
        size = kernels.packed_size(count)
        packed, raw = raw[:size], raw[size:]
        try:
            ranking[layer] = kernels.unpack_rank(np.frombuffer(packed, np.uint8), count)
        except ValueError as error:
            raise WireError(f"the ranking of layer '{layer}' is invalid: {error}") from None
    return ranking


def places(edges: int) -> NDArray[np.int64]:
    """Return the places of a layer whose weights are sent: all of them in a small layer."""
    half = np.arange(TABLE_STEPS + 1, dtype=np.int64) ** 2 * (edges - 1) // (2 * TABLE_STEPS**2)
    return np.unique(np.concatenate([half, edges - 1 - half]))


def table_of(weights: Mapping[str, ArrayLike]) -> WeightTable:
    """Return the table of the weights of each layer, in any shape."""
    rising = {layer: np.sort(np.asarray(values), axis=None) for layer, values in weights.items()}
    return {layer: values[places(len(values))] for layer, values in rising.items()}


def weights_from(rank: Ranks, values: Floats) -> Floats:
    """Return the weights of a layer: those of its table, in the order of this ranking."""
    edges = len(rank)
    full = np.interp(np.arange(edges), places(edges), values).astype(np.float32)
    return scores_from(rank, full)


def median_of(tables: Sequence[WeightTable]) -> WeightTable:
    """Return the median of tables, place by place: no client moves it far by what it claims."""
    return {
        layer: np.median([table[layer].astype(np.float64) for table in tables], axis=0).astype(
            np.float32
        )
        for layer in tables[0]
    }


def write_table(table: WeightTable) -> bytes:
    """Return a table as bytes: four for each value, layer by layer."""
    return b"".join(values.astype("<f4").tobytes() for values in table.values())


def read_table(
    raw: bytes, edges: Mapping[str, int], sent: WeightTable | None = None
) -> WeightTable:
    """Return the table of layers with this many edges, or raise `WireError`.

    sent: the table that a client was sent, which limits what it may claim.
    """
    sizes = [len(places(count)) for count in edges.values()]
    if len(raw) != 4 * sum(sizes):
        raise WireError(f"a table of this model takes {4 * sum(sizes)} bytes, not {len(raw)}")
    arrays = np.split(np.frombuffer(raw, "<f4").astype(np.float32), np.cumsum(sizes)[:-1])
    table = dict(zip(edges, arrays, strict=True))
    for layer, values in table.items():
        if not np.isfinite(values).all() or (values[1:] < values[:-1]).any():
            raise WireError(f"the table of layer '{layer}' is not of finite, rising values")
        if sent is not None:
            most = np.float32(MAX_GROWTH * np.abs(sent[layer]).max())
            table[layer] = values.clip(-most, most)
    return table
