"""Your own data: arrays by client, from Python or from an .npz.

In Python: `from_arrays({"north": (x, y), "south": (x, y)})`. As a file: an .npz with x, y and client, one entry a row,
and, where there are such, group and split.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from e2fl.data.dealt import TEST, TRAIN, UNDECIDED, Deal, DealtData, Share, owners, share_out
from e2fl.data.federated import Examples
from e2fl.data.partition import Partitioner, Rows, deal
from e2fl.data.places import existing
from e2fl.data.unpacking import load_npz
from e2fl.errors import ConfigError, DataError

LABEL_LIMIT = 10_000  # classes; more are no classes

SPLITS = {"train": TRAIN, "training": TRAIN, "0": TRAIN, "test": TEST, "testing": TEST, "1": TEST}


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


class OwnData(DealtData):
    """A data set that is a `Table`; subclasses say where it comes from."""

    name = "own"
    table: Table
    seed: int = 0
    test_share: float = 0.2
    min_samples: int = 2
    pooled_test: bool = False

    @cached_property
    def classes(self) -> int:  # type: ignore[override]  # known only when the data has been read
        return len(self.table.labels)

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # as above
        return self.table.x.shape[1:]

    @cached_property
    def group_names(self) -> tuple[str, ...]:  # type: ignore[override]  # as above
        return self.table.groups

    @cached_property
    def dealt(self) -> Deal:  # type: ignore[override]  # as above
        table = self.table
        split = np.full(len(table.y), UNDECIDED) if table.split is None else table.split
        shares, newcomers, left_out = share_out(
            owners(table.client, split), test_share=self.test_share, seed=self.seed, min_samples=self.min_samples
        )
        if left_out and not self.pooled_test:
            raise DataError(
                f"client '{left_out[0]}' has rows to train with but none to test with; "
                "give it some, or test all clients on the same rows with pooled_test = true"
            )
        if self.pooled_test:
            shares += _trainers(table, split, left_out)
        inside = table.group is not None and any(
            len(np.unique(table.group[np.concatenate([share.train, share.test])])) > 1 for share in shares
        )
        if table.group is not None and not inside:
            shares = [_declared(share, table.group) for share in shares]
            newcomers = [_declared(share, table.group) for share in newcomers]
        pooled = _untrained(shares, len(table.y)) if self.pooled_test else None
        rows = Examples(table.x, table.y, table.group if inside or self.pooled_test else None)
        return Deal(rows, tuple(shares), tuple(newcomers), len(table.groups), pooled)

    def about(self) -> dict[str, object]:
        return {
            "rows": len(self.table.y),
            "clients": len(self.dealt.shares),
            "unseen_clients": len(self.dealt.newcomers),
            "labels": list(self.table.labels),
            "groups": list(self.table.groups),
            "tested_on": "the same rows" if self.pooled_test else "own rows",
            **self.table.facts,
        }


def _untrained(shares: Sequence[Share], count: int) -> Rows:
    """The rows that nobody trains with: one test set for all."""
    rows = np.setdiff1d(np.arange(count), np.concatenate([share.train for share in shares]))
    if not len(rows):
        raise DataError("all rows are for training; some must be there to test with")
    return rows


def _declared(share: Share, group: NDArray[np.int64]) -> Share:
    rows = np.concatenate([share.train, share.test])
    return Share(share.name, share.train, share.test, int(group[rows[0]]))


def _trainers(table: Table, split: NDArray[np.int64], names: Sequence[str]) -> list[Share]:
    wanted = set(names)
    none = np.empty(0, dtype=np.int64)
    return [Share(owner.name, owner.rows[TRAIN], none) for owner in owners(table.client, split) if owner.name in wanted]


@dataclass(frozen=True)
class Npz(OwnData):
    """An .npz with x, y and client, and perhaps group and split."""

    path: str
    seed: int = 0
    test_share: float = 0.2  # of each client's rows, where there is no split
    min_samples: int = 2  # who has fewer rows is a newcomer
    pooled_test: bool = False  # test all clients on the same rows
    unprivileged: str | None = None  # the group that fairness measures call unprivileged; default: the first

    name = "npz"

    def __post_init__(self) -> None:
        refuse_bad_shares(self.test_share, self.min_samples)

    @cached_property
    def table(self) -> Table:  # type: ignore[override]  # as above
        path = existing(self.path)
        arrays = load_npz(path, ("x", "y", "client"), optional=("group", "split"))
        group = arrays.get("group")
        return checked(
            arrays["x"],
            arrays["y"],
            arrays["client"],
            group=group,
            split=arrays.get("split"),
            unprivileged=self.unprivileged,
            where=str(path),
        )


@dataclass(frozen=True, eq=False)
class Arrays(OwnData):
    """Arrays by client, handed over in Python."""

    table: Table
    seed: int = 0
    test_share: float = 0.2
    min_samples: int = 2
    pooled_test: bool = False
    name: str = "arrays"


Given = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, Any]  # x, y, and a group for all rows or for each


def from_arrays(
    clients: Mapping[Any, Given],
    *,
    test: Mapping[Any, Given] | None = None,
    test_share: float = 0.2,
    seed: int = 0,
    min_samples: int = 2,
    pooled_test: bool = False,
    unprivileged: str | None = None,
) -> Arrays:
    """A federation of clients, each with arrays (x, y) or (x, y, group).

    group: one for the whole client, or one for each row. test: rows to test with, by client; without it a share of
    each client's rows is drawn. x: bytes or numbers, as they should go into the network.
    """
    refuse_bad_shares(test_share, min_samples)
    if not clients:
        raise DataError("there are no clients: the dictionary is empty")
    parts = [(name, given, UNDECIDED if test is None else TRAIN) for name, given in clients.items()]
    parts += [(name, given, TEST) for name, given in (test or {}).items()]
    rows = [_given(name, given) for name, given, _ in parts]
    counts = [len(y) for _, y, _ in rows]
    shapes = {x.shape[1:] for x, _, _ in rows}
    if len(shapes) > 1:
        odd = next(
            name for (name, _, _), (x, _, _) in zip(parts, rows, strict=True) if x.shape[1:] != rows[0][0].shape[1:]
        )
        raise DataError(f"clients '{parts[0][0]}' and '{odd}' have inputs of different shapes: {sorted(shapes)}")
    with_group = [group is not None for _, _, group in rows]
    if any(with_group) and not all(with_group):
        raise DataError(f"client '{parts[with_group.index(False)][0]}' has no group, others have one")
    groups = [np.broadcast_to(np.asarray(group), (n,)) for (_, _, group), n in zip(rows, counts, strict=True)]
    table = checked(
        np.concatenate([x for x, _, _ in rows]),
        np.concatenate([y for _, y, _ in rows]),
        np.repeat([str(name) for name, _, _ in parts], counts),
        group=np.concatenate([group.astype(str) for group in groups]) if any(with_group) else None,
        split=np.repeat([split for _, _, split in parts], counts),
        unprivileged=unprivileged,
        where="the arrays",
    )
    return Arrays(table, seed=seed, test_share=test_share, min_samples=min_samples, pooled_test=pooled_test)


def _given(name: Any, given: Given) -> tuple[NDArray[Any], NDArray[Any], Any]:
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        raise DataError(f"client '{name}' must be (x, y) or (x, y, group)")
    x, y = np.asarray(given[0]), np.asarray(given[1])
    if y.ndim != 1 or x.ndim < 1 or len(x) != len(y):
        raise DataError(f"client '{name}' has inputs of shape {x.shape} for labels of shape {y.shape}")
    group = given[2] if len(given) == 3 else None
    if group is not None and np.ndim(group) and np.shape(group) != y.shape:
        raise DataError(f"client '{name}' has {len(np.asarray(group))} groups for {len(y)} rows")
    return x, y, group


def checked(
    x: NDArray[Any],
    y: NDArray[Any],
    client: NDArray[Any],
    *,
    group: NDArray[Any] | None,
    split: NDArray[Any] | None,
    unprivileged: str | None,
    where: str,
    facts: Mapping[str, object] | None = None,
) -> Table:
    """Anybody's arrays as a table, or a `DataError` that names the row."""
    if not x.ndim:
        raise DataError(f"{where}: x must have an entry for each row, but is a single value")
    for name, values in (("y", y), ("client", client), ("group", group), ("split", split)):
        if values is not None and values.shape != (len(x),):
            raise DataError(f"{where}: {name} must have one entry for each of {len(x)} rows, not shape {values.shape}")
    if not len(x):
        raise DataError(f"{where}: there are no rows")
    codes, labels = _classes(y, where)
    places, groups = _groups(group, unprivileged, where)
    return Table(_inputs(x, where), codes, labels, client, places, groups, _splits(split, where), facts or {})


