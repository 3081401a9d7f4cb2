"""Users' own arrays by client: in Python, from data sets of torch and Hugging Face, or an .npz.

In Python: `from_arrays({"north": (x, y), "south": (x, y)})`. As a file: an .npz with the arrays x,
y and client, one entry for each row, and optionally group and split.
"""

import warnings
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Doc

from e2fl.data.clients import MinSamples, TestShare
from e2fl.data.files import existing, load_arrays
from e2fl.data.own import Division, OwnData, PooledTest, Unprivileged, own_data
from e2fl.data.partition import client_names, partition_rows
from e2fl.data.sheet import Origin, as_text
from e2fl.errors import DataError, with_article
from e2fl.files import sha256_of

CHANNELS = (1, 3, 4)  # of grey and colour images
SAMPLE = 1000  # rows that are looked at together
UNIT_SCALE = (1e-2, 10.0)  # root mean squares of inputs that need no warning

# x, y, and a group for all rows or for each; or a data set of such rows, of which no type is known.
Given = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, Any] | Any
Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]  # x, y, group


def from_npz(
    *,
    path: Annotated[str, Doc("an .npz")],
    seed: Annotated[int | None, Doc("of the split; default: the seed of the run")] = None,
    test_share: TestShare = 0.2,
    min_samples: MinSamples = 2,
    pooled_test: PooledTest = False,
    unprivileged: Unprivileged = None,
) -> OwnData:
    """An .npz with the arrays x, y and client, and optionally group and split."""
    division = Division(test_share, min_samples, pooled_test, seed, unprivileged)
    file = existing(path)
    arrays = load_arrays(file, ("x", "y", "client"), optional=("group", "split"))
    x = arrays.pop("x")
    columns = {"label" if name == "y" else name: values for name, values in arrays.items()}
    count = len(x) if x.ndim else 0
    for what, values in columns.items():
        if not count or values.shape != (count,):
            raise DataError(f"{file}: there must be one {what} for each of {count} rows")
    metadata = {"sha256": sha256_of(file)}
    return _own(x, columns, division, Origin(str(file)), name="npz", metadata=metadata)


def from_arrays(
    clients: Mapping[Any, Given],
    *,
    test: Mapping[Any, Given] | None = None,
    test_share: float = 0.2,
    seed: int | None = None,
    min_samples: int = 2,
    pooled_test: bool = False,
    unprivileged: str | int | None = None,
) -> OwnData:
    """Return a federation of clients, each with (x, y), (x, y, group), or a data set of such rows.

    x: numbers as the network should read them, or bytes (uint8), which are divided by 255 unless
    none is above 1. group: one for the whole client, or one for each row. test: test rows by
    client; without it a share of each client's rows is drawn, with `seed` or else the seed of each
    run.
    """
    division = Division(test_share, min_samples, pooled_test, seed, unprivileged)
    parts: dict[str, Arrays] = {}
    names, splits = [], []
    for split, by_client in {"train": clients, "test": {} if test is None else test}.items():
        _require_names(by_client)
        for name, rows in by_client.items():
            where = f"client '{name}'" + (", test rows" if split == "test" else "")
            parts[where] = _arrays(where, rows)
            names.append(str(name))
            splits.append(split)
    if not clients:
        raise DataError("there are no clients: the dictionary is empty")
    places, (first, *_) = list(parts), parts.values()
    for place, (x, _, group) in parts.items():
        shape, other = x.shape[1:], first[0].shape[1:]
        if shape != other or (group is None) != (first[2] is None):
            raise DataError(
                f"{places[0]} and {place} must have inputs of one shape, and both or neither a "
                f"group; the shapes are {other} and {shape}"
            )
    sizes = [len(y) for _, y, _ in parts.values()]
    owner, starts = np.repeat(np.arange(len(parts)), sizes), np.cumsum([0, *sizes])
    by_row = [group.astype(str) for _, _, group in parts.values() if group is not None]
    columns = {
        "label": np.concatenate([y for _, y, _ in parts.values()]),
        "client": np.array(names, dtype=np.object_)[owner],
        "group": np.concatenate(by_row) if by_row else None,
        "split": None if test is None else np.array(splits)[owner],
    }
    origin = Origin(
        "the arrays", lambda row: f"{places[owner[row]]}, row {row - starts[owner[row]]}"
    )
    return _own(np.concatenate([x for x, _, _ in parts.values()]), columns, division, origin)


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
) -> OwnData:
    """Return rows split into clients by a partitioner: by "label", "group" or one of `columns`.

    partitioner: one of `e2fl.data.partition`, or any with the interface of Flower's.
    """
    division = Division(test_share, pooled_test=pooled_test, seed=seed)
    inputs, labels, of_rows = _arrays("the arrays", (x, y) if group is None else (x, y, group))
    known = {"label": labels} | ({} if of_rows is None else {"group": of_rows})
    parts = partition_rows(partitioner, {**known, **(columns or {})})
    order = np.concatenate(parts)
    roles = {
        "label": labels[order],
        "client": np.repeat(client_names(parts), [len(rows) for rows in parts]),
        "group": None if of_rows is None else of_rows[order].astype(str),
    }
    return _own(inputs[order], roles, division, Origin("the arrays").only(order))


def _own(
    x: NDArray[Any],
    columns: Mapping[str, NDArray[Any] | None],
    division: Division,
    origin: Origin,
    **described: Any,
) -> OwnData:
    """Return arrays as data that is divided anew for each seed of a run."""
    inputs = _inputs(x, origin)
    scale = _scale(inputs, origin)
    return own_data(lambda _: columns, lambda *_: (inputs, described), division, origin, scale)


