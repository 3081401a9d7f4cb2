"""Reading of tables: CSV in any common form, Parquet, xlsx or a DataFrame, read in blocks of text columns.

Files are untrusted: only regular files are opened, their size is bounded before reading, and so is the length of a
line. A block holds for each column its distinct texts and, for each row, which of them it has.
"""

import codecs
import csv
import hashlib
import io
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl.errors import DataError

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
    """A block of one column: the text of row i is `texts[codes[i]]`."""

    texts: list[str]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, values: Iterable[Any], codes: Any) -> "Column":
        """Return the column of these values; a code of -1 means an empty text."""
        texts, found = [str(value) for value in values], np.asarray(codes, dtype=np.int64)
        if (found < 0).any():
            found = np.where(found < 0, len(texts), found)
            texts.append("")
        return cls(texts, found)


@dataclass
class Source:
    """An opened table: the names of its columns, and a function that reads the chosen columns in blocks."""

    name: str
    header: list[str]
    blocks: Callable[[Sequence[int]], Iterator[list[Column]]]
    sha256: str
    decimal_comma: bool = False
    notes: list[str] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)  # rows that could not be split into columns


def open_table(table: "Path | str | pd.DataFrame", tell: Tell | None = None) -> Source:
    """Open a file by its ending, or a DataFrame."""
    if isinstance(table, pd.DataFrame):
        return _from_frame(table)
    path = Path(table)
    size = require_regular(path)
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return _from_parquet(path, size, tell)
        if path.suffix.lower() in (".xlsx", ".xlsm"):
            return _from_xlsx(path)
        if path.suffix.lower() == ".xls":
            raise DataError(f"{path.name} is an old Excel file; save it as .xlsx or CSV")
        return _from_csv(path, size, tell)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def require_regular(path: Path) -> int:
    """Return the size in bytes, or raise `DataError` for anything but a regular file below the limit."""
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path} is not a regular file; save the table to a file first")
    if found.st_size > MAX_BYTES:
        raise DataError(f"{path} has {found.st_size / 2**30:.1f} GiB; the limit is {MAX_BYTES / 2**30:.0f} GiB")
    return found.st_size


# CSV


def _from_csv(path: Path, size: int, tell: Tell | None) -> Source:
    with path.open("rb") as raw:
        encoding, digest = _scan(path.name, raw)
        raw.seek(0)
        text = io.TextIOWrapper(raw, encoding=encoding, newline="")
        first = text.readline(MAX_LINE)
        if not first.strip():
            raise DataError(f"{path.name} is empty; its first row must name the columns")
        delimiter = max(",;\t|", key=re.sub(r'"[^"]*"', "", first).count)
        try:
            header = next(csv.reader([first], delimiter=delimiter))
        except csv.Error as error:
            raise DataError(f"{path.name} is not a table of separated values: {error}") from error
    source = Source(path.name, header, lambda _: iter(()), digest, decimal_comma=delimiter == ";")
    source.blocks = lambda chosen: _csv_blocks(source, path, encoding, delimiter, chosen, size, tell)
    if encoding == "cp1252":
        source.notes.append("The file is not UTF-8; it was read as Windows-1252 (Western European).")
    return source


def _scan(name: str, raw: Any) -> tuple[str, str]:
    """Return the encoding and the SHA-256 of a text, and reject binary files and endless lines."""
    digest = hashlib.sha256()
    block = raw.read(SCAN)
    encoding = next((known for mark, known in BOMS.items() if block.startswith(mark)), "")
    if not encoding and len(block) > 3 and block[1] == 0 and block[3] == 0:
        encoding = "utf-16-le"
    decoder = codecs.getincrementaldecoder(encoding or "utf-8")()
    failed = undefined = False
    line = 0
    while block:
        digest.update(block)
        undefined = undefined or any(byte in block for byte in NOT_CP1252)
        if not encoding and b"\0" in block:
            raise DataError(f"{name} is not a text table (it holds NUL bytes); save it as CSV in UTF-8")
        newline = max(block.rfind(b"\n"), block.rfind(b"\r"))
        line = line + len(block) if newline < 0 else len(block) - newline
        if line > MAX_LINE:
            raise DataError(f"{name} has a line of more than {MAX_LINE >> 20} MiB; it is not a table of rows")
        try:
            if not failed:
                decoder.decode(block)
        except UnicodeDecodeError as error:
            if encoding:
                raise DataError(f"{name} is not valid {encoding}: {error.reason}") from error
            failed = True
        block = raw.read(SCAN)
    if failed and undefined:
        raise DataError(f"{name} is neither UTF-8 nor Windows-1252 text; save it as CSV in UTF-8")
    return "cp1252" if failed else encoding or "utf-8", digest.hexdigest()


def _csv_blocks(
    source: Source, path: Path, encoding: str, delimiter: str, chosen: Sequence[int], size: int, tell: Tell | None
) -> Iterator[list[Column]]:
    width = len(source.header)
    rows = 0
    with path.open("rb") as raw, io.TextIOWrapper(raw, encoding=encoding, newline="") as text:
        try:
            text.readline(MAX_LINE)
            reader = pd.read_csv(
                _WithHeader(text, delimiter * width + "\n"),
                sep=delimiter,
                header=None,
                usecols=sorted({*chosen, width}),
                dtype="category",
                keep_default_na=False,
                na_filter=False,
                chunksize=BLOCK_ROWS,
                low_memory=False,
            )
            for number, frame in enumerate(reader):
                block = frame.iloc[1:] if number == 0 else frame
                source.mistakes += _too_long(_of_category(block[width], number == 0), rows, width)
                rows += len(block)
                if rows > MAX_ROWS:
                    raise DataError(f"{path.name} has more than {MAX_ROWS:,} rows")
                if tell is not None:
                    tell(min(raw.tell(), size), size)
                if len(block):
                    yield [_of_category(block[place], number == 0) for place in chosen]
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeError, csv.Error) as error:
            reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
            raise DataError(f"{path.name} is not a table of separated values: {reason}") from error


