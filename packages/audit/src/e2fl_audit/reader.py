"""Reading of a table: which rows, groups and clients it has, and what its values mean.

All mistakes are reported at once, with row and column.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from e2fl_audit.columns import NAMES, cautions, choose
from e2fl_audit.files import (
    Codes,
    Flags,
    Numbers,
    Sheet,
    Text,
    as_number,
    name_codes,
    open_table,
    plain,
    visible,
)
from e2fl_audit.settings import AuditError, Settings, did_you_mean
from e2fl_audit.wording import listed, percent, quoted

UNKNOWN = "unknown"
CROSS = " · "
SHOWN = 20  # mistakes that are listed; the others are counted
MAX_LABELS = 1000
FOREIGN = 0.05  # share of predictions that may be of classes without a label
BINS = 10

Columns = dict[str, Text]


@dataclass(frozen=True)
class Grouping:
    """Groups of rows by one attribute, or by several crossed."""

    name: str
    groups: list[str]
    column: str  # of the table's cells, with the code of each row's group
    unknown: int = -1  # the group of rows whose attribute is missing, if there are such rows
    crossed: bool = False
    # Small groups that are not shown, for rates over all rows of a group, and over some of them.
    hidden: frozenset[int] = frozenset()
    hidden_parts: frozenset[int] = frozenset()

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
    cells: pd.DataFrame = field(default_factory=pd.DataFrame)
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


def read_table(source: Path | str | pd.DataFrame, settings: Settings) -> Table:
    """Read a file or a DataFrame; all its mistakes are reported at once, with row and column."""
    sheet = open_table(source)
    roles, groups = choose(sheet, settings)
    told = cautions(sheet, roles, groups) + _leave_out(sheet, roles, groups, settings)
    table = Table(sheet.name, sheet.sha256, len(sheet.cells), notes=sheet.notes, cautions=told)
    columns = {role: sheet.column(name) for role, name in roles.items()}
    if "client" in columns:
        table.clients, table.cells["client"] = name_codes(columns.pop("client"), [])
    for name in groups:
        _group(table, sheet.column(name))
    attributes = len(table.groupings)
    if attributes == 2 or (attributes > 2 and (settings.groups or settings.ll144)):
        _cross(table)
    scored = "score" in columns and (settings.threshold is not None or settings.ll144)
    people = "y" in columns or "y_hat" in columns or scored
    (_read_predictions if people else _read_measure)(table, sheet, columns, settings)
    return table


def _wrong(rows: Flags, what: str, column: Text | None = None) -> list[str]:
    """Return a line for each wrong row; of a column, with the cell."""
    return [
        f"row {row + 1} {what if column is None else what.format(column[row][:60])}"
        for row in np.flatnonzero(rows)
    ]


def _require_none(name: str, mistakes: list[str]) -> None:
    """Raise an error that lists the first mistakes, if there are any."""
    if mistakes:
        lines = "\n  ".join([*mistakes[:SHOWN], *(["..."] if mistakes[SHOWN:] else [])])
        count = f"{len(mistakes):,} mistake{'s' if mistakes[1:] else ''}"
        raise AuditError(f"{name} has {count} (rows are counted below the header):\n  {lines}")


def _leave_out(
    sheet: Sheet, roles: Mapping[str, str], groups: Sequence[str], settings: Settings
) -> list[str]:
    """Require values where they are needed, or leave rows out and say how many."""
    if not len(sheet.cells):
        raise AuditError(f"{sheet.name} has a header but no rows")
    mistakes: list[str] = []
    keep = np.ones(len(sheet.cells), np.bool_)
    for role, name in roles.items():
        column, needed = sheet.column(name), role in ("n", "client")
        blank, where = (column == "").to_numpy(), f"column '{name}'"
        if settings.drop_missing and not needed:
            keep &= ~blank
        else:
            hint = "" if needed else "; fill it in, or leave such rows out with --drop-missing"
            mistakes += _wrong(blank, f"has nothing in {where}{hint}")
        if role in ("score", "accuracy", "n"):
            values, kind = sheet.numbers(column), "a number"
            right = np.isfinite(values)
            if role == "n":
                right, kind = (values > 0) & (values <= 1e15), "a number above 0 and at most 1e15"
            mistakes += _wrong(~blank & ~right, f"has {{!r}} in {where}; it must be {kind}", column)
    _require_none(sheet.name, mistakes)
    if not keep.any():
        raise AuditError(f"{sheet.name} has no row with a value in every column that is needed")
    if keep.all():
        return []
    count = f"{(~keep).sum():,} of {len(keep):,} rows"
    told = [f"{count} have no label or prediction and were left out."]
    for group in groups if not settings.suppress_below else ():
        names, codes = name_codes(sheet.column(group), [])
        of_rows = np.array([*names, UNKNOWN], object)[codes]
        shares = pd.Series(~keep).groupby(of_rows).agg(["sum", "mean"])
        shares = shares[shares["sum"] > 0].sort_values("mean", ascending=False, kind="stable")
        parts = [f"{row[0]} {row[1]:,} ({percent(row[2])})" for row in shares.itertuples()]
        told.append(f"Left out by {group}: {listed(parts)}.")
    sheet.cells = sheet.cells[keep]
    return told


def _group(table: Table, attribute: Text) -> None:
    """Add the grouping by an attribute."""
    names, codes = name_codes(attribute, table.notes)
    blank, column = codes < 0, f"group{len(table.groupings)}"
    groups, unknown = ([*names, UNKNOWN], len(names)) if blank.any() else (names, -1)
    table.groupings.append(Grouping(str(attribute.name), groups, column, unknown))
    table.cells[column] = np.where(blank, len(names), codes)


def _cross(table: Table) -> None:
    """Add the grouping by all attributes at once; a row is unknown if one of them is."""
    unknown = [table.cells[grouping.column] == grouping.unknown for grouping in table.groupings]
    known = table.cells.loc[~np.logical_or.reduce(unknown), table.keys]
    combinations = known.groupby(table.keys)
    groups = [
        CROSS.join(part.groups[code] for part, code in zip(table.groupings, codes, strict=True))
        for codes in combinations.size().index
    ]
    codes = combinations.ngroup().reindex(table.cells.index, fill_value=len(groups))
    table.cells["crossed"] = codes
    *first, last = [grouping.name for grouping in table.groupings]
    name, some = f"{', '.join(first)} and {last}", len(known) < table.rows
    names, position = ([*groups, UNKNOWN], len(groups)) if some else (groups, -1)
    table.groupings.append(Grouping(name, names, "crossed", position, crossed=True))


def _read_predictions(table: Table, sheet: Sheet, columns: Columns, settings: Settings) -> None:
    """Count the cells of a table with one row per person."""
    y, score = columns.get("y"), _scores(sheet, columns, settings)
    roles = ("y", "y_hat") if score is None else ("y",)
    labels = _labels(table, [columns[role] for role in roles if role in columns])
    table.positive = _positive(table, labels, settings)
    table.labels = list(labels.values())
    if y is not None:
        table.cells["truth"] = _codes(y, labels)
    if score is None:
        table.cells["predicted"] = _codes(columns["y_hat"], labels)
        if y is not None:
            _require_common(table, y.name, columns["y_hat"].name)
    else:
        table.labels += [f"not {table.labels[0]}"] if len(labels) == 1 else []
    if table.positive is None or (score is not None and len(table.labels) != 2):
        _require_labels(table, scored=score is not None)
    elif score is not None:
        selected = _selected(table, score, settings)
        table.cells["predicted"] = np.where(selected, table.positive, 1 - table.positive)
        if y is not None and score.min() >= 0 and score.max() <= 1:
            _count_bins(table, score)
    table.cells = table.cells.groupby(list(table.cells)).size().rename("count").reset_index()


def label_key(text: str) -> str:
    """Return a label as it is compared: 1, 1.0 and True are one label, and so are Yes and yes."""
    word = {"true": "1", "false": "0"}.get(text.casefold(), text.casefold())
    value = as_number(word)
    return f"{value:.15g}" if math.isfinite(value) else word


def _labels(table: Table, columns: list[Text]) -> dict[str, str]:
    """Return the labels in these columns, by their keys."""
    labels: dict[str, str] = {}
    for column in columns:
        for text in column.cat.categories:
            if as_number(text) % 1 > 0 or len(labels) > MAX_LABELS:
                raise AuditError(
                    f"{table.name}: column '{column.name}' holds {text!r} or too many "
                    "values, not a label of a class; for a numeric measure of each client, name "
                    "its column with --score and leave y out"
                )
            labels.setdefault(label_key(text), text)
    return labels


def _codes(column: Text, labels: dict[str, str]) -> Codes:
    keys = list(labels)
    codes = {text: keys.index(label_key(text)) for text in column.cat.categories}
    return np.asarray(column.map(codes), np.int64)


def _scores(sheet: Sheet, columns: Columns, settings: Settings) -> Numbers | None:
    """Return scores or probabilities, where predictions are such; None where they are labels."""
    column = columns["y_hat"] if "y_hat" in columns else columns["score"]
    score = sheet.numbers(column)
    labels, may_be = ~np.isfinite(score), "y_hat" in columns and settings.threshold is None
    if may_be and (labels.any() or not (score % 1).any()):
        return None
    if labels.any():
        where = f"column '{column.name}' of {sheet.name} holds labels, not numbers"
        raise AuditError(f"{where}: {_wrong(labels, 'has {!r}', column)[0]}")
    return score


def _selected(table: Table, score: Numbers, settings: Settings) -> Flags:
    """Return which scores count as predictions of the positive class."""
    low, high, median = score.min(), score.max(), float(np.median(score))
    if settings.threshold is None and settings.ll144:
        what = f"A score above the median of all rows ({median:g}) counts as selected"
        table.notes.append(f"{what}: the scoring rate.")
        return score > median
    if settings.threshold is None and (low < 0 or high > 1):
        reach = f"{low:g} to {high:g}"
        raise AuditError(f"{table.name}: predictions are scores from {reach}; pass --threshold")
    threshold = 0.5 if settings.threshold is None else settings.threshold
    table.notes.append(f"Scores of {threshold:g} or more count as positive (--threshold).")
    return score >= threshold


def _positive(table: Table, labels: dict[str, str], settings: Settings) -> int | None:
    """Return the code of the positive label: as named, or the one that plainly means yes."""
    keys = set(labels)
    if settings.positive is not None:
        positive = visible(settings.positive)
        key = label_key(positive)
        if labels and key not in labels:
            hint = did_you_mean(settings.positive, labels.values())
            raise AuditError(f"--positive: {table.name} has no label '{settings.positive}'{hint}")
        labels.setdefault(key, positive)
        return list(labels).index(key)
    if keys <= {"0"} or keys <= {"-1"}:
        labels["1"] = "1"
    elif len(keys) > 2 or ("1" in keys and not keys <= {"0", "-1", "1"}):
        return None  # of 1 and 2, either may be the positive one
    known = [code for code, key in enumerate(labels) if key in NAMES["positive"]]
    return known[0] if len(known) == 1 else None


def _require_labels(table: Table, scored: bool) -> None:
    """Say what is not shown without a positive label, or that one is needed."""
    if scored or "truth" not in table.cells:
        question = f"which label is the positive one ({quoted(table.labels[:6])})"
        raise AuditError(f"{table.name}: {question}? There must be two; name it with --positive")
    if len(table.labels) == 2:
        one, other = table.labels
        table.cautions.append(
            f"It is not known whether '{one}' or '{other}' is the positive label, so selection "
            f"rates and true and false positive rates are not shown; name it, as in "
            f"--positive '{other}'."
        )


def _require_common(table: Table, y: str, y_hat: str) -> None:
    """Reject predictions of classes that never occur among the labels: they are coded otherwise.

    A class may be missing among many labels by chance; a class of two may if all labels are one.
    """
    real, said = set(table.cells["truth"]), set(table.cells["predicted"])
    foreign = said - real
    coded_alike = len(real | said) <= 2 and (real & said or table.positive is not None)
    if not foreign or coded_alike:
        return
    names = [quoted(table.labels[code] for code in sorted(codes)[:4]) for codes in (real, said)]
    count = int(table.cells["predicted"].isin(foreign).sum())
    strange = quoted(table.labels[code] for code in sorted(foreign)[:4])
    if len(real) > 2 and count <= FOREIGN * table.rows:
        what = f"{count:,} predictions are of classes that never occur in '{y}'"
        table.cautions.append(f"{what} ({strange}).")
        return
    both = f"'{y}' holds {names[0]} but '{y_hat}' holds {names[1]}"
    what = f"{strange} never occurs in '{y}'"
    raise AuditError(f"{table.name}: {both}; {what}. Use the same labels in both columns")


def _count_bins(table: Table, score: Numbers) -> None:
    """Count the rows, scores and positives of each group and tenth, for calibration."""
    tenth = np.minimum((score * BINS).astype(np.int64), BINS - 1)
    positives = (table.cells["truth"] == table.positive) * 1.0
    frame = table.cells[table.keys].assign(bin=tenth, n=1.0, score=score, positives=positives)
    sums = frame.groupby([*table.keys, "bin"])[["n", "score", "positives"]].sum()
    table.bins = sums.reset_index()


def _read_measure(table: Table, sheet: Sheet, columns: Columns, settings: Settings) -> None:
    """Read the values of a table with one row per client, or per client and group."""
    column = columns["accuracy"] if "accuracy" in columns else columns["score"]
    name, value = plain(column.name), sheet.numbers(column)
    table.is_rate = name in NAMES["aliases"]["accuracy"]
    if table.is_rate:
        value = _fractions(table, column, value)
    else:
        table.title = column.name
    is_error = bool(set(NAMES["errors"]) & set(name.split("_")))
    table.higher_is_better = not (settings.lower_is_better or is_error)
    if is_error and not settings.lower_is_better:
        table.notes.append(f"'{column.name}' is read as an error: lower is better.")
    if table.clients is None:
        table.clients = [f"row {position + 1}" for position in range(len(value))]
        table.cells["client"] = np.arange(len(value))
        table.notes.append("The table names no clients: each row is taken as one client.")
    again = table.cells.duplicated(["client", *table.keys]).to_numpy()
    what = "has the client and group of a row above; give one row per client, or one per person"
    _require_none(table.name, _wrong(again, f"{what} with y and y_hat"))
    table.cells["value"] = value
    if "n" in columns:
        table.cells["weight"] = sheet.numbers(columns["n"])


def _fractions(table: Table, column: Text, value: Numbers) -> Numbers:
    """Return accuracies as fractions, and reject a mixture of fractions and percentages."""
    small, large = (value > 0) & (value <= 1), value > 1
    if small.any() and large.any():
        rows = [int(np.flatnonzero(flags)[0]) for flags in (small, large)]
        parts = ", ".join(f"row {row + 1} has {value[row]:g}" for row in rows)
        what = f"mixes fractions and percentages: {parts}; write all of them alike"
        raise AuditError(f"{table.name}: column '{column.name}' {what}")
    limit = 100.0 if large.any() else 1.0
    if small.any():
        table.notes.append("Accuracies are read as fractions: none is above 1.")
    what = f"has {{!r}} in column '{column.name}'; it must be 0 to {limit:g}, in all rows alike"
    _require_none(table.name, _wrong((value < 0) | (value > limit), what, column))
    return value / limit
