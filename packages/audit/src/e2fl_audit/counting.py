"""Rates as quotients of counts, the counts of each group and client, and which stay hidden."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from e2fl_audit.files import Numbers, natural
from e2fl_audit.reader import Grouping, Table

N, CORRECT, POSITIVES, NEGATIVES, SELECTED, TRUE_POSITIVES, FALSE_POSITIVES, LABELS = range(8)
DRAWN_CELLS = 20_000_000  # bounds the memory of the bootstrap
FOUR_FIFTHS = 0.8
JUDGED, SUPPRESSED, UNDER_SHARE = "judged", "suppressed", "under 2 %"
NUMBERS = ["n", "clients", "base", "hits", "value", "low", "high", "client_mean"]
NUMBERS += ["difference", "difference_low", "difference_high", "ratio", "ratio_low", "ratio_high"]
NUMBERS += ["p", "p_holm"]
BOUNDS = ["difference_low", "difference_high", "ratio_low", "ratio_high"]
FIELDS = ["group", *NUMBERS, "status", "judged", "below_four_fifths"]


@dataclass(frozen=True)
class Rate:
    """A quotient of two counts, or a measure of clients."""

    key: str
    title: str
    hits: int  # the column that is counted
    base: int  # the column that it is a share of
    better: int  # 1: higher is better; -1: lower is better; 0: neither
    four_fifths: bool = False
    label: str = ""  # of a recall: the class

    @property
    def name(self) -> str:
        """The name of its column in a frame."""
        return self.title if self.key == "measure" else self.key


SELECTION = Rate("selection_rate", "Selection rate", SELECTED, N, 0, True)
ACCURACY = Rate("accuracy", "Accuracy", CORRECT, N, 1)
BINARY = [
    ACCURACY,
    Rate("true_positive_rate", "True positive rate", TRUE_POSITIVES, POSITIVES, 1, True),
    Rate("false_positive_rate", "False positive rate", FALSE_POSITIVES, NEGATIVES, -1),
    Rate("predictive_value", "Positive predictive value", TRUE_POSITIVES, SELECTED, 1),
    SELECTION,
]


def rates_of(table: Table) -> list[Rate]:
    """Return the rates that a table of predictions allows."""
    if "truth" not in table.cells:
        return [SELECTION]
    if table.positive is not None:
        return BINARY
    right = LABELS + len(table.labels)
    recalls = [
        Rate(f"recall: {label}", f"Recall of {label}", right + code, LABELS + code, 1, label=label)
        for code, label in sorted(enumerate(table.labels), key=lambda pair: natural(pair[1]))
    ]
    return [ACCURACY, *recalls]


@dataclass
class RateTable:
    """One rate of all groups of a grouping. Rates are fractions; a measure is in its own unit."""

    rate: Rate
    grouping: Grouping
    # A row per group. n: rows, or clients in a table of clients; base: the rows a rate is a share
    # of; status: judged, or why not.
    frame: pd.DataFrame
    overall: float  # the rate of all rows together
    reference: str | None = None
    turned: tuple[int, int] | None = None  # clients inside which the difference turns, of so many

    def __post_init__(self) -> None:
        self.unit = "" if self.rate.key == "measure" else "%"
        self.rows: list[Any] = list(self.frame.itertuples(index=False, name="GroupRate"))
        self.judged = [row for row in self.rows if row.judged]
        several, sign = len(self.judged) > 1, -1 if self.rate.better < 0 else 1
        ends: tuple[Callable[..., Any], ...] = (min, max)
        low, best = (
            end(self.judged, key=lambda row: sign * row.value, default=None) for end in ends
        )
        self.extremes = (low, best) if several else None  # the least and most favourable
        self.gap = abs(best.value - low.value) if several else math.nan
        # Whether the values differ at all, beyond rounding.
        self.apart = self.gap > 1e-12 * max((abs(row.value) for row in self.judged), default=1.0)
        self.lowest_p = float(self.frame["p_holm"].min())
        self.significant = self.lowest_p < 0.05
        # Whether the least favourable group differs from the rest by more than chance explains.
        self.low_differs = self.apart and low.p_holm < 0.05
        # The largest difference from the reference that the intervals allow.
        reach = self.frame.loc[self.frame["judged"], ["difference_low", "difference_high"]]
        self.reach = float(reach.abs().max().max())
        self.below = int(self.frame["below_four_fifths"].sum())  # groups below four fifths
        self.is_measure = self.rate.hits == self.rate.base  # its rows are clients
        # Whether it says how often a label is found.
        self.finds = bool(self.rate.label) or self.rate.key == "true_positive_rate"

    def names(self, status: str) -> list[str]:
        """Return the groups with this status."""
        return [row.group for row in self.rows if row.status == status]


@dataclass(frozen=True)
class Counts:
    """How often each column was counted, for each group and each client in it."""

    matrix: csr_array  # [clients, groups * columns]; one row where there are no clients
    groups: int
    named: bool  # whether the rows are clients

    def shaped(self, values: NDArray[Any]) -> Numbers:
        return np.asarray(values, np.float64).reshape(self.groups, -1)

    @property
    def total(self) -> Numbers:
        """The counts of each group: [groups, columns]."""
        return self.shaped(self.matrix.sum(axis=0))

    @property
    def clients(self) -> Numbers:
        """How many clients of each group have rows in each column: [groups, columns]."""
        return self.shaped(np.bincount(self.matrix.indices, minlength=self.matrix.shape[1]))

    def of(self, column: int) -> csr_array:
        """Return the counts of one column: [clients, groups]."""
        return self.matrix[:, column :: self.matrix.shape[1] // self.groups]

    def client_means(self, rate: Rate) -> Numbers:
        """Return for each group the mean over its clients of the rate of each."""
        if not self.named:
            return np.full(self.groups, np.nan)
        base = self.of(rate.base)
        inverse = base.copy()
        inverse.data = 1 / inverse.data
        sums = self.of(rate.hits).multiply(inverse).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(sums / np.bincount(base.indices, minlength=self.groups))

    def resampled(self, resamples: int, seed: int) -> Numbers:
        """Return the counts in resamples of the clients: [resamples, groups, columns]."""
        rng = np.random.default_rng(seed)
        size, width = self.matrix.shape
        draws = max(50, min(resamples, DRAWN_CELLS // max(1, width)))
        picks = (np.bincount(rng.integers(0, size, size), minlength=size) for _ in range(draws))
        drawn = np.stack([picked @ self.matrix for picked in picks])
        return drawn.reshape(draws, self.groups, -1)


def count(table: Table, grouping: Grouping, clients: int | None) -> Counts:
    """Count every column of the rates for each group and client."""
    cells, columns, groups = table.cells, _columns(table), len(grouping.groups)
    client = cells["client"].to_numpy() if clients is not None else 0
    row = client * groups + cells[grouping.column].to_numpy()
    weights = cells["count"].to_numpy(np.float64), (row, np.arange(len(cells)))
    sums = csr_array(weights, shape=((clients or 1) * groups, len(cells))) @ columns
    matrix = csr_array(sums.reshape(clients or 1, groups * columns.shape[1]))
    return Counts(matrix, groups, clients is not None)


def _columns(table: Table) -> csr_array:
    """Return in which columns each cell is counted: 0 or 1, [cells, columns]."""
    cells, every = table.cells, np.ones(len(table.cells), np.bool_)
    labelled, selected = "truth" in cells, cells["predicted"].to_numpy() == table.positive
    truth = cells["truth" if labelled else "predicted"].to_numpy()
    real, right = truth == table.positive, truth == cells["predicted"].to_numpy()
    flags = [every, right, real, ~real, selected, real & selected, ~real & selected]
    columns = csr_array(np.stack(flags, axis=1).astype(np.float64))
    if table.positive is not None or not labelled:
        return columns
    cell, shape = np.arange(len(cells)), (len(cells), len(table.labels))
    of_label = [csr_array((one * 1.0, (cell, truth)), shape=shape) for one in (every, right)]
    return csr_array(hstack([columns, *of_label]))


def hide_small(table: Table, below: int) -> Table:
    """Return the table whose groupings say which groups are hidden.

    Cells add up to the groups of each attribute, so a hidden group could be computed from them: the
    crossed grouping is then left out.
    """
    if below <= 0:
        return table
    groupings = [_hiding(table, grouping, below) for grouping in table.groupings]
    crossed = [grouping.name for grouping in groupings if grouping.crossed]
    if not crossed or not any(grouping.hidden_parts for grouping in groupings):
        return replace(table, groupings=groupings)
    single = [grouping for grouping in groupings if not grouping.crossed]
    told = f"Groups by {crossed[0]} are not shown: small groups could be computed from them."
    return replace(table, groupings=single, cautions=[*table.cautions, told])


def _hiding(table: Table, grouping: Grouping, below: int) -> Grouping:
    """Return the grouping, with its small groups hidden.

    Rows with the label and those without make up a group, so all rates over parts of its rows are
    hidden together.
    """
    if table.is_measure:
        counted = np.bincount(table.cells[grouping.column], minlength=len(grouping.groups))
        sizes = counted.astype(np.float64)[:, None]
    else:
        columns = [N, *(rate.base for rate in rates_of(table))]
        sizes = count(table, grouping, None).total[:, columns]
    rows = smallest(sizes[:, 0], below)
    least = np.where(sizes > 0, sizes, np.inf).min(axis=1)
    return replace(grouping, hidden=rows, hidden_parts=rows | smallest(least, below))


def smallest(size: Numbers, below: int) -> frozenset[int]:
    """Return the positions of what is below a size and, if that is one, of the next smallest.

    One that is hidden alone is the total less all others.
    """
    few = int((size < below).sum())
    return frozenset(np.argsort(size, kind="stable")[: max(2, few)].tolist() if few else ())
