"""Reading of a table: which rows, groups and clients it has, and what its values mean.

All mistakes are reported at once, with row and column.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from e2fl_audit.columns import ALIASES, Roles, cautions, choose
from e2fl_audit.files import (
    Codes,
    Flags,
    Labels,
    Numbers,
    Sheet,
    Text,
    as_number,
    missing,
    name_codes,
    open_table,
    plain,
)
from e2fl_audit.settings import AuditError, Settings, did_you_mean
from e2fl_audit.wording import listed, percent, quoted

UNKNOWN = "unknown"
CROSS = " · "
SHOWN = 20  # mistakes that are listed; the others are counted
MAX_LABELS = 1000
FOREIGN = 0.05  # share of predictions that may be of classes without a label
BINS = 10
ERRORS = {"loss", "error", "rmse", "mse", "mae", "mape", "brier", "perplexity", "wer", "cer"}

Columns = dict[str, Text]


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
    def unit(self) -> str:
        return "%" if self.is_rate else ""

    @property
    def keys(self) -> list[str]:
        """The columns of the groupings."""
        return [grouping.column for grouping in self.groupings]


class Mistakes:
    """What is wrong with a table, with row and column: all of it, to be fixed at once."""

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
    sheet = open_table(source)
    roles = choose(sheet, settings)
    table = Table(sheet.name, sheet.sha256, len(sheet.cells), pd.DataFrame(index=sheet.cells.index))
    table.notes = sheet.notes
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
    (_read_predictions if people else _read_measure)(table, sheet, columns, settings)
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


def _read_predictions(table: Table, sheet: Sheet, columns: Columns, settings: Settings) -> None:
    """Count the cells of a table with one row per person."""
    labels, score = Labels(), _scores(sheet, columns, settings)
    cells, truth = table.cells, None
    if "y" in columns:
        truth = cells["truth"] = _codes(table, columns["y"], labels)
    if score is None:
        cells["predicted"] = _codes(table, columns["y_hat"], labels)
        table.positive = _positive(table, labels, settings)
        _note_labels(table, labels)
        if truth is not None:
            _require_common(table, columns, labels)
        elif table.positive is None:
            question = f"which label is the positive one ({quoted(labels.names[:6])})"
            raise AuditError(f"{table.name}: {question}? Name it with --positive")
    else:
        table.positive = _positive(table, labels, settings)
        if table.positive is None or len(labels.names) > 2:
            known = quoted(labels.names[:6])
            what = f"scores need two labels, and which is positive ({known})"
            raise AuditError(f"{table.name}: {what}? Name it with --positive")
        others = [code for code in range(len(labels.names)) if code != table.positive]
        other = others[0] if others else labels.code(f"not {labels.names[table.positive]}")
        cells["predicted"] = np.where(_selected(table, score, settings), table.positive, other)
        if truth is not None and score.min() >= 0 and score.max() <= 1:
            _count_bins(table, score, truth == table.positive)
    table.labels = labels.names
    table.cells = cells.groupby(list(cells.columns)).size().rename("count").reset_index()


def _codes(table: Table, column: Text, labels: Labels) -> Codes:
    texts = column.cat.categories
    numbers = np.array([as_number(text, decimal_comma=True) for text in texts])
    fractions = np.isfinite(numbers) & (np.nan_to_num(numbers, posinf=0, neginf=0) % 1 != 0)
    if len(texts) > MAX_LABELS or fractions.any():
        what = f"has more than {MAX_LABELS:,} different values"
        what = f"holds {texts[fractions][0].strip()!r}, not a label" if fractions.any() else what
        raise AuditError(
            f"{table.name}: column '{column.name}' {what}; labels are classes; for a numeric "
            "measure of each client, name its column with --score and leave y out"
        )
    return np.asarray(column.map(labels.code), np.int64)


def _scores(sheet: Sheet, columns: Columns, settings: Settings) -> Numbers | None:
    """Return scores or probabilities, where predictions are such; None where they are labels."""
    if "y_hat" not in columns:
        return sheet.numbers(columns["score"])
    column = columns["y_hat"]
    values = np.array([as_number(text, decimal_comma=True) for text in column.cat.categories])
    numeric = bool(np.isfinite(values).all())
    few = len(values) <= MAX_LABELS
    if settings.threshold is None and few and (not numeric or (values % 1 == 0).all()):
        return None
    score = sheet.numbers(column)
    if not np.isfinite(score).all():
        row = int(np.flatnonzero(~np.isfinite(score))[0])
        what = f"column '{column.name}' of {sheet.name} holds labels, not numbers"
        raise AuditError(f"{what}: row {row + 1} has {column[row].strip()[:60]!r}")
    return score


def _selected(table: Table, score: Numbers, settings: Settings) -> Flags:
    """Return which scores count as predictions of the positive class."""
    low, high, median = score.min(), score.max(), float(np.median(score))
    if settings.threshold is None and settings.ll144:
        what = f"A score above the median of all rows ({median:g}) counts as selected"
        table.notes.append(f"{what}: the scoring rate.")
        return score > median
    threshold, what = settings.threshold, "Scores of {:g} or more count as positive."
    if threshold is None:
        if low < 0 or high > 1:
            reach = f"{low:g} to {high:g}"
            raise AuditError(f"{table.name}: predictions are scores from {reach}; pass --threshold")
        threshold, what = 0.5, "Predictions are probabilities; {:g} or more counts as positive. "
        what += "Change it with --threshold."
    table.notes.append(what.format(threshold))
    return score >= threshold


def _positive(table: Table, labels: Labels, settings: Settings) -> int | None:
    wanted = settings.positive
    if wanted is None:
        return labels.positive()
    if labels.names and labels.key(wanted) not in labels.spellings:
        hint = did_you_mean(wanted, labels.names)
        raise AuditError(f"--positive: {table.name} has no label '{wanted}'{hint}")
    return labels.code(wanted)


def _note_labels(table: Table, labels: Labels) -> None:
    for spellings in labels.spellings.values():
        if len(spellings) > 1:
            table.notes.append(f"The labels {quoted(spellings[:5])} are read as one label.")
    if table.positive is None and len(labels.names) == 2:
        one, other = labels.names
        table.cautions.append(
            f"It is not known whether '{one}' or '{other}' is the positive label, so selection "
            f"rates and true and false positive rates are not shown; name it, as in "
            f"--positive '{other}'."
        )


def _require_common(table: Table, columns: Columns, labels: Labels) -> None:
    """Reject predictions of classes that never occur among the labels: they are coded otherwise.

    A class may be missing among many labels by chance; a class of two may if all labels are one.
    """
    y, y_hat = columns["y"].name, columns["y_hat"].name
    real, said = set(table.cells["truth"]), set(table.cells["predicted"])
    foreign = said - real
    coded_alike = len(real | said) <= 2 and (real & said or labels.positive() is not None)
    if not foreign or coded_alike:
        return
    names = [
        quoted(labels.names[code] for code in sorted(codes)[:4]) for codes in (real, said, foreign)
    ]
    count = int(table.cells["predicted"].isin(foreign).sum())
    if len(real) > 2 and count <= FOREIGN * table.rows:
        what = f"{count:,} predictions are of classes that never occur in '{y}'"
        table.cautions.append(f"{what} ({names[2]}).")
        return
    what = f"{names[2]} never occurs in '{y}'" if real & said else "they share no label"
    both = f"'{y}' holds {names[0]} but '{y_hat}' holds {names[1]}"
    raise AuditError(f"{table.name}: {both}; {what}. Use the same labels in both columns")


def _count_bins(table: Table, score: Numbers, positive: Flags) -> None:
    """Count the rows, scores and positives of each group and tenth."""
    tenth = np.minimum((score * BINS).astype(np.int64), BINS - 1)
    cells = table.cells[table.keys]
    frame = cells.assign(bin=tenth, n=1.0, score=score, positives=positive * 1.0)
    sums = frame.groupby([*table.keys, "bin"])[["n", "score", "positives"]].sum()
    table.bins = sums.reset_index()


def _read_measure(table: Table, sheet: Sheet, columns: Columns, settings: Settings) -> None:
    """Read the values of a table with one row per client, or per client and group."""
    column, mistakes = columns.get("accuracy", columns.get("score")), Mistakes(table.name)
    assert column is not None
    name, value = plain(str(column.name)), sheet.numbers(column)
    table.is_rate = name in ALIASES["accuracy"].split()
    if table.is_rate:
        value = _fractions(table, column, value, settings, mistakes)
    else:
        table.title = str(column.name)
    table.higher_is_better = not (settings.lower_is_better or ERRORS & set(name.split("_")))
    if not table.higher_is_better and not settings.lower_is_better:
        table.notes.append(f"'{column.name}' is read as an error: lower is better.")
    if table.clients is None:
        table.cells["client"] = np.arange(len(value))
        table.notes.append("The table names no clients: each row is taken as one client.")
    else:
        clients, keys = table.clients, ["client", *table.keys]
        again = table.cells.duplicated(keys).to_numpy()
        mistakes.rows(
            again,
            lambda row: (
                f"is of client '{clients[table.cells['client'][row]]}' in the same group as a row "
                "above; give one row per client, or one row per person with y and y_hat"
            ),
        )
    mistakes.stop()
    table.cells["value"] = value
    if "n" in columns:
        table.cells["weight"] = sheet.numbers(columns["n"])


def _fractions(
    table: Table, column: Text, value: Numbers, settings: Settings, mistakes: Mistakes
) -> Numbers:
    """Return accuracies as fractions, and reject a mixture of fractions and percentages."""
    signed = column.map(lambda text: text.rstrip().endswith("%")).to_numpy(np.bool_)
    small, large = (value > 0) & (value <= 1), value > 1
    unit = "fraction" if signed.any() else settings.unit
    if signed.any() and (~signed & (value != 0)).any():
        what = "has values with and without a percent sign; write all of them alike"
        mistakes.add(f"column '{column.name}' {what}")
        return value
    if unit is None and small.any() and large.any():
        rows = [int(np.flatnonzero(flags)[0]) for flags in (small, large)]
        parts = ", ".join(f"row {row + 1} has {value[row]:g}" for row in rows)
        what = f"mixes fractions and percentages: {parts}; write all of them alike, or pass --unit"
        mistakes.add(f"column '{column.name}' {what}")
        return value
    if unit is None:
        unit = "percent" if large.any() else "fraction"
        if small.any() and not large.any():
            table.notes.append("No accuracy is above 1, so they are read as fractions.")
    limit = 100.0 if unit == "percent" else 1.0
    reach = f"in column '{column.name}'; it must be 0 to {limit:g}"
    mistakes.rows((value < 0) | (value > limit), lambda row: f"has {value[row]:g} {reach}")
    return value / limit
