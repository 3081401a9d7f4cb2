"""Intervals and tests: Wilson, Newcombe, Katz, Student, Holm, and permutations.

Where rows belong to clients they are not independent. Clients are resampled to find how much wider
the interval must be (the design effect); Wilson's interval is then computed with the effective
number of rows. Unlike percentiles of the bootstrap it keeps its meaning for rates near 0 and 1.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import erfc, stdtr, stdtrit

from e2fl_audit.files import Flags, Numbers

Z95 = 1.959963984540054
PERMUTATIONS = 9_990
MOST_PERMUTED = 2_000  # clients

Bounds = tuple[Numbers, Numbers]


def wilson(hits: Numbers, count: Numbers, z: Numbers | float = Z95) -> Bounds:
    """Return Wilson's score interval of hits / count; NaN where the count is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share, square = hits / count, np.square(z) / count
        centre = (share + square / 2) / (1 + square)
        half = z / (1 + square) * np.sqrt(share * (1 - share) / count + square / (4 * count))
        low, high = np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)
    # Exactly 0 and 1 at the ends, where rounding would leave 1e-17.
    low, high = np.where(hits == 0, 0.0, low), np.where(hits == count, 1.0, high)
    return np.where(count > 0, low, np.nan), np.where(count > 0, high, np.nan)


def newcombe(value: Numbers, bounds: Bounds, base: float, base_bounds: Sequence[float]) -> Bounds:
    """Return Newcombe's interval of the difference of rates from a base rate."""
    low, high = bounds
    difference = value - base
    left = difference - np.hypot(value - low, base_bounds[1] - base)
    right = difference + np.hypot(high - value, base - base_bounds[0])
    return np.maximum(left, -1.0), np.minimum(right, 1.0)


def ratio_bounds(value: Numbers, count: Numbers, base: float, base_count: float) -> Bounds:
    """Return Katz's log interval of the ratio of rates to a base rate, from effective counts."""
    hits, base_hits = value * count, np.float64(base * base_count)
    with np.errstate(invalid="ignore", divide="ignore"):
        half = np.where(hits == 0, 0.5, 0.0)  # the ratio is 0; half a hit bounds it from above
        ratio = ((hits + half) / (count + half)) / (base_hits / base_count)
        spread = 1 / (hits + half) - 1 / (count + half) + 1 / base_hits - 1 / base_count
        reach = np.exp(Z95 * np.sqrt(np.maximum(spread, 0.0)))
        known = (count > 0) & (base_count > 0) & (base_hits > 0)
        low, high = np.where(hits == 0, 0.0, ratio / reach), ratio * reach
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def holm(p: Sequence[float] | Numbers) -> Numbers:
    """Return Holm's adjusted p-values: 5 % is then the chance of one false finding among them."""
    values = np.asarray(p, np.float64)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty(len(values))
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def design_effect(samples: Numbers, share: Numbers, count: Numbers) -> Numbers:
    """Return how many times the variance over resamples exceeds that of independent rows, or 1.

    samples: [resamples, groups], the rates in the resamples. NaN where it cannot be estimated.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        effect = np.square(deviation(samples)) / (share * (1 - share) / count)
        return np.where(np.isfinite(effect), np.maximum(effect, 1.0), np.nan)


def deviation(samples: Numbers) -> Numbers:
    """Return the standard deviation over resamples of each group; NaN where it is not known."""
    known = np.ma.masked_invalid(samples)
    return np.asarray(np.ma.filled(known.std(axis=0, ddof=1), np.nan))


def t_quantile(freedom: Numbers | float) -> Numbers:
    """Return the two-sided 95 % quantile of Student's t; NaN without a degree of freedom."""
    known = np.asarray(freedom, np.float64)
    return np.where(known >= 1, stdtrit(np.maximum(known, 1.0), 0.975), np.nan)


def two_sided(difference: float, error: float, freedom: float | None = None) -> float:
    """Return the two-sided p-value of a difference, which is normal or, with freedom, Student's t.

    error: its standard error; 0 if it is certain.
    """
    if not error:
        return 0.0 if difference else 1.0
    if freedom is None:
        return float(erfc(abs(difference / error) / math.sqrt(2)))
    return 2 * float(stdtr(freedom, -abs(difference / error)))


def mean_half(values: Numbers, others: Numbers | None = None) -> float:
    """Return half the 95 % interval of a mean (Student), or of a difference of means (Welch).

    NaN for fewer than two values, and for equal ones, of which the spread is not known.
    """
    samples = [values] if others is None else [values, others]
    if min(map(len, samples)) < 2:
        return math.nan
    parts = [float(np.var(sample, ddof=1)) / len(sample) for sample in samples]
    error = math.sqrt(sum(parts))
    if error <= 1e-15 * max(float(np.abs(sample).max()) for sample in samples):
        return math.nan  # rounding
    pairs = zip(parts, samples, strict=True)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(sample) - 1) for part, sample in pairs)
    return float(t_quantile(max(1.0, freedom))) * error


def clients_test(hits: Numbers, base: Numbers, inside: Flags, seed: int = 0) -> float:
    """Return the p-value of "clients inside a group have the same rate as all other clients".

    hits, base: [clients]; a mean over clients has base 1. Clients are shuffled, so that the test is
    exact for any distribution over clients, and the difference is divided by its standard error, so
    that it also holds if the spread inside and outside differs.
    """
    columns = np.stack([hits, base, hits**2, hits * base, base**2], axis=1)
    inside = inside if inside.sum() * 2 <= len(inside) else ~inside
    size, total = int(inside.sum()), columns.sum(axis=0)
    counts = size, len(hits) - size
    observed = _standardised(columns[inside].sum(axis=0)[None], total, counts)[0]
    rng = np.random.default_rng(seed)
    for draws in (PERMUTATIONS // 10, PERMUTATIONS):
        if len(hits) <= MOST_PERMUTED:
            order = np.broadcast_to(np.arange(len(hits)), (draws, len(hits)))
            picked = rng.permuted(order, axis=1)[:, :size]
        else:  # a client is hardly ever picked twice
            picked = rng.integers(0, len(hits), (draws, size))
        drawn = _standardised(columns[picked].sum(axis=1), total, counts)
        exceeded = int((drawn >= observed * (1 - 1e-9)).sum())
        if exceeded > 20:
            break
    return (1 + exceeded) / (1 + draws)


def _standardised(sums: Numbers, total: Numbers, counts: tuple[int, int]) -> Numbers:
    """Return the absolute difference of the rates of two sides over its standard error.

    sums: [draws, 5], of hits, base and their products on one side; total: [5], of both sides.
    """
    rates, variance = [], 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        for part, count in zip((sums, total - sums), counts, strict=True):
            hits, base, hits2, both, base2 = part.T
            rate = hits / base
            spread = np.maximum(hits2 - 2 * rate * both + rate**2 * base2, 0.0) / base**2
            variance = variance + spread * (count / (count - 1) if count > 1 else 0.0)
            rates.append(rate)
        difference = np.abs(rates[0] - rates[1])
        rounding = 1e-12 * np.abs(rates[0])
        scaled = np.where(variance > rounding**2, difference / np.sqrt(variance), np.inf)
    return np.where(difference > rounding, scaled, 0.0)
