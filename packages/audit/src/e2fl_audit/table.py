"""A table as the audit uses it: counted cells of predictions, or one value per client."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from e2fl_audit.errors import AuditError
from e2fl_audit.files import Codes, Column, Flags
from e2fl_audit.settings import Settings

UNKNOWN = "unknown"
CROSS = " · "
SHOWN = 20  # mistakes that are listed; the others are counted


@dataclass(frozen=True)
class Grouping:
    """Groups of rows by one attribute, or by several crossed."""

    name: str
    groups: list[str]
    column: str  # of the table's frames, with the code of each row's group
    unknown: int | None = None  # the group of rows whose attribute is missing
    crossed: bool = False


@dataclass(frozen=True)
class Predictions:
    """Rows with the same client, groups, label and prediction, counted."""

    cells: pd.DataFrame  # a column per grouping; client, truth (codes of labels), predicted, count
    labels: list[str]
    positive: int | None
    bins: pd.DataFrame | None = None  # of probabilities, in tenths: groupings, n, score, positives


@dataclass(frozen=True)
class Measure:
    """One value per client, or per client and group."""

    name: str
    cells: pd.DataFrame  # a column per grouping; client, value (a fraction for accuracy), weight
    is_rate: bool  # an accuracy, shown in percent
    higher_is_better: bool


@dataclass(frozen=True)
class Table:
    """A table that was read."""

    name: str
    sha256: str
    rows: int
    clients: list[str] | None
    groupings: list[Grouping]
    data: Predictions | Measure
    notes: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)  # notes that belong among the findings

    @property
    def is_measure(self) -> bool:
        return isinstance(self.data, Measure)

    def sizes(self, grouping: Grouping) -> Codes:
        """Return the number of clients or rows of each group."""
        cells = self.data.cells
        count = cells["count"] if "count" in cells else np.ones(len(cells))
        sums = np.bincount(cells[grouping.column], count, len(grouping.groups))
        return sums.astype(np.int64)


class Mistakes:
    """What is wrong with a table, with row and column, collected so that all can be fixed at once."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.lines: list[str] = []
        self.count = 0

    def add(self, line: str) -> None:
        self.count += 1
        if len(self.lines) < SHOWN:
            self.lines.append(line)

    def rows(self, wrong: Flags, say: Callable[[int], str]) -> None:
        """Add each wrong row; `say` gets its position."""
        positions = np.flatnonzero(wrong)
        listed = positions[: max(0, SHOWN - len(self.lines))]
        self.lines += [f"row {position + 1} {say(int(position))}" for position in listed]
        self.count += len(positions)

    def stop(self) -> None:
        """Raise an error if there are any."""
        if not self.count:
            return
        more = self.count - len(self.lines)
        count = "a mistake" if self.count == 1 else f"{self.count:,} mistakes"
        lines = [*self.lines, *([f"and {more:,} more"] if more else [])]
        listed = "\n  ".join(lines)
        raise AuditError(
            f"{self.table} has {count} (rows are counted below the header):\n  {listed}"
        )


@dataclass
class Rows:
    """The chosen columns of the rows that are kept, as they are turned into a table."""

    table: str
    settings: Settings
    columns: dict[str, Column]  # y, y_hat, score, accuracy and n
    frame: pd.DataFrame  # a column per grouping, and client
    clients: list[str] | None
    groupings: list[Grouping]
    notes: list[str]
    cautions: list[str]
    mistakes: Mistakes

    @property
    def keys(self) -> list[str]:
        """The columns of the groupings."""
        return [grouping.column for grouping in self.groupings]
