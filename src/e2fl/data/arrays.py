"""Users' own arrays by client: in Python, from data sets of torch and Hugging Face, or an .npz.

In Python: `from_arrays({"north": (x, y), "south": (x, y)})`. As a file: an .npz, or a folder of
.npy files, with the arrays x, y and client, one entry for each row, and optionally group and split.
"""

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Doc

from e2fl.data.clients import TEST, TRAIN, UNDECIDED, MinSamples, TestShare
from e2fl.data.files import digest_of, existing, load_arrays
from e2fl.data.partition import client_names, partition_rows
from e2fl.data.rows import (
    CheckedRows,
    Division,
    Groups,
    OwnData,
    PooledTest,
    Unprivileged,
    check_rows,
)
from e2fl.data.sheet import Origin, is_missing
from e2fl.errors import DataError, with_article

LABELS = ("label", "labels", "y", "target")  # columns that hold the label unless one is named
CHANNELS = (1, 3, 4)  # of grey and colour images

# x, y, and a group for all rows or for each; or a data set of such rows, of which no type is known.
Given = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, Any] | Any


def from_npz(
    *,
    path: Annotated[str, Doc("an .npz, or a folder of .npy files")],
    seed: Annotated[int | None, Doc("of the split; default: the seed of the run")] = None,
    test_share: TestShare = 0.2,
    min_samples: MinSamples = 2,
    pooled_test: PooledTest = False,
    unprivileged: Unprivileged = None,
    groups: Groups = "auto",
) -> OwnData:
    """An .npz, or a folder of .npy files, with x, y and client, and optionally group and split."""
    division = Division(test_share, min_samples, pooled_test, groups, seed)
    file = existing(path)
    arrays = load_arrays(file, ("x", "y", "client"), optional=("group", "split"))
    rows = check_rows(
        arrays["x"],
        arrays["y"],
        arrays["client"],
        division,
        Origin(str(file)),
        group=arrays.get("group"),
        split=arrays.get("split"),
        unprivileged=unprivileged,
        metadata={"sha256": digest_of(file)},
    )
    return OwnData(rows, division, "npz")


def from_arrays(
    clients: Mapping[Any, Given],
    *,
    test: Mapping[Any, Given] | None = None,
    test_share: float = 0.2,
    seed: int | None = None,
    min_samples: int = 2,
    pooled_test: bool = False,
    unprivileged: str | int | None = None,
    groups: Groups = "auto",
) -> OwnData:
    """Return a federation of clients, each with (x, y), (x, y, group), or a data set of such rows.

    x: numbers as the network should read them, or bytes (uint8), which are divided by 255 unless
    none is above 1. group: one for the whole client, or one for each row. test: test rows by
    client; without it a share of each client's rows is drawn, with `seed` or else the seed of each
    run. groups: "clients" requires one group for each client, "inside" gives each row its own,
    "auto" decides by the rows.
    """
    division = Division(test_share, min_samples, pooled_test, groups, seed)
    parts = _parts(clients, UNDECIDED if test is None else TRAIN)
    parts += [] if test is None else _parts(test, TEST)
    sizes = [len(part.y) for part in parts]
    owner = np.repeat(np.arange(len(parts)), sizes)
    starts = np.cumsum([0, *sizes])

    def row_name(row: int) -> str:
        return f"{parts[owner[row]].where}, row {row - starts[owner[row]]}"

    first = parts[0]
    for part in parts:
        shape, other = part.x.shape[1:], first.x.shape[1:]
        if shape != other or (part.group is None) != (first.group is None):
            raise DataError(
                f"{first.where} and {part.where} must have inputs of one shape, and both or "
                f"neither a group; the shapes are {other} and {shape}"
            )
    groups_given = [part.group.astype(str) for part in parts if part.group is not None]
    rows = check_rows(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.array([part.name for part in parts], dtype=np.object_)[owner],
        division,
        Origin("the arrays", row_name),
        group=np.concatenate(groups_given) if groups_given else None,
        split=np.array([part.split for part in parts])[owner],
        unprivileged=unprivileged,
    )
    return _own(rows, division)


def from_partitioner(
    x: ArrayLike,
    y: ArrayLike,
    partitioner: Any,
    *,
    group: ArrayLike | None = None,
    columns: Mapping[str, Any] | None = None,
    test_share: float = 0.2,
    seed: int | None = None,
    pooled_test: bool = False,
    groups: Groups = "auto",
) -> OwnData:
    """Return rows split into clients by a partitioner: by "label", "group" or one of `columns`.

    partitioner: one of `e2fl.data.partition`, or any with the interface of Flower's.
    """
    division = Division(test_share, 2, pooled_test, groups, seed)
    part = _part("", "the arrays", (x, y) if group is None else (x, y, group), UNDECIDED)
    known = {"label": part.y} | ({} if part.group is None else {"group": part.group})
    parts = partition_rows(partitioner, {**known, **(columns or {})})
    order = np.concatenate(parts)
    rows = check_rows(
        part.x[order],
        part.y[order],
        np.repeat(client_names(parts), [len(rows) for rows in parts]),
        division,
        Origin("the arrays").only(order),
        group=None if part.group is None else part.group[order].astype(str),
    )
    return _own(rows, division)


