"""Tables as people have them, read with pandas: CSV, Parquet, xlsx, a DataFrame, or a list of rows.

A cell means the same whatever it was read from: missing, a number or a text. Errors name line and
column.
"""

import csv
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl.data.files import existing
from e2fl.data.rows import MISSING, RowName, row_number
from e2fl.errors import DataError
from e2fl.files import sha256_of

BOOLEANS = {"true": "True", "false": "False"}  # in upper or lower case
BITS = {"True": "1", "False": "0"}
# Decimal commas, percentages and dates: meant as numbers, but float() does not read them.
ALMOST_NUMBER = re.compile(
    r"[+-]?\d[\d.]*,\d+ ?%?|[+-]?\d+(\.\d+)? ?%"
    r"|\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{2,4}"
)
WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # first bytes of a file

Texts = NDArray[np.object_]  # "" where a value is missing
Cells = NDArray[np.float64] | Texts  # numbers, NaN where a value is missing; or texts


def as_text(value: Any) -> str:
    """Return a cell as text: "" if it is missing, True or False in any spelling, 1 for 1.0."""
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = "" if pd.isna(value) else str(value).strip()
    lower = text.lower()
    return "" if lower in MISSING else BOOLEANS.get(lower, text)


def as_name(text: str) -> str:
    """Return the name of a client, label or group: 1.0 is 1."""
    return WHOLE.sub(r"\1", text)


def as_number(text: str) -> float | None:
    """Return the number that a text stands for: NaN if it is missing, None if it is no number."""
    try:
        return float(text or "nan")
    except ValueError:
        return None


def is_missing(cells: Cells) -> NDArray[np.bool_]:
    """Return where a value is missing."""
    missing: NDArray[np.bool_] = np.isnan(cells) if cells.dtype.kind == "f" else cells == ""
    return missing


