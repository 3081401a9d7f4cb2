"""The columns of a table as inputs and names: numbers or texts, or an error that names line and column."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from e2fl.data.files.places import existing
from e2fl.errors import DataError
from e2fl.tables.cells import ALMOST_NUMBER, BITS, as_number, as_text

if TYPE_CHECKING:
    import pandas as pd

    from e2fl.tables.files import Column as Part
    from e2fl.tables.files import Source

    Frame = pd.DataFrame
else:  # pandas need not be installed
    Frame = Any

CELL = 48  # bytes that a cell takes while it becomes an input, at most; measured, without the input
ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx", ".xlsm", ".xls")
_WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")
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


class Sheet:
    """A table: a file, a DataFrame or a list of dictionaries."""

    def __init__(self, table: Any):
        self.source, self.where = _open(table)
        self.header = self.source.header
        self.row_name = self.source.row_name  # a function of its own: it outlives the cells
        self.columns: dict[str, list[Part]] = {}
        self.rows = 0
        for note in self.source.notes:
            warnings.warn(f"{self.where}: {note}", stacklevel=4)
        if not self.header or not all(self.header):
            raise DataError(f"{self.where} needs a first row that names every column")
        name, count = Counter(self.header).most_common(1)[0]
        if count > 1:
            raise DataError(f"{self.where} has two columns '{name}'")

    def __len__(self) -> int:
        return self.rows

    def read(self, wanted: set[str]) -> None:
        """Read these columns, and reject rows that are too long or too short."""
        places = [place for place, name in enumerate(self.header) if name in wanted]
        self.columns = {self.header[place]: [] for place in places}
        for block in self.source.blocks(places):
            for column, part in zip(self.columns.values(), block.columns, strict=True):
                column.append(part)
            self.rows += len(block.too_long)
        self.source.require_even()
        if not self.rows:
            raise DataError(f"{self.where} has no rows")

    def texts(self, name: str) -> Texts:
        """Return a column as it is written, even if it holds numbers; equal texts are one object."""
        return self._texts(name, as_text)

    def names(self, name: str) -> Texts:
        """Return a column of names, such as clients: as it is written, but 1.0 is 1."""
        return self._texts(name, lambda text: _WHOLE.sub(r"\1", as_text(text)))

    def _texts(self, name: str, change: Callable[[str], str]) -> Texts:
        known: dict[str, str] = {}
        parts = []
        for part in self.columns[name]:
            texts = [known[text] if text in known else known.setdefault(text, change(text)) for text in part.texts]
            parts.append(np.array(texts, dtype=np.object_)[part.codes])
        found: Texts = np.concatenate(parts)
        return found

    def feature(self, name: str) -> Column:
        """Return an input column: numbers if all present cells are numbers, otherwise strings.

        Where most cells are numbers or dates, a cell that is not a plain number is rejected as a mistake.
        """
        numbers, odd = self._numbers(name)
        if not len(odd):
            return self._finite(numbers, name)
        texts = self.texts(name)
        present = int(np.count_nonzero(~is_missing(texts)))
        meant = present - len(odd) + sum(ALMOST_NUMBER.fullmatch(text) is not None for text in texts[odd].tolist())
        if 2 * meant > present:
            raise DataError(
                f"{self.where}: {self.row_name(int(odd[0]))} has '{texts[odd[0]][:40]}' in column '{name}', where most "
                "are numbers or dates. Write numbers as 1.5 and dates as numbers, such as the year; if these are "
                f"texts, set words = ['{name}']; or leave the column out with features = [...]"
            )
        return texts

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column that must hold numbers; True is 1 and False is 0."""
        numbers, odd = self._numbers(name, BITS)
        if len(odd):
            row, text = self.row_name(int(odd[0])), self.texts(name)[odd[0]][:40]
            raise DataError(f"{self.where}: {row} has '{text}' in column '{name}' of numbers")
        return self._finite(numbers, name)

    def _numbers(
        self, name: str, spelt: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return a column as numbers, and the rows that are neither numbers nor missing. spelt: texts for numbers."""
        numbers, odd = [], []
        for part in self.columns[name]:
            try:  # most columns are plain numbers
                values, wrong = part.values.astype(np.float64), np.zeros(len(part.values), np.bool_)
            except ValueError:
                found = [as_number(spelt.get(text, text)) for text in map(as_text, part.texts)]
                values, wrong = np.array(found, np.float64), np.array([number is None for number in found])
            numbers.append(values[part.codes])
            odd.append(wrong[part.codes])
        return np.concatenate(numbers), np.flatnonzero(np.concatenate(odd))

    def _finite(self, numbers: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        infinite = np.flatnonzero(np.isinf(numbers))
        if len(infinite):
            raise DataError(f"{self.where}: {self.row_name(int(infinite[0]))} is not finite in column '{name}'")
        return numbers


def _open(table: Any) -> tuple["Source", str]:
    """Return an opened table and what errors call it."""
    try:
        import pandas as pd

        from e2fl.tables.files import open_table
    except ImportError as error:
        raise DataError("tables need the package pandas: pip install 'e2fl[tables]'") from error
    if isinstance(table, str | Path):
        path = existing(str(table))
        if path.suffix.lower() not in ENDINGS:
            raise DataError(f"{path} is neither a .csv (or .tsv) nor a .parquet or .xlsx file")
        return open_table(path, CELL), str(path)
    if hasattr(table, "to_pandas"):  # a data set of Hugging Face, or a table of Arrow or Polars
        table = table.to_pandas()
    if isinstance(table, pd.DataFrame):
        return open_table(table), "the DataFrame"
    return open_table(pd.DataFrame(list(table), dtype=object)), "the rows"


def is_missing(column: Column) -> NDArray[np.bool_]:
    """Return where a value is missing."""
    found: NDArray[np.bool_] = np.isnan(column) if column.dtype.kind == "f" else column == ""
    return found
