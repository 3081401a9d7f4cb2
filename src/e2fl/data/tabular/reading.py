"""The columns of a CSV or Parquet file, a DataFrame or rows in Python, read when they are used.

CSV is read with the module `csv` and not with pandas: every error names the line as an editor counts it, and rows that
are too long or too short are rejected rather than cut or filled.
"""

import csv
import re
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from e2fl.data.files.places import regular_file
from e2fl.data.tabular.cells import ALMOST_NUMBER, BITS, as_number, as_text
from e2fl.data.tabular.parquet import parquet_names, read_parquet, reject_more_than_the_limit
from e2fl.data.tabular.rows import RowName, row_number
from e2fl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    Frame = pd.DataFrame
    Table = Path | pd.DataFrame
else:  # pandas need not be installed
    Frame = Table = Any

LINE_LIMIT = 64 * 2**20  # characters of one line of CSV
SHARED = 10_000  # different cells of a CSV file of which one copy is kept
_WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
# Texts are Python objects: in an array of NumPy's own texts, every cell would be as wide as the longest.
Texts = NDArray[np.object_]  # "" where a value is missing
Column = NDArray[np.float64] | Texts  # numbers, NaN where a value is missing; or texts


@contextmanager
def within_memory() -> Iterator[None]:
    """Turn a `MemoryError` into a `DataError` that says what to do."""
    try:
        yield
    except MemoryError as error:
        raise DataError(
            "the table does not fit into memory; use fewer rows, or fewer columns with features = [...]"
        ) from error


