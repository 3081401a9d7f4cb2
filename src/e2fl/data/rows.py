"""Rows of users' own data, checked and split into clients; errors name the row."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.data.clients import (
    TEST,
    TRAIN,
    UNDECIDED,
    ClientRows,
    Partition,
    PartitionedData,
    check_settings,
    split_clients,
)
from e2fl.data.federated import Examples
from e2fl.data.sheet import Origin, as_number, is_missing
from e2fl.errors import ConfigError, DataError

# Settings of own data.
PooledTest = Annotated[bool, Doc("test all clients on the same rows")]
Unprivileged = Annotated[
    str | int | None, Doc("the unprivileged group of fairness measures; default: the first")
]
Groups = Annotated[
    Literal["auto", "clients", "inside"],
    Doc("clients: each client has one group; inside: each row has one; auto: look at the rows"),
]

LABEL_LIMIT = 10_000  # classes
SAMPLE = 1000  # rows from which the scale of the inputs is estimated
UNIT_SCALE = (1e-2, 10.0)  # root mean squares that need no warning
STRAY = 0.05  # a smaller share of rows outside their client's main group is probably a mistake
SPLITS = {"train": TRAIN, "training": TRAIN, "0": TRAIN, "test": TEST, "testing": TEST, "1": TEST}


@dataclass(frozen=True)
class Division:
    """How rows are divided among clients, and each client's rows into training and test rows.

    seed: None means the seed of the run, and 0 outside one.
    """

    test_share: float = 0.2
    min_samples: int = 2
    pooled_test: bool = False
    groups: Groups = "auto"
    seed: int | None = None

    def __post_init__(self) -> None:
        check_settings(self)

    def clients(
        self, client: NDArray[Any], split: NDArray[np.int64] | None, run_seed: int
    ) -> tuple[list[ClientRows], list[ClientRows]]:
        """Return the training and test rows of each client and of each unseen client."""
        clients, unseen, untested = split_clients(
            client,
            np.full(len(client), UNDECIDED) if split is None else split,
            test_share=self.test_share,
            seed=run_seed if self.seed is None else self.seed,
            min_samples=self.min_samples,
        )
        if untested and not self.pooled_test:
            raise DataError(
                f"client '{untested[0].name}' has training rows but no test rows; "
                "add some, or test all clients on the same rows with pooled_test = true"
            )
        return clients + untested, unseen


@dataclass(frozen=True)
class CheckedRows:
    """Rows with their client, label, group and split, checked."""

    x: NDArray[np.uint8] | NDArray[np.float32]
    y: NDArray[np.int64]
    labels: tuple[str, ...]  # names of the classes
    client: NDArray[Any]  # [rows]
    group: NDArray[np.int64] | None
    groups: tuple[str, ...]  # names of the groups
    inside: bool  # whether groups are of rows, not of clients
    split: NDArray[np.int64] | None  # TRAIN, TEST or UNDECIDED
    scale: float = 1.0  # the network reads x * scale
    metadata: Mapping[str, object] = field(default_factory=dict)


def check_rows(
    x: NDArray[Any],
    y: NDArray[Any],
    client: NDArray[Any],
    division: Division,
    origin: Origin,
    *,
    group: NDArray[Any] | None = None,
    split: NDArray[Any] | None = None,
    unprivileged: str | int | None = None,
    classes: tuple[str, ...] | None = None,
    metadata: Mapping[str, object] | None = None,
) -> CheckedRows:
    """Return arrays as checked rows, or raise a `DataError` that names the row.

    classes: y holds indices into them, and x is standardised already.
    """
    if not x.ndim or not len(x):
        raise DataError(f"{origin.where}: there are no rows")
    y, client = _present(y, len(x), "label", origin), _present(client, len(x), "client", origin)
    group = None if group is None else _present(group, len(x), "group", origin)
    split = None if split is None else _present(split, len(x), "split", origin)
    codes, labels = (y, classes) if classes else encode_labels(y, origin)
    if not 2 <= len(labels) <= LABEL_LIMIT:
        raise DataError(f"{origin.where}: {len(labels)} different labels, not 2 to {LABEL_LIMIT}")
    indices, groups = _groups(group, unprivileged, origin)
    inside = indices is not None and _groups_lie_inside(
        indices, groups, client, division.groups, origin
    )
    clients = np.unique(client.astype(str)).tolist()
    for what, names in (("label", labels), ("group", groups), ("client", clients)):
        _warn_of_similar_names(what, names, origin)
    splits = None if split is None else as_splits(split, origin)
    inputs = _inputs(x, origin)
    scale = 1.0 if classes else _scale(inputs, origin)
    return CheckedRows(
        inputs, codes, labels, client, indices, groups, inside, splits, scale, metadata or {}
    )


def _present(values: NDArray[Any], count: int, what: str, origin: Origin) -> NDArray[Any]:
    """Return one value for each row; raise an error that names a row without one."""
    if values.shape != (count,):
        raise DataError(f"{origin.where}: there must be one {what} for each of {count} rows")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    absent = np.array([is_missing(value) for value in distinct])[codes]
    if absent.any():
        raise origin.error(absent, f"has no {what}")
    return values


def encode_labels(
    values: NDArray[Any], origin: Origin, positive: str | None = None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels as 0, 1, ... and their names, in numeric or alphabetical order.

    positive: one of two labels, to be class 1.
    """
    distinct, codes = np.unique(values, return_inverse=True)
    texts = [
        str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        for value in distinct.tolist()
    ]
    numbers = np.array([as_number(text) for text in texts])
    order = list(range(len(texts)))
    if np.isfinite(numbers).all():
        parts = (numbers % 1 != 0)[codes]
        if parts.any():
            reason = "labels are classes: integers or strings"
            raise origin.error(parts, f"has the label {values[parts][0]}; {reason}")
        order.sort(key=lambda code: (numbers[code], texts[code]))
    if positive is not None:
        if len(texts) != 2 or positive not in texts:
            raise ConfigError(
                f"data.positive must be one of two labels, not '{positive}' of {texts[:5]}"
            )
        order.sort(key=lambda code: texts[code] == positive)
    return np.argsort(order)[codes].astype(np.int64), tuple(texts[code] for code in order)


