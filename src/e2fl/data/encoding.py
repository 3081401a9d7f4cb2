"""Columns of a table as inputs of a network: learnt from the training rows, applied to any rows.

An `Encoding` is plain data: `to_json` and `from_json` store it with a run or an exported model, and
`encode` turns new rows into inputs without the table that it was learnt from.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl.construct import did_you_mean
from e2fl.data.federated import Examples
from e2fl.data.rows import RowName
from e2fl.data.sheet import Cells, Sheet, Texts, as_number, is_missing, open_sheet
from e2fl.errors import DataError

CATEGORIES = 1000  # different texts in one column, at most
FEW = 20  # up to this many different texts are categories, even if each row has its own
NEARLY_ALL = 0.9  # of the rows; a column with more different texts is an identifier or free text
ROUNDING = 1e-12  # deviation relative to the mean at which a column counts as constant
ROWS_NAMED = 3  # incomplete rows that a message names


@dataclass(frozen=True)
class Numbers:
    """A column of numbers: one input."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Categories:
    """A column of categories: one input for each."""

    categories: tuple[str, ...]


@dataclass(frozen=True)
class Encoded(Examples):
    """Rows that a table encoded, and the digest of its encoding."""

    made_by: Mapping[str, object] = field(default_factory=dict)

    def take(self, rows: NDArray[np.int64]) -> "Encoded":
        part = super().take(rows)
        return Encoded(part.x, part.y, part.group, part.scale, part.shift, self.made_by)


