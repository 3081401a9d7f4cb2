"""How evenly clients are served, what chance alone would give, and two tables client by client."""

import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.special import bdtr

from e2fl_audit.counting import hidden_groups
from e2fl_audit.files import Numbers
from e2fl_audit.reader import Table
from e2fl_audit.settings import MIN_CLIENTS
from e2fl_audit.statistics import holm, mean_half, mean_interval, wilson
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


@dataclass
class Comparison:
    """The second table minus the first, over the clients that both hold."""

    first: str
    second: str
    title: str
    is_rate: bool
    difference: float
    low: float
    high: float
    sizes: tuple[int, int]  # clients of each table that are compared
    paired: bool = False
    left_out: int = 0  # clients in one table only
    better: int = 0  # clients with a higher value in the second table
    worse: int = 0
    # grouping, group, clients, difference, low, high
    groups: list[tuple[str, str, int, float, float, float]] = field(default_factory=list)
    note: str = ""

    def text(self) -> str:
        """Return the sentence about the two tables."""
        pairs = noun(self.sizes[0], "client")
        if self.paired and not self.better and not self.worse:
            equal = f"{self.second} and {self.first}: {self.title} is the same number"
            return f"{equal} for each of the {pairs} in both."
        scale, form = (100, ".2f") if self.is_rate else (1, ".4g")
        amount, low, high = (scale * value for value in (self.difference, self.low, self.high))
        known = not math.isnan(low)
        span = f"95 % interval {low:{form}} to {high:{form}}" if known else "no interval"
        unit = " percentage points" if self.is_rate else ""
        change = f"mean {self.title} {amount:+{form}}{unit} ({span})"
        text = f"{self.second} minus {self.first}: {change}"
        if self.paired:
            text += f", paired over {pairs}; higher for {self.better:,}, lower for {self.worse:,}"
        same = self.paired and not known  # each client changes by the same amount
        if min(self.sizes) < MIN_CLIENTS:
            text += ". Too few clients to judge."
        elif self.low > 0 or self.high < 0 or (same and self.sizes[0] > MIN_CLIENTS):
            text += ". This is more than chance explains."
        else:
            text += ". This may be chance."
        if self.paired and self.left_out:
            count = noun(self.left_out, "client")
            text += f" Left out, because they are in only one of the tables: {count}."
        return f"{text} {self.note}".strip()


def compare(first: Table, second: Table, suppress_below: int = 0) -> Comparison | None:
    """Compare two tables; None where they do not measure the same thing of clients."""
    frames = client_frame(first), client_frame(second)
    titles = first.title.casefold(), second.title.casefold()
    if frames[0] is None or frames[1] is None or titles[0] != titles[1]:
        return None
    about = first.name, second.name, titles[0], first.is_rate
    named = first.clients is not None and second.clients is not None
    pairs = frames[0].reset_index().merge(frames[1], on="client", how="outer")
    left_out = int((pairs["value_x"].isna() | pairs["value_y"].isna()).sum())
    pairs = pairs.dropna(subset=["value_x", "value_y"])
    if named and len(pairs) > 1:
        change = (pairs["value_y"] - pairs["value_x"]).to_numpy(copy=True)
        change[np.abs(change) <= ROUNDING * pairs["value_x"].abs()] = 0.0  # means of equal values
        ends, sizes = mean_interval(change), (len(pairs), len(pairs))
        result = Comparison(*about, float(change.mean()), *ends, sizes, paired=True)
        result.left_out = left_out
        result.better, result.worse = int((change > 0).sum()), int((change < 0).sum())
        result.groups = _by_group(
            first, pd.Series(change, pairs["code"].astype(int)), suppress_below
        )
        return result
    one, other = (frame["value"].to_numpy() for frame in frames if frame is not None)
    difference, half = float(other.mean() - one.mean()), mean_half(one, other)
    ends, sizes = (difference - half, difference + half), (len(one), len(other))
    result = Comparison(*about, difference, *ends, sizes)
    why = "The tables share fewer than two clients" if named else "The tables name no clients"
    result.note = f"{why}, so they are compared as independent samples."
    return result


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
