"""How well groups are separated, from the distances between clients alone.

Clients always differ, in the amount of data or in their labels. A cloud without groups can be cut
into pieces too, with each client closer to its own piece than to the next, and another start gives
the same pieces. What distinguishes groups from one cloud is that few clients lie between them. The
expected number comes from a reference cloud with the same covariance and no groups, cut into as
many pieces.

Spearman's footrule is a sum of absolute differences, so it is the square of a Euclidean distance in
some space. Groups have centres there, and reference clouds can be drawn.
"""

import numpy as np
from numpy.typing import NDArray

from e2fl.grouping.tree import divide

STEPS = 20  # of K-means, at most


def silhouette(distances: NDArray[np.float64], assigned: NDArray[np.int64]) -> float:
    """Return the mean silhouette, (b - a) / max(a, b): a is the mean distance to the own group, b
    to the nearest other.

    distances: [clients, clients]. A client alone in its group counts as 0; with one group, the
    result is 0.
    """
    group, member, sizes = _members(assigned)
    if len(sizes) < 2:
        return 0.0
    sums = distances @ member
    rows = np.arange(len(group))
    own = sums[rows, group] / np.maximum(sizes[group] - 1, 1)
    means = sums / sizes
    means[rows, group] = np.inf
    other = means.min(axis=1)
    largest = np.maximum(own, other)
    values = np.divide(other - own, largest, out=np.zeros_like(own), where=largest > 0)
    return float(np.where(sizes[group] > 1, values, 0.0).mean())


def blur(distances: NDArray[np.float64], assigned: NDArray[np.int64]) -> float:
    """Return how far clients lie from the centre of their group towards the next: 0 is the centre,
    1 the border.

    distances: [clients, clients]. The centre is that of the other clients in the group, so that a
    client is not close to it by being part of it. A client alone in its group counts as 1; with one
    group, the result is 1.
    """
    group, member, sizes = _members(assigned)
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
    own = sums[rows, group] / np.maximum(sizes[group] - 1, 1) - within[group] / 2
    others = sums / sizes - within / 2
    others[rows, group] = np.inf
    next_one = others.argmin(axis=1)
    gaps = between / np.outer(sizes, sizes) - (within[:, None] + within) / 2  # between centres
    gap = gaps[group, next_one]
    # 0 is the border, 1 the centre.
    inward = np.divide(others[rows, next_one] - own, gap, out=np.zeros_like(own), where=gap > 0)
    return float(np.where(sizes[group] > 1, np.clip(1 - inward, 0, 1), 1.0).mean())


def _members(
    assigned: NDArray[np.int64],
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Return the non-empty groups, renumbered: of each client, as indicators [clients, groups], and
    their sizes.
    """
    names, group = np.unique(assigned, return_inverse=True)
    member = np.eye(len(names))[group]
    return group, member, member.sum(axis=0)


def cloud(distances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the distances in a random cloud without groups, with the covariance of these clients."""
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
    for _ in range(STEPS):
        member = np.eye(count)[assigned]
        sizes = member.sum(axis=0)
        if not sizes.all():
            break
        means = distances @ member / sizes
        before, assigned = (
            assigned,
            (means - (means * member).sum(axis=0) / sizes / 2).argmin(axis=1),
        )
        if np.array_equal(assigned, before):
            break
    return assigned
