"""How evenly clients are served, and what chance alone would give."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import bdtr

from e2fl_audit.counting import smallest
from e2fl_audit.files import Numbers
from e2fl_audit.reader import Table
from e2fl_audit.settings import Settings
from e2fl_audit.statistics import holm, wilson

SIMULATIONS = 400
SIMULATED_CELLS = 20_000_000


def client_frame(table: Table) -> pd.DataFrame | None:
    """Return each client's value and number of rows; None without clients or without labels."""
    cells = table.cells
    if table.clients is None or not (table.is_measure or "truth" in cells):
        return None
    value = cells["value"] if table.is_measure else cells["truth"] == cells["predicted"]
    counted = "weight" if table.is_measure else "count"
    n = cells[counted] * 1.0 if counted in cells else pd.Series(1.0, cells.index)
    sums = pd.DataFrame({"n": n, "hits": value * n}).groupby(cells["client"]).sum()
    names = [table.clients[code] for code in sums.index]
    known = sums["n"] if counted in cells else math.nan
    return pd.DataFrame({"client": names, "n": known, "value": sums["hits"] / sums["n"]})


@dataclass(frozen=True)
class ClientSpread:
    """The values of all clients, and the spread that equal clients would show by chance."""

    table: Table
    frame: pd.DataFrame  # client, n, value, low, high
    measures: dict[str, float]
    chance: dict[str, float] | None = None  # the same measures under equal clients, and p
    below: tuple[str, ...] = ()  # clients below the overall rate by more than chance explains

    @property
    def title(self) -> str:
        """The name of the measure inside a sentence."""
        return self.table.title.lower() if self.table.is_rate else self.table.title

    def lowest(self) -> pd.DataFrame:
        """Return the ten least favourable clients."""
        up = self.table.higher_is_better
        return self.frame.sort_values("value", ascending=up, kind="stable").head(10)


def client_spread(table: Table, settings: Settings) -> ClientSpread | None:
    """Return the spread over clients, or None where the table has none.

    A small client is not hidden alone: it would be the total less all others.
    """
    frame = client_frame(table)
    if frame is not None:
        hidden = list(smallest(frame["n"].to_numpy(), settings.suppress_below))
        frame = frame.drop(frame.index[hidden]).reset_index(drop=True)
    if frame is None or len(frame) < 2:
        return None
    value, n = frame["value"].to_numpy(), frame["n"].to_numpy()
    counted = table.is_rate and bool(np.isfinite(n).all())
    nothing = np.full(len(n), math.nan)
    frame["low"], frame["high"] = wilson(value * n, n) if counted else (nothing, nothing)
    return ClientSpread(
        table=table,
        frame=frame,
        measures=_spread(value),
        chance=_chance(value, n, settings.seed) if counted else None,
        below=_below(frame) if counted else (),
    )


def _spread(value: Numbers) -> dict[str, float]:
    """Return the measures in the unit of the values."""
    ordered, tenth = np.sort(value), max(1, len(value) // 10)
    p10, p90 = np.percentile(ordered, [10, 90])
    measures = {
        "mean": np.mean(value),
        "std": np.std(value),
        "variance": np.var(value),
        "p10": p10,
        "p90": p90,
        "worst10": np.mean(ordered[:tenth]),
        "best10": np.mean(ordered[-tenth:]),
        "gap": np.ptp(value),
    }
    if value.min() >= 0:  # they are of shares of a total
        count, total = len(value), value.sum() or 1.0
        ranks = 2 * np.arange(1, count + 1) - count - 1
        measures["gini"] = ranks @ ordered / (count * total)
        measures["jain"] = total**2 / (count * (value @ value)) if value.any() else 1.0
    return {name: float(measure) for name, measure in measures.items()}


def _chance(value: Numbers, n: Numbers, seed: int) -> dict[str, float]:
    """Simulate clients that all have the overall rate, with as many rows as these."""
    share = float(np.clip((value * n).sum() / n.sum(), 0, 1))
    trials = np.maximum(1, np.rint(n)).astype(np.int64)
    rng = np.random.default_rng(seed)
    draws = max(100, min(SIMULATIONS, SIMULATED_CELLS // len(n)))
    drawn = pd.DataFrame(_spread(rng.binomial(trials, share) / trials) for _ in range(draws))
    exceeded = int((drawn["std"] >= float(np.std(value)) * (1 - 1e-12)).sum())
    chance = {str(key): float(mean) for key, mean in drawn.mean().items()}
    return chance | {"p": (1 + exceeded) / (1 + draws)}


def _below(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the clients below the overall rate by more than chance explains, Holm-corrected."""
    hits, n = (frame["value"] * frame["n"]).to_numpy(), frame["n"].to_numpy()
    share = hits.sum() / n.sum()
    if not 0 < share < 1 or n.max() > 2**31:
        return ()
    below = holm(bdtr(np.rint(hits), np.rint(n).astype(np.int64), share)) < 0.05
    return tuple(frame[below].sort_values("value", kind="stable")["client"])
