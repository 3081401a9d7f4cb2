"""A first division of clients into groups, from the distances between all of them and without any chance.

K-means from random clients seldom meets a group of a few clients, and its sum of distances is smaller when it cuts a
large group in two than when it tells two small ones apart. Here, Ward's tree first divides the clients into several
times as many pieces as are wanted. Then those two pieces become one, again and again, that differ least: by how much
farther clients of the one are from those of the other than from their own (the energy distance, which does not favour
small or large pieces), in units of its own uncertainty.
"""

import numpy as np
from numpy.typing import NDArray

PIECES = 3  # for each group that is wanted


def divide(distances: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The group of every client, 0 to count - 1; distances: [clients, clients], and at least `count` clients."""
    # scipy.cluster takes a while to load, and few runs need it.
    from scipy.cluster.hierarchy import cut_tree, linkage

    clients = len(distances)
    if count == clients or count == 1:
        return np.arange(clients) % count
    condensed = distances[np.triu_indices(clients, 1)]
    piece = cut_tree(linkage(condensed, "ward"), n_clusters=[min(clients, PIECES * count)])[:, 0].astype(np.int64)
    sizes = np.bincount(piece)
    sums = _sums(_sums(distances, piece).T, piece)  # of the distances between the clients of two pieces
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
    """The sum of the rows of every piece."""
    return np.stack([rows[piece == number].sum(axis=0) for number in range(int(piece.max()) + 1)])


def _most_alike(sums: NDArray[np.float64], sizes: NDArray[np.int64]) -> tuple[int, int]:
    """The two pieces, the lower number first, whose difference means least."""
    pairs = sizes * (sizes - 1)
    within = np.divide(sums.diagonal(), pairs, out=np.full(len(sizes), np.nan), where=pairs > 0)
    typical = np.nanmean(within) if (pairs > 0).any() else 0.0
    within = np.where(np.isnan(within), typical, within)  # a client alone says nothing of how far clients are apart
    energy = 2 * sums / np.outer(sizes, sizes) - within[:, None] - within
    standard = energy * np.sqrt(np.outer(sizes, sizes) / np.add.outer(sizes, sizes))
    standard[np.tril_indices(len(sizes))] = np.inf
    first, second = np.unravel_index(int(standard.argmin()), standard.shape)
    return int(first), int(second)
