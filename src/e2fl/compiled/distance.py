"""How far rankings are from each other: Spearman's footrule."""

from __future__ import annotations

import numpy as np

from e2fl.compiled.arrays import Int32, Int64
from e2fl.compiled.machine_code import compiled


@compiled
def _footrule(a: Int32, b: Int32, block: int) -> int:
    total = 0
    for start in range(0, a.size, block):
        stop = min(start + block, a.size)
        part = np.uint32(0)  # 32 bits are twice the lanes of 64, and a block is short enough not to overflow them
        for e in range(start, stop):
            part = np.uint32(part + np.uint32(max(a[e], b[e]) - min(a[e], b[e])))
        total += int(part)
    return total


@compiled
def _footrules(ranks: Int32, centroids: Int32, block: int, out: Int64) -> None:
    edges = ranks.shape[1]
    # Some rows of one stretch of edges at a time, so that the centroids' stretch stays in the nearest cache.
    for start in range(0, edges, block):
        stop = min(start + block, edges)
        for m in range(ranks.shape[0]):
            for q in range(centroids.shape[0]):
                out[m, q] += _footrule(ranks[m, start:stop], centroids[q, start:stop], block)


def _block(edges: int) -> int:
    """How many differences of ranks add up in 32 bits whatever they are, at most one cache-sized stretch."""
    return max(1, min(2048, (1 << 32) // max(1, edges)))


def footrule(a: Int32, b: Int32) -> int:
    """The sum over edges of the distance between the places two ranks give them."""
    return int(_footrule(a, b, _block(a.size)))


def footrules(ranks: Int32, centroids: Int32) -> Int64:
    """The footrule of each rank to each centroid: [clients, edges] and [groups, edges] to [clients, groups]."""
    out = np.zeros((ranks.shape[0], centroids.shape[0]), np.int64)
    _footrules(ranks, centroids, _block(ranks.shape[1]), out)
    return out
