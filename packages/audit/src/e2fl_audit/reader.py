"""Reading of a table for an audit; all mistakes are reported at once, with row and column."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from e2fl_audit.columns import Roles, cautions, choose
from e2fl_audit.files import Flags, Sheet, Text, missing, open_table
from e2fl_audit.names import name_codes
from e2fl_audit.settings import AuditError, Settings
from e2fl_audit.wording import listed, percent

UNKNOWN = "unknown"
CROSS = " · "
SHOWN = 20  # mistakes that are listed; the others are counted


@dataclass(frozen=True)
class Grouping:
    """Groups of rows by one attribute, or by several crossed."""

    name: str
    groups: list[str]
    column: str  # of the table's cells, with the code of each row's group
    unknown: int = -1  # the group of rows whose attribute is missing, if there are such rows
    crossed: bool = False

    @property
    def known(self) -> Flags:
        """Which groups are known."""
        known: Flags = np.arange(len(self.groups)) != self.unknown
        return known


@dataclass
class Table:
    """A table that was read: one frame, and what its columns mean.

    Of predictions, cells are rows with the same client, groups, label (`truth`) and prediction
    (`predicted`), with their `count`. Of a measure, each row has a `value`, and a `weight` if the
    examples behind it are known. A column per grouping and `client` hold codes.
    """

    name: str
    sha256: str
    rows: int
    cells: pd.DataFrame
    clients: list[str] | None = None
    groupings: list[Grouping] = field(default_factory=list)
    title: str = "Accuracy"  # of the measure
    is_rate: bool = True  # not a measure of its own unit
    higher_is_better: bool = True
    labels: list[str] = field(default_factory=list)
    positive: int | None = None
    bins: pd.DataFrame | None = None  # of probabilities, in tenths: groupings, n, score, positives
    notes: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)  # notes that belong among the findings

    @property
    def is_measure(self) -> bool:
        return "value" in self.cells

    @property
    def keys(self) -> list[str]:
        """The columns of the groupings."""
        return [grouping.column for grouping in self.groupings]


class Mistakes:
    """What is wrong with a table, with row and column, collected so that all can be fixed at once."""

    def __init__(self, table: str) -> None:
        self.table, self.count = table, 0
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        self.count += 1
        self.lines.append(line)

    def rows(self, wrong: Flags, say: Callable[[int], str]) -> None:
        """Add each wrong row; `say` gets its position."""
        positions = np.flatnonzero(wrong)
        self.count += len(positions)
        self.lines += [f"row {row + 1} {say(int(row))}" for row in positions[:SHOWN]]

    def stop(self) -> None:
        """Raise an error if there are any."""
        if self.count:
            count = "a mistake" if self.count == 1 else f"{self.count:,} mistakes"
            lines, more = self.lines[:SHOWN], self.count - len(self.lines[:SHOWN])
            text = "\n  ".join([*lines, *([f"and {more:,} more"] if more else [])])
            where = f"{self.table} has {count} (rows are counted below the header)"
            raise AuditError(f"{where}:\n  {text}")


def read_table(source: Path | str | pd.DataFrame, settings: Settings) -> Table:
    """Read a file or a DataFrame; all its mistakes are reported at once, with row and column."""
    from e2fl_audit.values import read_measure, read_predictions

    sheet = open_table(source)
    roles = choose(sheet, settings)
    table = Table(sheet.name, sheet.sha256, len(sheet.cells), pd.DataFrame(index=sheet.cells.index))
    table.notes = [*sheet.notes, *roles.notes]
    columns = {role: sheet.column(position) for role, position in roles.values.items()}
    keep = _checked(sheet, columns, settings)
    table.cautions = cautions(sheet, roles)
    if "client" in columns:
        table.clients, table.cells["client"] = name_codes(columns.pop("client"), [])
    _group(table, sheet, roles, keep)
    if not keep.all():
        _note_left_out(table, keep, settings)
    table.cells, table.rows = table.cells[keep].reset_index(drop=True), int(keep.sum())
    kept = {role: column[keep].reset_index(drop=True) for role, column in columns.items()}
    columns = {role: column.cat.remove_unused_categories() for role, column in kept.items()}
    attributes = len(table.groupings)
    if attributes == 2 or (attributes > 2 and (settings.groups or settings.ll144)):
        _cross(table)
    scored = "score" in columns and (settings.threshold is not None or settings.ll144)
    people = "y" in columns or "y_hat" in columns or scored
    (read_predictions if people else read_measure)(table, sheet, columns, settings)
    return table


def _checked(sheet: Sheet, columns: dict[str, Text], settings: Settings) -> Flags:
    """Require values where they are needed; return the rows that have them."""
    if not len(sheet.cells):
        raise AuditError(f"{sheet.name} has a header but no rows")
    mistakes, keep = Mistakes(sheet.name), np.ones(len(sheet.cells), np.bool_)
    for role, column in columns.items():
        needed, blank = role in ("n", "client"), missing(column)
        if settings.drop_missing and not needed:
            keep &= ~blank
        else:
            hint = "" if needed else "; fill it in, or leave such rows out with --drop-missing"
            mistakes.rows(blank, lambda _: f"has nothing in column '{column.name}'{hint}")  # noqa: B023
        if role in ("score", "accuracy", "n"):
            values = sheet.numbers(column)
            positive = (values > 0) & (values <= 1e15) if role == "n" else True
            kind = "a number above 0 and at most 1e15" if role == "n" else "a number"
            mistakes.rows(
                ~blank & ~(np.isfinite(values) & positive),
                lambda row: (
                    f"has {column[row].strip()[:60]!r} in column '{column.name}'; it must be {kind}"  # noqa: B023
                ),
            )
    mistakes.stop()
    if not keep.any():
        raise AuditError(f"{sheet.name} has no row with a value in every column that is needed")
    return keep


def _group(table: Table, sheet: Sheet, roles: Roles, keep: Flags) -> None:
    for position in roles.groups:
        attribute, column = sheet.column(position), f"group{len(table.groupings)}"
        names, codes = name_codes(attribute, table.notes)
        groups, unknown = names, -1
        if (codes[keep] < 0).any():
            groups, unknown = [*names, UNKNOWN], len(names)
        table.groupings.append(Grouping(str(attribute.name), groups, column, unknown))
        table.cells[column] = np.where(codes < 0, len(names), codes)


def _note_left_out(table: Table, keep: Flags, settings: Settings) -> None:
    """Say how many rows have no label or prediction, in all and by group."""
    count = f"{(~keep).sum():,} of {len(keep):,} rows"
    table.cautions.append(f"{count} have no label or prediction and were left out.")
    for grouping in table.groupings if not settings.suppress_below else ():
        shares = pd.Series(~keep).groupby(table.cells[grouping.column]).agg(["sum", "mean"])
        shares = shares[shares["sum"] > 0].sort_values("mean", ascending=False, kind="stable")
        names = [*grouping.groups, UNKNOWN]
        parts = [f"{names[row[0]]} {row[1]:,} ({percent(row[2])})" for row in shares.itertuples()]
        table.cautions.append(f"Left out by {grouping.name}: {listed(parts)}.")


def _cross(table: Table) -> None:
    """Add the grouping by all attributes at once; a row is unknown if one of them is."""
    unknown = [table.cells[grouping.column] == grouping.unknown for grouping in table.groupings]
    known = table.cells.loc[~np.logical_or.reduce(unknown), table.keys]
    groups = []
    for codes in known.drop_duplicates().sort_values(table.keys).itertuples(index=False):
        parts = zip(table.groupings, codes, strict=True)
        groups.append(CROSS.join(grouping.groups[code] for grouping, code in parts))
    codes = known.groupby(table.keys).ngroup()
    table.cells["crossed"] = codes.reindex(table.cells.index, fill_value=len(groups))
    *first, last = [grouping.name for grouping in table.groupings]
    name, some = f"{', '.join(first)} and {last}", len(known) < table.rows
    names, position = ([*groups, UNKNOWN], len(groups)) if some else (groups, -1)
    table.groupings.append(Grouping(name, names, "crossed", position, crossed=True))
