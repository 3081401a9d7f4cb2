"""Users' own rows on their way to a federation: checked, divided among clients, made into data.

`check_rows` reads the columns that say whose a row is, its label, group and split; `divide` gives
each client its training and test rows; `OwnData` is the result. Errors name the row.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
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
from e2fl.data.encoding import Encoded, Encoding
from e2fl.data.federated import Examples
from e2fl.data.partition import Rows
from e2fl.data.sheet import Origin, as_number, as_text, is_missing
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
STRAY = 0.05  # a smaller share of rows outside their client's main group is probably a mistake
SPLITS = {"train": TRAIN, "training": TRAIN, "0": TRAIN, "test": TEST, "testing": TEST, "1": TEST}


@dataclass(frozen=True)
class Division:
    """How rows are divided among clients, and each client's rows into training and test rows.

    seed: None means the seed of the run, and 0 outside one. unprivileged: the group that comes
    first. positive: one of two labels, to be class 1.
    """

    test_share: float = 0.2
    min_samples: int = 2
    pooled_test: bool = False
    groups: Groups = "auto"
    seed: int | None = None
    unprivileged: str | int | None = None
    positive: str | int | None = None

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class CheckedRows:
    """The client, label, group and split of each row."""

    client: NDArray[Any]
    y: NDArray[np.int64]
    labels: tuple[str, ...]  # names of the classes
    group: NDArray[np.int64] | None
    groups: tuple[str, ...]  # names of the groups
    inside: bool  # whether groups are of rows, not of clients
    split: NDArray[np.int64]  # TRAIN, TEST or UNDECIDED


def check_rows(
    columns: Mapping[str, NDArray[Any] | None], count: int, division: Division, origin: Origin
) -> CheckedRows:
    """Return the columns label, client, group and split of so many rows, or raise a `DataError`."""
    if not count:
        raise DataError(f"{origin.where}: there are no rows")
    given = {
        what: _present(values, count, what, origin)
        for what, values in columns.items()
        if values is not None
    }
    client = given["client"]
    y, labels = _labels(given["label"], as_text(division.positive), origin)
    first = as_text(division.unprivileged)
    group: NDArray[np.int64] | None = None
    groups: tuple[str, ...] = ()
    if "group" in given:
        group, groups = numbered(given["group"], first=first)
    if first and first not in groups:
        known = ", ".join(groups) or "there are no groups"
        raise ConfigError(f"{origin.where}: there is no group '{first}'; known: {known}")
    inside = group is not None and _lie_inside(group, groups, client, division.groups, origin)
    for what, names in (("label", labels), ("group", groups), ("client", client.astype(str))):
        _warn_of_similar_names(what, np.unique(names).tolist(), origin)
    split = np.full(count, UNDECIDED)
    if "split" in given:
        parts = pd.Series(given["split"].astype(str)).str.lower().map(SPLITS)
        unknown = parts.isna().to_numpy()
        if unknown.any():
            word = given["split"][unknown][0]
            raise origin.error(unknown, f"has the split '{word}'; use train or test")
        split = parts.to_numpy().astype(np.int64)
    return CheckedRows(client, y, labels, group, groups, inside, split)


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


def numbered(
    values: NDArray[Any], *, first: str = "", last: str = ""
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return values as 0, 1, ... and their names, in numeric or alphabetical order.

    first, last: the name that comes before or after all others.
    """
    distinct, codes = np.unique(values, return_inverse=True)
    names = [
        str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        for value in distinct.tolist()
    ]
    numbers = [as_number(name) for name in names]
    order = list(range(len(names)))
    if np.isfinite(numbers).all():
        order.sort(key=lambda code: (numbers[code], names[code]))
    order.sort(key=lambda code: (names[code] == last) - (names[code] == first))
    return np.argsort(order)[codes].astype(np.int64), tuple(names[code] for code in order)


