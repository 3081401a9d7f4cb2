"""Rows of users' data, checked: inputs a network can read, or an error that names the row."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from e2fl.data.partitioned import TEST, TRAIN, UNDECIDED
from e2fl.errors import ConfigError, DataError
from e2fl.tables.cells import is_missing_text, is_missing_value

BLOCK = 2**20  # inputs that are checked at a time
LABEL_LIMIT = 10_000  # classes
SAMPLE = 1000  # rows from which the scale of the inputs is estimated
UNIT_SCALE = (1e-2, 10.0)  # root mean squares that need no warning

SPLITS = {"train": TRAIN, "training": TRAIN, "0": TRAIN, "test": TEST, "testing": TEST, "1": TEST}

RowName = Callable[[int], str]  # how messages call a row


def row_number(row: int) -> str:
    """Return the name of a row in an array."""
    return f"row {row}"


@dataclass(frozen=True)
class CheckedRows:
    """Rows with their client, label, group and split, checked."""

    x: NDArray[np.uint8] | NDArray[np.float32]
    y: NDArray[np.int64]
    labels: tuple[str, ...]  # names of the classes
    client: NDArray[Any]  # [rows]
    group: NDArray[np.int64] | None = None
    groups: tuple[str, ...] = ()  # names of the groups
    split: NDArray[np.int64] | None = None  # TRAIN, TEST or UNDECIDED
    metadata: Mapping[str, object] = field(default_factory=dict)
    scale: float = 1.0  # the network reads x * scale
    row_name: RowName = row_number


def check_rows(
    x: NDArray[Any],
    y: NDArray[Any],
    client: NDArray[Any],
    *,
    group: NDArray[Any] | None,
    split: NDArray[Any] | None,
    unprivileged: str | int | None,
    where: str,
    classes: tuple[str, ...] | None = None,
    metadata: Mapping[str, object] | None = None,
    row_name: RowName = row_number,
) -> CheckedRows:
    """Return arrays as checked rows, or raise a `DataError` that names the row.

    classes: y holds indices into them, and x is standardised already.
    """
    if not x.ndim:
        raise DataError(f"{where}: x must have an entry for each row, but is a single value")
    for name, values in (("y", y), ("client", client), ("group", group), ("split", split)):
        if values is not None and values.shape != (len(x),):
            raise DataError(f"{where}: {name} must have one entry for each of {len(x)} rows, not shape {values.shape}")
    if not len(x):
        raise DataError(f"{where}: there are no rows")
    y, client = _present(y, "label", where, row_name), _present(client, "client", where, row_name)
    group = None if group is None else _present(group, "group", where, row_name)
    split = None if split is None else _texts(split, "split", where)
    codes, labels = _classes(y, where, row_name) if classes is None else (y, classes)
    if len(labels) < 2 or len(labels) > LABEL_LIMIT:
        raise DataError(f"{where}: {len(labels)} different labels; there must be 2 to {LABEL_LIMIT}")
    places, groups = _groups(group, unprivileged, where)
    for what, names in (("label", labels), ("group", groups), ("client", np.unique(client.astype(str)).tolist())):
        _warn_of_similar_names(what, names, where)
    splits = None if split is None else as_splits(split, where, row_name)
    inputs = _inputs(x, where, row_name)
    scale = 1.0 if classes is not None else _scale(inputs, where)
    return CheckedRows(inputs, codes, labels, client, places, groups, splits, metadata or {}, scale, row_name)


def _inputs(x: NDArray[Any], where: str, row_name: RowName) -> NDArray[np.uint8] | NDArray[np.float32]:
    if x.ndim < 2:
        x = x[:, None]
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind not in "fiub":
        raise DataError(f"{where}: inputs must be numbers, not {x.dtype}; put strings into a table (CSV or DataFrame)")
    numbers = x.astype(np.float32, copy=False)  # float32 in a file stays on disk
    step = max(1, BLOCK // max(1, math.prod(x.shape[1:])))
    for start in range(0, len(x), step):
        bad = np.argwhere(~np.isfinite(numbers[start : start + step].reshape(len(x[start : start + step]), -1)))
        if len(bad):
            row, column = start + int(bad[0, 0]), int(bad[0, 1])
            raise DataError(f"{where}: {row_name(row)}, input {column} is missing or not finite")
    return numbers


def _scale(x: NDArray[np.uint8] | NDArray[np.float32], where: str) -> float:
    """Return 1/255 for bytes, so that they lie in [0, 1]; otherwise 1, with a warning if inputs are badly scaled."""
    if x.dtype == np.uint8:
        return 1 / 255 if any(block.max(initial=0) > 1 for block in np.array_split(x, 1 + x.size // BLOCK)) else 1.0
    some = x[:: max(1, len(x) // SAMPLE)].astype(np.float64)
    size = float(np.sqrt(np.mean(some**2))) if some.size else 0.0
    low, high = UNIT_SCALE
    if size and not low <= size <= high:
        warnings.warn(
            f"{where}: the inputs have a root mean square of {size:.3g}; networks train best with about 1. "
            "Standardise each column, or divide images by their largest value",
            stacklevel=4,
        )
    return 1.0


def _warn_of_similar_names(what: str, names: Iterable[str], where: str) -> None:
    """Warn of names that differ only in case or spaces: they are usually one name, misspelt."""
    first: dict[str, str] = {}
    for name in names:
        plain = " ".join(name.casefold().split())
        if plain in first:
            warnings.warn(
                f"{where}: {what}s '{first[plain][:40]}' and '{name[:40]}' differ only in case or spaces and count as "
                "two; if they are the same, write them the same",
                stacklevel=4,
            )
        first.setdefault(plain, name)


def _texts(values: NDArray[Any], what: str, where: str) -> NDArray[Any]:
    """Return bytes decoded from UTF-8; other values as they are."""
    if values.dtype.kind != "S":
        return values
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: a {what} is not valid UTF-8") from error


def _present(values: NDArray[Any], what: str, where: str, row_name: RowName) -> NDArray[Any]:
    """Return labels, clients or groups; raise an error that names a row without one."""
    values = _texts(values, what, where)
    bad: list[int] = []
    if values.dtype.kind == "f":
        bad = np.flatnonzero(np.isnan(values)).tolist()
    elif values.dtype.kind in "UO":
        cells = values.tolist()
        missing = {cell for cell in set(cells) if is_missing_value(cell) or is_missing_text(str(cell))}
        bad = [row for row, cell in enumerate(cells) if cell in missing] if missing else []
    if bad:
        raise DataError(f"{where}: {row_name(bad[0])} has no {what}")
    return values


def _classes(y: NDArray[Any], where: str, row_name: RowName) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels as 0, 1, ... in their natural order, and their names."""
    if y.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(y) | (y != np.floor(y)))
        if len(bad):
            raise DataError(
                f"{where}: {row_name(int(bad[0]))} has the label {y[bad[0]]}; labels must be integers or strings"
            )
        y = y.astype(np.int64)
    labels, codes = np.unique(y, return_inverse=True)
    return codes.astype(np.int64), tuple(str(label) for label in labels.tolist())


