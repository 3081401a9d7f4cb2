"""How well groups are separated, from the distances between clients alone.

Clients always differ, in the amount of data or in their labels. A cloud without groups can be cut
into pieces too, with each client closer to its own piece than to the next, and another start gives
the same pieces. What distinguishes groups from one cloud is that few clients lie between them. The
expected number comes from a reference cloud with the same covariance and no groups, cut into as
many pieces.

`divide` is a deterministic first division. K-means from random clients seldom finds a group of a
few clients, and its sum of distances is smaller when it splits a large group than when it separates
two small ones. Here, Ward's method first divides the clients into several times as many clusters as
wanted. Then the two most similar clusters are merged, repeatedly. Similarity is the energy distance
(how much farther clients are from the other cluster than from their own), which favours neither
small nor large clusters, divided by its standard error.

Spearman's footrule is a sum of absolute differences, so it is the square of a Euclidean distance in
some space. Groups have centres there, and reference clouds can be drawn.
"""

import numpy as np
from numpy.typing import NDArray

from e2fl.randomness import stream

MAX_STEPS = 20  # of K-means, at most
PIECES = 3  # clusters per group before merging
CLOUDS = 5  # reference clouds drawn, for the mean of their blur
MAX_SAMPLED = 400  # clients that blur is computed over, at most


class Separation:
    """The blur of groups, and that of reference clouds, over clients drawn uniformly."""

    def __init__(self, distances: NDArray[np.float64], seed: int):
        self.sampled = np.sort(stream(seed, "judges").permutation(len(distances))[:MAX_SAMPLED])
        self.distances = distances[np.ix_(self.sampled, self.sampled)]
        draws = (stream(seed, "cloud", number) for number in range(CLOUDS))
        self.clouds = [cloud(self.distances, rng) for rng in draws if len(self.sampled) > 1]

    def blurs(self, assigned: NDArray[np.int64], count: int) -> dict[str, float]:
        """Return the blur of these groups, and the mean of the clouds cut into as many pieces."""
        actual = blur(self.distances, assigned[self.sampled])
        clouds = [blur(drawn, pieces(drawn, min(count, len(drawn)))) for drawn in self.clouds]
        return {"blur": actual, "cloud": float(np.mean(clouds or [1.0]))}


def silhouette(distances: NDArray[np.float64], assigned: NDArray[np.int64]) -> float:
    """Return the mean silhouette: how much nearer clients are to their own group than to the next.

    distances: [clients, clients]. A client alone in its group counts as 0; with one group, the
    result is 0.
    """
    if len(np.unique(assigned)) < 2:
        return 0.0
    # Importing scikit-learn takes long, and few commands need it.
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(distances, assigned, metric="precomputed"))


def blur(distances: NDArray[np.float64], assigned: NDArray[np.int64]) -> float:
    """Return how far clients lie from their own centre to the next: 0 is the centre, 1 the border.

    distances: [clients, clients]. The centre is that of the other clients in the group, so that a
    client is not close to it by being part of it. A client alone in its group counts as 1; with one
    group, the result is 1.
    """
    names, group = np.unique(assigned, return_inverse=True)
    member = np.eye(len(names))[group]  # [clients, groups]
    sizes = member.sum(axis=0)
    if len(sizes) < 2:
        return 1.0
    sums = distances @ member
    between = member.T @ sums  # [groups, groups]
    # Mean distance of two clients of a group.
    within = between.diagonal() / np.maximum(sizes * (sizes - 1), 1)
    if (sizes > 1).any():
        # Not defined for a single client.
        within = np.where(sizes > 1, within, within[sizes > 1].mean())
    rows = np.arange(len(group))
    near = sums[rows, group] / np.maximum(sizes[group] - 1, 1) - within[group] / 2
    others = sums / sizes - within / 2
    others[rows, group] = np.inf
    next_one = others.argmin(axis=1)
    gaps = between / np.outer(sizes, sizes) - (within[:, None] + within) / 2  # between centres
    gap = gaps[group, next_one]
    # 0 is the border, 1 the centre.
    inward = np.divide(others[rows, next_one] - near, gap, out=np.zeros_like(near), where=gap > 0)
    return float(np.where(sizes[group] > 1, np.clip(1 - inward, 0, 1), 1.0).mean())


def cloud(distances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the distances in a random cloud without groups, with these clients' covariance."""
    clients = len(distances)
    centred = distances - distances.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    # Squared; one dimension fewer than clients.
    lengths = np.linalg.eigvalsh(-centred / 2)[1:].clip(min=0)
    points = rng.standard_normal((clients, clients - 1))
    points = np.linalg.qr(points - points.mean(axis=0))[0] * np.sqrt(lengths)
    squares = (points**2).sum(axis=1)
    drawn: NDArray[np.float64] = squares[:, None] + squares - 2 * points @ points.T
    np.fill_diagonal(drawn, 0)
    return np.maximum(drawn, 0)


def pieces(distances: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the piece of every client, as rank clustering would cut them: a tree, then K-means."""
    assigned = divide(distances, count)
    for _ in range(MAX_STEPS):
        member = np.eye(count)[assigned]
        sizes = member.sum(axis=0)
        if not sizes.all():
            break
        means = distances @ member / sizes
        to_centres = means - (means * member).sum(axis=0) / sizes / 2
        before, assigned = assigned, to_centres.argmin(axis=1)
        if np.array_equal(assigned, before):
            break
    return assigned


def divide(distances: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the group of every client, 0 to count - 1.

    distances: [clients, clients], at least `count` clients.
    """
    # Importing scipy.cluster takes long, and few runs need it.
    from scipy.cluster.hierarchy import cut_tree, linkage

    clients = len(distances)
    if count == clients or count == 1:
        return np.arange(clients) % count
    tree = linkage(distances[np.triu_indices(clients, 1)], "ward")
    piece = cut_tree(tree, n_clusters=[min(clients, PIECES * count)])[:, 0].astype(np.int64)
    sizes = np.bincount(piece)
    # Of distances between the clients of two clusters.
    sums = _sums(_sums(distances, piece).T, piece)
    label = np.arange(len(sizes))
    while len(sizes) > count:
        target, merged = _most_alike(sums, sizes)
        sums[target] += sums[merged]
        sums[:, target] += sums[:, merged]
        sizes[target] += sizes[merged]
        sums = np.delete(np.delete(sums, merged, axis=0), merged, axis=1)
        sizes = np.delete(sizes, merged)
        label[label == merged] = target
        label[label > merged] -= 1
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
