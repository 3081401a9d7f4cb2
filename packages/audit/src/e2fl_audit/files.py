"""Tables as people have them: CSV in any common form, Parquet, xlsx or a DataFrame; their names.

A table is the user's own file: pandas reads it, and executes nothing.
"""

import hashlib
import math
import re
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl_audit.settings import AuditError

MISSING = {"", "na", "n/a", "nan", "null", "none", "<na>", "nat", "?", "unknown", "missing"}
MISSING |= {"not available"}
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
POSITIVE = {"1", "yes", "y", "t", "positive", "pos", "selected", "hired", "accepted", "approved"}
SPREADSHEETS = (".xlsx", ".xlsm")

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]
Text = Any  # a Series of categories, so that each different text is looked at once


@dataclass
class Sheet:
    """A table whose cells are not interpreted yet."""

    name: str
    sha256: str
    header: list[str]
    cells: pd.DataFrame  # its columns are positions in the header
    notes: list[str] = field(default_factory=list)
    decimal_comma: bool = False

    def column(self, position: int) -> Text:
        """Return a column as categories of text."""
        cells = self.cells[position]
        if cells.dtype == np.object_:  # 1 and True are equal, but not as they are written
            cells = cells.map(as_text)
        codes, values = pd.factorize(cells, use_na_sentinel=False)
        written = np.array([as_text(value) for value in np.asarray(values, object)], object)
        same, texts = pd.factorize(written)  # an empty text and no value are the same
        text = pd.Categorical.from_codes(same[codes], pd.Index(texts, dtype=object))
        return pd.Series(text, name=self.header[position].strip())

    def numbers(self, column: Text) -> Numbers:
        """Return the number in each row of a column; NaN where there is none."""
        numbers = column.map(lambda text: as_number(text, self.decimal_comma))
        return np.asarray(numbers, np.float64)


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


def is_missing(text: str) -> bool:
    """Return whether a text says that there is no value."""
    return text.strip().casefold() in MISSING


def missing(column: Text) -> Flags:
    """Return which rows of a column have no value."""
    return np.asarray(column.map(is_missing), np.bool_)


def open_table(table: Path | str | pd.DataFrame) -> Sheet:
    """Open a file by its ending, or a DataFrame."""
    if isinstance(table, pd.DataFrame):
        rows = pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes()
        return _sheet("DataFrame", table, hashlib.sha256(rows).hexdigest())
    path = Path(table)
    try:
        if path.exists() and not path.is_file():
            raise AuditError(f"{path} is not a file; name a file")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            start = file.read(4096)
        ending = path.suffix.lower()
        if ending == ".xls":
            raise AuditError(f"{path} is an old Excel file; save it as .xlsx or CSV")
        if ending in (".parquet", ".pq"):
            sheet = _sheet(path.name, pd.read_parquet(path))
        else:
            sheet = _of_excel(path) if ending in SPREADSHEETS else _of_csv(path, start)
    except AuditError:
        raise
    except OSError as error:
        raise AuditError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # whatever a library does with a damaged file
        reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise AuditError(f"{path} is not a readable table: {reason[:200]}") from error
    sheet.sha256 = digest
    return sheet


def _sheet(name: str, frame: pd.DataFrame, digest: str = "") -> Sheet:
    header = [str(column) for column in frame.columns]
    return Sheet(name, digest, header, frame.set_axis(range(len(header)), axis=1))


def _with_header(path: Path, cells: pd.DataFrame) -> Sheet:
    """Return the table whose first row names the columns."""
    if cells.empty:
        raise AuditError(f"{path} is empty; its first row must name the columns")
    header = [as_text(name).strip() for name in cells.iloc[0]]
    return _sheet(path.name, cells.iloc[1:].set_axis(header, axis=1))


def _of_excel(path: Path) -> Sheet:
    with pd.ExcelFile(path, engine="openpyxl") as book:
        names = book.sheet_names
        cells = pd.read_excel(book, header=None, dtype=object, keep_default_na=False)
    sheet = _with_header(path, cells[(cells != "").any(axis=1)])
    if len(names) > 1:
        sheet.notes.append(f"The file has {len(names)} sheets; the first, '{names[0]}', was read.")
    return sheet