def _groups(
    group: NDArray[Any] | None, unprivileged: str | int | None, origin: Origin
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return groups as 0, 1, ...: the unprivileged one first, the others in natural order."""
    values, codes = np.unique([] if group is None else group, return_inverse=True)
    names = [str(value) for value in values.tolist()]
    if unprivileged is not None and str(unprivileged) not in names:
        known = ", ".join(names) or "there are no groups"
        raise ConfigError(f"{origin.where}: there is no group '{unprivileged}'; known: {known}")
    order = sorted(range(len(names)), key=lambda index: names[index] != str(unprivileged))
    indices = None if group is None else np.argsort(order)[codes].astype(np.int64)
    return indices, tuple(names[index] for index in order)


def _groups_lie_inside(
    group: NDArray[np.int64],
    names: tuple[str, ...],
    client: NDArray[Any],
    setting: str,
    origin: Origin,
) -> bool:
    """Return whether rows have groups of their own rather than clients; auto looks at the rows."""
    if setting == "inside":
        return True
    clients, codes = np.unique(client, return_inverse=True)
    main = pd.crosstab(codes, group).to_numpy().argmax(axis=1)[codes]
    strays = np.flatnonzero(group != main)
    if not len(strays):
        return False
    row = int(strays[0])
    mixed = len(np.unique(codes[strays]))
    stray = (
        f"{origin.row_name(row)} of client '{str(client[row])[:40]}' is in group "
        f"'{names[group[row]][:40]}', unlike most rows of this client ({len(strays)} such rows, in "
        f"{mixed} of {len(clients)} clients)"
    )
    if setting == "clients":
        raise DataError(f"{stray}; groups = 'clients' means that each client has one group")
    if len(strays) <= STRAY * len(group) or 2 * mixed <= len(clients):
        warnings.warn(
            f"{stray}: so groups lie inside clients, and no client declares one. Correct these "
            "rows and set groups = 'clients', or set groups = 'inside' if this is meant",
            stacklevel=4,
        )
    return True


def as_splits(split: NDArray[Any], origin: Origin) -> NDArray[np.int64]:
    """Return the split of each row as TRAIN or TEST; common spellings of both are accepted."""
    if split.dtype.kind in "iu" and set(np.unique(split)) <= {TRAIN, TEST, UNDECIDED}:
        return split.astype(np.int64)
    parts = pd.Series(split.astype(str)).str.lower().map(SPLITS)
    unknown = parts.isna().to_numpy()
    if unknown.any():
        raise origin.error(unknown, f"has the split '{split[unknown][0]}'; use train or test")
    return parts.to_numpy().astype(np.int64)


def _inputs(x: NDArray[Any], origin: Origin) -> NDArray[np.uint8] | NDArray[np.float32]:
    x = x[:, None] if x.ndim < 2 else x
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind not in "fiub":
        raise DataError(f"{origin.where}: inputs must be numbers; put strings into a table")
    numbers = x.astype(np.float32, copy=False)  # float32 in a file stays on disk
    for start in range(0, len(numbers), SAMPLE):
        block = numbers[start : start + SAMPLE]
        finite = np.isfinite(block).reshape(len(block), -1)
        if not finite.all():
            row, column = np.argwhere(~finite)[0].tolist()
            name = origin.row_name(start + row)
            raise DataError(f"{origin.where}: {name}, input {column} is missing or not finite")
    return numbers


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


def _warn_of_similar_names(what: str, names: Iterable[str], origin: Origin) -> None:
    """Warn of names that differ only in case or spaces: they are usually one name, misspelt."""
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(" ".join(name.casefold().split()), name)
        if other != name:
            reason = "differ only in case or spaces, and count as two"
            warnings.warn(
                f"{origin.where}: {what}s '{other[:40]}' and '{name[:40]}' {reason}", stacklevel=4
            )


@dataclass(frozen=True, eq=False)
class OwnData(PartitionedData):
    """A user's own rows, split into clients."""

    rows: CheckedRows
    division: Division
    name: str = "arrays"
    run_seed: int = 0

    def __post_init__(self) -> None:
        rows = self.rows
        facts = {"classes": len(rows.labels), "shape": rows.x.shape[1:]}
        vars(self).update(facts, label_names=rows.labels, group_names=rows.groups)
        self.partitioned  # noqa: B018  # errors come now

    @cached_property
    def partitioned(self) -> Partition:  # type: ignore[override]  # computed from the rows
        rows, pooled = self.rows, None
        clients, unseen = self.division.clients(rows.client, rows.split, self.run_seed)
        if rows.group is not None and not rows.inside:
            clients, unseen = (
                [replace(part, group=int(rows.group[part.all()[0]])) for part in parts]
                for parts in (clients, unseen)
            )
        if self.division.pooled_test:
            trained = np.concatenate([part.train for part in clients])
            pooled = np.setdiff1d(np.arange(len(rows.y)), trained)
            if not len(pooled):
                raise DataError("all rows are training rows; some must be test rows")
        group = rows.group if rows.inside or self.division.pooled_test else None
        examples = Examples(rows.x, rows.y, group, rows.scale)
        return Partition(examples, tuple(clients), tuple(unseen), len(rows.groups), pooled)

    def for_seed(self, seed: int) -> "OwnData":
        return self if self.division.seed is not None else replace(self, run_seed=seed)

    def about(self) -> dict[str, object]:
        rows = self.rows
        return {
            "rows": len(rows.y),
            "clients": len(self.partitioned.clients),
            "unseen_clients": len(self.partitioned.unseen),
            "labels": list(rows.labels),
            "groups": list(rows.groups),
            "tested_on": "the same rows" if self.division.pooled_test else "own rows",
            **({} if rows.scale == 1.0 else {"input_scale": rows.scale}),
            **rows.metadata,
        }
