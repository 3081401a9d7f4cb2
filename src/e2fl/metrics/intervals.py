"""The uncertainty of a value, and the spread that chance alone gives.

Intervals are Student's t, over seeds or over clients. For chance, every client gets its own number
of test rows and the same true accuracy, the mean over clients: what its test set shows then varies
by chance alone, and so do the spreads over clients and groups. Clients that share both model and
test rows are one draw.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from e2fl.metrics.accuracy import Labels, Numbers, Positions, codes, combined, numbers, tenth

LEVEL = 0.95
MIN_CLIENTS = 5  # for an interval over clients
DRAWS = 1000
MAX_DRAWN_VALUES = 20_000_000  # draws times clients, which bounds the memory
MIN_TEST_ROWS = 50  # with a lower median of test rows, spreads over clients are mostly chance


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval, whose ends are None where no interval can be given."""

    value: float
    low: float | None = None
    high: float | None = None
    count: int = 0  # of seeds, or of clients

    @property
    def half(self) -> float | None:
        """Half the width of the interval; None if there is none."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def may_be_chance(self) -> bool | None:
        """Whether 0 lies inside the interval; None if there is no interval."""
        return None if self.low is None or self.high is None else self.low <= 0 <= self.high


def over_seeds(values: Sequence[float] | Numbers) -> Interval:
    """Return the mean of values from different seeds, with its Student's t interval."""
    average, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(average, count=count)
    quantile = float(stdtrit(count - 1, (1 + LEVEL) / 2))
    half = quantile * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(average, average - half, average + half, count)


def over_clients(values: Numbers) -> Interval:
    """Return the mean of values of different clients, with its Student's t interval.

    There is none with fewer than `MIN_CLIENTS` clients, nor where all are alike: clients that share
    a model and a test set would give an interval of width 0, which is not certainty.
    """
    judged = len(values) >= MIN_CLIENTS and np.ptp(values) > 0
    return over_seeds(values) if judged else Interval(float(np.mean(values)), count=len(values))


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Interval | None:
    """Return first minus second, seed by seed; None if they share no seed."""
    shared = sorted(first.keys() & second.keys())
    return over_seeds([first[seed] - second[seed] for seed in shared]) if shared else None


def chance_draws(
    accuracy: ArrayLike,
    n: ArrayLike,
    client: Labels,
    group: Labels | None = None,
    *,
    test: Positions | None = None,
    seed: int = 0,
) -> dict[str, Numbers]:
    """Return draws of every spread, such as clients/variance, by its path: [draws].

    accuracy: [rows], in percent; n: [rows], test rows; a row is a client, or its part in a group.
    test: [rows], the same number where clients share model and test rows, which are drawn once.
    """
    sizes = np.maximum(1, np.round(numbers(n, "n"))).astype(np.int64)
    rate = float(np.mean(combined(numbers(accuracy, "accuracy"), client, sizes))) / 100
    draws = int(min(DRAWS, max(100, MAX_DRAWN_VALUES // len(sizes))))
    rng = np.random.default_rng(seed)
    test_sets = np.arange(len(sizes)) if test is None else test
    _, first, shared = np.unique(test_sets, return_index=True, return_inverse=True)
    drawn = rng.binomial(sizes[first], min(1.0, max(0.0, rate)), (draws, len(first)))
    right = drawn[:, shared]
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
        spreads |= {f"{level}/worst10": _lowest(rows), f"{level}/best10": -_lowest(-rows)}
    return spreads


def _lowest(rows: Numbers) -> Numbers:
    """Return the mean of the lowest tenth of each row."""
    count = tenth(rows.shape[1])
    means: Numbers = np.partition(rows, count - 1, axis=1)[:, :count].mean(axis=1)
    return means


def _summed(rows: NDArray[Any], column_codes: Positions) -> Numbers:
    """Return the sums of the columns with the same code, for each row."""
    order = np.argsort(column_codes, kind="stable")
    starts = np.flatnonzero(np.diff(column_codes[order], prepend=-1))
    sums: Numbers = np.add.reduceat(rows[:, order], starts, axis=1)
    return sums