def _groups(
    group: NDArray[Any] | None, unprivileged: str | int | None, where: str
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return groups as 0, 1, ...; the unprivileged one first, the others in their natural order."""
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


def as_splits(split: NDArray[Any], where: str, row_name: RowName) -> NDArray[np.int64]:
    """Return the split of each row as TRAIN or TEST; common spellings of both are accepted."""
    if split.dtype.kind in "iu" and set(np.unique(split)) <= {TRAIN, TEST, UNDECIDED}:
        return split.astype(np.int64)
    texts = np.char.lower(split.astype(str))
    unknown = [row for row, text in enumerate(texts.tolist()) if text not in SPLITS]
    if unknown:
        raise DataError(f"{where}: {row_name(unknown[0])} has the split '{split[unknown[0]]}'; use train or test")
    return np.array([SPLITS[text] for text in texts.tolist()], dtype=np.int64)


def as_inputs(values: Any, where: str) -> NDArray[Any]:
    """Return inputs given in Python as one array of numbers."""
    try:
        x = _as_array(values)
    except ValueError:  # rows of different lengths
        return _row_by_row(values, where)
    except (TypeError, RuntimeError) as error:
        raise DataError(f"{where}: inputs cannot be converted to an array: {error}") from error
    if not x.ndim:
        raise DataError(f"{where}: inputs must be rows of numbers, not {values}")
    if x.dtype.kind in "fiub":
        return x
    if x.dtype == np.object_:
        return _row_by_row(x, where)  # not `values`: iterating a DataFrame gives the names of its columns
    raise DataError(f"{where}: inputs must be numbers, not {x.dtype}; put strings into a table (CSV or DataFrame)")


def _as_array(values: Any) -> NDArray[Any]:
    """Return an array, also of a tensor that requires gradients or is on another device."""
    return np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)


def _row_by_row(values: Iterable[Any], where: str) -> NDArray[np.float64]:
    """Return inputs given row by row, with NaN for missing values; raise an error that names the first bad row."""
    rows: list[NDArray[np.float64]] = []
    for row, value in enumerate(values):
        if isinstance(value, np.ndarray) and value.dtype == np.object_:
            value = np.array([None if is_missing_value(cell) else cell for cell in value.flat]).reshape(value.shape)
        try:
            rows.append(_as_array(math.nan if is_missing_value(value) else value).astype(np.float64))
        except (ValueError, TypeError):
            raise DataError(f"{where}, row {row}: inputs must be numbers, as many as in the other rows") from None
        if rows[row].shape != rows[0].shape:
            raise DataError(f"{where}, row {row}: inputs of shape {rows[row].shape}, other rows have {rows[0].shape}")
    return np.array(rows)


def as_column(values: Any, what: str, where: str) -> NDArray[Any]:
    """Return labels or groups given in Python, one for each row and none missing."""
    listed = list(values) if isinstance(values, list | tuple) else _texts(_as_array(values), what, where)
    if isinstance(listed, np.ndarray) and listed.dtype != np.object_:
        if listed.dtype.kind == "f" and np.isnan(listed).any():
            raise DataError(f"{where}, row {int(np.isnan(listed).argmax())}: no {what}")
        return listed
    cells = listed if isinstance(listed, list) else listed.tolist()
    for row, value in enumerate(cells if isinstance(cells, list) else ()):
        if is_missing_value(value):
            raise DataError(f"{where}, row {row}: no {what}")
        if np.ndim(value):
            raise DataError(f"{where}, row {row}: one {what} is needed, not {len(value)}")
    found = np.asarray(cells)
    return np.array([str(cell) for cell in cells]) if found.dtype == np.object_ else _texts(found, what, where)
