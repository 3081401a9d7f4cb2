"""How evenly clients are served, what chance alone would give, and two tables client by client."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import bdtr

from e2fl_audit.counting import hidden_groups
from e2fl_audit.files import Numbers
from e2fl_audit.reader import Table
from e2fl_audit.settings import MIN_CLIENTS
from e2fl_audit.statistics import holm, mean_interval, wilson
from e2fl_audit.wording import noun

SIMULATIONS = 400
SIMULATED_CELLS = 20_000_000
ROUNDING = 1e-12


def client_frame(table: Table) -> pd.DataFrame | None:
    """Return each client's value and number of rows; None without clients or without labels."""
    cells = table.cells
    if table.is_measure:
        weight = cells["weight"] if "weight" in cells else pd.Series(1.0, cells.index)
        parts = pd.DataFrame({"n": weight, "hits": cells["value"] * weight})
    elif table.clients is None or "truth" not in cells:
        return None
    else:
        right = cells["truth"] == cells["predicted"]
        parts = pd.DataFrame({"n": cells["count"], "hits": cells["count"] * right})
    sums = parts.groupby(cells["client"]).sum()
    codes = sums.index.tolist()
    names = [f"row {code + 1}" for code in codes]
    if table.clients is not None:
        names = [table.clients[code] for code in codes]
    columns = {"client": names, "n": sums["n"] * 1.0, "value": sums["hits"] / sums["n"]}
    frame = pd.DataFrame(columns).rename_axis("code")
    return frame if not table.is_measure or "weight" in cells else frame.assign(n=math.nan)


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


def client_spread(table: Table, suppress_below: int, seed: int) -> ClientSpread | None:
    """Return the spread over clients, or None where the table has none."""
    frame = client_frame(table)
    if frame is not None:
        frame = frame[~(frame["n"] < suppress_below)].reset_index(drop=True)
    if frame is None or len(frame) < 2:
        return None
    value, n = frame["value"].to_numpy(), frame["n"].to_numpy()
    counted = table.is_rate and bool(np.isfinite(n).all())
    nothing = np.full(len(n), math.nan)
    frame["low"], frame["high"] = wilson(value * n, n) if counted else (nothing, nothing)
    return ClientSpread(
        table=table,
        frame=frame,
        measures=_spread(value) | ({} if value.min() < 0 else _inequality(value)),
        chance=_chance(value, n, seed) if counted else None,
        below=_below(frame) if counted else (),
    )


def _spread(value: Numbers) -> dict[str, float]:
    """Return the measures in the unit of the values; cvar10: mean of the lowest 10 %, in part."""
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
    return {name: float(measure) for name, measure in measures.items()}


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


@dataclass(frozen=True)
class Comparison:
    """The second table minus the first, over the clients that both hold."""

    first: str
    second: str
    title: str
    unit: str
    difference: float
    low: float
    high: float
    clients: int  # in both tables
    left_out: int  # clients in one table only
    better: int  # clients with a higher value in the second table
    worse: int
    groups: list[tuple[str, str, int, float, float, float]]  # grouping, group, clients, difference

    def text(self) -> str:
        """Return the sentence about the two tables."""
        pairs = noun(self.clients, "client")
        if not self.better and not self.worse:
            equal = f"{self.second} and {self.first}: {self.title} is the same number"
            return f"{equal} for each of the {pairs} in both."
        scale, form, unit = (100, ".2f", " percentage points") if self.unit else (1, ".4g", "")
        amount, low, high = (scale * value for value in (self.difference, self.low, self.high))
        known = not math.isnan(low)  # otherwise each client changes by the same amount
        span = f"95 % interval {low:{form}} to {high:{form}}" if known else "no interval"
        sure = "This may be chance."
        if self.clients < MIN_CLIENTS:
            sure = "Too few clients to judge."
        elif self.low > 0 or self.high < 0 or (not known and self.clients > MIN_CLIENTS):
            sure = "This is more than chance explains."
        if self.left_out:
            out = noun(self.left_out, "client")
            sure += f" Left out, because they are in only one of the tables: {out}."
        return (
            f"{self.second} minus {self.first}: mean {self.title} {amount:+{form}}{unit} ({span}), "
            f"paired over {pairs}; higher for {self.better:,}, lower for {self.worse:,}. {sure}"
        )


def compare(first: Table, second: Table, suppress_below: int = 0) -> Comparison | None:
    """Compare two tables; None where they do not measure the same thing of the same clients."""
    one, other = client_frame(first), client_frame(second)
    title = first.title.casefold()
    named = first.clients is not None and second.clients is not None
    if one is None or other is None or not named or title != second.title.casefold():
        return None
    pairs = one.reset_index().merge(other, on="client")
    if len(pairs) < 2:
        return None
    change = (pairs["value_y"] - pairs["value_x"]).to_numpy(copy=True)
    change[np.abs(change) <= ROUNDING * pairs["value_x"].abs()] = 0.0  # means of equal values
    low, high = mean_interval(change)
    return Comparison(
        first=first.name,
        second=second.name,
        title=title,
        unit=first.unit,
        difference=float(change.mean()),
        low=low,
        high=high,
        clients=len(pairs),
        left_out=len(one) + len(other) - 2 * len(pairs),
        better=int((change > 0).sum()),
        worse=int((change < 0).sum()),
        groups=_by_group(first, pd.Series(change, pairs["code"]), suppress_below),
    )


def _by_group(
    table: Table, change: "pd.Series[float]", suppress_below: int
) -> list[tuple[str, str, int, float, float, float]]:
    """Return the paired difference of each group, where every client has one group."""
    rows = []
    hidden_of = hidden_groups(table, suppress_below)
    for grouping, hidden in zip(table.groupings, hidden_of, strict=True):
        of_client = table.cells.groupby("client")[grouping.column]
        if (of_client.nunique() > 1).any():
            continue
        group = of_client.first().reindex(change.index).to_numpy()
        for code, name in enumerate(grouping.groups):
            values = change.to_numpy()[group == code]
            if len(values) >= max(1, suppress_below) and code not in hidden.rows:
                ends = mean_interval(values)
                rows.append((grouping.name, name, len(values), float(values.mean()), *ends))
    return rows
