"""Users' own arrays by client: in Python, from data sets of torch and Hugging Face, or an .npz.

In Python: `from_arrays({"north": (x, y), "south": (x, y)})`. As a file: an .npz, or a folder of
.npy files, with the arrays x, y and client, one entry for each row, and optionally group and split.
"""

import math
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Doc

from e2fl.data.clients import TEST, TRAIN, UNDECIDED
from e2fl.data.files import digest_of, existing, load_arrays
from e2fl.data.partition import BasePartitioner, Partitioner, client_names, partition_rows
from e2fl.data.rows import (
    CheckedRows,
    OwnData,
    check_rows,
    is_missing,
    require_valid_settings,
    row_number,
)
from e2fl.errors import DataError, with_article

LABELS = ("label", "labels", "y", "target")  # columns that hold the label unless one is named
CHANNELS = (1, 3, 4)  # of grey and colour images

# x, y, and a group for all rows or for each; or a data set of such rows, of which no type is known.
Given = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, Any] | Any


@dataclass(frozen=True)
class Npz(OwnData):
    """An .npz, or a folder of .npy files, with x, y and client, and optionally group and split."""

    path: str
    seed: int = 0
    test_share: Annotated[float, Doc("of each client's rows, if there is no split")] = 0.2
    min_samples: Annotated[int, Doc("a client with fewer rows is an unseen client")] = 2
    pooled_test: Annotated[bool, Doc("test all clients on the same rows")] = False
    unprivileged: Annotated[
        str | int | None, Doc("the unprivileged group of fairness measures; default: the first")
    ] = None
    groups: Annotated[
        str,
        Doc("clients: each client has one group; inside: each row has one; auto: look at the rows"),
    ] = "auto"

    name = "npz"

    def __post_init__(self) -> None:
        require_valid_settings(self.test_share, self.min_samples, self.groups)

    @cached_property
    def rows(self) -> CheckedRows:  # type: ignore[override]  # read when it is needed
        path = existing(self.path)
        arrays = load_arrays(path, ("x", "y", "client"), optional=("group", "split"))
        return check_rows(
            arrays["x"],
            arrays["y"],
            arrays["client"],
            group=arrays.get("group"),
            split=arrays.get("split"),
            unprivileged=self.unprivileged,
            where=str(path),
            metadata={"sha256": digest_of(path)},
        )


@dataclass(frozen=True, eq=False)
class Arrays(OwnData):
    """Arrays by client, given in Python."""

    rows: CheckedRows
    seed: int | None = None
    test_share: float = 0.2
    min_samples: int = 2
    pooled_test: bool = False
    groups: str = "auto"
    name: str = "arrays"
    run_seed: int = 0

    def for_seed(self, seed: int) -> "Arrays":
        return self if self.seed is not None else replace(self, run_seed=seed)


def from_arrays(
    clients: Mapping[Any, Given],
    *,
    test: Mapping[Any, Given] | None = None,
    test_share: float = 0.2,
    seed: int | None = None,
    min_samples: int = 2,
    pooled_test: bool = False,
    unprivileged: str | int | None = None,
    groups: str = "auto",
) -> Arrays:
    """Return a federation of clients, each with (x, y), (x, y, group), or a data set of such rows.

    x: numbers as the network should read them, or bytes (uint8), which are divided by 255 unless
    none is above 1. group: one for the whole client, or one for each row. test: test rows by
    client; without it a share of each client's rows is drawn, with `seed` or else the seed of each run.
    groups: "clients" requires one group for each client, "inside" gives each row its own, "auto"
    decides by the rows.
    """
    require_valid_settings(test_share, min_samples, groups)
    parts = _parts(clients, UNDECIDED if test is None else TRAIN) + _parts(test or {}, TEST)
    _require_alike(parts)
    sizes = [len(part.y) for part in parts]
    ends = np.cumsum(sizes)

    def row_name(row: int) -> str:
        position = int(np.searchsorted(ends, row, side="right"))
        return f"{parts[position].where}, row {row - int(ends[position]) + sizes[position]}"

    given_groups = [part.group for part in parts if part.group is not None]
    rows = check_rows(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.repeat(np.array([part.name for part in parts], dtype=np.object_), sizes),
        group=np.concatenate(given_groups) if given_groups else None,
        split=np.repeat([part.split for part in parts], sizes),
        unprivileged=unprivileged,
        where="the arrays",
        row_name=row_name,
    )
    _warn_of_channels_last(rows.x.shape)
    return Arrays(rows, seed, test_share, min_samples, pooled_test, groups)


