"""Users' own rows on their way to a federation: checked, divided among clients, made into data.

`check_rows` reads the columns that say whose a row is, its label, group and split; `own_data`
gives each client its training and test rows, for each seed anew. Errors name the row.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

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
from e2fl.data.sheet import Origin, Texts, as_number, as_text
from e2fl.errors import ConfigError, DataError

# Settings of own data.
PooledTest = Annotated[bool, Doc("test all clients on the same rows")]
Unprivileged = Annotated[
    str | int | None, Doc("the unprivileged group of fairness measures; default: the first")
]

LABEL_LIMIT = 10_000  # classes
STRAY = 0.05  # a smaller share of rows outside their client's main group is probably a mistake
SPLITS = {"train": TRAIN, "training": TRAIN, "0": TRAIN, "test": TEST, "testing": TEST, "1": TEST}

Inputs = NDArray[np.uint8] | NDArray[np.float32]


@dataclass(frozen=True)
class Division:
    """How rows are divided among clients, and each client's rows into training and test rows.

    seed: None means the seed of the run, and 0 outside one. unprivileged: the group that comes
    first. positive: one of two labels, to be class 1.
    """

    test_share: float = 0.2
    min_samples: int = 2
    pooled_test: bool = False
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


@dataclass(frozen=True, eq=False)
class OwnData(PartitionedData):
    """A user's own rows, split into clients."""

    partitioned: Partition
    remake: Callable[[int], "OwnData"]  # the same data for another seed of a run
    label_names: tuple[str, ...]
    group_names: tuple[str, ...]
    seed: int | None = None  # if there is one, `remake` is not used
    name: str = "arrays"
    encoding: Encoding | None = None  # of a table
    metadata: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.partitioned.examples.x.shape[1:]
        vars(self).update(classes=len(self.label_names), shape=shape)

    def encode(self, new: str | Path | pd.DataFrame | Sequence[Mapping[str, Any]]) -> Encoded:
        """Return new rows as this table would have encoded them; see `Encoding.encode`."""
        if self.encoding is None:
            raise DataError("arrays have no encoding; only a table turns new rows into inputs")
        return self.encoding.encode(new)

    def for_seed(self, seed: int) -> "OwnData":
        return self.remake(seed) if self.seed is None else self

    def about(self) -> dict[str, object]:
        parts = self.partitioned
        scale = parts.examples.scale
        return {
            "rows": len(parts.examples),
            "clients": len(parts.clients),
            "unseen_clients": len(parts.unseen),
            "labels": list(self.label_names),
            "groups": list(self.group_names),
            "tested_on": "own rows" if parts.pooled_test is None else "the same rows",
            **({} if scale == 1.0 else {"input_scale": scale}),
            **self.metadata,
        }


def own_data(
    columns: Callable[[int], Mapping[str, NDArray[Any] | None]],
    inputs: Callable[[CheckedRows, Rows], tuple[Inputs, dict[str, Any]]],
    division: Division,
    origin: Origin,
    scale: float = 1.0,
) -> OwnData:
    """Return rows as data that is divided anew for each seed of a run.

    columns: label, client, group and split, for a seed. inputs: those of all rows, and fields of
    `OwnData`; given the rows that are trained on.
    """

    @lru_cache(maxsize=1)  # algorithms that are compared share the last one
    def make(run_seed: int) -> OwnData:
        seed = run_seed if division.seed is None else division.seed
        rows = check_rows(columns(seed), division, origin)
        clients, unseen = divide(rows, division, seed)
        train = np.sort(np.concatenate([part.train for part in clients]))
        x, described = inputs(rows, train)
        pooled = np.setdiff1d(np.arange(len(x)), train) if division.pooled_test else None
        if pooled is not None and not len(pooled):
            raise DataError("all rows are training rows; some must be test rows")
        group = rows.group if rows.inside or division.pooled_test else None
        examples = Examples(x, rows.y, group, scale)
        parts = Partition(examples, clients, unseen, len(rows.groups), pooled)
        return OwnData(parts, make, rows.labels, rows.groups, division.seed, **described)

    return make(0)


