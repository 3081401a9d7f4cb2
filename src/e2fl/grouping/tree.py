"""A deterministic first division of clients into groups, from all pairwise distances.

K-means from random clients seldom finds a group of a few clients, and its sum of distances is
smaller when it splits a large group than when it separates two small ones. Here, Ward's method
first divides the clients into several times as many clusters as wanted. Then the two most similar
clusters are merged, repeatedly. Similarity is the energy distance (how much farther clients are
from the other cluster than from their own), which favours neither small nor large clusters, divided
by its standard error.
"""

import numpy as np
from numpy.typing import NDArray

PIECES = 3  # clusters per group before merging


def divide(distances: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the group of every client, 0 to count - 1.

    distances: [clients, clients], at least `count` clients.
    """
    # Importing scipy.cluster takes long, and few runs need it.
    from scipy.cluster.hierarchy import cut_tree, linkage

    clients = len(distances)
    if count == clients or count == 1:
        return np.arange(clients) % count
    condensed = distances[np.triu_indices(clients, 1)]
    piece = cut_tree(linkage(condensed, "ward"), n_clusters=[min(clients, PIECES * count)])[
        :, 0
    ].astype(np.int64)
    sizes = np.bincount(piece)
    # Of distances between the clients of two clusters.
    sums = _sums(_sums(distances, piece).T, piece)
    label = np.arange(len(sizes))
    while len(sizes) > count:
        kept, gone = _most_alike(sums, sizes)
        sums[kept] += sums[gone]
        sums[:, kept] += sums[:, gone]
        sizes[kept] += sizes[gone]
        sums = np.delete(np.delete(sums, gone, axis=0), gone, axis=1)
        sizes = np.delete(sizes, gone)
        label[label == gone] = kept
        label[label > gone] -= 1
    return label[piece]


def _sums(rows: NDArray[np.float64], piece: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sum of the rows of every cluster."""
    return np.stack([rows[piece == number].sum(axis=0) for number in range(int(piece.max()) + 1)])


def _most_alike(sums: NDArray[np.float64], sizes: NDArray[np.int64]) -> tuple[int, int]:
    """Return the two most similar clusters, the lower number first."""
    pairs = sizes * (sizes - 1)
    within = np.divide(sums.diagonal(), pairs, out=np.full(len(sizes), np.nan), where=pairs > 0)
    typical = np.nanmean(within) if (pairs > 0).any() else 0.0
    # A single client has no distances within its cluster.
    within = np.where(np.isnan(within), typical, within)
    energy = 2 * sums / np.outer(sizes, sizes) - within[:, None] - within
    standard = energy * np.sqrt(np.outer(sizes, sizes) / np.add.outer(sizes, sizes))
    standard[np.tril_indices(len(sizes))] = np.inf
    first, second = np.unravel_index(int(standard.argmin()), standard.shape)
    return int(first), int(second)
