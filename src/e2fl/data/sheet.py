"""Tables as people have them, read with pandas: CSV, Parquet, xlsx, a DataFrame, or a list of rows.

A cell means the same whatever it was read from: missing, a number or a text. Errors name row and
column.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl.data.files import existing
from e2fl.errors import DataError, reason_of
from e2fl.files import sha256_of

MISSING = frozenset(("", "?", "na", "n/a", "nan", "nat", "<na>", "null", "none"))  # in any case
BOOLEANS = {"true": "True", "false": "False"}  # in any case
# Decimal commas, percentages and dates: meant as numbers, but float() does not read them.
ALMOST_NUMBER = re.compile(
    r"[+-]?\d[\d.]*,\d+ ?%?|[+-]?\d+(\.\d+)? ?%"
    r"|\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{2,4}"
)
WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # first bytes of a file

Texts = NDArray[np.object_]  # "" where a value is missing
Cells = NDArray[np.float64] | Texts  # numbers, NaN where a value is missing; or texts
RowName = Callable[[int], str]  # how messages call a row


@dataclass(frozen=True)
class Origin:
    """Where rows come from, for messages: a file or the arrays, and the name of a row."""

    where: str
    row_name: RowName = "row {}".format

    def error(self, mask: NDArray[np.bool_], text: str) -> DataError:
        """Return an error about the first row of a mask."""
        return DataError(f"{self.where}: {self.row_name(int(mask.argmax()))} {text}")

    def only(self, rows: NDArray[np.int64]) -> "Origin":
        """Return the origin of some of the rows."""
        return Origin(self.where, lambda row: self.row_name(int(rows[row])))


def as_text(value: Any) -> str:
    """Return a value as text: "" if it is missing, True in any spelling, 1 for 1.0."""
    text = str(value).strip()
    if text.lower() in MISSING:
        return ""
    return BOOLEANS.get(text.lower(), WHOLE.sub(r"\1", text))


def as_number(text: str) -> float:
    """Return the number that a text stands for: NaN if it is missing, infinite if it is none."""
    try:
        return float(text or "nan")
    except ValueError:
        return math.inf


def missing_in(cells: Cells) -> NDArray[np.bool_]:
    """Return where a value is missing."""
    missing: NDArray[np.bool_] = np.isnan(cells) if cells.dtype.kind == "f" else cells == ""
    return missing


def missing_counts(columns: Mapping[str, Cells]) -> dict[str, int]:
    """Return the number of missing cells of each column that has some."""
    counts = {name: int(missing_in(cells).sum()) for name, cells in columns.items()}
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True)
class Sheet(Origin):
    """A table: a file, a DataFrame or a list of dictionaries."""

    frame: pd.DataFrame = field(kw_only=True)
    sha256: str | None = None  # of the file

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    def __len__(self) -> int:
        return len(self.frame)

    def refuse_missing(self, columns: Mapping[str, Cells], advice: str) -> None:
        """Raise an error about the first row without a value; advice: what to do about it."""
        counts = missing_counts(columns)
        for name in counts:
            by_column = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise self.error(
                missing_in(columns[name]),
                f"has nothing in column '{name}'; {advice}. Missing values by column: {by_column}",
            )

    def texts(self, name: str) -> Texts:
        """Return a column as texts, even if it holds numbers."""
        codes, values = pd.factorize(self.frame[name].astype(str), use_na_sentinel=False)
        return np.array([as_text(value) for value in values], dtype=np.object_)[codes]

    def feature(self, name: str) -> Cells:
        """Return an input column: numbers if all present cells are numbers, otherwise texts.

        Where most cells are numbers or dates, a cell that is not a plain number is rejected.
        """
        numbers = self._parsed(name)
        wrong = np.isinf(numbers)
        if not wrong.any():
            return numbers
        texts = self.texts(name)
        plain = np.count_nonzero(np.isfinite(numbers))
        almost = sum(ALMOST_NUMBER.fullmatch(text) is not None for text in texts[wrong])
        if 2 * (plain + almost) > np.count_nonzero(~missing_in(texts)):
            raise self.error(
                wrong,
                f"has '{texts[wrong][0][:40]}' in column '{name}', where most are numbers or "
                "dates. Write numbers as 1.5 and dates as numbers, such as the year; if these are "
                f"texts, set words = ['{name}']; or leave the column out with features = [...]",
            )
        return texts

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column that must hold numbers."""
        numbers = self._parsed(name)
        wrong = np.isinf(numbers)
        if wrong.any():
            text = self.texts(name)[wrong][0][:40]
            raise self.error(wrong, f"has '{text}' in column '{name}' of numbers")
        return numbers

    def _parsed(self, name: str) -> NDArray[np.float64]:
        """Return the number of each row: NaN if it is missing, infinite if it is none."""
        cells = self.frame[name]
        if getattr(cells.dtype, "kind", "O") in "iuf":
            return cells.to_numpy(dtype=np.float64, na_value=np.nan)
        codes, values = pd.factorize(self.texts(name))
        return np.array([as_number(value) for value in values])[codes]


