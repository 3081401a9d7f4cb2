"""The spread that chance alone gives: clients that are all served alike, tested on few rows.

Every client gets its own number of test rows and the same true accuracy, the mean over clients.
What its test set shows then varies by chance alone, and so do the spreads over clients and groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from e2fl.metrics.accuracy import combined
from e2fl.metrics.arrays import Labels, Numbers, codes, finite
from e2fl.metrics.intervals import row_worst10

DRAWS = 1000
CELLS = 20_000_000  # draws times rows, which bounds the memory
FEW_ROWS = 50  # with a lower median of test rows, spreads over clients are mostly chance
TAIL = 5.0  # percent of the draws beyond the limit


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
    sizes = np.maximum(1, np.round(finite(n, "n"))).astype(np.int64)
    rate = float(np.mean(combined(finite(accuracy, "accuracy"), client, sizes))) / 100
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
        spreads |= {f"{level}/worst10": row_worst10(rows), f"{level}/best10": -row_worst10(-rows)}
    return spreads


def chance(draws: Mapping[str, Numbers]) -> dict[str, Chance]:
    """Return what chance gives for every spread, by its path."""
    expected = {}
    for key, values in draws.items():
        lower = key.endswith("/worst10")
        limit = float(np.percentile(values, TAIL if lower else 100 - TAIL))
        expected[key] = Chance(float(np.mean(values)), limit, lower)
    return expected


def _summed(rows: NDArray[Any], column_codes: NDArray[np.int64]) -> Numbers:
    """Return the sums of the columns with the same code, for each row."""
    order = np.argsort(column_codes, kind="stable")
    starts = np.flatnonzero(np.diff(column_codes[order], prepend=-1))
    sums: Numbers = np.add.reduceat(rows[:, order], starts, axis=1)
    return sums
