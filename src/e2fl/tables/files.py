"""Tables as people have them: CSV in any common form, Parquet, xlsx or a DataFrame, read in blocks of columns.

Files are untrusted: only regular files are opened, their size is bounded before reading, and so is the length of a
line. A block holds for each column its distinct values and, for each row, which of them it has.
"""

import codecs
import csv
import hashlib
import io
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl.errors import DataError
from e2fl.files import regular_file, sha256, sha256_of
from e2fl.tables.cells import as_written
from e2fl.tables.parquet import parquet_batches, parquet_header

BLOCK_ROWS = 200_000
MAX_BYTES = 8 * 2**30
MAX_LINE = 16 * 2**20
MAX_ROWS = 200_000_000
SCAN = 2**20
NOT_CP1252 = b"\x81\x8d\x8f\x90\x9d"  # bytes that mean nothing in Windows-1252
BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}

Tell = Callable[[int, int], None]  # done and total, in bytes or rows


@dataclass(frozen=True)
class Column:
    """A block of one column: row i has `values[codes[i]]`. Values are numbers or texts; NaN and "" are missing."""

    values: NDArray[Any]
    codes: NDArray[np.int32]

    @classmethod
    def of(cls, cells: Any) -> "Column":
        """Return the column of a pandas Series."""
        if cells.dtype == np.object_:  # 1 and True are equal, but not as they are written
            return cls.of_texts(np.array([as_written(value) for value in cells], dtype=np.object_))
        codes, values = pd.factorize(cells, use_na_sentinel=False)
        if getattr(values.dtype, "kind", "O") not in "iuf" or not isinstance(values, np.ndarray):
            values = np.array([as_written(value) for value in values], dtype=np.object_)
        return cls(values, codes.astype(np.int32))

    @classmethod
    def of_texts(cls, texts: NDArray[np.object_]) -> "Column":
        codes, values = pd.factorize(texts)
        return cls(values, codes.astype(np.int32))

    @cached_property
    def texts(self) -> list[str]:
        """The values as they are written."""
        return [as_written(value) for value in self.values.tolist()]


@dataclass(frozen=True)
class Block:
    """Some rows: the chosen columns, and which rows have values beyond the header's columns."""

    columns: list[Column]
    too_long: NDArray[np.bool_]
    done: int  # bytes or rows of the table that are read, of `Source.size`


def counted_from_0(row: int) -> str:
    return f"row {row}"


def counted_from_1(row: int) -> str:
    return f"row {row + 1}"


class Source(ABC):
    """An opened table."""

    name: str
    header: list[str]
    size: int  # in bytes or rows
    notes: Sequence[str] = ()
    decimal_comma = False
    row_name: Callable[[int], str] = staticmethod(counted_from_1)  # how an error calls a row; keeps no cells alive

    @abstractmethod
    def sha256(self) -> str:
        """Return the digest of the table."""

    @abstractmethod
    def read(self, chosen: Sequence[int]) -> Iterator[Block]:
        """Yield blocks of the chosen columns."""

    def blocks(self, chosen: Sequence[int], tell: Tell | None = None) -> Iterator[Block]:
        """Yield blocks of the chosen columns, report progress, and reject a table of too many rows."""
        rows = 0
        for block in self.read(chosen):
            rows += len(block.too_long)
            if rows > MAX_ROWS:
                raise DataError(f"{self.name} has more than {MAX_ROWS:,} rows")
            if tell is not None:
                tell(min(block.done, self.size), self.size)
            if len(block.too_long):
                yield block

    def require_even(self) -> None:  # noqa: B027  # only CSV files can have such rows
        """Raise an error that names the first row that was read with fewer values than the header, or with more."""