def _labels(
    values: NDArray[Any], positive: str, origin: Origin
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    y, labels = numbered(values, last=positive)
    numbers = np.array([as_number(name) for name in labels])
    if np.isfinite(numbers).all() and (numbers % 1).any():
        parts = (numbers % 1 > 0)[y]
        reason = "labels are classes: integers or strings"
        raise origin.error(parts, f"has the label {labels[y[parts][0]]}; {reason}")
    if positive and (len(labels) != 2 or positive not in labels):
        raise ConfigError(
            f"data.positive must be one of two labels, not '{positive}' of {list(labels[:5])}"
        )
    if not 2 <= len(labels) <= LABEL_LIMIT:
        raise DataError(f"{origin.where}: {len(labels)} different labels, not 2 to {LABEL_LIMIT}")
    return y, labels


def _lie_inside(
    group: NDArray[np.int64],
    names: tuple[str, ...],
    client: NDArray[Any],
    setting: Groups,
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
    row, mixed = int(strays[0]), len(np.unique(codes[strays]))
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


@dataclass(frozen=True)
class Divided:
    """The rows of each client, and the test rows of all if they share them."""

    clients: tuple[ClientRows, ...]
    unseen: tuple[ClientRows, ...]
    pooled_test: Rows | None

    @property
    def train(self) -> Rows:
        """All training rows."""
        return np.concatenate([part.train for part in self.clients])


def divide(rows: CheckedRows, division: Division, run_seed: int) -> Divided:
    """Return the training and test rows of each client, and the group that it declares."""
    clients, unseen, untested = split_clients(
        rows.client,
        rows.split,
        test_share=division.test_share,
        seed=run_seed if division.seed is None else division.seed,
        min_samples=division.min_samples,
    )
    if untested and not division.pooled_test:
        raise DataError(
            f"client '{untested[0].name}' has training rows but no test rows; "
            "add some, or test all clients on the same rows with pooled_test = true"
        )
    parts = [clients + untested, unseen]
    if rows.group is not None and not rows.inside:
        groups = rows.group
        parts = [[replace(own, group=int(groups[own.all()[0]])) for own in part] for part in parts]
    divided = Divided(tuple(parts[0]), tuple(parts[1]), None)
    if not division.pooled_test:
        return divided
    pooled = np.setdiff1d(np.arange(len(rows.y)), divided.train)
    if not len(pooled):
        raise DataError("all rows are training rows; some must be test rows")
    return replace(divided, pooled_test=pooled)


@dataclass(frozen=True, eq=False)
class OwnData(PartitionedData):
    """A user's own rows, split into clients."""

    x: NDArray[np.uint8] | NDArray[np.float32]
    rows: CheckedRows
    divided: Divided
    division: Division
    remake: Callable[[int], "OwnData"]  # the same data for another seed of a run
    run_seed: int = 0
    name: str = "arrays"
    scale: float = 1.0  # the network reads x * scale
    encoding: Encoding | None = None  # of a table
    metadata: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows, parts = self.rows, self.divided
        group = rows.group if rows.inside or self.division.pooled_test else None
        examples = Examples(self.x, rows.y, group, self.scale)
        vars(self).update(
            classes=len(rows.labels),
            shape=self.x.shape[1:],
            label_names=rows.labels,
            group_names=rows.groups,
            partitioned=Partition(
                examples, parts.clients, parts.unseen, len(rows.groups), parts.pooled_test
            ),
        )

    def encode(self, new: str | Path | pd.DataFrame | Sequence[Mapping[str, Any]]) -> Encoded:
        """Return new rows as this table would have encoded them; see `Encoding.encode`."""
        if self.encoding is None:
            raise DataError("arrays have no encoding; only a table turns new rows into inputs")
        return self.encoding.encode(new)

    def for_seed(self, seed: int) -> "OwnData":
        same = self.division.seed is not None or seed == self.run_seed
        return self if same else self.remake(seed)

    def about(self) -> dict[str, object]:
        rows = self.rows
        return {
            "rows": len(rows.y),
            "clients": len(self.divided.clients),
            "unseen_clients": len(self.divided.unseen),
            "labels": list(rows.labels),
            "groups": list(rows.groups),
            "tested_on": "the same rows" if self.division.pooled_test else "own rows",
            **({} if self.scale == 1.0 else {"input_scale": self.scale}),
            **self.metadata,
        }