def _inputs(x: NDArray[Any], origin: Origin) -> NDArray[np.uint8] | NDArray[np.float32]:
    """Return inputs as bytes or finite numbers."""
    x = x[:, None] if x.ndim < 2 else x
    shape = x.shape[1:]
    if len(shape) == 3 and shape[-1] in CHANNELS and shape[0] not in CHANNELS:
        warnings.warn(
            f"inputs of shape {shape} are read as {shape[0]} channels of {shape[1]} x {shape[2]}; "
            "if they are images [height, width, channels], pass x.transpose(0, 3, 1, 2)",
            stacklevel=4,
        )
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind not in "fiub":
        raise DataError(f"{origin.where}: inputs must be numbers; put strings into a table")
    numbers = x.astype(np.float32, copy=False)
    require_finite(numbers, origin)
    return numbers


def require_finite(numbers: NDArray[np.float32], origin: Origin) -> None:
    """Raise an error that names the first row with a missing or infinite input."""
    for start in range(0, len(numbers), SAMPLE):
        block = numbers[start : start + SAMPLE]
        finite = np.isfinite(block).reshape(len(block), -1)
        if not finite.all():
            row, column = np.argwhere(~finite)[0].tolist()
            name = origin.row_name(start + row)
            raise DataError(f"{origin.where}: {name}, input {column} is missing or not finite")


def _scale(x: NDArray[np.uint8] | NDArray[np.float32], origin: Origin) -> float:
    """Return 1/255 for bytes above 1, otherwise 1, with a warning if inputs are badly scaled."""
    if x.dtype == np.uint8:
        return 1 / 255 if x.max(initial=0) > 1 else 1.0
    some = x[:: max(1, len(x) // SAMPLE)].astype(np.float64)
    size = float(np.sqrt(np.mean(some**2))) if some.size else 0.0
    if size and not UNIT_SCALE[0] <= size <= UNIT_SCALE[1]:
        warnings.warn(
            f"{origin.where}: the inputs have a root mean square of {size:.3g}; networks train "
            "best with about 1. Standardise each column, or divide images by their largest value",
            stacklevel=4,
        )
    return 1.0


def _require_names(clients: Mapping[Any, Given]) -> None:
    if not isinstance(clients, Mapping):
        kind = type(clients).__name__
        raise DataError(f"clients must be a dictionary of (x, y) by name, not a {kind}")
    names = list(map(str, clients))
    if len(set(names)) < len(names) or not all(map(as_text, names)):
        raise DataError("names of clients must be unique as strings, and not mean a missing value")


def _arrays(where: str, given: Given) -> Arrays:
    """Return inputs, labels and groups as arrays that fit together."""
    rows = rows_of(given) if is_dataset(given) else given
    if not isinstance(rows, tuple) or len(rows) not in (2, 3):
        raise DataError(f"{where} must be (x, y), (x, y, group) or a data set of such rows")
    x = _array(rows[0], f"{where}: inputs", numbers=True)
    y = _array(rows[1], f"{where}: labels")
    if y.ndim != 1 or not x.ndim or len(x) != len(y) or not len(y):
        raise DataError(f"{where} has inputs of shape {x.shape} for labels of shape {y.shape}")
    if len(rows) == 2:
        return x, y, None
    group = _array(rows[2], f"{where}: groups")
    if group.ndim and group.shape != y.shape:
        raise DataError(f"{where} has groups of shape {group.shape} for {len(y)} rows")
    return x, y, np.broadcast_to(group, y.shape)


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
    plain = isinstance(value, tuple | list | dict | str | bytes) or hasattr(value, "__array__")
    return not plain and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def rows_of(dataset: Any) -> tuple[NDArray[Any], ...]:
    """Return the rows of a data set as arrays (x, y), or (x, y, group) where rows have a group.

    dataset: its rows are tuples, as in torch, or dictionaries with these columns in this order, as
    in Hugging Face; x is a number, an array, a tensor or a PIL image. All rows are read into
    memory.
    """
    if not is_dataset(dataset) or not len(dataset):
        raise DataError(
            f"{with_article(type(dataset))} is not a data set with rows by number, as torch's "
            "map-style data sets and those of Hugging Face are, or has no rows"
        )
    rows = []
    for position in range(len(dataset)):
        row = dataset[position]
        parts = list(row.values()) if isinstance(row, Mapping) else row
        if not isinstance(parts, tuple | list) or len(parts) not in (2, 3):
            columns = f" of {', '.join(map(str, row))}" if isinstance(row, Mapping) else ""
            raise DataError(
                f"row {position} is {with_article(type(row))}{columns}; it must be (x, y), "
                "(x, y, group) or a dictionary of these, as select_columns makes them"
            )
        rows.append((_picture(parts[0]), *(np.asarray(_plain(value)) for value in parts[1:])))
    try:
        return tuple(np.stack(column) for column in zip(*rows, strict=True))
    except ValueError as error:
        raise DataError(f"all rows must have the same parts and shapes: {error}") from error


def _picture(value: Any) -> NDArray[Any]:
    """Return inputs as an array; a PIL image becomes [channels, height, width]."""
    array = np.asarray(_plain(value))
    if not hasattr(value, "getbands"):
        return array
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _plain(value: Any) -> Any:
    """Return a tensor of torch as NumPy reads it, and other values as they are."""
    return value.detach().cpu() if hasattr(value, "detach") else value
