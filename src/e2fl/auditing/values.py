"""Conversion of cell texts into numbers, labels and group names."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from e2fl.auditing.table import Codes, Numbers, Options
from e2fl.errors import DataError
from e2fl.tables.files import Column

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>", "nat", "?", "unknown", "missing", "not available"})
SHOWN = 20  # mistakes that are listed; the others are counted
MAX_LABELS = 1000
POSITIVE = ("1", "yes", "y", "t", "positive", "pos", "selected", "hired", "accepted", "approved")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")


def is_missing(text: str) -> bool:
    """Return whether a cell says that there is no value."""
    return text.strip().casefold() in MISSING


def number(text: str, decimal_comma: bool = False) -> float:
    """Return the number in a cell; NaN where it is none, or may be read in two ways. '85 %' is 0.85."""
    cell = text.strip().replace("\u00a0", "")
    percent = cell.endswith("%")
    cell = cell.removesuffix("%").strip()
    if "," in cell:
        if not decimal_comma and THOUSANDS.fullmatch(cell):
            return math.nan
        if "." in cell:
            cell = cell.replace(".", "") if cell.rfind(",") > cell.rfind(".") else cell.replace(",", "")
        cell = cell.replace(",", ".")
    if "_" in cell:  # float() accepts 1_000
        return math.nan
    try:
        found = float(cell)
    except ValueError:
        return math.nan
    return found / 100 if percent else found


class Mistakes:
    """What is wrong with a table, with row and column, collected so that the user can fix all of it at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def add(self, line: str) -> None:
        self.count += 1
        if len(self.lines) < SHOWN:
            self.lines.append(line)

    def rows(self, wrong: NDArray[np.bool_], start: int, say: Callable[[int], str]) -> None:
        """Add each wrong row of a block that begins after `start` rows; `say` gets the position in the block."""
        places = np.flatnonzero(wrong)
        listed = places[: max(0, SHOWN - len(self.lines))]
        self.lines += [f"row {start + int(place) + 1} {say(int(place))}" for place in listed]
        self.count += len(places)

    def stop(self, table: str) -> None:
        """Raise `DataError` if there are any."""
        if not self.count:
            return
        more = f"\n  and {self.count - len(self.lines):,} more" if self.count > len(self.lines) else ""
        noun = "a mistake" if self.count == 1 else f"{self.count:,} mistakes"
        listed = "\n  ".join(self.lines)
        raise DataError(f"{table} has {noun} (rows are counted below the header):\n  {listed}{more}")


@dataclass
class Texts:
    """A column of labels or of numbers, kept as codes of distinct texts until there are too many to be labels."""

    title: str
    decimal_comma: bool
    codes: dict[str, int] = field(default_factory=dict)
    parts: list[NDArray[np.int32]] = field(default_factory=list)
    numbers: list[NDArray[np.float64]] | None = None
    percent_signs: bool = False
    plain_numbers: bool = False

    def take(self, column: Column) -> None:
        if self.numbers is None:
            known = dict(self.codes)
            places = np.array([known.setdefault(text, len(known)) for text in column.texts], dtype=np.int32)
            if len(known) <= MAX_LABELS + 1:
                self.codes = known
                self.parts.append(places[column.codes])
                return
            values = np.array([self.parse(text) for text in self.codes])
            self.numbers = [values[part] for part in self.parts]
            self.parts = []
        self.numbers.append(np.array([self.parse(text) for text in column.texts])[column.codes])

    def parse(self, text: str) -> float:
        found = number(text, self.decimal_comma)
        if text.rstrip().endswith("%"):
            self.percent_signs = True
        elif found:
            self.plain_numbers = True
        return found

    def as_codes(self) -> Codes:
        return np.concatenate(self.parts).astype(np.int64)

    def as_numbers(self) -> Numbers:
        if self.numbers is not None:
            return np.concatenate(self.numbers)
        return np.array([self.parse(text) for text in self.codes])[self.as_codes()]


class Names:
    """A column of names, trimmed: clients or groups. Missing ones become the last name, `unknown`."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.missing: dict[str, None] = {}  # the spellings of missing values that occur
        self.parts: list[NDArray[np.int32]] = []

    def take(self, column: Column) -> NDArray[np.bool_]:
        """Add a block; return which rows have no name."""
        places = np.empty(len(column.texts), np.int32)
        for position, text in enumerate(column.texts):
            if is_missing(text):
                places[position] = -1
            else:
                places[position] = self.codes.setdefault(" ".join(text.split()), len(self.codes))
        found = places[column.codes]
        self.parts.append(found)
        wrong = found < 0
        if wrong.any():
            for position in np.unique(column.codes[wrong]):
                self.missing[column.texts[position].strip()] = None
        return wrong

    def finish(self) -> tuple[list[str], NDArray[np.int32]]:
        """Return the names in order, and each row's code; -1 where there is none.

        The order does not depend on that of the rows, and neither do the draws of the bootstrap then.
        """
        names = sorted(self.codes, key=natural)
        places = np.full(len(names) + 1, -1, dtype=np.int32)  # the last is reached by code -1
        places[[self.codes[name] for name in names]] = np.arange(len(names))
        return names, places[np.concatenate(self.parts)]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts G2 before G10."""
    parts = re.split(r"(\d{1,18})", name)
    return [(1, int(part), "") if place % 2 else (0, 0, part) for place, part in enumerate(parts)]


class LabelCodes:
    """Labels compared as values: 1, 1.0 and True are one label, and so are Yes and yes."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.spellings: list[list[str]] = []

    def code(self, text: str) -> int:
        key = self.key(text)
        place = self.codes.get(key)
        if place is None:
            place = self.codes[key] = len(self.codes)
            self.spellings.append([])
        if text.strip() not in self.spellings[place]:
            self.spellings[place].append(text.strip())
        return place

    @staticmethod
    def key(text: str) -> str:
        word = text.strip().casefold()
        word = {"true": "1", "false": "0"}.get(word, word)
        found = number(word, decimal_comma=True) if not word.endswith("%") else math.nan
        return f"{found:.15g}" if math.isfinite(found) else word

    @property
    def names(self) -> list[str]:
        return [spellings[0] for spellings in self.spellings]

    def positive(self) -> int | None:
        """Return the label that plainly means yes, where there are two labels or fewer."""
        keys = list(self.codes)
        if len(keys) > 2:
            return None
        if set(keys) <= {"0"} or set(keys) <= {"-1"}:
            return self.code("1")
        if "1" in keys and not {"0", "-1", "1"}.issuperset(keys):
            return None  # of 1 and 2, either may be the positive one
        known = [key for key in keys if key in POSITIVE]
        return self.codes[known[0]] if len(known) == 1 else None


@dataclass
class Rows:
    """The chosen columns of the rows that are kept."""

    table: str
    options: Options
    texts: dict[str, Texts]  # y, y_hat, score, accuracy and n, of all rows
    keep: NDArray[np.bool_]  # [all rows]
    clients: list[str] | None
    client: Codes | None  # [rows], into clients
    combo: Codes  # [rows], into the combinations of attributes
    combos: Codes  # [combos, attributes]
    notes: list[str]
    mistakes: Mistakes

    def numbers(self, role: str) -> Numbers:
        return self.texts[role].as_numbers()[self.keep]

    def codes(self, role: str) -> Codes:
        return self.texts[role].as_codes()[self.keep]
