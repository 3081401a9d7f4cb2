"""Rows of users' own data, checked and split into clients; errors name the row."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from e2fl.data.clients import (
    TEST,
    TRAIN,
    UNDECIDED,
    ClientRows,
    Partition,
    PartitionedData,
    require_share,
    rows_by_client,
    split_clients,
)
from e2fl.data.federated import Examples
from e2fl.data.partition import Rows
from e2fl.errors import ConfigError, DataError

MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none"))  # in upper or lower case
LABEL_LIMIT = 10_000  # classes
SAMPLE = 1000  # rows from which the scale of the inputs is estimated
UNIT_SCALE = (1e-2, 10.0)  # root mean squares that need no warning
GROUPS = ("auto", "clients", "inside")
STRAY = 0.05  # a smaller share of rows outside their client's main group is probably a mistake
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
    group: NDArray[Any] | None = None,
    split: NDArray[Any] | None = None,
    unprivileged: str | int | None = None,
    where: str,
    classes: tuple[str, ...] | None = None,
    metadata: Mapping[str, object] | None = None,
    row_name: RowName = row_number,
) -> CheckedRows:
    """Return arrays as checked rows, or raise a `DataError` that names the row.

    classes: y holds indices into them, and x is standardised already.
    """
    if not x.ndim or not len(x):
        raise DataError(f"{where}: there are no rows")
    columns = {"label": y, "client": client, "group": group, "split": split}
    for name, values in columns.items():
        if values is not None:
            columns[name] = _present(values, len(x), name, where, row_name)
    y, client, group, split = columns.values()  # type: ignore[assignment]  # y and client are given
    codes, labels = _classes(y, where, row_name) if classes is None else (y, classes)
    if not 2 <= len(labels) <= LABEL_LIMIT:
        raise DataError(
            f"{where}: {len(labels)} different labels; there must be 2 to {LABEL_LIMIT}"
        )
    indices, groups = _groups(group, unprivileged, where)
    clients = np.unique(client.astype(str)).tolist()
    for what, names in (("label", labels), ("group", groups), ("client", clients)):
        _warn_of_similar_names(what, names, where)
    splits = None if split is None else as_splits(split, where, row_name)
    inputs = _inputs(x, where, row_name)
    scale = 1.0 if classes is not None else _scale(inputs, where)
    return CheckedRows(
        inputs, codes, labels, client, indices, groups, splits, metadata or {}, scale, row_name
    )


def _present(
    values: NDArray[Any], count: int, what: str, where: str, row_name: RowName
) -> NDArray[Any]:
    """Return one value for each row; raise an error that names a row without one."""
    if values.shape != (count,):
        raise DataError(
            f"{where}: there must be one {what} for each of {count} rows, not shape {values.shape}"
        )
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    absent = np.array([is_missing(value) for value in distinct])[codes]
    if absent.any():
        raise DataError(f"{where}: {row_name(int(absent.argmax()))} has no {what}")
    return values


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or a text that stands for a missing value."""
    return bool(pd.isna(value)) or str(value).strip().lower() in MISSING


def _inputs(
    x: NDArray[Any], where: str, row_name: RowName
) -> NDArray[np.uint8] | NDArray[np.float32]:
    if x.ndim < 2:
        x = x[:, None]
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind not in "fiub":
        raise DataError(f"{where}: inputs must be numbers, not {x.dtype}; put strings into a table")
    numbers = x.astype(np.float32, copy=False)  # float32 in a file stays on disk
    for start in range(0, len(numbers), SAMPLE):
        block = numbers[start : start + SAMPLE]
        finite = np.isfinite(block).reshape(len(block), -1)
        if not finite.all():
            row, column = np.argwhere(~finite)[0].tolist()
            name = row_name(start + row)
            raise DataError(f"{where}: {name}, input {column} is missing or not finite")
    return numbers


