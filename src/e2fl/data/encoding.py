"""Columns of a table as inputs of a network: learnt from the training rows, applied to any rows.

An `Encoding` is plain data: `to_json` and `from_json` store it with a run or an exported model, and
`encode` turns new rows into inputs without the table that it was learnt from.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl import codec
from e2fl.construct import did_you_mean
from e2fl.data.federated import Examples
from e2fl.data.sheet import Cells, Origin, Sheet, codes_of, missing_in, open_sheet
from e2fl.errors import DataError

CATEGORIES = 1000  # different texts in one column, at most
FEW = 20  # up to this many different texts are categories, even if each row has its own
NEARLY_ALL = 0.9  # of the rows; a column with more different texts is an identifier or free text
ROUNDING = 1e-12  # deviation relative to the mean at which a column counts as constant


@dataclass(frozen=True)
class Column:
    """A column of numbers: one input; or of categories: one input for each."""

    name: str
    categories: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0

    @property
    def width(self) -> int:
        """The number of inputs."""
        return len(self.categories) or 1


@dataclass(frozen=True)
class Encoded(Examples):
    """Rows that a table encoded, and the digest of its encoding."""

    made_by: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Encoding:
    """The mapping from the columns of a table to inputs, classes and groups."""

    columns: tuple[Column, ...]
    label: str = ""  # the column of classes
    labels: tuple[str, ...] = ()  # names of the classes
    group: str | None = None  # the column of groups, if groups lie inside clients
    groups: tuple[str, ...] = ()
    fill: bool = False  # a missing number is the mean, a missing category one of its own

    @property
    def width(self) -> int:
        """The number of inputs."""
        return sum(column.width for column in self.columns)

    @property
    def kinds(self) -> dict[str, str]:
        """How each column is read: as numbers or as words (categories)."""
        return {column.name: "words" if column.categories else "numbers" for column in self.columns}

    @cached_property
    def digest(self) -> str:
        """Differs between encodings that turn the same row into different examples."""
        return hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as plain data; the numbers are exact."""
        return codec.to_json(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Encoding":
        """Return the encoding that `to_json` gave."""
        try:
            encoding: Encoding = codec.decode(values, cls)
            if not encoding.width:
                raise ValueError("it has no columns")
            return encoding
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"this is not the encoding of a table: {error!r}") from error

    def apply(
        self, columns: Mapping[str, Cells]
    ) -> tuple[NDArray[np.float32], dict[str, NDArray[np.int64]]]:
        """Return rows as inputs; and by column, the rows whose category is not in training."""
        x = np.zeros((len(next(iter(columns.values()))), self.width), dtype=np.float32)
        position = 0
        unknown: dict[str, NDArray[np.int64]] = {}
        for column in self.columns:
            cells = columns[column.name]
            if column.categories:
                codes = codes_of(cells, column.categories)
                known = np.flatnonzero(codes >= 0)
                x[known, position + codes[known]] = 1
                if len(known) < len(codes):
                    unknown[column.name] = np.flatnonzero(codes < 0)
            else:
                with np.errstate(all="ignore"):  # too large numbers are reported with their row
                    numbers = (cells.astype(np.float64) - column.mean) / column.deviation
                    x[:, position] = np.where(missing_in(cells), 0, numbers)
            position += column.width
        return x, unknown

    def encode(self, new: str | Path | pd.DataFrame | Sequence[Mapping[str, Any]]) -> Encoded:
        """Return new rows as the inputs and labels that the table would have made of them.

        new: a file, a DataFrame, or a list of dictionaries. Rows with missing values are rejected,
        so that the result has a row for each row given. Categories that do not occur in training
        raise a warning. Without a label column all labels are -1: enough to predict with, not to
        train. A group column is used if groups lie inside clients.
        """
        sheet = open_sheet(new)
        cells: dict[str, Cells] = {}
        for column in self.columns:
            name, words = column.name, column.categories
            if name not in sheet.header:
                hint = did_you_mean(name, sheet.header)
                raise DataError(f"the new rows have no column '{name}'{hint}")
            cells[name] = sheet.texts(name) if words else sheet.cells(name, only_numbers=True)
        used = [name for name in (self.label, self.group) if name in sheet.header]
        texts = {name: sheet.texts(name) for name in used if name is not None}
        needed = {**({} if self.fill else cells), **texts}
        if needed:
            sheet.complete(needed, "fill it in, or leave such rows out")
        x, unknown = self.apply(cells)
        for name, rows in unknown.items():
            sheet.warn(
                f"{len(rows)} cells of column '{name}' are categories that do not occur in "
                f"training, such as '{cells[name][rows[0]][:40]}' in {sheet.row_name(rows[0])}"
            )
        y = np.full(len(sheet), -1, dtype=np.int64)
        if self.label in texts:
            y = _indices(texts[self.label], self.labels, "label", sheet)
        group = None
        if self.group is not None and self.group in texts:
            group = _indices(texts[self.group], self.groups, "group", sheet)
        return Encoded(x, y, group, made_by={"encoding": self.digest})


def _indices(texts: Cells, known: tuple[str, ...], what: str, sheet: Sheet) -> NDArray[np.int64]:
    codes = codes_of(texts, known)
    unknown = codes < 0
    if unknown.any():
        text = texts[unknown][0]
        raise sheet.error(unknown, f"has the {what} '{text}'{did_you_mean(text, known)}")
    return codes


def learn(
    columns: Mapping[str, Cells],
    train: NDArray[np.int64],
    origin: Origin,
    listed: Collection[str] = (),
) -> tuple[Column, ...]:
    """Return how columns become inputs: means, deviations and categories of the training rows.

    train: those rows. listed: columns that the user declares to be categories.
    """
    learnt = []
    for name, cells in columns.items():
        if cells.dtype.kind == "f":
            seen = cells[train]
            seen = seen[~missing_in(seen)] if not missing_in(seen).all() else np.zeros(1)
            with np.errstate(all="ignore"):
                mean, deviation = float(seen.mean()), float(seen.std())
            constant = deviation <= ROUNDING * max(1.0, abs(mean))
            learnt.append(Column(name, mean=mean, deviation=1.0 if constant else deviation))
            continue
        categories = sorted(set(cells[train].tolist()))
        identifier = len(categories) > max(FEW, NEARLY_ALL * len(train)) and name not in listed
        if identifier or len(categories) > CATEGORIES:
            raise DataError(
                f"{origin.where}: column '{name}' has {len(categories)} different strings in "
                f"{len(train)} training rows, such as '{cells[0][:40]}' in {origin.row_name(0)}; "
                f"leave it out with features = [...], or keep up to {CATEGORIES} with "
                f"words = ['{name}']"
            )
        learnt.append(Column(name, tuple(categories)))
    return tuple(learnt)
