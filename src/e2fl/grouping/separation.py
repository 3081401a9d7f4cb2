"""How clearly groups stand apart, from the distances between clients alone.

Clients always differ: one has more data, another other labels. Whoever cuts such a cloud into pieces finds that clients
are nearer to their own piece than to the next, and finds nearly the same pieces again. What tells groups from a cloud
is that few clients stand in between. How many would, shows a cloud that is as long and as wide in all directions,
cut into as many pieces.

Spearman's footrule is a sum of absolute differences, so it is the square of a distance in some straight space: groups
have a middle there, and clouds can be drawn.
"""

import numpy as np
from numpy.typing import NDArray

from e2fl.grouping.tree import divide

STEPS = 20  # of K-means, at most


def silhouette(distances: NDArray[np.float64], assigned: NDArray[np.int64]) -> float:
    """The mean silhouette: (b - a) / max(a, b), with a the mean distance to the own group, b to the nearest other.

    distances: [clients, clients]. A client alone in its group counts 0; so does everything if there is one group.
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
    """How far clients stand from the middle of their group towards the next, on average: 0 not at all, 1 at the border.

    distances: [clients, clients]. The middle is that of the others in the group: nobody is near just by counting.
    A client alone in its group counts 1; so does everything if there is one group.
    """
    group, member, sizes = _members(assigned)
    if len(sizes) < 2:
        return 1.0
    sums = distances @ member
    between = member.T @ sums  # [groups, groups]
    within = between.diagonal() / np.maximum(sizes * (sizes - 1), 1)  # the mean distance of two in a group
    if (sizes > 1).any():
        within = np.where(sizes > 1, within, within[sizes > 1].mean())  # of a client alone nobody knows
    rows = np.arange(len(group))
    own = sums[rows, group] / np.maximum(sizes[group] - 1, 1) - within[group] / 2
    others = sums / sizes - within / 2
    others[rows, group] = np.inf
    next_one = others.argmin(axis=1)
    gaps = between / np.outer(sizes, sizes) - (within[:, None] + within) / 2  # from middle to middle
    gap = gaps[group, next_one]
    inward = np.divide(others[rows, next_one] - own, gap, out=np.zeros_like(own), where=gap > 0)  # 0 border, 1 middle
    return float(np.where(sizes[group] > 1, np.clip(1 - inward, 0, 1), 1.0).mean())


def _members(assigned: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """The groups there are, numbered anew: that of each client, who is in which [clients, groups], and their sizes."""
    names, group = np.unique(assigned, return_inverse=True)
    member = np.eye(len(names))[group]
    return group, member, member.sum(axis=0)


def cloud(distances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """The distances in a cloud without groups that is as long and as wide as these clients are: [clients, clients]."""
    clients = len(distances)
    centred = distances - distances.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    lengths = np.linalg.eigvalsh(-centred / 2)[1:].clip(min=0)  # squares, of one direction less than there are clients
    points = rng.standard_normal((clients, clients - 1))
    points = np.linalg.qr(points - points.mean(axis=0))[0] * np.sqrt(lengths)
    squares = (points**2).sum(axis=1)
    drawn: NDArray[np.float64] = squares[:, None] + squares - 2 * points @ points.T
    np.fill_diagonal(drawn, 0)
    return np.maximum(drawn, 0)


def pieces(distances: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The piece of every client, as rank clustering would cut them: a tree, then K-means."""
    assigned = divide(distances, count)
    for _ in range(STEPS):
        member = np.eye(count)[assigned]
        sizes = member.sum(axis=0)
        if not sizes.all():
            break
        means = distances @ member / sizes
        before, assigned = assigned, (means - (means * member).sum(axis=0) / sizes / 2).argmin(axis=1)
        if np.array_equal(assigned, before):
            break
    return assigned
