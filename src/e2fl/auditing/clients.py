"""How evenly clients are served, and how much spread chance alone would give."""

import math
from dataclasses import dataclass

import numpy as np

from e2fl import metrics
from e2fl.auditing.table import Measure, Numbers, Predictions, Table
from e2fl.auditing.uncertainty import holm, wilson

LISTED = 10
SPREAD = ("mean", "std", "variance", "p10", "p90", "worst10", "best10", "cvar", "gap")
SHARES = ("gini", "jain", "entropy", "atkinson", "theil")  # of a total: they need values of 0 or more
SIMULATIONS = 400
SIMULATED_CELLS = 20_000_000


@dataclass(frozen=True)
class ClientSpread:
    """The values of all clients, and the spread that equal clients would show by chance."""

    names: list[str]
    value: Numbers  # [clients]
    n: Numbers | None  # [clients], rows behind each value
    is_rate: bool
    title: str
    higher_is_better: bool
    measures: dict[str, float]
    chance: dict[str, float] | None  # p10, p90, std and p: under equal clients
    below: list[str]  # clients below the overall rate by more than chance explains
    low: Numbers | None = None
    high: Numbers | None = None

    def lowest(self) -> list[int]:
        """Return the positions of the least favourable clients."""
        sign = 1 if self.higher_is_better else -1
        return [int(place) for place in np.argsort(sign * self.value, kind="stable")[:LISTED]]


def client_values(table: Table) -> tuple[Numbers, Numbers | None] | None:
    """Return each client's value and number of rows; None without clients or without labels."""
    data = table.data
    if isinstance(data, Measure):
        weight = np.ones(len(data.value)) if data.weight is None else data.weight
        largest = weight.max()
        sums = np.bincount(data.client, weights=weight / largest)
        value = np.bincount(data.client, weights=data.value * (weight / largest)) / sums
        counts = None if data.weight is None else np.bincount(data.client, weights=data.weight).astype(np.float64)
        return value, counts
    if table.clients is None or data.client is None or data.truth is None:
        return None
    size = len(table.clients)
    n = np.bincount(data.client, weights=data.count, minlength=size).astype(np.float64)
    right = np.bincount(data.client, weights=data.count * (data.truth == data.predicted), minlength=size)
    with np.errstate(invalid="ignore"):
        return right / n, n


def client_spread(table: Table, suppress_below: int, seed: int) -> ClientSpread | None:
    """Return the spread over clients, or None where the table has none."""
    found = client_values(table)
    if found is None or len(found[0]) < 2:
        return None
    value, n = found
    names = table.clients or [f"row {place + 1}" for place in range(len(value))]
    shown = np.isfinite(value) if n is None else np.isfinite(value) & (n >= suppress_below)
    if shown.sum() < 2:
        return None
    names = [name for name, show in zip(names, shown, strict=True) if show]
    value, n = value[shown], None if n is None else n[shown]
    data = table.data
    is_rate = isinstance(data, Predictions) or data.is_rate
    low = high = None
    chance, below = None, []
    if is_rate and n is not None:
        low, high = wilson(value * n, n)
        chance = _chance(value, n, seed)
        below = _below(names, value, n)
    return ClientSpread(
        names=names,
        value=value,
        n=n,
        is_rate=is_rate,
        title="Accuracy" if is_rate else getattr(data, "name", "value"),
        higher_is_better=isinstance(data, Predictions) or data.higher_is_better,
        measures=_measures(value),
        chance=chance,
        below=below,
        low=low,
        high=high,
    )


def _measures(value: Numbers) -> dict[str, float]:
    names = SPREAD if value.min() < 0 else (*SPREAD, *SHARES)
    return {"cvar10" if name == "cvar" else name: getattr(metrics, name)(value) for name in names}


def _chance(value: Numbers, n: Numbers, seed: int) -> dict[str, float]:
    """Simulate clients that all have the overall rate, with as many rows as these."""
    share = float(np.clip((value * n).sum() / n.sum(), 0, 1))
    trials = np.maximum(1, np.rint(n)).astype(np.int64)
    rng = np.random.default_rng(seed)
    number = max(100, min(SIMULATIONS, SIMULATED_CELLS // len(n)))
    drawn = np.empty((number, 3))
    for place in range(number):
        sample = rng.binomial(trials, share) / trials
        drawn[place] = *np.percentile(sample, [10, 90]), np.std(sample)
    observed = float(np.std(value))
    exceeded = int((drawn[:, 2] >= observed * (1 - 1e-12)).sum())
    p10, p90, std = (float(each) for each in drawn.mean(axis=0))
    return {"p10": p10, "p90": p90, "std": std, "p": (1 + exceeded) / (1 + number)}


def _below(names: list[str], value: Numbers, n: Numbers) -> list[str]:
    """Return the clients whose rate is below the overall one by more than chance explains, Holm-corrected."""
    from scipy.special import bdtr

    share = float((value * n).sum() / n.sum())
    if not 0 < share < 1 or n.max() > 2**31:
        return []
    hits = np.rint(value * n)
    adjusted = holm(bdtr(hits, np.rint(n).astype(np.int64), share).tolist())
    found = [place for place, p in enumerate(adjusted) if p < 0.05 and not math.isnan(p)]
    return [names[place] for place in sorted(found, key=lambda place: float(value[place]))]
