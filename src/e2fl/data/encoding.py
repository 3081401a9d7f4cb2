"""Columns of a table as inputs of a network: learnt from the rows to train with, the same for all rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from e2fl.data.columns import Column, Sheet
from e2fl.errors import DataError

CATEGORIES = 1000  # different words of one column; more are no categories
ROUNDING = 1e-12  # a deviation so small, beside the mean, is that of a column that never changes


@dataclass(frozen=True)
class Scale:
    """A column of numbers: one input."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Choice:
    """A column of words: one input for each."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Encoding:
    """What was learnt of each column that is learnt from."""

    columns: Mapping[str, Scale | Choice]

    @property
    def width(self) -> int:
        """How many inputs there are."""
        return sum(len(column.words) if isinstance(column, Choice) else 1 for column in self.columns.values())

    def columns_of(self, sheet: Sheet) -> dict[str, Column]:
        """The columns of other rows, each of the kind it was in training."""
        found: dict[str, Column] = {}
        for name, known in self.columns.items():
            found[name] = column = sheet.feature(name) if isinstance(known, Scale) else sheet.words(name)
            if isinstance(known, Scale) and column.dtype.kind != "f":
                row, word = next((row, word) for row, word in enumerate(column.tolist()) if not _is_number(word))
                raise DataError(f"{sheet.where}: {sheet.called(row)} has '{word[:40]}' in column '{name}' of numbers")
        return found

    def apply(self, columns: Mapping[str, Column]) -> tuple[NDArray[np.float32], int]:
        """Rows as inputs, and how many words of theirs were not seen in training."""
        x = np.zeros((len(next(iter(columns.values()))), self.width), dtype=np.float32)
        place = unseen = 0
        for name, known in self.columns.items():
            if isinstance(known, Scale):
                with np.errstate(over="ignore"):  # what is too large is found with the row it is in
                    x[:, place] = np.nan_to_num((columns[name].astype(np.float64) - known.mean) / known.deviation)
                place += 1
                continue
            number = {word: place + step for step, word in enumerate(known.words)}
            places = np.array([number.get(word, -1) for word in columns[name].tolist()])
            seen = np.flatnonzero(places >= 0)
            x[seen, places[seen]] = 1
            unseen += len(places) - len(seen)
            place += len(known.words)
        return x, unseen


def learn(columns: Mapping[str, Column], train: NDArray[np.bool_], sheet: Sheet, rows: NDArray[np.int64]) -> Encoding:
    """Means, deviations and words of the rows to train with. rows: their places in the sheet."""
    found: dict[str, Scale | Choice] = {}
    for name, column in columns.items():
        found[name] = (
            _scale(name, column, train, sheet)
            if column.dtype.kind == "f"
            else _choice(name, column, train, sheet, rows)
        )
    return Encoding(found)


def _scale(name: str, column: Column, train: NDArray[np.bool_], sheet: Sheet) -> Scale:
    numbers = column.astype(np.float64)
    seen = numbers[train & ~np.isnan(numbers)]
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = (float(seen.mean()), float(seen.std())) if len(seen) else (0.0, 1.0)
    if not math.isfinite(mean) or not math.isfinite(deviation):
        raise DataError(f"{sheet.where}: column '{name}' has numbers too large to take their mean and deviation")
    return Scale(mean, 1.0 if deviation <= ROUNDING * max(1.0, abs(mean)) else deviation)


def _choice(name: str, column: Column, train: NDArray[np.bool_], sheet: Sheet, rows: NDArray[np.int64]) -> Choice:
    words = sorted(set(column[train].tolist()))
    if len(words) > CATEGORIES:
        odd = next((row for row, word in enumerate(column.tolist()) if not _is_number(word)), 0)
        raise DataError(
            f"{sheet.where}: column '{name}' has {len(words)} different words, more than {CATEGORIES}; "
            f"is it an identifier, or are these numbers? For one, {sheet.called(int(rows[odd]))} has "
            f"'{column[odd][:40]}'. Leave it out with features = [...]"
        )
    return Choice(tuple(words))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return not word
    return True