def _inputs(x: NDArray[Any], where: str) -> NDArray[np.uint8] | NDArray[np.float32]:
    if x.ndim < 2:
        x = x[:, None]
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind not in "fiub":
        raise DataError(f"{where}: inputs must be numbers, not {x.dtype}; a table with words can be a CSV file")
    numbers = x.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(numbers.reshape(len(x), -1)).all(axis=1))
    if len(bad):
        column = int(np.flatnonzero(~np.isfinite(numbers[bad[0]].reshape(-1)))[0])
        raise DataError(f"{where}: row {bad[0]}, input {column} is missing or not finite")
    return numbers


def _classes(y: NDArray[Any], where: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels as 0, 1, ... in their natural order, and what they were."""
    if y.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(y) | (y != np.floor(y)))
        if len(bad):
            raise DataError(
                f"{where}: row {bad[0]} has the label {y[bad[0]]}; labels are classes, whole numbers or words"
            )
        y = y.astype(np.int64)
    labels, codes = np.unique(y, return_inverse=True)
    if len(labels) < 2 or len(labels) > LABEL_LIMIT:
        raise DataError(f"{where}: {len(labels)} different labels; 2 to {LABEL_LIMIT} can be told apart")
    return codes.astype(np.int64), tuple(str(label) for label in labels.tolist())


def _groups(
    group: NDArray[Any] | None, unprivileged: str | None, where: str
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Groups as 0, 1, ...; the unprivileged one first, the others in their natural order."""
    if group is None:
        if unprivileged is not None:
            raise ConfigError(f"'{unprivileged}' cannot be unprivileged: there are no groups")
        return None, ()
    values, places = np.unique(group, return_inverse=True)
    names = [str(value) for value in values.tolist()]
    if unprivileged is not None:
        if unprivileged not in names:
            raise ConfigError(f"{where}: there is no group '{unprivileged}'; known: {', '.join(names)}")
        first = names.index(unprivileged)
        order = [first, *(place for place in range(len(names)) if place != first)]
        names = [names[place] for place in order]
        places = np.argsort(order)[places]
    return places.astype(np.int64), tuple(names)


def _splits(split: NDArray[Any] | None, where: str) -> NDArray[np.int64] | None:
    if split is None:
        return None
    if split.dtype.kind in "iu" and set(np.unique(split)) <= {TRAIN, TEST, UNDECIDED}:
        return split.astype(np.int64)
    words = np.char.lower(split.astype(str))
    unknown = [row for row, word in enumerate(words.tolist()) if word not in SPLITS]
    if unknown:
        raise DataError(f"{where}: row {unknown[0]} has the split '{split[unknown[0]]}'; it is train or test")
    return np.array([SPLITS[word] for word in words.tolist()], dtype=np.int64)


def refuse_bad_shares(test_share: float, min_samples: int) -> None:
    if not 0 < test_share < 1:
        raise ConfigError(f"test_share must lie between 0 and 1, not {test_share}")
    if min_samples < 2:
        raise ConfigError(f"min_samples must be at least 2, one row to train and one to test with; not {min_samples}")


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
) -> Arrays:
    """Rows dealt out to clients by anybody's partitioner; it can go by "label", "group", or more columns."""
    inputs, labels = np.asarray(x), np.asarray(y)
    groups = {} if group is None else {"group": np.asarray(group)}
    parts = deal(partitioner, {"label": labels, **groups, **(columns or {})})
    width = len(str(len(parts) - 1))
    clients: dict[Any, Given] = {}
    for number, rows in enumerate(parts):
        given: Given = (inputs[rows], labels[rows])
        clients[f"{number:0{width}}"] = given if group is None else (*given, groups["group"][rows])
    return from_arrays(clients, test_share=test_share, seed=seed, pooled_test=pooled_test)
