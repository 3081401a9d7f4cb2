"""Tables of scores that others made: read with care, since they were written by anybody.

Two forms: a row for each client (client, group, accuracy, and n and loss if there are), or a row for each example
(client, group, y, y_hat). Columns are found by name, in any order; others are left alone.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl import metrics
from e2fl.construct import did_you_mean
from e2fl.errors import DataError

BLOCK = 50_000  # rows read at a time
FORMS = "client, group, accuracy (and n, loss if there are), or for each example client, group, y, y_hat"


@dataclass(frozen=True)
class Scores:
    """Anybody's scores, a row for each client or for each group inside one."""

    client: NDArray[np.int64]  # [rows], into client_names
    client_names: list[str]
    group: NDArray[np.int64] | None  # [rows], into group_names
    group_names: list[str]
    accuracy: NDArray[np.float64]  # [rows], in percent
    n: NDArray[np.float64] | None  # [rows]
    loss: NDArray[np.float64] | None  # [rows]
    protected: dict[str, float] | None  # of two groups and two classes, from examples
    direction: str  # which group minus which
    about: str  # what was read, in words
    caution: str = ""  # how it was read, where that might be wrong


def read_scores(path: Path, *, unprivileged: str | None = None) -> Scores:
    """Read a table in either form; `unprivileged` names the first of two groups in EOD, DI and SPD."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read(path.name, file, unprivileged)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a text in UTF-8: {error.reason} at byte {error.start}") from error
    except csv.Error as error:
        raise DataError(f"{path} is not a table of comma-separated values: {error}") from error


def _read(name: str, file: Any, unprivileged: str | None) -> Scores:
    first = file.readline()
    if not first.strip():
        raise DataError(f"{name} is empty; its first row must name the columns {FORMS}")
    delimiter = max(",;\t", key=first.count)
    header = [column.strip().lower() for column in next(csv.reader([first], delimiter=delimiter))]
    wanted = _wanted(name, header)
    columns = _Columns(name, wanted, [header.index(column) for column in wanted], len(header))
    for block in _blocks(csv.reader(file, delimiter=delimiter)):
        columns.take(block)
    if not columns.rows:
        raise DataError(f"{name} has a header but no rows")
    if "y" in wanted:
        return _from_examples(name, columns, unprivileged)
    return _from_clients(name, columns)


def _wanted(name: str, header: Sequence[str]) -> list[str]:
    """The columns that are there and have a meaning."""
    for column in set(header):
        if header.count(column) > 1 and column in ("client", "group", "accuracy", "n", "loss", "y", "y_hat"):
            raise DataError(f"{name} has two columns '{column}'")
    examples = "y" in header or "y_hat" in header
    needed = ["client", "y", "y_hat"] if examples else ["client", "accuracy"]
    for column in needed:
        if column not in header:
            raise DataError(f"{name} has no column '{column}'{did_you_mean(column, header)}. It must have {FORMS}")
    optional = ["group"] if examples else ["group", "n", "loss"]
    return needed + [column for column in optional if column in header]


def _blocks(reader: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    block: list[list[str]] = []
    for row in reader:
        block.append(row)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


class _Columns:
    """Columns as they are read: names as numbers into a list, numbers as numbers."""

    def __init__(self, table: str, names: list[str], places: list[int], width: int):
        self.table, self.names, self.places, self.width = table, names, places, width
        self.rows = 0
        self.codes: dict[str, dict[str, int]] = {
            name: {} for name in names if name in ("client", "group", "y", "y_hat")
        }
        if "y_hat" in self.codes:
            self.codes["y_hat"] = self.codes["y"]  # the same words mean the same
        self.parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names}

    def take(self, block: list[list[str]]) -> None:
        """Add these rows."""
        block = self._whole(block)
        if not block:
            return
        columns = list(zip(*block, strict=True))
        for name, place in zip(self.names, self.places, strict=True):
            values = columns[place]
            self.parts[name].append(self._coded(name, values) if name in self.codes else self._numbers(name, values))
        self.rows += len(block)

    def column(self, name: str) -> NDArray[Any] | None:
        return np.concatenate(self.parts[name]) if name in self.parts else None

    def _whole(self, block: list[list[str]]) -> list[list[str]]:
        """Rows of the right width; lines with nothing in them are no rows."""
        if all(len(row) == self.width for row in block):
            return block
        kept = [row for row in block if row]
        for place, row in enumerate(kept):
            if len(row) != self.width:
                raise DataError(f"{self._where(place)} has {len(row)} values, the header has {self.width}")
        return kept

    def _coded(self, name: str, values: Sequence[str]) -> NDArray[np.int64]:
        codes = self.codes[name]
        known = len(codes)
        found = np.fromiter((codes.setdefault(value, len(codes)) for value in values), np.int64, len(values))
        if any(not value.strip() for value in islice(codes, known, None)):
            place = next(place for place, value in enumerate(values) if not value.strip())
            hint = "; name one for every row, or leave the column out" if name == "group" else ""
            raise DataError(f"{self._where(place)} has nothing in column '{name}'{hint}")
        return found

    def _numbers(self, name: str, values: Sequence[str]) -> NDArray[np.float64]:
        try:
            found = np.array(values, dtype=np.float64)
        except ValueError:
            found = np.array([_number(value) for value in values])
        wrong = ~np.isfinite(found)
        if name == "accuracy":
            wrong |= (found < 0) | (found > 100)
        if name == "n":
            wrong |= found <= 0
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            right = {"accuracy": "a number from 0 to 100", "n": "a number above 0"}.get(name, "a number")
            raise DataError(f"{self._where(place)} has {values[place]!r} in column '{name}'; it must be {right}")
        return found

    def _where(self, place: int) -> str:
        return f"{self.table}: row {self.rows + place + 1} (below the header)"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _from_clients(name: str, columns: _Columns) -> Scores:
    accuracy, client, group = (columns.column(key) for key in ("accuracy", "client", "group"))
    assert accuracy is not None
    assert client is not None
    _refuse_repeated(columns, client, group)
    caution = ""
    if 0 < accuracy.max() <= 1.0:
        # A hundredfold mistake either way is worse than a rule that is plainly stated on the page.
        accuracy = accuracy * 100.0
        caution = f"{name}: no accuracy is above 1, so they were read as fractions, not as percent."
    names = list(columns.codes["client"])
    return Scores(
        client=client,
        client_names=names,
        group=group,
        group_names=list(columns.codes.get("group", {})),
        accuracy=accuracy,
        n=columns.column("n"),
        loss=columns.column("loss"),
        protected=None,
        direction="",
        about=f"{name}: {columns.rows:,} rows of {len(names):,} clients",
        caution=caution,
    )


def _refuse_repeated(columns: _Columns, client: NDArray[Any], group: NDArray[Any] | None) -> None:
    """One row for each client, or for each group inside it."""
    pairs = client if group is None else client * len(columns.codes["group"]) + group
    _, first, inverse, counts = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
    if counts.max() == 1:
        return
    repeats = np.flatnonzero(first[inverse] != np.arange(len(pairs)))
    place = int(repeats[0])
    who = list(columns.codes["client"])[int(client[place])]
    same = f"client {who!r}" if group is None else f"client {who!r} in the same group"
    raise DataError(
        f"{columns.table}: rows {int(first[inverse[place]]) + 1} and {place + 1} (below the header) are both of "
        f"{same}; give one row, or a row for each example with y and y_hat"
    )


def _from_examples(name: str, columns: _Columns, unprivileged: str | None) -> Scores:
    client, group, y, y_hat = (columns.column(key) for key in ("client", "group", "y", "y_hat"))
    assert client is not None
    assert y is not None
    assert y_hat is not None
    found = metrics.accuracies(y, y_hat, client=client, group=group)
    groups = list(columns.codes.get("group", {}))
    positive = _positive(columns.codes["y"])
    protected, direction = None, ""
    if len(groups) == 2 and positive is not None and group is not None:
        if unprivileged is not None and unprivileged not in groups:
            raise DataError(f"--unprivileged: {name} has no group '{unprivileged}'{did_you_mean(unprivileged, groups)}")
        first = sorted(groups)[0] if unprivileged is None else unprivileged
        second = next(other for other in groups if other != first)
        one, two = (
            metrics.confusion(y[group == code] == positive, y_hat[group == code] == positive)
            for code in (groups.index(first), groups.index(second))
        )
        protected, direction = metrics.protected(one, two), f"{first} minus {second}"
    return Scores(
        client=found["client"],
        client_names=list(columns.codes["client"]),
        group=found.get("group"),
        group_names=groups,
        accuracy=found["accuracy"],
        n=found["n"].astype(np.float64),
        loss=None,
        protected=protected,
        direction=direction,
        about=f"{name}: {columns.rows:,} examples of {len(columns.codes['client']):,} clients",
    )


def _positive(labels: dict[str, int]) -> int | None:
    """The code of the positive class, where labels are plainly no and yes."""
    for pair in (("0", "1"), ("0.0", "1.0"), ("False", "True"), ("false", "true")):
        if set(labels) <= set(pair) and pair[1] in labels:
            return labels[pair[1]]
    return None
