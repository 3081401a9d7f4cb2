"""Tables as people have them, read with pandas: CSV, Parquet, xlsx, a DataFrame, or a list of rows.

A cell means the same whatever it was read from: missing, a number or a text. Errors name row and
column.
"""

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
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
BLOCK = 1000  # rows that are checked together

Texts = NDArray[np.object_]  # "" where a value is missing
Cells = NDArray[np.float64] | Texts  # numbers, NaN where a value is missing; or texts


@dataclass(frozen=True)
class Origin:
    """Where rows come from, for messages: a file or the arrays, and how each row is called there.

    index: the numbers of the rows, and what they are in if they are in several places.
    """

    where: str
    index: pd.Index

    def row_name(self, row: int) -> str:
        """Return the name of a row."""
        label = self.index[row]
        return f"{label[0]}, row {label[1]}" if isinstance(label, tuple) else f"row {label}"

    def error(self, mask: NDArray[np.bool_], text: str) -> DataError:
        """Return an error about the first row of a mask."""
        return DataError(f"{self.where}: {self.row_name(int(mask.argmax()))} {text}")

    def require_finite(self, inputs: NDArray[np.float32]) -> None:
        """Raise an error that names the first row with a missing or infinite input."""
        for start in range(0, len(inputs), BLOCK):
            block = inputs[start : start + BLOCK]
            finite = np.isfinite(block).reshape(len(block), -1)
            if not finite.all():
                row, column = np.argwhere(~finite)[0].tolist()
                name = self.row_name(start + row)
                raise DataError(f"{self.where}: {name}, input {column} is missing or not finite")

    def warn(self, text: str) -> None:
        """Warn of something in these rows."""
        warnings.warn(f"{self.where}: {text}", stacklevel=3)


def as_text(value: Any) -> str:
    """Return a value as text: "" if it is missing, True in any spelling, 1 for 1.0."""
    text = str(value).strip()
    if text.lower() in MISSING:
        return ""
    return BOOLEANS.get(text.lower(), WHOLE.sub(r"\1", text))


def texts_of(values: Any) -> Texts:
    """Return values as texts."""
    if getattr(values, "dtype", None) is not None and values.dtype.kind == "S":  # as in an .npz
        values = np.char.decode(values, "utf-8", "replace")
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    return np.array([as_text(value) for value in distinct], dtype=np.object_)[codes]


def codes_of(cells: Cells, names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return which of these names each cell is; -1 for another text."""
    return pd.Index(names, dtype=object).get_indexer(pd.Index(cells)).astype(np.int64)


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

    frame: pd.DataFrame
    sha256: str | None = None  # of the file

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    def __len__(self) -> int:
        return len(self.frame)

    def complete(
        self, columns: Mapping[str, Cells], advice: str, *, drop: bool = False
    ) -> NDArray[np.int64]:
        """Return the rows without missing values; unless `drop`, others raise an error.

        advice: what to do about it.
        """
        some = np.any([missing_in(cells) for cells in columns.values()], axis=0)
        if some.all() or (some.any() and not drop):
            counts = missing_counts(columns)
            name, by_column = next(iter(counts)), ", ".join(f"{n} {counts[n]}" for n in counts)
            raise self.error(
                missing_in(columns[name]),
                f"has nothing in column '{name}'; {advice}. Missing values by column: {by_column}",
            )
        return np.flatnonzero(~some)

    def texts(self, name: str) -> Texts:
        """Return a column as texts, even if it holds numbers."""
        return texts_of(self.frame[name].astype(str))

    def cells(self, name: str, *, only_numbers: bool = False) -> Cells:
        """Return a column: numbers if all present cells are numbers, otherwise texts.

        Where most cells are numbers or dates, or `only_numbers` is true, a cell that is not a plain
        number is rejected.
        """
        column = self.frame[name]
        if getattr(column.dtype, "kind", "O") in "iuf":
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            codes, distinct = pd.factorize(self.texts(name))
            numbers = np.array([as_number(value) for value in distinct])[codes]
        wrong = np.isinf(numbers)
        if not wrong.any():
            return numbers
        texts = self.texts(name)
        plain = np.count_nonzero(np.isfinite(numbers))
        almost = sum(ALMOST_NUMBER.fullmatch(text) is not None for text in texts[wrong])
        if only_numbers or 2 * (plain + almost) > np.count_nonzero(~missing_in(texts)):
            raise self.error(
                wrong,
                f"has '{texts[wrong][0][:40]}' in column '{name}', which is read as numbers: write "
                "1.5, and a date as the year or the days since one; categories that look like "
                f"numbers are listed with words = ['{name}']",
            )
        return texts


def open_sheet(table: Any) -> Sheet:
    """Read a file by its ending, a DataFrame, anything with `to_pandas`, or a list of rows."""
    if isinstance(table, str | Path):
        path = existing(str(table))
        where, frame, digest = str(path), _read(path), sha256_of(path)
    else:
        table = table.to_pandas() if hasattr(table, "to_pandas") else table
        given = isinstance(table, pd.DataFrame)
        where, digest = "the DataFrame" if given else "the rows", None
        frame = table.reset_index(drop=True) if given else pd.DataFrame(list(table), dtype=object)
        frame.columns = list(map(str, frame))
    if not len(frame):
        raise DataError(f"{where} has no rows")
    header = list(frame)
    if not all(header) or len(set(header)) < len(header):
        raise DataError(f"{where} needs a name for every column, each once; it has: {header}")
    return Sheet(where, frame.index, frame, digest)


def _read(path: Path) -> pd.DataFrame:
    """Read a file; rows of CSV and xlsx have the numbers that a spreadsheet shows."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv", ".txt", ".parquet", ".xlsx") or not path.is_file():
        raise DataError(f"{path} is not a .csv (or .tsv), .parquet or .xlsx file")
    try:
        if kind == ".parquet":
            return pd.read_parquet(path).reset_index(drop=True)
        if kind == ".xlsx":
            cells = pd.read_excel(path, header=None, dtype=object, keep_default_na=False)
        else:
            cells = _read_csv(path).apply(lambda column: column.str.strip())
    except Exception as error:  # whatever a reader does with a damaged file
        raise DataError(f"{path} cannot be read: {reason_of(error)}") from error
    cells = cells.set_axis(cells.index + 1)[(cells != "").any(axis=1).to_numpy()]
    if cells.empty:
        raise DataError(f"{path} has no rows")
    return cells[1:].set_axis([as_text(name) for name in cells[:1].to_numpy().flat], axis=1)


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