def check_rows(
    columns: Mapping[str, NDArray[Any] | None], division: Division, origin: Origin
) -> CheckedRows:
    """Return the columns label, client, group and split of all rows, or raise a `DataError`."""
    given = {
        what: _present(values, what, origin)
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
    inside = group is not None and _lie_inside(group, groups, client, origin)
    for what, names in (("label", labels), ("group", groups), ("client", client.astype(str))):
        _warn_of_similar_names(what, np.unique(names).tolist(), origin)
    split = np.full(len(y), UNDECIDED)
    if "split" in given:
        parts = pd.Series(given["split"]).str.lower().map(SPLITS)
        unknown = parts.isna().to_numpy()
        if unknown.any():
            word = given["split"][unknown][0]
            raise origin.error(unknown, f"has the split '{word}'; use train or test")
        split = parts.to_numpy().astype(np.int64)
    return CheckedRows(client, y, labels, group, groups, inside, split)


def _present(values: NDArray[Any], what: str, origin: Origin) -> NDArray[Any]:
    """Return values as texts, clients as they are; raise an error that names a row without one."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    texts = np.array([as_text(value) for value in distinct], dtype=np.object_)
    absent = (texts == "")[codes]
    if absent.any():
        raise origin.error(absent, f"has no {what}")
    return values if what == "client" else texts[codes]


def numbered(
    texts: Texts, *, first: str = "", last: str = ""
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return texts as 0, 1, ... and their names, in numeric or alphabetical order.

    first, last: the name that comes before or after all others.
    """
    distinct, codes = np.unique(texts, return_inverse=True)
    names = distinct.tolist()
    numbers = [as_number(name) for name in names]
    order = list(range(len(names)))
    if np.isfinite(numbers).all():
        order.sort(key=lambda code: (numbers[code], names[code]))
    order.sort(key=lambda code: (names[code] == last) - (names[code] == first))
    return np.argsort(order)[codes].astype(np.int64), tuple(names[code] for code in order)


def _labels(
    texts: Texts, positive: str, origin: Origin
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    y, labels = numbered(texts, last=positive)
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
    group: NDArray[np.int64], names: tuple[str, ...], client: NDArray[Any], origin: Origin
) -> bool:
    """Return whether some client has rows of several groups, with a warning if few have."""
    codes, clients = pd.factorize(client)
    main = pd.crosstab(codes, group).to_numpy().argmax(axis=1)[codes]
    strays = np.flatnonzero(group != main)
    mixed = len(np.unique(codes[strays]))
    if len(strays) and (len(strays) <= STRAY * len(group) or 2 * mixed <= len(clients)):
        row = int(strays[0])
        warnings.warn(
            f"{origin.row_name(row)} of client '{str(client[row])[:40]}' is in group "
            f"'{names[group[row]][:40]}', unlike most rows of this client ({len(strays)} such "
            f"rows, in {mixed} of {len(clients)} clients): so groups lie inside clients, and no "
            "client declares one. If each client has one group, correct these rows",
            stacklevel=6,
        )
    return bool(len(strays))


def _warn_of_similar_names(what: str, names: Iterable[str], origin: Origin) -> None:
    """Warn of names that differ only in case or spaces: they are usually one name, misspelt."""
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(" ".join(name.casefold().split()), name)
        if other != name:
            reason = "differ only in case or spaces, and count as two"
            warnings.warn(
                f"{origin.where}: {what}s '{other[:40]}' and '{name[:40]}' {reason}", stacklevel=6
            )


def divide(
    rows: CheckedRows, division: Division, seed: int
) -> tuple[tuple[ClientRows, ...], tuple[ClientRows, ...]]:
    """Return the training and test rows of all clients and unseen clients, and their groups."""
    clients, unseen, untested = split_clients(
        rows.client,
        rows.split,
        test_share=division.test_share,
        seed=seed,
        min_samples=division.min_samples,
    )
    if untested and not division.pooled_test:
        raise DataError(
            f"client '{untested[0].name}' has training rows but no test rows; "
            "add some, or test all clients on the same rows with pooled_test = true"
        )

    def declared(own: ClientRows) -> ClientRows:
        if rows.group is None or rows.inside:
            return own
        return replace(own, group=int(rows.group[own.all()[0]]))

    return tuple(map(declared, clients + untested)), tuple(map(declared, unseen))
