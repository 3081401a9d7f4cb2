"""Intervals and tests: Wilson, bootstrap over clients, Holm, and what chance alone gives.

Where rows belong to clients they are not independent. Clients are resampled to find how much wider the interval must
be (the design effect); Wilson's interval is then computed with the effective number of rows. Unlike percentiles of the
bootstrap it keeps its meaning for rates near 0 and 1 and for groups of few clients.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from e2fl.auditing.table import Codes, Numbers

Z95 = 1.959963984540054
REPLICATE_CELLS = 20_000_000  # bounds the memory of the bootstrap


def wilson(hits: Numbers, count: Numbers, z: Numbers | float = Z95) -> tuple[Numbers, Numbers]:
    """Return Wilson's score interval of hits / count; NaN where the count is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share = hits / count
        square = np.square(z) / count
        centre = (share + square / 2) / (1 + square)
        half = z / (1 + square) * np.sqrt(share * (1 - share) / count + square / (4 * count))
        low, high = np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)
    # Exactly 0 and 1 at the ends, where rounding would leave 1e-17.
    low, high = np.where(hits == 0, 0.0, low), np.where(hits == count, 1.0, high)
    return np.where(count > 0, low, np.nan), np.where(count > 0, high, np.nan)


def newcombe(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return Newcombe's interval of a difference of rates, each given as value, low, high."""
    difference = one[0] - other[0]
    low = difference - math.hypot(one[0] - one[1], other[2] - other[0])
    high = difference + math.hypot(one[2] - one[0], other[0] - other[1])
    return max(-1.0, low), min(1.0, high)


def ratio_interval(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return Katz's log interval of a ratio of rates, each given as hits and effective count."""
    (hits, count), (base_hits, base_count) = one, other
    if not count or not base_count or not base_hits:
        return math.nan, math.nan
    half = 0.5 if not hits else 0.0  # no hits: the ratio is 0, and half a hit bounds it from above
    ratio = ((hits + half) / (count + half)) / (base_hits / base_count)
    spread = 1 / (hits + half) - 1 / (count + half) + 1 / base_hits - 1 / base_count
    reach = math.exp(Z95 * math.sqrt(max(spread, 0.0)))
    return (ratio / reach if hits else 0.0), ratio * reach


def holm(values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values: 5 % is then the chance of one false finding among all of them."""
    order = np.argsort(values, kind="stable")
    adjusted = np.empty(len(values))
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, (len(values) - rank) * values[place])
        adjusted[place] = min(1.0, highest)
    return [float(value) for value in adjusted]


def pooled_error(hits: float, count: float, other_hits: float, other_count: float) -> float:
    """Return the standard error of a difference of rates if both groups had the same rate."""
    if not count or not other_count:
        return math.nan
    share = (hits + other_hits) / (count + other_count)
    return math.sqrt(share * (1 - share) * (1 / count + 1 / other_count))


def replicates(
    column: Codes,
    client: Codes,
    count: Numbers,
    columns: int,
    clients: int,
    resamples: int,
    seed: int,
    tell: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Return the counts of each column in each resample of the clients: [resamples, columns].

    column, client, count: [entries], a count of rows for one client and one column.
    """
    rng = np.random.default_rng(seed)
    number = max(50, min(resamples, REPLICATE_CELLS // max(1, columns)))
    found = np.empty((number, columns))
    for place in range(number):
        drawn = np.bincount(rng.integers(0, clients, clients), minlength=clients).astype(np.float64)
        found[place] = np.bincount(column, weights=drawn[client] * count, minlength=columns)
        if tell is not None:
            tell(place + 1, number)
    return found


def design_effect(values: NDArray[np.float64], share: Numbers, count: Numbers) -> Numbers:
    """Return how many times the variance over resamples exceeds that of independent rows; at least 1.

    values: [resamples, groups], the rates in the resamples. NaN where it cannot be estimated.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        known = np.isfinite(values).sum(axis=0)
        centred = values - np.nansum(values, axis=0) / known
        variance = np.nansum(np.square(centred), axis=0) / (known - 1)
        effect = variance / (share * (1 - share) / count)
        return np.where(np.isfinite(effect) & (known > 1), np.maximum(effect, 1.0), np.nan)


def permutation_test(values: Numbers, group: Codes, permutations: int = 1999, seed: int = 0) -> float:
    """Return the p-value of "all groups have one mean": how often shuffled groups differ as much as these."""
    sizes = np.bincount(group).astype(np.float64)
    centred = values - values.mean()

    def between(order: Numbers) -> float:
        return float((np.square(np.bincount(group, weights=order, minlength=len(sizes))) / np.maximum(sizes, 1)).sum())

    observed = between(centred) * (1 - 1e-12)
    rng = np.random.default_rng(seed)
    number = max(199, min(permutations, REPLICATE_CELLS // max(1, len(values))))
    exceeded = sum(between(rng.permutation(centred)) >= observed for _ in range(number))
    return (1 + exceeded) / (1 + number)
