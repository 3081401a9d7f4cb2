"""Spearman's footrule, the distance between rankings."""

from __future__ import annotations

import numpy as np

from e2fl.compiled.arrays import Int32, Int64
from e2fl.compiled.machine_code import compiled


@compiled
def _footrule(a: Int32, b: Int32, block: int) -> int:
    total = 0
    for start in range(0, a.size, block):
        stop = min(start + block, a.size)
        part = np.uint32(0)  # 32 bits: twice as many SIMD lanes as 64; a block is too short to overflow
        for e in range(start, stop):
            part = np.uint32(part + np.uint32(max(a[e], b[e]) - min(a[e], b[e])))
        total += int(part)
    return total


@compiled
def _footrules(ranks: Int32, centroids: Int32, block: int, out: Int64) -> None:
    edges = ranks.shape[1]
    # All rows of one block of edges before the next block, so that the centroids' block stays in the L1 cache.
    for start in range(0, edges, block):
        stop = min(start + block, edges)
        for m in range(ranks.shape[0]):
            for q in range(centroids.shape[0]):
                out[m, q] += _footrule(ranks[m, start:stop], centroids[q, start:stop], block)


def _block(edges: int) -> int:
    """Return how many differences of ranks can be summed in 32 bits without overflow; at most one cache-sized block."""
    return max(1, min(2048, (1 << 32) // max(1, edges)))


def footrule(a: Int32, b: Int32) -> int:
    """Return the sum over edges of the absolute difference of two ranks."""
    return int(_footrule(a, b, _block(a.size)))


def footrules(ranks: Int32, centroids: Int32) -> Int64:
    """Return the footrule of each rank to each centroid: [clients, edges] and [groups, edges] to [clients, groups]."""
    out = np.zeros((ranks.shape[0], centroids.shape[0]), np.int64)
    _footrules(ranks, centroids, _block(ranks.shape[1]), out)
    return out