def open_table(table: "Path | str | pd.DataFrame", cell: int = 0) -> Source:
    """Open a file by its ending, or a DataFrame.

    cell: bytes that the caller keeps of each cell; a Parquet file that would take more than a table may is rejected.
    """
    if isinstance(table, pd.DataFrame):
        return FrameSource(table)
    path = regular_file(Path(table))
    size, suffix = path.stat().st_size, path.suffix.lower()
    if size > MAX_BYTES:
        raise DataError(f"{path} has {size / 2**30:.1f} GiB; the limit of a table is {MAX_BYTES / 2**30:.0f} GiB")
    try:
        if suffix in (".parquet", ".pq"):
            return ParquetSource(path, cell)
        if suffix in (".xlsx", ".xlsm"):
            return ExcelSource(path)
        if suffix == ".xls":
            raise DataError(f"{path} is an old Excel file; save it as .xlsx or CSV")
        return CsvSource(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


class CsvSource(Source):
    """A CSV file. pandas reads it; the module `csv` reads it again where an error has to name a line."""

    def __init__(self, path: Path):
        self.path, self.name, self.size = path, path.name, path.stat().st_size
        self.encoding, self.digest = _scan(path)
        self.uneven = False  # rows that were read may have more or fewer values than the header
        with self._text() as text:
            first = text.readline()
        if not first.strip():
            raise DataError(f"{path} is empty; its first row must name the columns")
        likely = "\t,;|" if path.suffix.lower() == ".tsv" else ",;\t|"
        self.separator = max(likely, key=re.sub(r'"[^"]*"', "", first).count)
        self.decimal_comma, self.row_name = self.separator == ";", self.line_name
        self.header = [name.strip() for name in next(self._records(strict=True))[1]]
        if self.encoding == "cp1252":
            self.notes = ["The file is not UTF-8; it was read as Windows-1252 (Western European)."]

    def sha256(self) -> str:
        return self.digest

    def _text(self) -> io.TextIOWrapper:
        return self.path.open(encoding=self.encoding, newline="")

    def _records(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows, the header first, with the line that each begins on, as an editor counts lines."""
        line = 1
        with self._text() as text:
            rows = csv.reader(iter(text.readline, ""), delimiter=self.separator, strict=strict)
            try:
                for row in rows:
                    if len(row) > 1 or "".join(row).strip():
                        yield line, row
                    line = rows.line_num + 1
            except csv.Error as error:
                raise self._not_csv(f"line {line}: {error}") from error

    def _not_csv(self, reason: str) -> DataError:
        return DataError(f"{self.path} is not a table of separated values: {reason}")

    def line_name(self, row: int) -> str:
        """Return the line of a row, if the file is still what was read."""
        try:
            return f"line {next(islice(self._records(), row + 1, None))[0]}"
        except (DataError, OSError, UnicodeError, StopIteration):
            return counted_from_1(row)

    def require_even(self) -> None:
        width = len(self.header)
        for line, row in self._records() if self.uneven else ():
            if len(row) < width or any(cell.strip() for cell in row[width:]):
                raise DataError(f"{self.path}: line {line} has {len(row)} fields, the header has {width}")

    def read(self, chosen: Sequence[int]) -> Iterator[Block]:
        """Yield blocks of the chosen columns; values that a row does not have are "".

        pandas gets a header with one column more than the file's. That column shows which rows are too long (pandas
        would cut them without a word), and pandas never takes a column for an index.
        """
        width = len(self.header)
        used = sorted({*chosen, width - 1, width})
        places = np.searchsorted(used, [*chosen, width - 1, width]).tolist()
        with self.path.open("rb") as raw, io.TextIOWrapper(raw, encoding=self.encoding, newline="") as text:
            next(csv.reader(iter(text.readline, ""), delimiter=self.separator))
            try:
                frames = pd.read_csv(
                    _Behind(self.separator.join(map(str, range(width + 1))) + "\n", text),
                    sep=self.separator,
                    index_col=False,
                    usecols=used,
                    dtype=object,
                    na_filter=False,
                    chunksize=BLOCK_ROWS,
                    low_memory=False,
                )
                for frame in frames:
                    cells = frame.to_numpy()
                    *columns, last, extra = (Column.of_texts(cells[:, place]) for place in places)
                    too_long = np.array([text.strip() != "" for text in extra.texts], np.bool_)[extra.codes]
                    self.uneven = self.uneven or "" in last.texts or bool(too_long.any())
                    yield Block(columns, too_long, raw.tell())
            except (pd.errors.ParserError, UnicodeError) as error:
                for _ in self._records(strict=True):  # names the line
                    pass
                raise self._not_csv(" ".join(str(error).split())) from error


class _Behind(io.TextIOBase):
    """A text behind another first line."""

    def __init__(self, first: str, text: io.TextIOWrapper):
        self.first, self.text = first, text

    def read(self, size: int | None = -1) -> str:
        found, self.first = self.first or self.text.read(size), ""
        return found


def _scan(path: Path) -> tuple[str, str]:
    """Return the encoding and the SHA-256 of a text, and reject binary files and endless lines."""
    digest, undefined, block = hashlib.sha256(), False, b"-"
    length, lines, odd_line = 0, 1, 0  # bytes since the last line break, lines so far, the first that is not UTF-8
    with path.open("rb") as raw:
        start = raw.read(4)
        raw.seek(0)
        encoding = next((known for mark, known in BOMS.items() if start.startswith(mark)), "")
        encoding = encoding or ("utf-16-le" if start[1:2] == start[3:4] == b"\0" else "")
        decoder = codecs.getincrementaldecoder(encoding or "utf-8")()
        while block:
            block = raw.read(SCAN)
            digest.update(block)
            undefined = undefined or any(byte in block for byte in NOT_CP1252)
            if not encoding and b"\0" in block:
                raise DataError(f"{path} is not a text table (it holds NUL bytes); save it as CSV in UTF-8")
            newline = max(block.rfind(b"\n"), block.rfind(b"\r"))
            length = length + len(block) if newline < 0 else len(block) - newline
            if length > MAX_LINE:
                raise DataError(f"{path} has a line of more than {MAX_LINE >> 20} MiB; it is not a table of rows")
            try:
                if not odd_line:
                    decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                odd_line = lines + block.count(b"\n", 0, max(0, error.start))
                if encoding:
                    raise DataError(f"{path}: line {odd_line} is not valid {encoding}: {error.reason}") from error
            lines += block.count(b"\n")
    if odd_line and undefined:
        raise DataError(f"{path}: line {odd_line} is neither UTF-8 nor Windows-1252 text; save it as CSV in UTF-8")
    return "cp1252" if odd_line else encoding or "utf-8", digest.hexdigest()


class FrameSource(Source):
    """A DataFrame; rows are counted from 0, as `iloc` counts them."""

    name = "DataFrame"
    row_name = staticmethod(counted_from_0)

    def __init__(self, frame: pd.DataFrame):
        self.frame, self.size = frame, len(frame)
        self.header = [str(name) for name in frame.columns]

    def sha256(self) -> str:
        return sha256(pd.util.hash_pandas_object(self.frame, index=False).to_numpy().tobytes())

    def read(self, chosen: Sequence[int]) -> Iterator[Block]:
        columns = [Column.of(self.frame.iloc[:, place]) for place in chosen]
        yield Block(columns, np.zeros(self.size, np.bool_), self.size)


class ExcelSource(FrameSource):
    """The first sheet of an xlsx file."""

    row_name = staticmethod(counted_from_1)

    def __init__(self, path: Path):
        self.path = path
        if path.stat().st_size > 256 * 2**20:
            raise DataError(f"{path} is larger than 256 MiB; save it as CSV or Parquet")
        try:
            with zipfile.ZipFile(path) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > 2**30:
                    raise DataError(f"{path} unpacks to more than 1 GiB; save it as CSV or Parquet")
            with pd.ExcelFile(path, engine="openpyxl") as book:
                names = book.sheet_names
                cells = pd.read_excel(book, header=None, dtype=object, keep_default_na=False)
                cells = cells[(cells != "").any(axis=1)]
        except (DataError, OSError):
            raise
        except ImportError as error:
            raise DataError("xlsx files need openpyxl: pip install 'e2fl[tables]', or save the table as CSV") from error
        except Exception as error:  # whatever the reader does with a damaged file
            raise DataError(f"{path} is not a readable xlsx file: {' '.join(str(error).split())[:200]}") from error
        if not len(cells):
            raise DataError(f"{path} is empty; its first row must name the columns")
        super().__init__(cells.iloc[1:].set_axis([as_written(name).strip() for name in cells.iloc[0]], axis=1))
        self.name = path.name
        if len(names) > 1:
            self.notes = [f"The file has {len(names)} sheets; the first, '{names[0]}', was read."]

    def sha256(self) -> str:
        return sha256_of(self.path)


class ParquetSource(Source):
    """A Parquet file; `cell` as for `open_table`."""

    def __init__(self, path: Path, cell: int):
        self.path, self.name, self.cell = path, path.name, cell
        self.header, self.size = parquet_header(path)

    def sha256(self) -> str:
        return sha256_of(self.path)

    def read(self, chosen: Sequence[int]) -> Iterator[Block]:
        names = [self.header[place] for place in chosen]
        done = 0
        for batch in parquet_batches(self.path, names, rows=BLOCK_ROWS, limit=MAX_BYTES, cell=self.cell):
            done += batch.num_rows
            columns = {name: _of_arrow(batch.column(name)) for name in set(names)}
            yield Block([columns[name] for name in names], np.zeros(batch.num_rows, np.bool_), done)


def _of_arrow(cells: Any) -> Column:
    """Return a column of Arrow; of a dictionary of texts, only those that occur are unpacked."""
    import pyarrow as arrow

    packed = cells if arrow.types.is_dictionary(cells.type) else cells.dictionary_encode()
    places = packed.indices.cast(arrow.int32()).fill_null(-1).to_numpy(zero_copy_only=False)
    used, codes = np.unique(places, return_inverse=True)
    values = packed.dictionary.take(arrow.array(used, mask=used < 0))
    if arrow.types.is_floating(values.type) or (arrow.types.is_integer(values.type) and not values.null_count):
        return Column(values.to_numpy(zero_copy_only=False), codes.astype(np.int32))
    return Column(np.array([as_written(value) for value in values.to_pylist()], np.object_), codes.astype(np.int32))