def _scale(x: NDArray[np.uint8] | NDArray[np.float32], where: str) -> float:
    """Return 1/255 for bytes above 1, otherwise 1, with a warning if inputs are badly scaled."""
    if x.dtype == np.uint8:
        return 1 / 255 if x.max(initial=0) > 1 else 1.0
    some = x[:: max(1, len(x) // SAMPLE)].astype(np.float64)
    size = float(np.sqrt(np.mean(some**2))) if some.size else 0.0
    low, high = UNIT_SCALE
    if size and not low <= size <= high:
        warnings.warn(
            f"{where}: the inputs have a root mean square of {size:.3g}; networks train best with "
            "about 1. Standardise each column, or divide images by their largest value",
            stacklevel=4,
        )
    return 1.0


def _warn_of_similar_names(what: str, names: Iterable[str], where: str) -> None:
    """Warn of names that differ only in case or spaces: they are usually one name, misspelt."""
    first: dict[str, str] = {}
    for name in names:
        plain = " ".join(name.casefold().split())
        if first.setdefault(plain, name) != name:
            warnings.warn(
                f"{where}: {what}s '{first[plain][:40]}' and '{name[:40]}' differ only in case or "
                "spaces and count as two; if they are the same, write them the same",
                stacklevel=4,
            )


def _classes(
    y: NDArray[Any], where: str, row_name: RowName
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels as 0, 1, ... in their natural order, and their names."""
    if y.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(y) | (y != np.floor(y)))
        if len(bad):
            raise DataError(
                f"{where}: {row_name(int(bad[0]))} has the label {y[bad[0]]}; "
                "labels must be integers or strings"
            )
        y = y.astype(np.int64)
    labels, codes = np.unique(y, return_inverse=True)
    return codes.astype(np.int64), tuple(str(label) for label in labels.tolist())


def _groups(
    group: NDArray[Any] | None, unprivileged: str | int | None, where: str
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return groups as 0, 1, ...: the unprivileged one first, the others in natural order."""
    if group is None:
        if unprivileged is not None:
            raise ConfigError(f"'{unprivileged}' cannot be unprivileged: there are no groups")
        return None, ()
    values, codes = np.unique(group, return_inverse=True)
    names = [str(value) for value in values.tolist()]
    if unprivileged is not None and str(unprivileged) not in names:
        known = ", ".join(names)
        raise ConfigError(f"{where}: there is no group '{unprivileged}'; known: {known}")
    order = sorted(range(len(names)), key=lambda index: names[index] != str(unprivileged))
    return np.argsort(order)[codes].astype(np.int64), tuple(names[index] for index in order)


def as_splits(split: NDArray[Any], where: str, row_name: RowName) -> NDArray[np.int64]:
    """Return the split of each row as TRAIN or TEST; common spellings of both are accepted."""
    if split.dtype.kind in "iu" and set(np.unique(split)) <= {TRAIN, TEST, UNDECIDED}:
        return split.astype(np.int64)
    parts = pd.Series(split.astype(str)).str.lower().map(SPLITS)
    if parts.isna().any():
        row = int(parts.isna().to_numpy().argmax())
        raise DataError(f"{where}: {row_name(row)} has the split '{split[row]}'; use train or test")
    return parts.to_numpy().astype(np.int64)


class OwnData(PartitionedData):
    """A user's own rows, split into clients; subclasses say where the rows come from.

    seed: of the split into training and test rows; None: the seed of the run, and 0 outside one.
    """

    name = "own"
    rows: CheckedRows
    seed: int | None = None
    run_seed: int = 0
    test_share: float = 0.2
    min_samples: int = 2
    pooled_test: bool = False
    groups: str = "auto"

    @property
    def classes(self) -> int:  # type: ignore[override]  # known once the data is read
        return len(self.rows.labels)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # as above
        return self.rows.x.shape[1:]

    @property
    def label_names(self) -> tuple[str, ...]:  # type: ignore[override]  # as above
        return self.rows.labels

    @property
    def group_names(self) -> tuple[str, ...]:  # type: ignore[override]  # as above
        return self.rows.groups

    @cached_property
    def partitioned(self) -> Partition:  # type: ignore[override]  # as above
        rows = self.rows
        split = np.full(len(rows.y), UNDECIDED) if rows.split is None else rows.split
        clients, unseen = client_rows(
            rows.client,
            split,
            test_share=self.test_share,
            seed=self.run_seed if self.seed is None else self.seed,
            min_samples=self.min_samples,
            pooled_test=self.pooled_test,
        )
        group = rows.group
        inside = group is not None and _groups_lie_inside(
            rows, group, clients + unseen, self.groups
        )
        if group is not None and not inside:
            clients = [_declaring(client, group) for client in clients]
            unseen = [_declaring(client, group) for client in unseen]
        pooled = _untrained(clients, len(rows.y)) if self.pooled_test else None
        group = group if inside or self.pooled_test else None
        examples = Examples(rows.x, rows.y, group, rows.scale)
        return Partition(examples, tuple(clients), tuple(unseen), len(rows.groups), pooled)

    def examples(self, x: ArrayLike, y: ArrayLike | None = None) -> Examples:
        """Return rows of an unseen client, scaled like these; y: class numbers, if known."""
        inputs = np.asarray(x)
        if inputs.dtype != np.uint8:
            inputs = inputs.astype(np.float32)
        if inputs.shape[1:] != self.shape:
            raise DataError(f"x has rows of shape {inputs.shape[1:]}; this data has {self.shape}")
        if self.rows.scale != 1.0 and inputs.dtype != np.uint8:
            raise DataError(f"x must be uint8, as in the training rows, not {np.asarray(x).dtype}")
        labels = np.full(len(inputs), -1) if y is None else np.asarray(y)
        return Examples(inputs, labels.astype(np.int64), None, self.rows.scale)

    def about(self) -> dict[str, object]:
        scale = {} if self.rows.scale == 1.0 else {"input_scale": self.rows.scale}
        return {
            "rows": len(self.rows.y),
            "clients": len(self.partitioned.clients),
            "unseen_clients": len(self.partitioned.unseen),
            "labels": list(self.rows.labels),
            "groups": list(self.rows.groups),
            "tested_on": "the same rows" if self.pooled_test else "own rows",
            **scale,
            **self.rows.metadata,
        }


def client_rows(
    client: NDArray[Any],
    split: NDArray[np.int64],
    *,
    test_share: float,
    seed: int,
    min_samples: int,
    pooled_test: bool,
) -> tuple[list[ClientRows], list[ClientRows]]:
    """Return the training and test rows of each client and of each unseen client."""
    sources = rows_by_client(client, split)
    clients, unseen, untested = split_clients(
        sources, test_share=test_share, seed=seed, min_samples=min_samples
    )
    if untested and not pooled_test:
        raise DataError(
            f"client '{untested[0]}' has training rows but no test rows; "
            "add some, or test all clients on the same rows with pooled_test = true"
        )
    none = np.empty(0, dtype=np.int64)
    for source in sources:
        if source.name in set(untested):
            clients.append(ClientRows(source.name, source.parts[TRAIN], none))
    return clients, unseen


def _groups_lie_inside(
    rows: CheckedRows, group: NDArray[np.int64], clients: Sequence[ClientRows], setting: str
) -> bool:
    """Return whether rows have groups of their own rather than clients; auto looks at the rows."""
    if setting == "inside":
        return True
    strays: list[int] = []
    mixed = 0
    for client in clients:
        own = client.all()
        others = own[group[own] != np.bincount(group[own]).argmax()]
        mixed += bool(len(others))
        strays += others.tolist()
    if not strays:
        return False
    row = min(strays)
    stray = (
        f"{rows.row_name(row)} of client '{str(rows.client[row])[:40]}' is in group "
        f"'{rows.groups[group[row]][:40]}', unlike most rows of this client"
    )
    if setting == "clients":
        raise DataError(
            f"{stray}; with groups = 'clients' all rows of a client must be of one group"
        )
    if len(strays) <= STRAY * len(group) or 2 * mixed <= len(clients):
        warnings.warn(
            f"{stray} ({len(strays)} such rows, in {mixed} of {len(clients)} clients): so groups "
            "lie inside clients, and no client declares one. Correct these rows and set "
            "groups = 'clients', or set groups = 'inside' if this is meant",
            stacklevel=3,
        )
    return True


def _untrained(clients: Sequence[ClientRows], count: int) -> Rows:
    """Return the rows that no client trains on: one test set for all."""
    trained = np.concatenate([client.train for client in clients])
    rows = np.setdiff1d(np.arange(count), trained)
    if not len(rows):
        raise DataError("all rows are training rows; some must be test rows")
    return rows


def _declaring(rows: ClientRows, group: NDArray[np.int64]) -> ClientRows:
    return ClientRows(rows.name, rows.train, rows.test, int(group[rows.all()[0]]))


def require_valid_settings(test_share: float, min_samples: int, groups: str = "auto") -> None:
    """Raise an error for settings that no data can satisfy."""
    if groups not in GROUPS:
        raise ConfigError(f"groups must be one of {', '.join(GROUPS)}; not '{groups}'")
    require_share(test_share, "test_share")
    if min_samples < 2:
        raise ConfigError(
            f"min_samples must be at least 2 (one training and one test row), not {min_samples}"
        )
