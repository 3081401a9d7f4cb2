"""How evenly clients are served, and how much spread chance alone would give."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr

from e2fl_audit.files import Numbers
from e2fl_audit.statistics import holm, wilson
from e2fl_audit.table import Measure, Table

LISTED = 10
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
    chance: dict[str, float] | None = None  # the same measures under equal clients, and p
    below: tuple[str, ...] = ()  # clients below the overall rate by more than chance explains
    low: Numbers | None = None
    high: Numbers | None = None

    def lowest(self) -> list[int]:
        """Return the positions of the least favourable clients."""
        sign = 1 if self.higher_is_better else -1
        return [int(place) for place in np.argsort(sign * self.value, kind="stable")[:LISTED]]


def client_values(table: Table) -> tuple[Numbers, Numbers | None] | None:
    """Return each client's value and number of rows; None without clients or without labels."""
    cells = table.data.cells
    if isinstance(table.data, Measure):
        weight = cells["weight"].to_numpy() if "weight" in cells else np.ones(len(cells))
        sums = np.bincount(cells["client"], weight / weight.max())
        value = np.bincount(cells["client"], cells["value"] * (weight / weight.max())) / sums
        n = np.bincount(cells["client"], weight).astype(np.float64)
        return value, n if "weight" in cells else None
    if table.clients is None or "truth" not in cells:
        return None
    right = cells["count"] * (cells["truth"] == cells["predicted"])
    n = np.bincount(cells["client"], cells["count"], len(table.clients)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.bincount(cells["client"], right, len(table.clients)) / n, n


def client_spread(table: Table, suppress_below: int, seed: int) -> ClientSpread | None:
    """Return the spread over clients, or None where the table has none."""
    values = client_values(table)
    if values is None or len(values[0]) < 2:
        return None
    value, n = values
    shown = np.isfinite(value) if n is None else np.isfinite(value) & (n >= suppress_below)
    if shown.sum() < 2:
        return None
    every = table.clients or [f"row {place + 1}" for place in range(len(value))]
    names = [name for name, show in zip(every, shown, strict=True) if show]
    value, n = value[shown], None if n is None else n[shown]
    data = table.data
    is_rate = not isinstance(data, Measure) or data.is_rate
    low, high = wilson(value * n, n) if is_rate and n is not None else (None, None)
    return ClientSpread(
        names=names,
        value=value,
        n=n,
        is_rate=is_rate,
        title=data.name if isinstance(data, Measure) and not is_rate else "Accuracy",
        higher_is_better=not isinstance(data, Measure) or data.higher_is_better,
        measures=_spread(value) | ({} if value.min() < 0 else _inequality(value)),
        chance=_chance(value, n, seed) if is_rate and n is not None else None,
        below=_below(names, value, n) if is_rate and n is not None else (),
        low=low,
        high=high,
    )


def _spread(value: Numbers) -> dict[str, float]:
    """Return the measures in the unit of the values. cvar10: the mean of the lowest 10 %, in part."""
    ordered = np.sort(value)
    tenth, amount = max(1, len(value) // 10), 0.1 * len(value)
    weights = np.clip(amount - np.arange(len(value)), 0.0, 1.0)
    p10, p90 = np.percentile(ordered, [10, 90])
    measures = {
        "mean": np.mean(value),
        "std": np.std(value),
        "variance": np.var(value),
        "p10": p10,
        "p90": p90,
        "worst10": np.mean(ordered[:tenth]),
        "best10": np.mean(ordered[-tenth:]),
        "cvar10": ordered @ weights / amount,
        "gap": np.ptp(value),
    }
    return {name: float(number) for name, number in measures.items()}


def _inequality(value: Numbers) -> dict[str, float]:
    """Return the measures of shares of a total; they need values of 0 or more."""
    total, count, average = value.sum(), len(value), value.mean()
    if total == 0:
        return {"gini": 0.0, "jain": 1.0, "entropy": 1.0, "atkinson": 0.0, "theil": 0.0}
    ranks = 2 * np.arange(1, count + 1) - count - 1
    shares, relative = value[value > 0] / total, value[value > 0] / average
    measures = {
        "gini": ranks @ np.sort(value) / (count * total),
        "jain": total**2 / (count * (value @ value)),
        "entropy": -(shares @ np.log(shares)) / math.log(count),
        "atkinson": 1.0 if value.min() == 0 else 1 - math.exp(np.log(value).mean()) / average,
        "theil": (relative * np.log(relative)).sum() / count,
    }
    return {name: float(number) for name, number in measures.items()}


def _chance(value: Numbers, n: Numbers, seed: int) -> dict[str, float]:
    """Simulate clients that all have the overall rate, with as many rows as these."""
    share = float(np.clip((value * n).sum() / n.sum(), 0, 1))
    trials = np.maximum(1, np.rint(n)).astype(np.int64)
    rng = np.random.default_rng(seed)
    number = max(100, min(SIMULATIONS, SIMULATED_CELLS // len(n)))
    drawn = [_spread(rng.binomial(trials, share) / trials) for _ in range(number)]
    std = np.array([measures["std"] for measures in drawn])
    exceeded = int((std >= float(np.std(value)) * (1 - 1e-12)).sum())
    chance = {key: float(np.mean([measures[key] for measures in drawn])) for key in drawn[0]}
    return chance | {"p": (1 + exceeded) / (1 + number)}


def _below(names: list[str], value: Numbers, n: Numbers) -> tuple[str, ...]:
    """Return the clients below the overall rate by more than chance explains, Holm-corrected."""
    share = float((value * n).sum() / n.sum())
    if not 0 < share < 1 or n.max() > 2**31:
        return ()
    adjusted = holm(bdtr(np.rint(value * n), np.rint(n).astype(np.int64), share).tolist())
    below = np.flatnonzero(adjusted < 0.05)
    return tuple(names[place] for place in sorted(below, key=lambda place: float(value[place])))