class Column:
    """A column as its distinct values and, for each row, which of them it has."""

    def __init__(self, cells: "pd.Series[Any]"):
        if cells.dtype == np.object_:  # 1 and True are equal, but not as texts
            cells = pd.Series([as_text(cell) for cell in cells], dtype=object)
        self.codes, self.values = pd.factorize(cells, use_na_sentinel=False)

    @cached_property
    def texts(self) -> list[str]:
        """The distinct values as texts."""
        return [as_text(value) for value in self.values]

    def cells(self, change: Callable[[str], str] = str) -> Texts:
        """Return the text of each row; equal texts are one object."""
        return np.array([change(text) for text in self.texts], dtype=np.object_)[self.codes]

    def numbers(self, spelt: Mapping[str, str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the number of each row, and which rows are neither numbers nor missing."""
        if getattr(self.values.dtype, "kind", "O") in "iuf":
            numbers = self.values.to_numpy(dtype=np.float64, na_value=np.nan)
            return numbers[self.codes], np.zeros(len(self.codes), dtype=np.bool_)
        read = [as_number(spelt.get(text, text)) for text in self.texts]
        wrong = np.array([number is None for number in read])
        return np.array(read, dtype=np.float64)[self.codes], wrong[self.codes]


@dataclass(frozen=True)
class Sheet:
    """A table: a file, a DataFrame or a list of dictionaries."""

    frame: pd.DataFrame
    where: str  # what errors call it
    row_name: RowName  # what errors call a row
    sha256: str | None = None  # of the file

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    def __len__(self) -> int:
        return len(self.frame)

    def texts(self, name: str) -> Texts:
        """Return a column as it is written, even if it holds numbers."""
        return self._column(name).cells()

    def names(self, name: str) -> Texts:
        """Return a column of names, such as clients: as it is written, but 1.0 is 1."""
        return self._column(name).cells(as_name)

    def feature(self, name: str) -> Cells:
        """Return an input column: numbers if all present cells are numbers, otherwise texts.

        Where most cells are numbers or dates, a cell that is not a plain number is rejected.
        """
        numbers, wrong = self._column(name).numbers(MappingProxyType({}))
        if not wrong.any():
            return self._finite(numbers, name)
        texts = self.texts(name)
        present = np.count_nonzero(~is_missing(texts))
        almost = sum(ALMOST_NUMBER.fullmatch(text) is not None for text in texts[wrong])
        if 2 * (present - np.count_nonzero(wrong) + almost) > present:
            row = int(wrong.argmax())
            raise DataError(
                f"{self.where}: {self.row_name(row)} has '{texts[row][:40]}' in column '{name}', "
                "where most are numbers or dates. Write numbers as 1.5 and dates as numbers, such "
                f"as the year; if these are texts, set words = ['{name}']; or leave the column out "
                "with features = [...]"
            )
        return texts

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column that must hold numbers; True is 1 and False is 0."""
        numbers, wrong = self._column(name).numbers(BITS)
        if wrong.any():
            row = int(wrong.argmax())
            text = self.texts(name)[row][:40]
            raise DataError(
                f"{self.where}: {self.row_name(row)} has '{text}' in column '{name}' of numbers"
            )
        return self._finite(numbers, name)

    def _column(self, name: str) -> Column:
        try:
            return Column(self.frame[name])
        except (TypeError, ValueError) as error:
            raise DataError(f"{self.where}: column '{name}' holds lists or objects") from error

    def _finite(self, numbers: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        infinite = np.isinf(numbers)
        if infinite.any():
            row = self.row_name(int(infinite.argmax()))
            raise DataError(f"{self.where}: {row} is not finite in column '{name}'")
        return numbers


def open_sheet(table: Any) -> Sheet:
    """Read a file by its ending, a DataFrame, anything with `to_pandas`, or a list of rows."""
    if isinstance(table, str | Path):
        path = existing(str(table))
        frame, row_name = _read(path)
        sheet = Sheet(frame, str(path), row_name, sha256_of(path))
    elif isinstance(table, pd.DataFrame) or hasattr(table, "to_pandas"):
        frame = table if isinstance(table, pd.DataFrame) else table.to_pandas()
        sheet = Sheet(
            frame.set_axis([str(name) for name in frame.columns], axis=1),
            "the DataFrame",
            row_number,
        )
    else:
        sheet = Sheet(pd.DataFrame(list(table), dtype=object), "the rows", row_number)
    _require_header(sheet.header, sheet.where)
    if not len(sheet):
        raise DataError(f"{sheet.where} has no rows")
    return sheet


def _require_header(header: list[str], where: str) -> None:
    if not header or not all(header):
        raise DataError(f"{where} needs a first row that names every column")
    name, count = Counter(header).most_common(1)[0]
    if count > 1:
        raise DataError(f"{where} has two columns '{name}'")


def _read(path: Path) -> tuple[pd.DataFrame, RowName]:
    """Return the cells of a file, and how errors call its rows."""
    readers = {
        **dict.fromkeys((".csv", ".tsv", ".txt"), _read_csv),
        **dict.fromkeys((".parquet", ".pq"), _read_parquet),
        **dict.fromkeys((".xlsx", ".xlsm"), _read_excel),
    }
    if path.suffix.lower() not in readers:
        raise DataError(f"{path} is not a .csv (or .tsv), .parquet or .xlsx file")
    try:
        return readers[path.suffix.lower()](path)
    except DataError:
        raise
    except Exception as error:  # whatever a reader does with a damaged file
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path} cannot be read: {reason or type(error).__name__}") from error


def _counted_from_1(row: int) -> str:
    return f"row {row + 1}"


def _read_parquet(path: Path) -> tuple[pd.DataFrame, RowName]:
    return pd.read_parquet(path), _counted_from_1


def _read_excel(path: Path) -> tuple[pd.DataFrame, RowName]:
    """Return the first sheet of a workbook."""
    with pd.ExcelFile(path) as book:
        names = book.sheet_names
        cells = pd.read_excel(book, header=None, dtype=object, keep_default_na=False)
    if len(names) > 1:
        warnings.warn(f"{path} has {len(names)} sheets; '{names[0]}' is read", stacklevel=5)
    cells = cells[(cells != "").any(axis=1)]
    if not len(cells):
        raise DataError(f"{path} is empty; its first row must name the columns")
    header = [as_text(name) for name in cells.iloc[0]]
    return cells.iloc[1:].set_axis(header, axis=1), _counted_from_1


def _read_csv(path: Path) -> tuple[pd.DataFrame, RowName]:
    """Return a text file, in UTF-8, UTF-16 or Windows-1252."""
    with path.open("rb") as file:
        utf_16 = file.read(2) in UTF_16
    try:
        return _read_text(path, "utf-16" if utf_16 else "utf-8-sig")
    except UnicodeError:
        table = _read_text(path, "cp1252")
    warnings.warn(
        f"{path} is not UTF-8; it is read as Windows-1252 (Western European)", stacklevel=5
    )
    return table


def _read_text(path: Path, encoding: str) -> tuple[pd.DataFrame, RowName]:
    """Return separated values as texts; the separator is the one that the header has most of."""
    rows: list[list[str]] = []
    lines: list[int] = []  # that rows begin on
    line = 1
    with path.open(encoding=encoding, newline="") as file:
        first = file.readline()
        file.seek(0)
        likely = "\t,;|" if path.suffix.lower() == ".tsv" else ",;\t|"
        separator = max(likely, key=re.sub(r'"[^"]*"', "", first).count)
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            for row in reader:
                if len(row) > 1 or "".join(row).strip():
                    rows.append(list(map(sys.intern, row)))  # equal texts take memory once
                    lines.append(line)
                line = reader.line_num + 1
        except csv.Error as error:
            raise DataError(f"{path}: line {line}: {error}") from error
    if not rows:
        raise DataError(f"{path} is empty; its first row must name the columns")
    width = len(rows[0])
    for line, row in zip(lines, rows, strict=True):
        if len(row) < width or any(cell.strip() for cell in row[width:]):
            raise DataError(f"{path}: line {line} has {len(row)} fields, the header has {width}")
        del row[width:]
    header = [name.strip() for name in rows[0]]
    return pd.DataFrame(
        rows[1:], columns=header, dtype=object
    ), lambda row: f"line {lines[row + 1]}"