@dataclass(frozen=True)
class Encoding:
    """The mapping from the columns of a table to inputs, classes and groups."""

    columns: Mapping[str, Numbers | Categories]
    label: str = ""  # the column of classes
    labels: tuple[str, ...] = ()  # names of the classes
    group: str | None = None  # the column of groups, if groups lie inside clients
    groups: tuple[str, ...] = ()
    fill: bool = False  # a missing number is the mean, a missing category one of its own

    @property
    def width(self) -> int:
        """The number of inputs."""
        return sum(
            len(column.categories) if isinstance(column, Categories) else 1
            for column in self.columns.values()
        )

    @property
    def kinds(self) -> dict[str, str]:
        """How each column is read: as numbers or as words (categories)."""
        return {
            name: "words" if isinstance(column, Categories) else "numbers"
            for name, column in self.columns.items()
        }

    @cached_property
    def digest(self) -> str:
        """Differs between encodings that turn the same row into different examples."""
        return hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as plain data; the numbers are exact."""
        columns = [
            {"name": name, "categories": list(column.categories)}
            if isinstance(column, Categories)
            else {"name": name, "mean": column.mean, "deviation": column.deviation}
            for name, column in self.columns.items()
        ]
        return {
            "columns": columns,
            "label": self.label,
            "labels": list(self.labels),
            "group": self.group,
            "groups": list(self.groups),
            "fill": self.fill,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Encoding":
        """Return the encoding that `to_json` gave."""
        try:
            columns: dict[str, Numbers | Categories] = {
                str(column["name"]): Categories(tuple(map(str, column["categories"])))
                if "categories" in column
                else Numbers(float(column["mean"]), float(column["deviation"]))
                for column in values["columns"]
            }
            group = values["group"]
            return cls(
                columns,
                str(values["label"]),
                tuple(map(str, values["labels"])),
                None if group is None else str(group),
                tuple(map(str, values["groups"])),
                bool(values["fill"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"this is not the encoding of a table: {error!r}") from error

    def apply(
        self, columns: Mapping[str, Cells]
    ) -> tuple[NDArray[np.float32], dict[str, NDArray[np.int64]]]:
        """Return rows as inputs; and by column, the rows whose category is not in training."""
        x = np.zeros((len(next(iter(columns.values()))), self.width), dtype=np.float32)
        position = 0
        unknown: dict[str, NDArray[np.int64]] = {}
        for name, column in self.columns.items():
            if isinstance(column, Numbers):
                with np.errstate(over="ignore"):  # too large numbers are reported with their row
                    numbers = columns[name].astype(np.float64)
                    x[:, position] = np.nan_to_num((numbers - column.mean) / column.deviation)
                position += 1
                continue
            codes = _codes(columns[name], column.categories)
            known = np.flatnonzero(codes >= 0)
            x[known, position + codes[known]] = 1
            if len(known) < len(codes):
                unknown[name] = np.flatnonzero(codes < 0)
            position += len(column.categories)
        return x, unknown

    def encode(self, new: str | Path | pd.DataFrame | Sequence[Mapping[str, Any]]) -> Encoded:
        """Return new rows as the inputs and labels that the table would have made of them.

        new: a file, a DataFrame, or a list of dictionaries. Rows with missing values are rejected,
        so that the result has a row for each row given. Categories that do not occur in training
        raise a warning. Without a label column all labels are -1: enough to predict with, not to
        train. A group column is used if groups lie inside clients.
        """
        if isinstance(new, Sequence) and not isinstance(new, str) and not new:
            raise DataError("there are no new rows")
        sheet = open_sheet(new)
        for name in self.columns:
            if name not in sheet.header:
                hint = did_you_mean(name, sheet.header)
                raise DataError(f"the new rows have no column '{name}'{hint}")
        names = {
            name: sheet.names(name) for name in (self.label, self.group) if name in sheet.header
        }
        cells = {
            name: sheet.numbers(name) if isinstance(column, Numbers) else sheet.texts(name)
            for name, column in self.columns.items()
        }
        _reject_incomplete(names if self.fill else cells | names, sheet)
        x, unknown = self.apply(cells)
        for name, rows in unknown.items():
            self._warn_of_unknown(name, rows, cells[name], sheet)
        y = np.full(len(sheet), -1, dtype=np.int64)
        if self.label in names:
            y = _indices(names[self.label], self.labels, "label", sheet)
        group = None
        if self.group is not None and self.group in names:
            group = _indices(names[self.group], self.groups, "group", sheet)
        return Encoded(x, y, group, made_by={"encoding": self.digest})

    def _warn_of_unknown(
        self, name: str, rows: NDArray[np.int64], cells: Cells, sheet: Sheet
    ) -> None:
        column, first = self.columns[name], int(rows[0])
        assert isinstance(column, Categories)
        warnings.warn(
            f"{sheet.where}: {len(rows)} cells of column '{name}' are categories that do not occur "
            f"in training, such as '{cells[first][:40]}' in {sheet.row_name(first)}; known: "
            f"{first_few(column.categories)}",
            stacklevel=4,
        )


def _reject_incomplete(columns: Mapping[str, Cells], sheet: Sheet) -> None:
    """Raise an error for rows with missing values: dropping them would shift the others."""
    missing = sorted(
        (row, name)
        for name, cells in columns.items()
        for row in np.flatnonzero(is_missing(cells)).tolist()
    )
    if missing:
        rows = ", ".join(
            f"{sheet.row_name(row)} has nothing in column '{name}'"
            for row, name in missing[:ROWS_NAMED]
        )
        more = f" (and {len(missing) - ROWS_NAMED} more)" if len(missing) > ROWS_NAMED else ""
        raise DataError(f"{sheet.where}: {rows}{more}; fill it in, or leave such rows out")


def _codes(cells: Cells, known: tuple[str, ...]) -> NDArray[np.int64]:
    """Return which of the known texts each cell is; -1 for another text."""
    return pd.Index(known, dtype=object).get_indexer(pd.Index(cells)).astype(np.int64)


def _indices(texts: Texts, known: tuple[str, ...], what: str, sheet: Sheet) -> NDArray[np.int64]:
    codes = _codes(texts, known)
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        hint = did_you_mean(texts[row], known)
        raise DataError(f"{sheet.where}: {sheet.row_name(row)} has the {what} '{texts[row]}'{hint}")
    return codes


def learn(
    columns: Mapping[str, Cells],
    train: NDArray[np.bool_],
    where: str,
    row_name: RowName,
    *,
    listed: Collection[str] = (),
) -> Encoding:
    """Return the encoding learnt from the training rows: means, deviations and categories.

    listed: columns that the user declares to be categories.
    """
    learnt: dict[str, Numbers | Categories] = {}
    for name, cells in columns.items():
        if cells.dtype.kind == "f":
            learnt[name] = _numbers(f"{where}: column '{name}'", cells.astype(np.float64), train)
        else:
            learnt[name] = _categories(name, cells, train, where, row_name, name in listed)
    return Encoding(learnt)


def _numbers(what: str, numbers: NDArray[np.float64], train: NDArray[np.bool_]) -> Numbers:
    seen = numbers[train & ~np.isnan(numbers)]
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = (float(seen.mean()), float(seen.std())) if len(seen) else (0.0, 1.0)
    if not math.isfinite(mean) or not math.isfinite(deviation):
        raise DataError(f"{what} has numbers too large to standardise")
    return Numbers(mean, 1.0 if deviation <= ROUNDING * max(1.0, abs(mean)) else deviation)


def _categories(
    name: str,
    cells: Cells,
    train: NDArray[np.bool_],
    where: str,
    row_name: RowName,
    listed: bool,
) -> Categories:
    categories = sorted(set(cells[train].tolist()))
    count = int(train.sum())
    identifier = len(categories) > max(FEW, NEARLY_ALL * count) and not listed
    if identifier or len(categories) > CATEGORIES:
        row = next((row for row, text in enumerate(cells) if as_number(text) is None), 0)
        many = f"in {count} training rows" if identifier else f"more than {CATEGORIES}"
        keep = f", or keep it with words = ['{name}']" if len(categories) <= CATEGORIES else ""
        raise DataError(
            f"{where}: column '{name}' has {len(categories)} different strings, {many}; is "
            "it an identifier or a date, or should these be numbers? For example, "
            f"{row_name(row)} has '{cells[row][:40]}'. Leave it out with "
            f"features = [...]{keep}"
        )
    return Categories(tuple(categories))


def first_few(names: Sequence[str]) -> str:
    """Return the first names of a list, for a message."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
