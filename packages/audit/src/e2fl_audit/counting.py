"""Rates as quotients of counts, and the counts of each group and client."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from e2fl_audit.files import Codes, Numbers
from e2fl_audit.names import natural
from e2fl_audit.table import Grouping, Predictions

N, CORRECT, POSITIVES, NEGATIVES, SELECTED, TRUE_POSITIVES, FALSE_POSITIVES = range(7)
DRAWN_CELLS = 20_000_000  # bounds the memory of the bootstrap


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


def rates_of(data: Predictions) -> list[Rate]:
    """Return the rates that this table allows."""
    if "truth" not in data.cells:
        return [SELECTION]
    if data.positive is not None:
        return BINARY
    size = len(data.labels)
    recalls = [
        Rate(f"recall: {label}", f"Recall of {label}", 7 + size + code, 7 + code, 1, label=label)
        for code, label in sorted(enumerate(data.labels), key=lambda pair: natural(pair[1]))
    ]
    return [ACCURACY, *recalls]


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
        present = np.bincount(self.matrix.indices, minlength=self.matrix.shape[1])
        return self.shaped(present)

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
        number = max(50, min(resamples, DRAWN_CELLS // max(1, width)))
        at_once = max(1, DRAWN_CELLS // max(1, size))
        drawn = np.empty((number, width))
        for start in range(0, number, at_once):
            count = min(at_once, number - start)
            picks = [np.bincount(rng.integers(0, size, size), minlength=size) for _ in range(count)]
            drawn[start : start + count] = np.stack(picks).astype(np.float64) @ self.matrix
        return drawn.reshape(number, self.groups, -1)


def count(data: Predictions, grouping: Grouping, clients: int | None) -> Counts:
    """Count every column of the rates for each group and client."""
    cells = data.cells
    cell, column = _entries(data)
    columns = 7 if data.positive is not None or "truth" not in cells else 7 + 2 * len(data.labels)
    group = cells[grouping.column].to_numpy()[cell]
    client = cells["client"].to_numpy()[cell] if clients is not None else np.zeros_like(cell)
    weight = cells["count"].to_numpy(np.float64)[cell]
    shape = (clients or 1, len(grouping.groups) * columns)
    matrix = csr_array((weight, (client, group * columns + column)), shape=shape)
    matrix.sum_duplicates()
    return Counts(matrix, len(grouping.groups), clients is not None)


def _entries(data: Predictions) -> tuple[Codes, Codes]:
    """Return pairs of cell and column: the columns in which each cell is counted."""
    cells, every = data.cells, np.arange(len(data.cells))
    predicted = cells["predicted"].to_numpy()
    parts: list[tuple[Codes, Codes | int]] = [(every, N)]
    chosen = predicted == data.positive
    if data.positive is not None:
        parts.append((every[chosen], SELECTED))
    if "truth" in cells:
        truth = cells["truth"].to_numpy()
        right = truth == predicted
        parts.append((every[right], CORRECT))
        if data.positive is None:
            parts += [(every, 7 + truth), (every[right], 7 + len(data.labels) + truth[right])]
        else:
            real = truth == data.positive
            parts += [(every[real], POSITIVES), (every[~real], NEGATIVES)]
            parts += [
                (every[real & chosen], TRUE_POSITIVES),
                (every[~real & chosen], FALSE_POSITIVES),
            ]
    columns = [np.broadcast_to(np.asarray(column), cell.shape) for cell, column in parts]
    return np.concatenate([cell for cell, _ in parts]), np.concatenate(columns)
