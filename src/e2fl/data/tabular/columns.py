"""The columns of a CSV or Parquet file, or of rows in Python, read when they are used."""

import csv
import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.data.tabular.cells import ALMOST_NUMBER, BITS, is_number, said
from e2fl.errors import DataError

INPUT_LIMIT = 8 * 2**30  # bytes of inputs, or of the columns they are made from
CELL = 48  # bytes that a cell of Parquet takes while it is made an input, at most; measured, without the input
_WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
# Texts are Python objects: as an array of NumPy's own texts, every cell would be as wide as the longest.
Words = NDArray[np.object_]  # "" where a value is missing
Column = NDArray[np.float64] | Words  # of numbers, NaN where a value is missing; or of words


@contextmanager
def within_memory() -> Iterator[None]:
    """What does not fit is an error that says what to do."""
    try:
        yield
    except MemoryError as error:
        raise DataError(
            "the table does not fit into memory; take fewer rows, or fewer columns with features = [...]"
        ) from error


class Sheet(ABC):
    """Some columns of a table."""

    where: str

    @abstractmethod
    def __len__(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def words(self, name: str) -> Words:
        """A column as it is written, also where these are numbers."""

    def feature(self, name: str) -> Column:
        """A column to learn from: numbers if all that is there are numbers, else words.

        Where most are numbers, the others are mistakes.
        """
        words = self.words(name)
        odd = [row for row, word in enumerate(words.tolist()) if not is_number(word)]
        if not odd:
            return self._finite(_floats(words), name)
        there = int(np.count_nonzero(~is_missing(words)))
        meant = there - len(odd) + sum(ALMOST_NUMBER.fullmatch(word) is not None for word in words[odd].tolist())
        if 2 * meant > there:
            raise DataError(
                f"{self.where}: {self.called(odd[0])} has '{words[odd[0]][:40]}' in column '{name}', where most are "
                "numbers or dates. Write numbers as 1.5 and dates as numbers, such as the year; if these are words, "
                f"set words = ['{name}']; or leave the column out with features = [...]"
            )
        return words

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column that must be numbers; True is 1 and False is 0."""
        return self._as_numbers(_each(self.words(name), lambda word: BITS.get(word, word)), name)

    def names(self, name: str) -> Words:
        """A column that names things, such as clients: as it is written, but 1.0 is 1."""
        return _each(self.words(name), lambda word: _WHOLE.sub(r"\1", word))

    def called(self, row: int) -> str:
        """What people call a row."""
        return f"row {row + 1}"

    def _as_numbers(self, words: Words, name: str) -> NDArray[np.float64]:
        for row, word in enumerate(words.tolist()):
            if not is_number(word):
                raise DataError(f"{self.where}: {self.called(row)} has '{word[:40]}' in column '{name}' of numbers")
        return self._finite(_floats(words), name)

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
        try:  # most columns are plain numbers, and need not become words first
            numbers = np.fromiter(map(float, self.columns[name]), dtype=np.float64)
        except ValueError:
            return super().feature(name)
        return self._finite(numbers, name)

    def words(self, name: str) -> Words:
        return _each(self.columns[name], said)


class Arrow(Sheet):
    """A table whose columns have types; they stay as they were read until they are used."""

    def __init__(self, where: str, table: Any):
        self.where = where
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def feature(self, name: str) -> Column:
        return self.numbers(name) if _is_numeric(self.table.column(name).type) else super().feature(name)

    def numbers(self, name: str) -> NDArray[np.float64]:
        import pyarrow as arrow

        if not _is_numeric(self.table.column(name).type):
            return super().numbers(name)
        # NaN and null are both "nothing there"; numbers to learn from may be rounded.
        column = self.table.column(name).cast(arrow.float64(), safe=False)
        return self._finite(column.to_numpy(zero_copy_only=False), name)

    def words(self, name: str) -> Words:
        import pyarrow as arrow

        parts = []
        for chunk in self.table.column(name).chunks:
            packed = chunk if arrow.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            # Equal cells share one object: a small file may have very many of them.
            known = _words([*map(said, packed.dictionary.to_pylist()), ""])
            places = packed.indices.cast(arrow.int32()).fill_null(len(known) - 1)
            parts.append(known[places.to_numpy(zero_copy_only=False)])
        found: Words = np.concatenate(parts)
        return found


def names_in(path: Path) -> list[str]:
    """What the columns of a file are called."""
    if _is_parquet(path):
        names = list(_open_parquet(path).schema_arrow.names)
    elif path.suffix.lower() in (".csv", ".tsv", ".txt"):
        names = _read_csv(path, None)[0]
        if len(names) == 1:
            _refuse_another_separator(path, names[0])
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
        sheet = _read_parquet(path, wanted)
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
    columns = {name: [said(row.get(name)) for row in rows] for name in wanted}
    return Texts("the rows", columns, np.arange(len(rows)), "row")


def _read_csv(path: Path, wanted: Collection[str] | None) -> tuple[list[str], list[list[str]], NDArray[np.int64]]:
    """The header of a file; of each row the cells that are wanted, and its line. None: the header is enough."""
    table: list[list[str]] = []
    lines = array("q")
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter=_separator(path), strict=True)
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
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: line {_not_in_utf8(path)} is not in UTF-8; save the file in UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path}: line {line} is not CSV: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return names, table, np.array(lines, dtype=np.int64)


def _separator(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _refuse_another_separator(path: Path, header: str) -> None:
    """A header that is one name has its columns separated by something else."""
    ours = _separator(path)
    for other, name in _SEPARATORS.items():
        if other != ours and other in header:
            raise DataError(
                f"{path}: columns must be separated by {_SEPARATORS[ours]}, but the first line has {name}; "
                "a .csv or .txt has commas, a .tsv has tabs"
            )


def _not_in_utf8(path: Path) -> int:
    """The first line that is not."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _open_parquet(path: Path, words: Collection[str] = ()) -> Any:
    """words: columns of texts to be read as they are stored, each text once."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise DataError("Parquet files need the package pyarrow: pip install 'e2fl[tables]'") from error
    try:
        return parquet.ParquetFile(path, read_dictionary=list(words))
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a whole Parquet file: {error}") from error


def _read_parquet(path: Path, wanted: Collection[str]) -> Sheet:
    kinds = _open_parquet(path).schema_arrow
    import pyarrow as arrow

    for name in wanted:
        kind = kinds.field(name).type
        if not (_is_numeric(kind) or _is_word(kind)):
            raise DataError(f"{path}: column '{name}' holds {kind}; numbers, words, and true or false can be used")
    file = _open_parquet(path, wanted)
    about = file.metadata
    parts = [about.row_group(place) for place in range(about.num_row_groups)]
    columns = [part.column(place) for part in parts for place in range(part.num_columns)]
    unpacked = sum(column.total_uncompressed_size for column in columns if column.path_in_schema in wanted)
    _refuse_more_than_the_limit(path, unpacked + about.num_rows * len(wanted) * CELL)
    try:
        return Arrow(str(path), file.read(columns=list(wanted)))
    except MemoryError:  # Arrow has one that is both
        raise
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a whole Parquet file: {error}") from error


def _is_numeric(kind: Any) -> bool:
    import pyarrow.types as types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_integer(kind) or types.is_floating(kind))


def _is_word(kind: Any) -> bool:
    """Texts, and true and false."""
    import pyarrow.types as types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_boolean(kind))


def _refuse_more_than_the_limit(path: Path, size: int) -> None:
    if size > INPUT_LIMIT:
        raise DataError(
            f"{path} would take {size / 2**30:.1f} GiB of memory; {INPUT_LIMIT // 2**30} GiB is the limit of a table. "
            "Take fewer rows, or fewer columns with features = [...]"
        )


def _words(values: Iterable[str]) -> Words:
    return np.array(list(values), dtype=np.object_)


def _floats(words: Words) -> NDArray[np.float64]:
    return np.array([float(word or "nan") for word in words.tolist()])


def _each(values: Iterable[str], change: Callable[[str], str]) -> Words:
    """Every word changed; equal ones share one object."""
    listed = list(values)
    known = {word: change(word) for word in set(listed)}
    return _words(known[word] for word in listed)


def is_missing(column: Column) -> NDArray[np.bool_]:
    """Where there is nothing."""
    found: NDArray[np.bool_] = np.isnan(column) if column.dtype.kind == "f" else column == ""
    return found
