"""The columns of a table as inputs and names: numbers or texts, or an error that names line and column."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
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
        self.header = [name.strip() for name in self.source.header]
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
        plain = self._plain_numbers(name)
        if plain is not None:
            return plain
        texts = self.texts(name)
        numbers, odd = _parsed(texts)
        if not odd:
            return self._finite(numbers, name)
        present = int(np.count_nonzero(~is_missing(texts)))
        meant = present - len(odd) + sum(ALMOST_NUMBER.fullmatch(text) is not None for text in texts[odd].tolist())
        if 2 * meant > present:
            raise DataError(
                f"{self.where}: {self.row_name(odd[0])} has '{texts[odd[0]][:40]}' in column '{name}', where most are "
                "numbers or dates. Write numbers as 1.5 and dates as numbers, such as the year; if these are texts, "
                f"set words = ['{name}']; or leave the column out with features = [...]"
            )
        return texts

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column that must hold numbers; True is 1 and False is 0."""
        plain = self._plain_numbers(name)
        if plain is not None:
            return plain
        texts = self.texts(name)
        numbers, odd = _parsed(texts, BITS)
        if odd:
            row, text = self.row_name(odd[0]), texts[odd[0]][:40]
            raise DataError(f"{self.where}: {row} has '{text}' in column '{name}' of numbers")
        return self._finite(numbers, name)

    def _plain_numbers(self, name: str) -> NDArray[np.float64] | None:
        """Return a column of numbers without other marks for missing values than NaN; None for other columns."""
        try:
            parts = [part.values.astype(np.float64)[part.codes] for part in self.columns[name]]
        except ValueError:
            return None
        return self._finite(np.concatenate(parts), name)

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


def _parsed(texts: Texts, change: Mapping[str, str] | None = None) -> tuple[NDArray[np.float64], list[int]]:
    """Return texts as numbers, and the rows whose texts are no numbers; `change` is applied to the texts before."""
    known = {text: as_number((change or {}).get(text, text)) for text in set(texts.tolist())}
    numbers = [known[text] for text in texts.tolist()]
    return np.array(numbers, dtype=np.float64), [row for row, number in enumerate(numbers) if number is None]


def is_missing(column: Column) -> NDArray[np.bool_]:
    """Return where a value is missing."""
    found: NDArray[np.bool_] = np.isnan(column) if column.dtype.kind == "f" else column == ""
    return found