def _of_csv(path: Path, start: bytes) -> Sheet:
    encodings = ["utf-8-sig", "cp1252"]  # the first that fits; a byte-order mark may be missing
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    elif start[1:2] == start[3:4] == b"\0":
        encodings = ["utf-16-le"]
    elif b"\0" in start:
        raise AuditError(f"{path} is not a text table (it holds NUL bytes); save it as UTF-8 CSV")
    for encoding in encodings:
        try:
            sheet = _separated(path, encoding)
        except UnicodeDecodeError:
            continue
        if encoding == "cp1252":
            sheet.notes.append("The file is not UTF-8; it was read as Windows-1252.")
        return sheet
    raise AuditError(f"{path} is neither UTF-8 nor Windows-1252 text; save it as CSV in UTF-8")


def _separated(path: Path, encoding: str) -> Sheet:
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
    sheet = _with_header(path, cells)
    sheet.decimal_comma = separator == ";"
    return sheet


def visible(name: str) -> str:
    """Return a name as it is seen: composed (NFC), without invisible characters, trimmed."""
    if not name.isascii():
        composed = unicodedata.normalize("NFC", name)
        name = "".join(sign for sign in composed if unicodedata.category(sign) != "Cf")
    return " ".join(name.split())


def plain(name: str) -> str:
    """Return a column's name as it is compared: lower case, underscores for blanks and hyphens."""
    return visible(name).casefold().replace(" ", "_").replace("-", "_")


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts G2 before G10."""
    parts = re.split(r"(\d{1,18})", name)
    return [(1, int(text), "") if odd % 2 else (0, 0, text) for odd, text in enumerate(parts)]


def name_codes(column: Text, notes: list[str]) -> tuple[list[str], Codes]:
    """Return the names in order, and each row's code; -1 where there is none.

    The order does not depend on that of the rows, and neither do the draws of the bootstrap then.
    """
    spelt = {text: "" if is_missing(text) else visible(text) for text in column.cat.categories}
    names = sorted(set(spelt.values()) - {""}, key=natural)
    code_of = {name: code for code, name in enumerate(names)} | {"": -1}
    written = defaultdict(set)
    for text, name in spelt.items():
        written[name].add(" ".join(text.split()))
    if blanks := written.pop("", None):
        blank = ", ".join(f"'{text}'" if text else "empty" for text in sorted(blanks)[:6])
        notes.append(f"Column '{column.name}': missing values ({blank}) are counted as unknown.")
    if several := [f"'{name}'" for name in names if len(written[name]) > 1]:
        notes.append(
            f"Column '{column.name}': {', '.join(several[:5])} is written in several ways "
            "that look the same; they are read as one name."
        )
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(unicodedata.normalize("NFKC", name).casefold(), name)
        if other != name:
            pair = f"'{other}' and '{name}'"
            notes.append(f"Column '{column.name}': {pair} are counted as two groups; are they one?")
    return names, column.map(lambda text: code_of[spelt[text]]).to_numpy(np.int64)


class Labels:
    """Labels compared as values: 1, 1.0 and True are one label, and so are Yes and yes."""

    def __init__(self) -> None:
        self.spellings: dict[str, list[str]] = {}  # of each label, by its key

    @staticmethod
    def key(text: str) -> str:
        word = visible(text).casefold()
        word = {"true": "1", "false": "0"}.get(word, word)
        value = math.nan if word.endswith("%") else as_number(word, decimal_comma=True)
        return f"{value:.15g}" if math.isfinite(value) else word

    def code(self, text: str) -> int:
        """Return the code of a label, which is added if it is new."""
        key, spelt = self.key(text), visible(text)
        spellings = self.spellings.setdefault(key, [])
        if spelt not in spellings:
            spellings.append(spelt)
        return list(self.spellings).index(key)

    @property
    def names(self) -> list[str]:
        return [spellings[0] for spellings in self.spellings.values()]

    def positive(self) -> int | None:
        """Return the label that plainly means yes, where there are two labels or fewer."""
        keys = list(self.spellings)
        if not keys or set(keys) <= {"0"} or set(keys) <= {"-1"}:
            return self.code("1")
        if len(keys) > 2 or ("1" in keys and not set(keys) <= {"0", "-1", "1"}):
            return None  # of 1 and 2, either may be the positive one
        known = [code for code, key in enumerate(keys) if key in POSITIVE]
        return known[0] if len(known) == 1 else None
