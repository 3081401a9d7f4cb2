"""The uncertainty of a value, and the spread that chance alone gives.

Intervals are Student's t over seeds and bootstraps over clients. For chance, every client gets its
own number of test rows and the same true accuracy, the mean over clients: what its test set shows
then varies by chance alone, and so do the spreads over clients and groups.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, stdtrit

from e2fl.metrics.accuracy import Labels, Positions, codes, combined
from e2fl.metrics.inequality import Numbers, numbers, tenth

Statistic = Callable[[Numbers], Numbers]  # of each resample: [..., clients] -> [...]

LEVEL = 0.95
RESAMPLES = 2000
FEW = 5  # with fewer clients than this, an interval over clients means nothing
BLOCK = 4_000_000  # values that are drawn at a time, which bounds the memory
DRAWS = 1000
CELLS = 20_000_000  # draws times rows, which bounds the memory
FEW_ROWS = 50  # with a lower median of test rows, spreads over clients are mostly chance
TAIL = 5.0  # percent of the draws beyond the limit


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval, whose ends are None where no interval can be given."""

    value: float
    low: float | None = None
    high: float | None = None
    count: int = 0  # of seeds, or of clients
    over: str = "seeds"

    @property
    def half(self) -> float | None:
        """Half the width of the interval; None if there is none."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def may_be_chance(self) -> bool | None:
        """Whether 0 lies inside the interval; None if there is no interval."""
        return None if self.low is None or self.high is None else self.low <= 0 <= self.high


def over_seeds(values: Sequence[float]) -> Interval:
    """Return the mean of values from different seeds, with its Student's t interval."""
    average, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(average, count=count)
    half = t_quantile(count - 1) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(average, average - half, average + half, count)


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Interval | None:
    """Return first minus second, seed by seed; None if they share no seed."""
    shared = sorted(first.keys() & second.keys())
    return over_seeds([first[seed] - second[seed] for seed in shared]) if shared else None


def row_means(rows: Numbers) -> Numbers:
    """Return the mean of each resample."""
    means: Numbers = rows.mean(axis=-1)
    return means


def row_worst10(rows: Numbers) -> Numbers:
    """Return the mean of the lowest tenth of each resample, as `worst10` does."""
    count = tenth(rows.shape[-1])
    return row_means(np.partition(rows, count - 1, axis=-1)[..., :count])


def over_clients(strata: Sequence[Numbers], statistic: Statistic = row_means) -> Interval:
    """Return a statistic, summed over strata, with its bootstrap interval over clients.

    Clients are resampled within each stratum. The percentiles are widened for few clients as much
    as Student's t is (the expanded percentile interval). There is no interval with fewer than `FEW`
    clients in a stratum, nor where a stratum's clients are all alike: clients that share a model
    and a test set would give an interval of width 0, which is not certainty.
    """
    from scipy.stats import bootstrap  # slow to import

    value = sum(float(statistic(stratum)) for stratum in strata)
    count = min(len(stratum) for stratum in strata)
    if count < FEW or any(np.ptp(stratum) == 0 for stratum in strata):
        return Interval(value, None, None, count, "clients")

    def summed(*drawn: Numbers, axis: int) -> Numbers:
        sums: Numbers = np.sum([statistic(rows) for rows in drawn], axis=0)
        return sums

    draws = bootstrap(
        tuple(strata),
        summed,
        n_resamples=RESAMPLES,
        batch=min(RESAMPLES, max(1, BLOCK // max(map(len, strata)))),
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),  # the same page for the same runs
    ).bootstrap_distribution
    tail = float(ndtr(-math.sqrt(count / (count - 1)) * t_quantile(count - 1)))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(value, float(low), float(high), count, "clients")


def t_quantile(freedom: float) -> float:
    """Return the two-sided 95 % quantile of Student's t."""
    return float(stdtrit(freedom, (1 + LEVEL) / 2))


@dataclass(frozen=True)
class Chance:
    """The spread that chance gives: its mean over draws, and the limit that 95 % of them keep."""

    value: float
    limit: float
    lower: bool  # the limit is a lower one, as for the worst tenth

    def explains(self, observed: float) -> bool:
        """Return whether an observed spread is one that chance alone gives."""
        return observed >= self.limit if self.lower else observed <= self.limit


def chance_draws(
    accuracy: ArrayLike, n: ArrayLike, client: Labels, group: Labels | None = None, *, seed: int = 0
) -> dict[str, Numbers]:
    """Return draws of every spread, such as clients/variance, by its path: [draws].

    accuracy: [rows], in percent; n: [rows], test rows; a row is a client, or its part in a group.
    """
    sizes = np.maximum(1, np.round(numbers(n, "n"))).astype(np.int64)
    rate = float(np.mean(combined(numbers(accuracy, "accuracy"), client, sizes))) / 100
    draws = int(min(DRAWS, max(100, CELLS // len(sizes))))
    rng = np.random.default_rng(seed)
    right = rng.binomial(sizes, min(1.0, max(0.0, rate)), (draws, len(sizes)))
    _, clients = codes(client, "client")
    levels = {"clients": _summed(right, clients) / np.bincount(clients, weights=sizes)}
    if group is not None:
        _, groups = codes(group, "group")
        levels["group"] = _summed(right / sizes, groups) / np.bincount(groups)
    spreads: dict[str, Numbers] = {}
    for level, shares in levels.items():
        rows = 100 * shares
        variance = np.var(rows, axis=1)
        spreads |= {f"{level}/variance": variance, f"{level}/std": np.sqrt(variance)}
        spreads |= {f"{level}/gap": np.ptp(rows, axis=1)}
        spreads |= {f"{level}/worst10": row_worst10(rows), f"{level}/best10": -row_worst10(-rows)}
    return spreads


def chance(draws: Mapping[str, Numbers]) -> dict[str, Chance]:
    """Return what chance gives for every spread, by its path; level/tenths is best10 minus worst10.

    The worst and the tenths are two tests of one question: together, 5 % of the draws are beyond.
    """
    expected = {}
    for level in dict.fromkeys(key.partition("/")[0] for key in draws):
        values = {key: draws[key] for key in draws if key.startswith(f"{level}/")}
        worst, tenths = f"{level}/worst10", f"{level}/tenths"
        values[tenths] = draws[f"{level}/best10"] - draws[worst]
        lows = (values[worst], -values[tenths])
        ranks = [np.searchsorted(np.sort(low), low, side="right") / len(low) for low in lows]
        both = 100 * float(np.percentile(np.minimum(*ranks), TAIL))
        for key, drawn in values.items():
            tail = both if key in (worst, tenths) else TAIL
            limit = float(np.percentile(drawn, tail if key == worst else 100 - tail))
            expected[key] = Chance(float(np.mean(drawn)), limit, key == worst)
    return expected


def _summed(rows: NDArray[Any], column_codes: Positions) -> Numbers:
    """Return the sums of the columns with the same code, for each row."""
    order = np.argsort(column_codes, kind="stable")
    starts = np.flatnonzero(np.diff(column_codes[order], prepend=-1))
    sums: Numbers = np.add.reduceat(rows[:, order], starts, axis=1)
    return sums