class _WithHeader(io.TextIOBase):
    """A text behind another first line.

    The line has one column more than the header. That column shows which rows are too long (pandas would truncate
    them silently), and as the line is read like any other row, pandas never takes a column for an index.
    """

    def __init__(self, text: io.TextIOWrapper, first: str):
        self.text, self.first = text, first

    def read(self, size: int | None = -1) -> str:
        found, self.first = self.first or self.text.read(size), ""
        return found


def _too_long(extra: Column, start: int, width: int) -> list[str]:
    """Return a mistake for each row that has values beyond the header's columns."""
    filled = np.array([bool(text.strip()) for text in extra.texts], dtype=bool)
    if not filled.any():
        return []
    places = np.flatnonzero(filled[extra.codes])
    return [f"row {start + int(place) + 1} has more values than the header, which has {width}" for place in places]


def _of_category(column: "pd.Series[Any]", drop_unused: bool) -> Column:
    if drop_unused:  # the header's own texts
        column = column.cat.remove_unused_categories()
    return Column.of(column.cat.categories, column.cat.codes)  # -1: a row that ends before this column


# Other forms


def _from_frame(frame: pd.DataFrame) -> Source:
    digest = hashlib.sha256(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes()).hexdigest()
    header = [str(name) for name in frame.columns]

    def blocks(chosen: Sequence[int]) -> Iterator[list[Column]]:
        if len(frame):
            yield [_of_values(frame.iloc[:, place]) for place in chosen]

    return Source("DataFrame", header, blocks, digest)


def _of_values(values: Any) -> Column:
    codes, uniques = pd.factorize(values, use_na_sentinel=True)
    return Column.of(uniques, codes)


def _from_parquet(path: Path, size: int, tell: Tell | None) -> Source:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise DataError("Parquet files need pyarrow: pip install 'e2fl[audit]'") from error
    with path.open("rb") as raw:
        digest = hashlib.file_digest(raw, "sha256").hexdigest()
    with _readable(path.name, "Parquet"):
        file = parquet.ParquetFile(path)
        header = [str(name) for name in file.schema_arrow.names]
        total = file.metadata.num_rows

    def blocks(chosen: Sequence[int]) -> Iterator[list[Column]]:
        done = 0
        names = [header[place] for place in chosen]
        batches = file.iter_batches(batch_size=BLOCK_ROWS, columns=list(dict.fromkeys(names)), use_threads=False)
        while True:
            with _readable(path.name, "Parquet"):
                batch = next(batches, None)
                if batch is None:
                    return
                batch.validate(full=True)  # damaged buffers would crash the conversion
                found = {name: _of_values(batch.column(name).to_pandas()) for name in set(names)}
            done += batch.num_rows
            if done > MAX_ROWS:
                raise DataError(f"{path.name} has more than {MAX_ROWS:,} rows")
            if tell is not None:
                tell(done, total)
            yield [found[name] for name in names]

    return Source(path.name, header, blocks, digest)


@contextmanager
def _readable(name: str, kind: str) -> Iterator[None]:
    """Turn the many kinds of errors that a damaged file causes into one."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{name} is not a readable {kind} file: {reason}") from error


def _from_xlsx(path: Path) -> Source:
    try:
        import openpyxl
    except ImportError as error:
        raise DataError("xlsx files need openpyxl: pip install 'e2fl[audit]', or save the table as CSV") from error
    raw = path.read_bytes() if path.stat().st_size <= 256 * 2**20 else b""
    if not raw:
        raise DataError(f"{path.name} is larger than 256 MiB; save it as CSV or Parquet")
    with _readable(path.name, "xlsx"):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > 2 * 2**30:
                raise DataError(f"{path.name} unpacks to more than 2 GiB; save it as CSV or Parquet")
        book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
        sheet = book.worksheets[0]
        rows = sheet.iter_rows(values_only=True)
        header = ["" if value is None else str(value) for value in next(rows, ())]
    if not any(header):
        raise DataError(f"{path.name} is empty; its first row must name the columns")

    def blocks(chosen: Sequence[int]) -> Iterator[list[Column]]:
        columns: list[list[Any]] = [[] for _ in chosen]
        with _readable(path.name, "xlsx"):
            for row in rows:
                if any(value is not None for value in row):
                    for column, place in zip(columns, chosen, strict=True):
                        column.append(row[place] if place < len(row) else None)
        if columns and columns[0]:
            yield [_of_values(pd.Series(column, dtype=object)) for column in columns]

    source = Source(path.name, header, blocks, hashlib.sha256(raw).hexdigest())
    if len(book.worksheets) > 1:
        source.notes.append(f"The file has {len(book.worksheets)} sheets; the first, '{sheet.title}', was read.")
    return source


def same_file(one: Path, other: Path) -> bool:
    """Return whether two paths name one file, through links too."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return one.absolute() == other.absolute()
