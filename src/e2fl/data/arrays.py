"""Users' own data: arrays by client, from Python or from an .npz.

In Python: `from_arrays({"north": (x, y), "south": (x, y)})`. As a file: an .npz with the arrays x, y and client, one
entry for each row, and optionally group and split.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from e2fl.data.external_datasets import is_dataset, rows_of
from e2fl.data.files.places import existing
from e2fl.data.files.unpacking import load_npz
from e2fl.data.partitioned import TEST, TRAIN, UNDECIDED
from e2fl.data.partitioners import Partitioner, partition_rows
from e2fl.data.tabular.rows import CheckedRows, as_column, as_inputs, check_rows, row_number
from e2fl.data.user_data import UserData, require_valid_settings
from e2fl.errors import DataError
from e2fl.files import regular_file, sha256_of
from e2fl.tables.cells import is_missing_text, is_missing_value


@dataclass(frozen=True)
class Npz(UserData):
    """An .npz with x, y and client, and optionally group and split."""

    path: str
    seed: int = 0
    test_share: float = 0.2  # of each client's rows, if there is no split
    min_samples: int = 2  # a client with fewer rows is an unseen client
    pooled_test: bool = False  # test all clients on the same rows
    unprivileged: str | int | None = None  # the unprivileged group of fairness measures; default: the first
    groups: str = "auto"  # clients: each client has one group; inside: each row has its own; auto: look at the rows

    name = "npz"

    def __post_init__(self) -> None:
        require_valid_settings(self.test_share, self.min_samples, self.groups)

    @cached_property
    def table(self) -> CheckedRows:  # type: ignore[override]  # as above
        path = regular_file(existing(self.path))
        arrays = load_npz(path, ("x", "y", "client"), optional=("group", "split"))
        group = arrays.get("group")
        return check_rows(
            arrays["x"],
            arrays["y"],
            arrays["client"],
            group=group,
            split=arrays.get("split"),
            unprivileged=self.unprivileged,
            where=str(path),
            metadata={"sha256": sha256_of(path)},
        )


@dataclass(frozen=True, eq=False)
class Arrays(UserData):
    """Arrays by client, given in Python."""

    table: CheckedRows
    seed: int = 0
    test_share: float = 0.2
    min_samples: int = 2
    pooled_test: bool = False
    groups: str = "auto"
    name: str = "arrays"


# x, y, and a group for all rows or for each; or a data set of such rows, of which no type is known.
Given = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, Any] | Any


def from_arrays(
    clients: Mapping[Any, Given],
    *,
    test: Mapping[Any, Given] | None = None,
    test_share: float = 0.2,
    seed: int = 0,
    min_samples: int = 2,
    pooled_test: bool = False,
    unprivileged: str | int | None = None,
    groups: str = "auto",
) -> Arrays:
    """Return a federation of clients, each with arrays (x, y) or (x, y, group), or a torch or Hugging Face data set.

    x: numbers as the network should read them, or bytes (uint8), which are divided by 255 unless none is above 1.
    group: one for the whole client, or one for each row. test: test rows by client; without it a share of each client's
    rows is drawn. groups: "clients" requires one group for each client, "inside" gives each row its own, "auto" decides
    by the rows.
    """
    require_valid_settings(test_share, min_samples, groups)
    for what, given in (("clients", clients), ("test", test or {})):
        if not isinstance(given, Mapping):
            raise DataError(f"{what} must be a dictionary of (x, y) by name, not a {type(given).__name__}")
    if not clients:
        raise DataError("there are no clients: the dictionary is empty")
    parts = _parts(clients, UNDECIDED if test is None else TRAIN) + _parts(test or {}, TEST)
    counts = Counter[str]()
    for part in parts:
        counts[part.name] += len(part.y)
    for name, count in counts.items():
        if not count:
            raise DataError(f"client '{name}' has no rows; leave it out")
    parts = [part for part in parts if len(part.y)]
    first = parts[0]
    for part in parts:
        if part.x.shape[1:] != first.x.shape[1:]:
            shapes = f"{first.x.shape[1:]} and {part.x.shape[1:]}"
            raise DataError(f"clients '{first.name}' and '{part.name}' have inputs of different shapes: {shapes}")
    with_group = [part for part in parts if part.group is not None]
    if with_group and len(with_group) < len(parts):
        odd = next(part for part in parts if part.group is None)
        raise DataError(f"client '{odd.name}' has no group, others have one")
    sizes = [len(part.y) for part in parts]
    ends = np.cumsum(sizes)

    def row_name(row: int) -> str:
        place = int(np.searchsorted(ends, row, side="right"))
        return f"{parts[place].where}, row {row - int(ends[place]) + sizes[place]}"

    table = check_rows(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.repeat(np.array([part.name for part in parts], dtype=np.object_), sizes),
        group=np.concatenate([part.group for part in parts if part.group is not None]) if with_group else None,
        split=np.repeat([part.split for part in parts], sizes),
        unprivileged=unprivileged,
        where="the arrays",
        row_name=row_name,
    )
    return Arrays(table, seed, test_share, min_samples, pooled_test, groups)


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
    names = Counter(str(name) for name in clients)
    if names and (twice := names.most_common(1)[0])[1] > 1:
        raise DataError(f"{twice[1]} clients are called '{twice[0]}'; names must be unique as strings")
    nameless = [name for name in names if is_missing_text(name)]
    if nameless:
        raise DataError(f"a client is called '{nameless[0]}', which means a missing value; give it a name")
    return [_part(str(name), given, split) for name, given in clients.items()]


def _part(name: str, given: Given, split: int) -> _Part:
    where = f"client '{name}'{', test rows' if split == TEST else ''}"
    if is_dataset(given):
        given = rows_of(given)
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        raise DataError(f"{where} must be (x, y), (x, y, group) or a data set of such rows")
    x, y = as_inputs(given[0], where), as_column(given[1], "label", where)
    if y.ndim != 1 or len(x) != len(y):
        raise DataError(f"{where} has inputs of shape {x.shape} for labels of shape {y.shape}")
    given_group = given[2] if len(given) == 3 else None
    if given_group is None:
        return _Part(name, where, x, y, None, split)
    if is_missing_value(given_group):
        raise DataError(f"{where} has no group ({given_group})")
    group = as_column(given_group, "group", where)
    if group.ndim and group.shape != y.shape:
        raise DataError(f"{where} has {len(group)} groups for {len(y)} rows")
    return _Part(name, where, x, y, np.broadcast_to(group, y.shape).astype(str), split)


def from_partitioner(
    x: ArrayLike,
    y: ArrayLike,
    partitioner: Partitioner,
    *,
    group: ArrayLike | None = None,
    columns: Mapping[str, Any] | None = None,
    test_share: float = 0.2,
    seed: int = 0,
    pooled_test: bool = False,
    groups: str = "auto",
) -> Arrays:
    """Return rows split into clients by a partitioner, which can use "label", "group", or one of `columns`."""
    require_valid_settings(test_share, 2, groups)
    inputs, labels = as_inputs(x, "x"), as_column(y, "label", "y")
    if labels.ndim != 1 or len(labels) != len(inputs):
        raise DataError(f"there are inputs of shape {inputs.shape} for labels of shape {labels.shape}")
    known: dict[str, Any] = {"label": labels}
    if group is not None:
        known["group"] = as_column(group, "group", "group")
        if known["group"].shape != labels.shape:
            raise DataError(f"there are groups of shape {known['group'].shape} for labels of shape {labels.shape}")
    parts = partition_rows(partitioner, {**known, **(columns or {})})
    width = len(str(len(parts) - 1))
    rows = np.concatenate(parts)
    table = check_rows(
        inputs[rows],
        labels[rows],
        np.repeat([f"{number:0{width}}" for number in range(len(parts))], [len(part) for part in parts]),
        group=known["group"][rows].astype(str) if group is not None else None,
        split=None,
        unprivileged=None,
        where="the arrays",
        row_name=lambda row: row_number(int(rows[row])),
    )
    return Arrays(table, seed, test_share, pooled_test=pooled_test, groups=groups)
