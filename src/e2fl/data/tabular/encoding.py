"""Columns of a table as inputs of a network: learnt from the training rows, applied to all rows."""

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from e2fl.data.tabular.sheet import Column, Sheet
from e2fl.errors import DataError
from e2fl.tables.cells import as_number

CATEGORIES = 1000  # different strings in one column, at most
FEW = 20  # up to this many different strings are categories, even if each row has its own
NEARLY_ALL = 0.9  # share of the rows; columns with more different strings are identifiers or free text
ROUNDING = 1e-12  # deviation relative to the mean at which a column counts as constant


@dataclass(frozen=True)
class Scale:
    """A column of numbers: one input."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Choice:
    """A column of categories: one input for each."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Encoding:
    """The mapping from input columns to inputs."""

    columns: Mapping[str, Scale | Choice]

    @property
    def width(self) -> int:
        """The number of inputs."""
        return sum(len(column.words) if isinstance(column, Choice) else 1 for column in self.columns.values())

    @property
    def kinds(self) -> dict[str, str]:
        """How each column was read: as numbers or as words (categories)."""
        return {name: "words" if isinstance(column, Choice) else "numbers" for name, column in self.columns.items()}

    @cached_property
    def digest(self) -> str:
        """Differs between encodings that turn the same row into different inputs."""
        learnt = [[name, *vars(column).values()] for name, column in self.columns.items()]
        return hashlib.sha256(json.dumps(learnt).encode()).hexdigest()

    def columns_of(self, sheet: Sheet) -> dict[str, Column]:
        """Return the columns of other rows, read as they were in training."""
        return {
            name: sheet.numbers(name) if isinstance(known, Scale) else sheet.texts(name)
            for name, known in self.columns.items()
        }

    def apply(self, columns: Mapping[str, Column]) -> tuple[NDArray[np.float32], dict[str, NDArray[np.int64]]]:
        """Return rows as inputs; and by column, the rows whose category does not occur in training."""
        x = np.zeros((len(next(iter(columns.values()))), self.width), dtype=np.float32)
        place = 0
        unknown: dict[str, NDArray[np.int64]] = {}
        for name, known in self.columns.items():
            if isinstance(known, Scale):
                with np.errstate(over="ignore"):  # too large numbers are reported later, with their row
                    x[:, place] = np.nan_to_num((columns[name].astype(np.float64) - known.mean) / known.deviation)
                place += 1
                continue
            number = {word: place + step for step, word in enumerate(known.words)}
            places = np.array([number.get(word, -1) for word in columns[name].tolist()])
            seen = np.flatnonzero(places >= 0)
            x[seen, places[seen]] = 1
            if len(seen) < len(places):
                unknown[name] = np.flatnonzero(places < 0)
            place += len(known.words)
        return x, unknown


def learn(
    columns: Mapping[str, Column],
    train: NDArray[np.bool_],
    sheet: Sheet,
    rows: NDArray[np.int64],
    *,
    listed: Collection[str] = (),
) -> Encoding:
    """Return the encoding learnt from the training rows: means, deviations and categories.

    rows: the place of each row in the sheet. listed: columns that the user declares to be categories.
    """
    found: dict[str, Scale | Choice] = {}
    for name, column in columns.items():
        if column.dtype.kind == "f":
            found[name] = _scale(name, column, train, sheet)
        else:
            found[name] = _choice(name, column, train, sheet, rows=rows, listed=name in listed)
    return Encoding(found)


def _scale(name: str, column: Column, train: NDArray[np.bool_], sheet: Sheet) -> Scale:
    numbers = column.astype(np.float64)
    seen = numbers[train & ~np.isnan(numbers)]
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = (float(seen.mean()), float(seen.std())) if len(seen) else (0.0, 1.0)
    if not math.isfinite(mean) or not math.isfinite(deviation):
        raise DataError(f"{sheet.where}: column '{name}' has numbers too large to standardise")
    return Scale(mean, 1.0 if deviation <= ROUNDING * max(1.0, abs(mean)) else deviation)


def _choice(
    name: str, column: Column, train: NDArray[np.bool_], sheet: Sheet, *, rows: NDArray[np.int64], listed: bool
) -> Choice:
    words = sorted(set(column[train].tolist()))
    count = int(train.sum())
    identifier = len(words) > max(FEW, NEARLY_ALL * count) and not listed
    if identifier or len(words) > CATEGORIES:
        odd = next((row for row, word in enumerate(column.tolist()) if as_number(word) is None), 0)
        many = f"in {count} training rows" if identifier else f"more than {CATEGORIES}"
        anyway = f", or keep it with words = ['{name}']" if identifier and len(words) <= CATEGORIES else ""
        raise DataError(
            f"{sheet.where}: column '{name}' has {len(words)} different strings, {many}; "
            "is it an identifier or a date, or should these be numbers? For example, "
            f"{sheet.row_name(int(rows[odd]))} has '{column[odd][:40]}'. Leave it out with features = [...]{anyway}"
        )
    return Choice(tuple(words))
