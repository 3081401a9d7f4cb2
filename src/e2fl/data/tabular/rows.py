"""Anybody's rows, checked: whatever a network can take, or an error that names the row."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from e2fl.data.partitioned import TEST, TRAIN, UNDECIDED
from e2fl.data.tabular.cells import MISSING, is_nothing
from e2fl.errors import ConfigError, DataError

BLOCK = 2**20  # inputs that are checked at a time
LABEL_LIMIT = 10_000  # classes; more are no classes

SPLITS = {"train": TRAIN, "training": TRAIN, "0": TRAIN, "test": TEST, "testing": TEST, "1": TEST}

Call = Callable[[int], str]  # what people call a row


def row_number(row: int) -> str:
    """As arrays count."""
    return f"row {row}"


@dataclass(frozen=True)
class Table:
    """Rows of anybody's data, checked: whatever a network can take."""

    x: NDArray[np.uint8] | NDArray[np.float32]
    y: NDArray[np.int64]
    labels: tuple[str, ...]
    client: NDArray[Any]  # whose each row is
    group: NDArray[np.int64] | None = None
    groups: tuple[str, ...] = ()
    split: NDArray[np.int64] | None = None  # TRAIN, TEST or UNDECIDED
    facts: Mapping[str, object] = field(default_factory=dict)


def checked(
    x: NDArray[Any],
    y: NDArray[Any],
    client: NDArray[Any],
    *,
    group: NDArray[Any] | None,
    split: NDArray[Any] | None,
    unprivileged: str | int | None,
    where: str,
    classes: tuple[str, ...] | None = None,
    facts: Mapping[str, object] | None = None,
    called: Call = row_number,
) -> Table:
    """Anybody's arrays as a table, or a `DataError` that names the row. classes: y holds places in them."""
    if not x.ndim:
        raise DataError(f"{where}: x must have an entry for each row, but is a single value")
    for name, values in (("y", y), ("client", client), ("group", group), ("split", split)):
        if values is not None and values.shape != (len(x),):
            raise DataError(f"{where}: {name} must have one entry for each of {len(x)} rows, not shape {values.shape}")
    if not len(x):
        raise DataError(f"{where}: there are no rows")
    y, client = _named(y, "label", where, called), _named(client, "client", where, called)
    group = None if group is None else _named(group, "group", where, called)
    split = None if split is None else _texts(split, "split", where)
    codes, labels = _classes(y, where, called) if classes is None else (y, classes)
    if len(labels) < 2 or len(labels) > LABEL_LIMIT:
        raise DataError(f"{where}: {len(labels)} different labels; 2 to {LABEL_LIMIT} can be told apart")
    places, groups = _groups(group, unprivileged, where)
    return Table(
        _inputs(x, where, called), codes, labels, client, places, groups, _splits(split, where, called), facts or {}
    )


