"""Rates as quotients of counts, and the counts of each group and client."""

from dataclasses import dataclass

import numpy as np

from e2fl.auditing.table import Codes, Grouping, Numbers, Predictions, compact
from e2fl.auditing.values import natural

N, CORRECT, POSITIVES, NEGATIVES, SELECTED, TRUE_POSITIVES, FALSE_POSITIVES = range(7)


@dataclass(frozen=True)
class Rate:
    """A quotient of two counts."""

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


def rates_of(data: Predictions) -> tuple[list[Rate], int]:
    """Return the rates this table allows, and how many columns are counted for them."""
    selection = Rate("selection_rate", "Selection rate", SELECTED, N, 0, True)
    if data.truth is None:
        return [selection], 7
    accuracy = Rate("accuracy", "Accuracy", CORRECT, N, 1)
    if data.positive is not None:
        return [
            accuracy,
            Rate("true_positive_rate", "True positive rate", TRUE_POSITIVES, POSITIVES, 1, True),
            Rate("false_positive_rate", "False positive rate", FALSE_POSITIVES, NEGATIVES, -1),
            Rate("predictive_value", "Positive predictive value", TRUE_POSITIVES, SELECTED, 1),
            selection,
        ], 7
    count = len(data.labels)
    recalls = [
        Rate(f"recall: {label}", f"Recall of {label}", 7 + count + place, 7 + place, 1, label=label)
        for place, label in sorted(enumerate(data.labels), key=lambda each: natural(each[1]))
    ]
    return [accuracy, *recalls], 7 + 2 * count


@dataclass(frozen=True)
class Counts:
    """How often each column was counted, for each group and, where there are clients, for each client in it."""

    total: Numbers  # [groups, columns]
    column: Codes  # [entries], group * columns + column
    client: Codes | None  # [entries]
    count: Numbers  # [entries]
    columns: int

    def clients_with(self, column: int) -> Numbers:
        """Return for each group how many clients have rows in this column."""
        groups = len(self.total)
        return np.bincount(self.column, minlength=groups * self.columns).reshape(groups, -1)[:, column].astype(float)

    def client_means(self, rate: Rate) -> Numbers:
        """Return for each group the mean over its clients of the rate of each; NaN without clients."""
        groups = len(self.total)
        if self.client is None:
            return np.full(groups, np.nan)
        size = int(self.client.max()) + 1
        group, column = self.column // self.columns, self.column % self.columns
        bases, hits = column == rate.base, column == rate.hits
        key = self.client * groups + group
        if size * groups <= 50_000_000:
            found = np.bincount(key[hits], weights=self.count[hits], minlength=size * groups)[key[bases]]
        else:
            order = np.argsort(key[hits])
            known = key[hits][order]
            place = np.minimum(np.searchsorted(known, key[bases]), max(0, len(known) - 1))
            match = known[place] == key[bases] if len(known) else np.zeros(int(bases.sum()), bool)
            found = np.where(match, self.count[hits][order][place], 0.0) if len(known) else np.zeros(int(bases.sum()))
        sums = np.bincount(group[bases], weights=found / self.count[bases], minlength=groups)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(sums / np.bincount(group[bases], minlength=groups), dtype=np.float64)


def count(data: Predictions, grouping: Grouping, columns: int) -> Counts:
    """Count every column of the rates for each group."""
    group = grouping.of_combo[data.combo]
    cells = np.arange(len(group))
    parts = [(cells, np.full(len(cells), N))]
    selected = None if data.positive is None else data.predicted == data.positive
    if selected is not None:
        parts.append((cells[selected], np.full(int(selected.sum()), SELECTED)))
    if data.truth is not None:
        right = data.truth == data.predicted
        parts.append((cells[right], np.full(int(right.sum()), CORRECT)))
        if selected is not None:
            truth = data.truth == data.positive
            for rows, column in (
                (truth, POSITIVES),
                (~truth, NEGATIVES),
                (truth & selected, TRUE_POSITIVES),
                (~truth & selected, FALSE_POSITIVES),
            ):
                parts.append((cells[rows], np.full(int(rows.sum()), column)))
        else:
            parts.append((cells, 7 + data.truth))
            parts.append((cells[right], 7 + len(data.labels) + data.truth[right]))
    cell = np.concatenate([part[0] for part in parts])
    column = group[cell] * columns + np.concatenate([part[1] for part in parts])
    size = len(grouping.groups) * columns
    total = np.bincount(column, weights=data.count[cell], minlength=size).astype(np.float64).reshape(-1, columns)
    if data.client is None:
        return Counts(total, np.flatnonzero(total.reshape(-1)), None, total.reshape(-1)[total.reshape(-1) > 0], columns)
    inverse, (client, merged) = compact((data.client[cell], int(data.client.max()) + 1), (column, size))
    return Counts(total, merged, client, np.bincount(inverse, weights=data.count[cell]).astype(np.float64), columns)