def from_partitioner(
    x: ArrayLike,
    y: ArrayLike,
    partitioner: Partitioner | BasePartitioner,
    *,
    group: ArrayLike | None = None,
    columns: Mapping[str, Any] | None = None,
    test_share: float = 0.2,
    seed: int | None = None,
    pooled_test: bool = False,
    groups: str = "auto",
) -> Arrays:
    """Return rows split into clients by a partitioner: by "label", "group" or one of `columns`."""
    require_valid_settings(test_share, 2, groups)
    part = _part("the arrays", x, y, group)
    known = {"label": part.y} | ({} if part.group is None else {"group": part.group})
    parts = partition_rows(partitioner, {**known, **(columns or {})})
    order = np.concatenate(parts)
    rows = check_rows(
        part.x[order],
        part.y[order],
        np.repeat(client_names(parts), [len(rows) for rows in parts]),
        group=None if part.group is None else part.group[order].astype(str),
        where="the arrays",
        row_name=lambda row: row_number(int(order[row])),
    )
    _warn_of_channels_last(rows.x.shape)
    return Arrays(rows, seed, test_share, pooled_test=pooled_test, groups=groups)


@dataclass(frozen=True)
class _Part:
    """The training or test rows given for one client."""

    name: str
    where: str
    x: NDArray[Any]
    y: NDArray[Any]
    group: NDArray[Any] | None
    split: int = UNDECIDED


def _parts(clients: Mapping[Any, Given], split: int) -> list[_Part]:
    what = "test" if split == TEST else "clients"
    if not isinstance(clients, Mapping):
        kind = type(clients).__name__
        raise DataError(f"{what} must be a dictionary of (x, y) by name, not a {kind}")
    if not clients and split != TEST:
        raise DataError("there are no clients: the dictionary is empty")
    for name, count in Counter(str(name) for name in clients).items():
        if count > 1:
            raise DataError(f"{count} clients are called '{name}'; names must be unique as strings")
        if is_missing(name):
            raise DataError(f"a client is called '{name}', which means a missing value")
    parts = []
    for name, given in clients.items():
        where = f"client '{name}'{', test rows' if split == TEST else ''}"
        rows = rows_of(given) if is_dataset(given) else given
        if not isinstance(rows, tuple) or len(rows) not in (2, 3):
            raise DataError(f"{where} must be (x, y), (x, y, group) or a data set of such rows")
        part = _part(where, rows[0], rows[1], rows[2] if len(rows) == 3 else None)
        group = None if part.group is None else part.group.astype(str)
        parts.append(replace(part, name=str(name), group=group, split=split))
    return parts


def _part(where: str, x: Any, y: Any, group: Any) -> _Part:
    """Return inputs, labels and groups as arrays that fit together."""
    inputs, labels = as_inputs(x, where), as_column(y, f"{where}: labels")
    if labels.ndim != 1 or len(inputs) != len(labels):
        raise DataError(
            f"{where} has inputs of shape {inputs.shape} for labels of shape {labels.shape}"
        )
    groups = None if group is None else as_column(group, f"{where}: groups")
    if groups is not None and groups.ndim and groups.shape != labels.shape:
        raise DataError(f"{where} has groups of shape {groups.shape} for {len(labels)} rows")
    groups = None if groups is None else np.broadcast_to(groups, labels.shape)
    return _Part(where, where, inputs, labels, groups)


def _require_alike(parts: list[_Part]) -> None:
    """Raise an error unless all clients have rows, inputs of one shape, and groups or none."""
    first = parts[0]
    for part in parts:
        if not len(part.y):
            raise DataError(f"{part.where} has no rows; leave it out")
        if part.x.shape[1:] != first.x.shape[1:]:
            raise DataError(
                f"{first.where} and {part.where} have inputs of different shapes: "
                f"{first.x.shape[1:]} and {part.x.shape[1:]}"
            )
        if (part.group is None) != (first.group is None):
            without = part if part.group is None else first
            raise DataError(f"{without.where} has no group, others have one")


def _warn_of_channels_last(shape: tuple[int, ...]) -> None:
    """Warn of images [height, width, channels]: networks read them as [channels, height, width]."""
    if len(shape) == 4 and shape[-1] in CHANNELS and shape[1] not in CHANNELS:
        warnings.warn(
            f"inputs of shape {shape[1:]} are read as {shape[1]} channels of {shape[2]} x "
            f"{shape[3]}; if they are images [height, width, channels], pass "
            "x.transpose(0, 3, 1, 2)",
            stacklevel=3,
        )