def _inputs(x: NDArray[Any], where: str, called: Call) -> NDArray[np.uint8] | NDArray[np.float32]:
    if x.ndim < 2:
        x = x[:, None]
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind not in "fiub":
        raise DataError(f"{where}: inputs must be numbers, not {x.dtype}; a table with words can be a CSV file")
    numbers = x.astype(np.float32, copy=False)  # what is stored so already stays on disk
    step = max(1, BLOCK // max(1, math.prod(x.shape[1:])))
    for start in range(0, len(x), step):
        bad = np.argwhere(~np.isfinite(numbers[start : start + step].reshape(len(x[start : start + step]), -1)))
        if len(bad):
            row, column = start + int(bad[0, 0]), int(bad[0, 1])
            raise DataError(f"{where}: {called(row)}, input {column} is missing or not finite")
    return numbers


def _texts(values: NDArray[Any], what: str, where: str) -> NDArray[Any]:
    """Bytes as the texts they spell."""
    if values.dtype.kind != "S":
        return values
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: a {what} is of bytes that are no text in UTF-8") from error


def _named(values: NDArray[Any], what: str, where: str, called: Call) -> NDArray[Any]:
    """Labels, clients or groups, none of them missing."""
    values = _texts(values, what, where)
    bad: list[int] = []
    if values.dtype.kind == "f":
        bad = np.flatnonzero(np.isnan(values)).tolist()
    elif values.dtype.kind in "UO":
        cells = values.tolist()
        nothing = {cell for cell in set(cells) if is_nothing(cell) or str(cell).strip().lower() in MISSING}
        bad = [row for row, cell in enumerate(cells) if cell in nothing] if nothing else []
    if bad:
        raise DataError(f"{where}: {called(bad[0])} has no {what}")
    return values


def _classes(y: NDArray[Any], where: str, called: Call) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels as 0, 1, ... in their natural order, and what they were."""
    if y.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(y) | (y != np.floor(y)))
        if len(bad):
            raise DataError(
                f"{where}: {called(int(bad[0]))} has the label {y[bad[0]]}; labels are classes, whole numbers or words"
            )
        y = y.astype(np.int64)
    labels, codes = np.unique(y, return_inverse=True)
    return codes.astype(np.int64), tuple(str(label) for label in labels.tolist())


def _groups(
    group: NDArray[Any] | None, unprivileged: str | int | None, where: str
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Groups as 0, 1, ...; the unprivileged one first, the others in their natural order."""
    if group is None:
        if unprivileged is not None:
            raise ConfigError(f"'{unprivileged}' cannot be unprivileged: there are no groups")
        return None, ()
    values, places = np.unique(group, return_inverse=True)
    names = [str(value) for value in values.tolist()]
    if unprivileged is not None:
        if str(unprivileged) not in names:
            raise ConfigError(f"{where}: there is no group '{unprivileged}'; known: {', '.join(names)}")
        first = names.index(str(unprivileged))
        order = [first, *(place for place in range(len(names)) if place != first)]
        names = [names[place] for place in order]
        places = np.argsort(order)[places]
    return places.astype(np.int64), tuple(names)


def _splits(split: NDArray[Any] | None, where: str, called: Call) -> NDArray[np.int64] | None:
    if split is None:
        return None
    if split.dtype.kind in "iu" and set(np.unique(split)) <= {TRAIN, TEST, UNDECIDED}:
        return split.astype(np.int64)
    words = np.char.lower(split.astype(str))
    unknown = [row for row, word in enumerate(words.tolist()) if word not in SPLITS]
    if unknown:
        raise DataError(f"{where}: {called(unknown[0])} has the split '{split[unknown[0]]}'; it is train or test")
    return np.array([SPLITS[word] for word in words.tolist()], dtype=np.int64)


def as_inputs(values: Any, where: str) -> NDArray[Any]:
    """What somebody gave as inputs, as one array of numbers."""
    try:
        x = _as_array(values)
    except ValueError:  # rows of different lengths
        return _row_by_row(values, where)
    except (TypeError, RuntimeError) as error:
        raise DataError(f"{where}: inputs cannot be made an array: {error}") from error
    if not x.ndim:
        raise DataError(f"{where}: inputs must be rows of numbers, not {values}")
    if x.dtype.kind in "fiub":
        return x
    if x.dtype == np.object_:
        return _row_by_row(x, where)  # not the values: iterating a table of pandas gives the names of its columns
    raise DataError(f"{where}: inputs must be numbers, not {x.dtype}; a table with words can be a CSV file")


def _as_array(values: Any) -> NDArray[Any]:
    """Also of a tensor that gradients are wanted of, or that is on another device."""
    return np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)


def _row_by_row(values: Iterable[Any], where: str) -> NDArray[np.float64]:
    """Inputs that are not all numbers of one shape, or the first row that is in the way; nothing is NaN."""
    rows: list[NDArray[np.float64]] = []
    for row, value in enumerate(values):
        if isinstance(value, np.ndarray) and value.dtype == np.object_:
            value = np.array([None if is_nothing(cell) else cell for cell in value.flat]).reshape(value.shape)
        try:
            rows.append(_as_array(math.nan if is_nothing(value) else value).astype(np.float64))
        except (ValueError, TypeError):
            raise DataError(f"{where}, row {row}: inputs must be numbers, as many as the other rows have") from None
        if rows[row].shape != rows[0].shape:
            raise DataError(f"{where}, row {row}: inputs of shape {rows[row].shape}, other rows have {rows[0].shape}")
    return np.array(rows)


def as_column(values: Any, what: str, where: str) -> NDArray[Any]:
    """What somebody gave as labels or groups, one a row and none of them missing."""
    listed = list(values) if isinstance(values, list | tuple) else _texts(_as_array(values), what, where)
    if isinstance(listed, np.ndarray) and listed.dtype != np.object_:
        if listed.dtype.kind == "f" and np.isnan(listed).any():
            raise DataError(f"{where}, row {int(np.isnan(listed).argmax())}: no {what}")
        return listed
    cells = listed if isinstance(listed, list) else listed.tolist()
    for row, value in enumerate(cells if isinstance(cells, list) else ()):
        if is_nothing(value):
            raise DataError(f"{where}, row {row}: no {what}")
        if np.ndim(value):
            raise DataError(f"{where}, row {row}: one {what} is needed, not {len(value)}")
    found = np.asarray(cells)
    return np.array([str(cell) for cell in cells]) if found.dtype == np.object_ else _texts(found, what, where)