@dataclass(frozen=True)
class _Part:
    """The training or test rows given for one client."""

    name: str
    where: str
    x: NDArray[Any]
    y: NDArray[Any]
    group: NDArray[Any] | None
    split: int


def _parts(clients: Mapping[Any, Given], split: int) -> list[_Part]:
    if not isinstance(clients, Mapping):
        what, kind = "test" if split == TEST else "clients", type(clients).__name__
        raise DataError(f"{what} must be a dictionary of (x, y) by name, not a {kind}")
    if not clients:
        raise DataError("there are no clients: the dictionary is empty")
    for name, count in Counter(str(name) for name in clients).items():
        if count > 1 or is_missing(name):
            raise DataError(
                f"{count} clients are called '{name}'; names must be unique as strings, and not "
                "mean a missing value"
            )
    end = ", test rows" if split == TEST else ""
    return [
        _part(str(name), f"client '{name}'{end}", given, split) for name, given in clients.items()
    ]


def _part(name: str, where: str, given: Given, split: int) -> _Part:
    """Return inputs, labels and groups as arrays that fit together."""
    rows = rows_of(given) if is_dataset(given) else given
    if not isinstance(rows, tuple) or len(rows) not in (2, 3):
        raise DataError(f"{where} must be (x, y), (x, y, group) or a data set of such rows")
    x = _array(rows[0], f"{where}: inputs", numbers=True)
    y = _array(rows[1], f"{where}: labels")
    if y.ndim != 1 or not x.ndim or len(x) != len(y) or not len(y):
        raise DataError(f"{where} has inputs of shape {x.shape} for labels of shape {y.shape}")
    group = _array(rows[2], f"{where}: groups") if len(rows) == 3 else None
    if group is not None:
        if group.ndim and group.shape != y.shape:
            raise DataError(f"{where} has groups of shape {group.shape} for {len(y)} rows")
        group = np.broadcast_to(group, y.shape)
    return _Part(name, where, x, y, group, split)


def _own(rows: CheckedRows, division: Division) -> OwnData:
    """Return the data; warn of images [height, width, channels], which networks read otherwise."""
    shape = rows.x.shape[1:]
    if len(shape) == 3 and shape[-1] in CHANNELS and shape[0] not in CHANNELS:
        warnings.warn(
            f"inputs of shape {shape} are read as {shape[0]} channels of {shape[1]} x {shape[2]}; "
            "if they are images [height, width, channels], pass x.transpose(0, 3, 1, 2)",
            stacklevel=3,
        )
    return OwnData(rows, division)


def _array(values: Any, what: str, *, numbers: bool = False) -> NDArray[Any]:
    """Return values given in Python as one array; a missing number is NaN, others are found later.

    numbers: inputs, rather than labels or groups.
    """
    try:
        array = np.asarray(_plain(values))
        if array.dtype == np.object_ and numbers:
            cells = np.array(array.tolist(), dtype=np.object_)
            return np.where(pd.isna(cells), np.nan, cells).astype(np.float64)
        if array.dtype == np.object_:  # as pandas has some integers
            array = np.asarray(array.tolist())
    except (TypeError, ValueError, RuntimeError) as error:
        form = "be numbers, as many in" if numbers else "be one for"
        raise DataError(f"{what} must {form} each row: {error}") from error
    return array.astype(str) if array.dtype == np.object_ else array


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
    if not is_dataset(dataset) or not len(dataset):
        raise DataError(
            f"{with_article(type(dataset))} is not a data set with rows by number, as torch's "
            "map-style data sets and those of Hugging Face are, or has no rows"
        )
    rows = []
    for position in range(len(dataset)):
        row = dataset[position]
        if isinstance(row, Mapping):
            row = _columns(row, inputs, label, group)
        if not isinstance(row, tuple | list) or len(row) not in (2, 3):
            kind = with_article(type(row))
            raise DataError(f"row {position} is {kind}; it must be (x, y), (x, y, group) or a dict")
        rows.append(
            (_picture(row[0]), *(np.asarray(_plain(value)).reshape(()) for value in row[1:]))
        )
    try:
        return tuple(np.stack(column) for column in zip(*rows, strict=True))
    except ValueError as error:
        raise DataError(f"all rows must have the same parts and shapes: {error}") from error


def _columns(
    row: Mapping[str, Any], inputs: str | None, label: str | None, group: str | None
) -> tuple[Any, ...]:
    """Return the columns of a row, in the order x, y, group."""
    label = label or next((name for name in LABELS if name in row), None)
    rest = [name for name in row if name not in (label, group)]
    inputs = rest[0] if inputs is None and len(rest) == 1 else inputs
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
