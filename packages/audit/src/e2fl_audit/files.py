"""Tables as people have them: CSV in any common form, Parquet, xlsx or a DataFrame.

A table is the user's own file: pandas reads it, and executes nothing.
"""

import hashlib
import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl_audit.errors import AuditError

MISSING = frozenset(
    {"", "na", "n/a", "nan", "null", "none", "<na>", "nat", "?", "unknown", "missing"}
    | {"not available"}
)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
CP1252 = "The file is not UTF-8; it was read as Windows-1252 (Western European)."

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]


def as_text(value: Any) -> str:
    """Return a cell as a CSV file would have it: "" if it is missing, 1 for 1.0."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def as_number(text: str, decimal_comma: bool = False) -> float:
    """Return the number in a cell; NaN where it is none or is ambiguous. '85 %' is 0.85."""
    cell = text.strip().replace("\u00a0", "")
    percent = cell.endswith("%")
    cell = cell.removesuffix("%").strip()
    if "," in cell:
        if not decimal_comma and THOUSANDS.fullmatch(cell):
            return math.nan
        if "." in cell:
            cell = cell.replace("." if cell.rfind(",") > cell.rfind(".") else ",", "")
        cell = cell.replace(",", ".")
    try:
        value = math.nan if "_" in cell else float(cell)  # float() accepts 1_000
    except ValueError:
        return math.nan
    return value / 100 if percent else value


@dataclass(frozen=True)
class Column:
    """A column: row i has `values[codes[i]]`."""

    title: str
    values: list[str]
    codes: Codes
    decimal_comma: bool = False

    @cached_property
    def blank(self) -> Flags:
        """Which of the values say that there is none."""
        return np.array([text.strip().casefold() in MISSING for text in self.values], np.bool_)

    @cached_property
    def missing(self) -> Flags:
        """Which rows have no value."""
        return self.blank[self.codes]

    @cached_property
    def numbers(self) -> Numbers:
        """The number in each row; NaN where there is none."""
        return np.array([as_number(text, self.decimal_comma) for text in self.values])[self.codes]

    def kept(self, keep: Flags) -> "Column":
        """Return the column of some of the rows."""
        used, codes = np.unique(self.codes[keep], return_inverse=True)
        values = [self.values[code] for code in used]
        return Column(self.title, values, codes, self.decimal_comma)


@dataclass
class Sheet:
    """A table whose cells are not interpreted yet."""

    name: str
    sha256: str
    header: list[str]
    cells: pd.DataFrame  # its columns are positions in the header
    notes: list[str] = field(default_factory=list)
    decimal_comma: bool = False

    def column(self, position: int) -> Column:
        cells = self.cells[position]
        if cells.dtype == np.object_:  # 1 and True are equal, but not as they are written
            cells = cells.map(as_text)
        codes, values = pd.factorize(cells, use_na_sentinel=False)
        texts = [as_text(value) for value in np.asarray(values, dtype=object)]
        title = self.header[position].strip()
        return Column(title, texts, codes.astype(np.int64), self.decimal_comma)


def open_table(table: "Path | str | pd.DataFrame") -> Sheet:
    """Open a file by its ending, or a DataFrame."""
    if isinstance(table, pd.DataFrame):
        rows = pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes()
        return _sheet("DataFrame", hashlib.sha256(rows).hexdigest(), table)
    path = Path(table)
    try:
        if path.exists() and not path.is_file():
            raise AuditError(f"{path} is not a file; name a file")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        match path.suffix.lower():
            case ".parquet" | ".pq":
                return _sheet(path.name, digest, pd.read_parquet(path))
            case ".xlsx" | ".xlsm":
                return _of_excel(path, digest)
            case ".xls":
                raise AuditError(f"{path} is an old Excel file; save it as .xlsx or CSV")
            case _:
                return _of_csv(path, digest)
    except AuditError:
        raise
    except OSError as error:
        raise AuditError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # whatever a library does with a damaged file
        reason = " ".join(str(error).split())[:200]
        raise AuditError(f"{path} is not a readable table: {reason}") from error


def _sheet(name: str, digest: str, frame: pd.DataFrame) -> Sheet:
    header = [str(column) for column in frame.columns]
    return Sheet(name, digest, header, frame.set_axis(range(len(header)), axis=1))


def _with_header(path: Path, digest: str, cells: pd.DataFrame) -> Sheet:
    """Return the table whose first row names the columns."""
    if cells.empty:
        raise AuditError(f"{path} is empty; its first row must name the columns")
    header = [as_text(name).strip() for name in cells.iloc[0]]
    return _sheet(path.name, digest, cells.iloc[1:].set_axis(header, axis=1))


def _of_excel(path: Path, digest: str) -> Sheet:
    with pd.ExcelFile(path, engine="openpyxl") as book:
        names = book.sheet_names
        cells = pd.read_excel(book, header=None, dtype=object, keep_default_na=False)
    sheet = _with_header(path, digest, cells[(cells != "").any(axis=1)])
    if len(names) > 1:
        sheet.notes.append(f"The file has {len(names)} sheets; the first, '{names[0]}', was read.")
    return sheet


def _of_csv(path: Path, digest: str) -> Sheet:
    with path.open("rb") as file:
        start = file.read(4096)
    encodings = ["utf-8-sig", "cp1252"]  # the first that fits; a byte-order mark may be missing
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    elif start[1:2] == start[3:4] == b"\0":
        encodings = ["utf-16-le"]
    elif b"\0" in start:
        what = "is not a text table (it holds NUL bytes); save it as CSV in UTF-8"
        raise AuditError(f"{path} {what}")
    for encoding in encodings:
        try:
            sheet = _separated(path, digest, encoding)
        except UnicodeDecodeError:
            continue
        sheet.notes += [CP1252] if encoding == "cp1252" else []
        return sheet
    raise AuditError(f"{path} is neither UTF-8 nor Windows-1252 text; save it as CSV in UTF-8")


def _separated(path: Path, digest: str, encoding: str) -> Sheet:
    with path.open(encoding=encoding, newline="") as file:
        first = next((line for line in file if line.strip()), "")
    likely = "\t,;|" if path.suffix.lower() == ".tsv" else ",;\t|"
    separator = max(likely, key=re.sub(r'"[^"]*"', "", first).count)
    options: dict[str, Any] = {"sep": separator, "encoding": encoding, "dtype": "category"}
    try:
        # The header is read as the first row, so that it sets the number of fields.
        cells = pd.read_csv(path, header=None, na_filter=False, **options)
    except pd.errors.EmptyDataError:
        cells = pd.DataFrame()
    except pd.errors.ParserError as error:
        reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise AuditError(f"{path} is not a table of separated values: {reason}") from error
    sheet = _with_header(path, digest, cells)
    sheet.decimal_comma = separator == ";"
    return sheet