class Sheet(ABC):
    """Some columns of a table."""

    where: str
    row_name: RowName  # a function of its own: it outlives the cells

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def texts(self, name: str) -> Texts:
        """Return a column as it is written, even if it holds numbers."""

    def typed_numbers(self, name: str) -> NDArray[np.float64] | None:
        """Return the column if the table stores it as numbers, otherwise None."""
        return None

    def feature(self, name: str) -> Column:
        """Return an input column: numbers if all present cells are numbers, otherwise strings.

        Where most cells are numbers or dates, a cell that is not a plain number is rejected as a mistake.
        """
        typed = self.typed_numbers(name)
        if typed is not None:
            return self._finite(typed, name)
        texts = self.texts(name)
        numbers = [as_number(text) for text in texts.tolist()]
        odd = [row for row, number in enumerate(numbers) if number is None]
        if not odd:
            return self._finite(np.array(numbers, dtype=np.float64), name)
        present = int(np.count_nonzero(~is_missing(texts)))
        meant = present - len(odd) + sum(ALMOST_NUMBER.fullmatch(text) is not None for text in texts[odd].tolist())
        if 2 * meant > present:
            raise DataError(
                f"{self.where}: {self.row_name(odd[0])} has '{texts[odd[0]][:40]}' in column '{name}', where most are "
                "numbers or dates. Write numbers as 1.5 and dates as numbers, such as the year; if these are strings, "
                f"set words = ['{name}']; or leave the column out with features = [...]"
            )
        return texts

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column that must hold numbers; True is 1 and False is 0."""
        typed = self.typed_numbers(name)
        if typed is not None:
            return self._finite(typed, name)
        found = []
        for row, text in enumerate(self.texts(name).tolist()):
            number = as_number(BITS.get(text, text))
            if number is None:
                raise DataError(f"{self.where}: {self.row_name(row)} has '{text[:40]}' in column '{name}' of numbers")
            found.append(number)
        return self._finite(np.array(found, dtype=np.float64), name)

    def names(self, name: str) -> Texts:
        """Return a column of names, such as clients: as it is written, but 1.0 is 1."""
        return _each(self.texts(name), lambda text: _WHOLE.sub(r"\1", text))

    def _finite(self, numbers: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        infinite = np.flatnonzero(np.isinf(numbers))
        if len(infinite):
            raise DataError(f"{self.where}: {self.row_name(int(infinite[0]))} is not finite in column '{name}'")
        return numbers


class Cells(Sheet):
    """A table of strings; a row is named by the line it starts on, as an editor counts them."""

    def __init__(self, where: str, columns: Mapping[str, Sequence[str]], lines: NDArray[np.int64], line: str = "line"):
        self.where = where
        self.columns = columns
        self.rows = len(lines)
        self.row_name = lambda row: f"{line} {lines[row]}"

    def __len__(self) -> int:
        return self.rows

    def typed_numbers(self, name: str) -> NDArray[np.float64] | None:
        try:  # most columns are plain numbers, and need not become texts first
            return np.fromiter(map(float, self.columns[name]), dtype=np.float64)
        except ValueError:
            return None

    def texts(self, name: str) -> Texts:
        return _each(self.columns[name], as_text)


class ArrowSheet(Sheet):
    """A table with typed columns, which stay as they were read until they are used."""

    def __init__(self, where: str, table: Any):
        self.where = where
        self.table = table
        self.row_name = lambda row: f"row {row + 1}"

    def __len__(self) -> int:
        return len(self.table)

    def typed_numbers(self, name: str) -> NDArray[np.float64] | None:
        import pyarrow as arrow

        column = self.table.column(name)
        if not (arrow.types.is_integer(column.type) or arrow.types.is_floating(column.type)):
            return None
        # NaN and null both mean missing; inputs may be rounded.
        numbers: NDArray[np.float64] = column.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        return numbers

    def texts(self, name: str) -> Texts:
        import pyarrow as arrow

        parts = []
        for chunk in self.table.column(name).chunks:
            packed = chunk if arrow.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            # Equal cells share one object: a small file may have very many of them.
            known = _objects([*map(as_text, packed.dictionary.to_pylist()), ""])
            places = packed.indices.cast(arrow.int32()).fill_null(len(known) - 1)
            parts.append(known[places.to_numpy(zero_copy_only=False)])
        found: Texts = np.concatenate(parts)
        return found


class FrameSheet(Sheet):
    """A pandas DataFrame; rows are counted from 0, as `iloc` counts them."""

    where = "the DataFrame"

    def __init__(self, frame: Frame):
        self.frame = frame
        self.row_name = row_number

    def __len__(self) -> int:
        return len(self.frame)

    def typed_numbers(self, name: str) -> NDArray[np.float64] | None:
        if self._kind(name) not in "iuf":
            return None
        numbers: NDArray[np.float64] = self.frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers

    def texts(self, name: str) -> Texts:
        if self._kind(name) not in "iufbOUT":
            raise DataError(
                f"{self.where}: column '{name}' holds {self.frame[name].dtype}; "
                "only numbers, strings and booleans can be used"
            )
        return _objects(_each_value(self.frame[name].tolist()))

    def _kind(self, name: str) -> str:
        return str(getattr(self.frame[name].dtype, "kind", "O"))


def column_names(source: Table) -> list[str]:
    """Return the column names of a file or a DataFrame."""
    if not isinstance(source, Path):
        names, where = [str(name) for name in source.columns], FrameSheet.where
    else:
        where = str(source)
        names = parquet_names(source) if _is_parquet(source) else _csv_header(source)
    if not names or not all(names):
        raise DataError(f"{where} needs a first row that names every column")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise DataError(f"{where} has two columns '{name}'")
    return names


def read(source: Table, wanted: Collection[str]) -> Sheet:
    """Return these columns of a file or a DataFrame."""
    sheet: Sheet
    if not isinstance(source, Path):
        sheet = FrameSheet(source.rename(columns=str)[list(wanted)])
    elif _is_parquet(source):
        sheet = ArrowSheet(str(source), read_parquet(source, wanted))
    else:
        reject_more_than_the_limit(source, source.stat().st_size)
        sheet = _read_csv(source, frozenset(wanted))
    if not len(sheet):
        raise DataError(f"{sheet.where} has no rows")
    return sheet


def from_rows(rows: Sequence[Mapping[str, Any]], wanted: Collection[str]) -> Sheet:
    """Return these columns of a list of dictionaries, one for each row; rows are counted from 0."""
    columns = {name: [as_text(row.get(name)) for row in rows] for name in wanted}
    return Cells("the rows", columns, np.arange(len(rows)), "row")


def _csv_header(path: Path) -> list[str]:
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        raise DataError(f"{path} is neither a .csv (or .tsv) nor a .parquet file")
    regular_file(path)
    names = [name.strip() for _, row in _records(path) for name in row]
    if len(names) == 1:
        _reject_another_separator(path, names[0])
    return names


def _read_csv(path: Path, wanted: Collection[str]) -> Sheet:
    records = _records(path, whole=True)
    names = [name.strip() for name in next(records)[1]]
    places = [place for place, name in enumerate(names) if name in wanted]
    columns: list[list[str]] = [[] for _ in places]
    lines = array("q")
    shared: dict[str, str] = {}
    for line, row in records:
        if len(row) != len(names):
            if row:
                raise DataError(f"{path}: line {line} has {len(row)} fields, the header has {len(names)}")
            continue
        for column, place in zip(columns, places, strict=True):
            cell = row[place]
            column.append(shared.setdefault(cell, cell) if len(shared) < SHARED else shared.get(cell, cell))
        lines.append(line)
    return Cells(
        str(path),
        dict(zip((names[place] for place in places), columns, strict=True)),
        np.array(lines, dtype=np.int64),
    )


def _records(path: Path, *, whole: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file with the lines they start on; only the first unless `whole`."""
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(_lines(file, path), delimiter=_separator(path), strict=True)
            for row in rows:
                yield line, row
                line = rows.line_num + 1
                if not whole:
                    return
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: line {_not_in_utf8(path)} is not in UTF-8; save the file in UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path}: line {line} is not CSV: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _lines(file: IO[str], path: Path) -> Iterator[str]:
    """Yield the lines of a file, each of bounded length: a file without line breaks must not fill the memory."""
    while line := file.readline(LINE_LIMIT + 1):
        if len(line) > LINE_LIMIT:
            raise DataError(f"{path} has a line of more than {LINE_LIMIT} characters; is it a CSV file?")
        yield line


def _separator(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _reject_another_separator(path: Path, header: str) -> None:
    """Raise an error for a header that is one name because its columns are separated by another character."""
    ours = _separator(path)
    for other, name in _SEPARATORS.items():
        if other != ours and other in header:
            raise DataError(
                f"{path}: columns must be separated by {_SEPARATORS[ours]}, but the first line has {name}; "
                "use commas in a .csv or .txt, tabs in a .tsv"
            )


def _not_in_utf8(path: Path) -> int:
    """Return the first line that is not valid UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE_LIMIT), b""), 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _objects(values: Iterable[str]) -> Texts:
    return np.array(list(values), dtype=np.object_)


def _each(values: Iterable[str], change: Callable[[str], str]) -> Texts:
    """Apply `change` to every string; equal ones share one object."""
    listed = list(values)
    known = {text: change(text) for text in set(listed)}
    return _objects(known[text] for text in listed)


def _each_value(values: Iterable[Any]) -> Iterator[str]:
    """Yield every value as a string; equal strings share one object."""
    known: dict[str, str] = {}
    for value in values:
        text = as_text(value)
        yield known.setdefault(text, text)


def is_missing(column: Column) -> NDArray[np.bool_]:
    """Return where a value is missing."""
    found: NDArray[np.bool_] = np.isnan(column) if column.dtype.kind == "f" else column == ""
    return found
