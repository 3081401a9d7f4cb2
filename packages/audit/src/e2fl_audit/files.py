"""Tables as people have them: CSV in any common form, Parquet, xlsx or a DataFrame; their cells.

A table is the user's own file: pandas reads it, and executes nothing.
"""

import hashlib
import math
import os
import re
import tempfile
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl_audit.settings import AuditError
from e2fl_audit.wording import quoted

MISSING = {"", "na", "n/a", "nan", "null", "none", "<na>", "nat", "?", "unknown", "missing"}

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]
Text = Any  # a Series of categories, so that each different text is looked at once


@dataclass
class Sheet:
    """A table whose cells are not interpreted yet."""

    name: str
    cells: pd.DataFrame
    sha256: str = ""
    notes: list[str] = field(default_factory=list)
    decimal_comma: bool = False

    def __post_init__(self) -> None:
        self.cells = self.cells.rename(columns=lambda name: str(name).strip())
        self.cells = self.cells.loc[:, self.cells.columns != ""]
        names = self.cells.columns.map(plain)
        if not names.is_unique:
            twice = names[names.duplicated()][0]
            raise AuditError(f"{self.name} has two columns '{twice}'; rename one")

    @property
    def columns(self) -> dict[str, str]:
        """The name of each column, by the name as it is compared."""
        return {plain(name): name for name in map(str, self.cells)}

    def column(self, name: str) -> Text:
        """Return a column as categories of text as it is seen, "" where there is no value."""
        cells = pd.Series(map(as_text, self.cells[name].to_numpy(object)), dtype="category")
        seen = {text: visible(text) for text in cells.cat.categories}
        known = {text: "" if seen[text].casefold() in MISSING else seen[text] for text in seen}
        return cells.astype(object).map(known).astype("category").rename(name)

    def numbers(self, column: Text) -> Numbers:
        """Return the number in each row of a column; NaN where there is none."""
        numbers = column.map(lambda text: as_number(text, self.decimal_comma))
        return np.asarray(numbers, np.float64)


def as_text(value: Any) -> str:
    """Return a cell as a CSV file would have it: "" if it is missing, 1 for 1.0."""
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def as_number(text: str, decimal_comma: bool = False) -> float:
    """Return the number in a cell; NaN where there is none."""
    if "_" in text:  # Python would read 1_000
        return math.nan
    try:
        return float(text.replace(",", ".") if decimal_comma else text)
    except ValueError:
        return math.nan


def visible(name: str) -> str:
    """Return a name as it is seen: composed (NFC), without invisible characters, trimmed."""
    signs = unicodedata.normalize("NFC", name)
    return " ".join("".join(s for s in signs if unicodedata.category(s) != "Cf").split())


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
    names = sorted(set(column) - {""}, key=natural)
    alike = defaultdict(list)
    for name in names:
        alike[unicodedata.normalize("NFKC", name).casefold()].append(name)
    notes += [
        f"Column '{column.name}': {quoted(group)} are counted apart; are they one?"
        for group in alike.values()
        if len(group) > 1
    ]
    codes = {name: code for code, name in enumerate(names)} | {"": -1}
    return names, column.astype(object).map(codes).to_numpy(np.int64)


def open_table(table: Path | str | pd.DataFrame) -> Sheet:
    """Open a file by its ending, or a DataFrame."""
    if isinstance(table, pd.DataFrame):
        rows = pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes()
        return Sheet("DataFrame", table, hashlib.sha256(rows).hexdigest())
    path = Path(table)
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        sheet = _read(path)
    except AuditError:
        raise
    except OSError as error:
        raise AuditError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # whatever a library does with a damaged file
        reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise AuditError(f"{path} is not a readable table: {reason[:200]}") from error
    sheet.sha256 = digest
    return sheet


def _read(path: Path) -> Sheet:
    ending = path.suffix.lower()
    if ending in (".parquet", ".pq"):
        return Sheet(path.name, pd.read_parquet(path))
    if ending in (".xlsx", ".xlsm", ".xls"):
        cells = pd.read_excel(path, header=None, dtype=object, keep_default_na=False)
        return _with_header(path, cells[(cells != "").any(axis=1)])
    with path.open("rb") as file:
        unicode = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return _separated(path, unicode)
    except UnicodeDecodeError:
        sheet = _separated(path, "cp1252")
    sheet.notes.append("The file is not UTF-8; it was read as Windows-1252.")
    return sheet


def _separated(path: Path, encoding: str) -> Sheet:
    with path.open(encoding=encoding, newline="") as file:
        first = next((line for line in file if line.strip()), "")
    separator = max(",;\t|", key=re.sub(r'"[^"]*"', "", first).count)
    try:
        # The header is read as the first row, so that it sets the number of fields.
        cells = pd.read_csv(
            path, sep=separator, encoding=encoding, header=None, dtype=object, na_filter=False
        )
    except pd.errors.EmptyDataError:
        cells = pd.DataFrame()
    sheet = _with_header(path, cells)
    sheet.decimal_comma = separator == ";"
    return sheet


def _with_header(path: Path, cells: pd.DataFrame) -> Sheet:
    """Return the table whose first row names the columns."""
    if cells.empty:
        raise AuditError(f"{path} is empty; its first row must name the columns")
    header = [as_text(name) for name in cells.iloc[0]]
    return Sheet(path.name, cells.iloc[1:].set_axis(header, axis=1))


def write(path: Path, content: str) -> None:
    """Write a file in one step: it is complete, or unchanged."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
            partial = Path(folder) / path.name
            partial.write_text(content, encoding="utf-8", errors="replace", newline="")
            os.replace(partial, path)
    except OSError as error:
        raise AuditError(f"cannot write {path}: {error.strerror or error}") from error