def open_sheet(table: Any) -> Sheet:
    """Read a file by its ending, a DataFrame, anything with `to_pandas`, or a list of rows."""
    if isinstance(table, str | Path):
        sheet = _read(existing(str(table)))
    elif isinstance(table, pd.DataFrame) or hasattr(table, "to_pandas"):
        frame = table if isinstance(table, pd.DataFrame) else table.to_pandas()
        sheet = Sheet("the DataFrame", frame=frame.set_axis(list(map(str, frame)), axis=1))
    else:
        sheet = Sheet("the rows", frame=pd.DataFrame(list(table), dtype=object))
    if not len(sheet):
        raise DataError(f"{sheet.where} has no rows")
    if not all(sheet.header):
        raise DataError(f"{sheet.where} needs a first row that names every column")
    name, count = Counter(sheet.header).most_common(1)[0]
    if count > 1:
        raise DataError(f"{sheet.where} has two columns '{name}'")
    return sheet


def _read(path: Path) -> Sheet:
    """Read a file; rows of CSV and xlsx are counted as a spreadsheet shows them."""
    kind, digest = path.suffix.lower(), sha256_of(path) if path.is_file() else None
    if kind not in (".csv", ".tsv", ".txt", ".parquet", ".xlsx"):
        raise DataError(f"{path} is not a .csv (or .tsv), .parquet or .xlsx file")
    try:
        if kind == ".parquet":
            return Sheet(str(path), frame=pd.read_parquet(path), sha256=digest)
        if kind == ".xlsx":
            cells = pd.read_excel(path, header=None, dtype=object, keep_default_na=False)
        else:
            cells = _read_csv(path).apply(lambda column: column.str.strip())
        cells = cells[(cells != "").any(axis=1)]
    except Exception as error:  # whatever a reader does with a damaged file
        raise DataError(f"{path} cannot be read: {reason_of(error)}") from error
    if cells.empty:
        raise DataError(f"{path} has no rows")
    shown = cells.index[1:] + 1
    frame = cells.iloc[1:].set_axis([as_text(name) for name in cells.iloc[0]], axis=1)
    return Sheet(
        str(path),
        lambda row: f"row {shown[row]}",
        frame=frame.reset_index(drop=True),
        sha256=digest,
    )


def _read_csv(path: Path) -> pd.DataFrame:
    """Return separated values as texts, in UTF-8, UTF-16 or Windows-1252.

    The separator is the one that the header has most of.
    """
    with path.open("rb") as file:
        header = file.readline()
    separator = max("\t,;|", key=re.sub(r'"[^"]*"', "", header.decode("latin-1")).count)
    settings: dict[str, Any] = {"header": None, "dtype": str, "skip_blank_lines": False}
    settings |= {"sep": separator, "keep_default_na": False}
    try:
        encoding = "utf-16" if header[:2] in UTF_16 else "utf-8-sig"
        cells: pd.DataFrame = pd.read_csv(path, encoding=encoding, **settings)
    except UnicodeError:
        cells = pd.read_csv(path, encoding="cp1252", **settings)
        warnings.warn(f"{path} is not UTF-8; it is read as Windows-1252", stacklevel=5)
    return cells.fillna("")
