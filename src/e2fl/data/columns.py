"""The columns of a CSV or Parquet file, or of rows in Python, read when they are used."""

import csv
import math
import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import DataError

MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none"))
INPUT_LIMIT = 8 * 2**30  # bytes of inputs
_WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")

# Texts are Python objects: as an array of NumPy's own texts, every cell would be as wide as the longest.
Words = NDArray[np.object_]  # "" where a value is missing
Column = NDArray[np.float64] | Words  # of numbers, NaN where a value is missing; or of words


class Sheet(ABC):
    """Some columns of a table."""

    where: str

    @abstractmethod
    def __len__(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def feature(self, name: str) -> Column:
        """A column to learn from: numbers if all that is there are numbers, else words."""

    @abstractmethod
    def words(self, name: str) -> Words:
        """A column as it is written, also where these are numbers."""

    def names(self, name: str) -> Words:
        """A column that names things, such as clients: as it is written, but 1.0 is 1."""
        return _words(_WHOLE.sub(r"\1", word) for word in self.words(name).tolist())

    def called(self, row: int) -> str:
        """What people call a row."""
        return f"row {row + 1}"

    def _finite(self, numbers: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        endless = np.flatnonzero(np.isinf(numbers))
        if len(endless):
            raise DataError(f"{self.where}: {self.called(int(endless[0]))} has no finite number in column '{name}'")
        return numbers


class Texts(Sheet):
    """A table that was written down; a row is called by the line it begins on, as an editor counts them."""

    def __init__(self, where: str, columns: Mapping[str, Sequence[str]], lines: NDArray[np.int64], line: str = "line"):
        self.where = where
        self.columns = columns
        self.lines = lines
        self.line = line

    def called(self, row: int) -> str:
        return f"{self.line} {self.lines[row]}"

    def __len__(self) -> int:
        return len(self.lines)

    def feature(self, name: str) -> Column:
        words = self.words(name)
        try:
            numbers = [float(word) if word else math.nan for word in words.tolist()]
        except ValueError:
            return words
        return self._finite(np.array(numbers), name)

    def words(self, name: str) -> Words:
        stripped = [value.strip() for value in self.columns[name]]
        return _words("" if value.lower() in MISSING else value for value in stripped)


class Arrow(Sheet):
    """A table whose columns have types."""

    def __init__(self, where: str, table: Any):
        self.where = where
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def feature(self, name: str) -> Column:
        import pyarrow as arrow

        if self._is_text(name):
            return self.words(name)
        # NaN and null are both "nothing there"; numbers to learn from may be rounded.
        column = self.table.column(name).cast(arrow.float64(), safe=False)
        return self._finite(column.to_numpy(zero_copy_only=False), name)

    def words(self, name: str) -> Words:
        column = self.table.column(name).to_pylist()
        if self._is_text(name):
            return _words("" if value is None else value.strip() for value in column)
        return _words("" if value is None or value != value else _number(value) for value in column)

    def _is_text(self, name: str) -> bool:
        import pyarrow.types as types

        kind = self.table.column(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if types.is_string(kind) or types.is_large_string(kind):
            return True
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            return False
        raise DataError(f"{self.where}: column '{name}' holds {kind}; numbers, words, and true or false can be used")


def names_in(path: Path) -> list[str]:
    """What the columns of a file are called."""
    if _is_parquet(path):
        names = list(_open_parquet(path).schema_arrow.names)
    elif path.suffix.lower() in (".csv", ".tsv", ".txt"):
        names = _read_csv(path, None)[0]
    else:
        raise DataError(f"{path} is neither a .csv (or .tsv) nor a .parquet file")
    if not names or not all(names):
        raise DataError(f"{path} needs a first row that names every column")
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{path} has two columns '{name}'")
    return names


def read(path: Path, wanted: Collection[str]) -> Sheet:
    """These columns of a file."""
    if _is_parquet(path):
        import pyarrow as arrow

        file = _open_parquet(path)
        about = file.metadata
        unpacked = sum(about.row_group(place).total_byte_size for place in range(about.num_row_groups))
        _refuse_more_than_the_limit(path, max(unpacked, about.num_rows * about.num_columns))
        try:
            table = file.read(columns=list(wanted))
        except (arrow.ArrowException, OSError) as error:
            raise DataError(f"{path} is not a whole Parquet file: {error}") from error
        sheet: Sheet = Arrow(str(path), table)
    else:
        _refuse_more_than_the_limit(path, path.stat().st_size)
        names, rows, lines = _read_csv(path, wanted)
        columns = zip(*rows, strict=True) if rows else [()] * len(wanted)
        sheet = Texts(str(path), dict(zip((name for name in names if name in wanted), columns, strict=True)), lines)
    if not len(sheet):
        raise DataError(f"{path} has no rows")
    return sheet


def from_rows(rows: Sequence[Mapping[str, Any]], wanted: Collection[str]) -> Sheet:
    """These columns of a list of rows in Python, each a dictionary; counted from 0, as lists are."""
    columns = {name: [_text(row.get(name)) for row in rows] for name in wanted}
    return Texts("the rows", columns, np.arange(len(rows)), "row")


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    return str(int(value)) if isinstance(value, bool | np.bool_) else str(value)


def _read_csv(path: Path, wanted: Collection[str] | None) -> tuple[list[str], list[list[str]], NDArray[np.int64]]:
    """The header of a file; of each row the cells that are wanted, and its line. None: the header is enough."""
    table: list[list[str]] = []
    lines = array("q")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
            names = [name.strip() for name in next(rows, [])]
            places = [place for place, name in enumerate(names) if wanted is not None and name in wanted]
            line = rows.line_num + 1
            for row in rows if wanted is not None else ():
                if len(row) == len(names):
                    table.append([row[place] for place in places])
                    lines.append(line)
                elif row:
                    raise DataError(f"{path}: line {line} has {len(row)} fields, the header has {len(names)}")
                line = rows.line_num + 1
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}") from error
    return names, table, np.array(lines, dtype=np.int64)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _open_parquet(path: Path) -> Any:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise DataError("Parquet files need the package pyarrow: pip install 'e2fl[tables]'") from error
    try:
        return parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a whole Parquet file: {error}") from error


def _refuse_more_than_the_limit(path: Path, size: int) -> None:
    if size > INPUT_LIMIT:
        raise DataError(f"{path} has {size} bytes of data; {INPUT_LIMIT // 2**30} GiB is the limit of a table")


def _words(values: Any) -> Words:
    return np.array(list(values), dtype=np.object_)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def is_missing(column: Column) -> NDArray[np.bool_]:
    """Where there is nothing."""
    found: NDArray[np.bool_] = np.isnan(column) if column.dtype.kind == "f" else column == ""
    return found