def as_inputs(values: Any, where: str) -> NDArray[Any]:
    """Return inputs given in Python as one array of numbers."""
    try:
        x = np.asarray(_plain(values))
    except ValueError:  # rows of different lengths
        x = np.empty(len(values), dtype=np.object_)
        x[:] = list(values)
    except (TypeError, RuntimeError) as error:
        raise DataError(f"{where}: inputs cannot be converted to an array: {error}") from error
    if not x.ndim:
        raise DataError(f"{where}: inputs must be rows of numbers, not {values}")
    if x.dtype != np.object_:
        return x
    rows = [_numbers(row, f"{where}, row {position}") for position, row in enumerate(x)]
    for position, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise DataError(
                f"{where}, row {position}: inputs of shape {row.shape}, other rows have "
                f"{rows[0].shape}"
            )
    return np.array(rows)


def _numbers(row: Any, where: str) -> NDArray[np.float64]:
    """Return one row of Python objects as numbers, with NaN for missing values."""
    try:
        cells = np.asarray(_plain(row), dtype=np.object_)
        numbers = [math.nan if pd.isna(cell) else float(cell) for cell in cells.ravel().tolist()]
        return np.array(numbers, dtype=np.float64).reshape(cells.shape)
    except (ValueError, TypeError):
        raise DataError(f"{where}: inputs must be numbers, as many as in the other rows") from None


def as_column(values: Any, what: str) -> NDArray[Any]:
    """Return labels or groups given in Python; missing ones are found later."""
    try:
        column = np.asarray(_plain(values))
        if column.dtype == np.object_:  # as pandas has some integers
            column = np.asarray(column.tolist())
    except ValueError as error:
        raise DataError(f"{what} must be one for each row: {error}") from error
    return column.astype(str) if column.dtype == np.object_ else column


def is_dataset(value: object) -> bool:
    """Return whether this looks like a torch `Dataset` or a Hugging Face data set."""
    plain = isinstance(value, tuple | list | dict | str | bytes | np.ndarray | torch.Tensor)
    rows = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    return rows and not plain and not hasattr(value, "columns")


def rows_of(
    dataset: Any, *, inputs: str | None = None, label: str | None = None, group: str | None = None
) -> tuple[NDArray[Any], ...]:
    """Return the rows of a data set as arrays (x, y), or (x, y, group) where rows have a group.

    dataset: its rows are (x, y) or (x, y, group), as in torch, or dictionaries, as in Hugging Face;
    x is a number, an array, a tensor or a PIL image. inputs, label, group: the columns of such
    dictionaries; default: label, and the only other column as input. All rows are read into memory.
    """
    if not is_dataset(dataset):
        hint = "; pass its dataset" if hasattr(dataset, "dataset") else ""
        raise DataError(
            f"{with_article(type(dataset))} is not a data set with rows by number, as torch's "
            f"map-style data sets and those of Hugging Face are{hint}"
        )
    rows = []
    for position in range(len(dataset)):
        row = dataset[position]
        if isinstance(row, Mapping):
            row = _columns(row, inputs, label, group)
        if not isinstance(row, tuple | list) or len(row) not in (2, 3):
            kind = with_article(type(row))
            raise DataError(f"row {position} is {kind}; it must be (x, y), (x, y, group) or a dict")
        x, *others = row
        rows.append((_picture(x), *(np.asarray(_plain(value)).reshape(()) for value in others)))
        if [part.shape for part in rows[-1]] != [part.shape for part in rows[0]]:
            raise DataError(
                f"row {position} has inputs of shape {rows[-1][0].shape}, row 0 has "
                f"{rows[0][0].shape}: give all rows the same shape, such as with a transform"
            )
    if not rows:
        raise DataError("the data set has no rows")
    return tuple(np.stack(column) for column in zip(*rows, strict=True))


def _columns(
    row: Mapping[str, Any], inputs: str | None, label: str | None, group: str | None
) -> tuple[Any, ...]:
    """Return the columns of a row, in the order x, y, group."""
    label = label or next((name for name in LABELS if name in row), None)
    rest = [name for name in row if name not in (label, group)]
    if inputs is None and len(rest) == 1:
        inputs = rest[0]
    wanted = {"inputs": inputs, "label": label} | ({} if group is None else {"group": group})
    for what, name in wanted.items():
        if name not in row:
            raise DataError(
                f"the columns are {', '.join(row)}: name one with rows_of(dataset, {what}='...')"
            )
    return tuple(row[str(name)] for name in wanted.values())


def _picture(value: Any) -> NDArray[Any]:
    """Return inputs as an array; a PIL image becomes [channels, height, width]."""
    array = np.asarray(_plain(value))
    if not hasattr(value, "getbands"):
        return array
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _plain(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value
