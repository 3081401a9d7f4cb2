"""Your own data: arrays by client, from Python or from an .npz.

In Python: `from_arrays({"north": (x, y), "south": (x, y)})`. As a file: an .npz with x, y and client, one entry a row,
and, where there are such, group and split.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from e2fl.data.federated import Examples
from e2fl.data.files.places import existing, sha256
from e2fl.data.files.unpacking import load_npz
from e2fl.data.partitioned import TEST, TRAIN, UNDECIDED, Deal, DealtData, Share, owners, share_out
from e2fl.data.partitioners import Partitioner, Rows, deal
from e2fl.data.tabular.cells import MISSING, is_nothing
from e2fl.data.tabular.rows import Table, as_column, as_inputs, checked, row_number
from e2fl.errors import ConfigError, DataError


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
    def label_names(self) -> tuple[str, ...]:  # type: ignore[override]  # as above
        return self.table.labels

    @cached_property
    def group_names(self) -> tuple[str, ...]:  # type: ignore[override]  # as above
        return self.table.groups

    @cached_property
    def dealt(self) -> Deal:  # type: ignore[override]  # as above
        table = self.table
        split = np.full(len(table.y), UNDECIDED) if table.split is None else table.split
        shares, newcomers = shares_of(
            table.client,
            split,
            test_share=self.test_share,
            seed=self.seed,
            min_samples=self.min_samples,
            pooled_test=self.pooled_test,
        )
        inside = table.group is not None and any(
            len(np.unique(table.group[np.concatenate([share.train, share.test])])) > 1 for share in shares + newcomers
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


def shares_of(
    client: NDArray[Any],
    split: NDArray[np.int64],
    *,
    test_share: float,
    seed: int,
    min_samples: int,
    pooled_test: bool,
) -> tuple[list[Share], list[Share]]:
    """Which rows each client trains and is tested with, and the newcomers; the same draw every time."""
    found = owners(client, split)
    shares, newcomers, left_out = share_out(found, test_share=test_share, seed=seed, min_samples=min_samples)
    if left_out and not pooled_test:
        raise DataError(
            f"client '{left_out[0]}' has rows to train with but none to test with; "
            "give it some, or test all clients on the same rows with pooled_test = true"
        )
    none = np.empty(0, dtype=np.int64)
    wanted = set(left_out)
    shares += [Share(owner.name, owner.rows[TRAIN], none) for owner in found if owner.name in wanted]
    return shares, newcomers


def _untrained(shares: Sequence[Share], count: int) -> Rows:
    """The rows that nobody trains with: one test set for all."""
    rows = np.setdiff1d(np.arange(count), np.concatenate([share.train for share in shares]))
    if not len(rows):
        raise DataError("all rows are for training; some must be there to test with")
    return rows


def _declared(share: Share, group: NDArray[np.int64]) -> Share:
    rows = np.concatenate([share.train, share.test])
    return Share(share.name, share.train, share.test, int(group[rows[0]]))


@dataclass(frozen=True)
class Npz(OwnData):
    """An .npz with x, y and client, and perhaps group and split."""

    path: str
    seed: int = 0
    test_share: float = 0.2  # of each client's rows, where there is no split
    min_samples: int = 2  # who has fewer rows is a newcomer
    pooled_test: bool = False  # test all clients on the same rows
    unprivileged: str | int | None = None  # the group that fairness measures call unprivileged; default: the first

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
            facts={"sha256": sha256(path)},
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
    unprivileged: str | int | None = None,
) -> Arrays:
    """A federation of clients, each with arrays (x, y) or (x, y, group).

    group: one for the whole client, or one for each row. test: rows to test with, by client; without it a share of
    each client's rows is drawn. x: bytes or numbers, as they should go into the network.
    """
    refuse_bad_shares(test_share, min_samples)
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

    def called(row: int) -> str:
        place = int(np.searchsorted(ends, row, side="right"))
        return f"{parts[place].where}, row {row - int(ends[place]) + sizes[place]}"

    table = checked(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.repeat(np.array([part.name for part in parts], dtype=np.object_), sizes),
        group=np.concatenate([part.group for part in parts if part.group is not None]) if with_group else None,
        split=np.repeat([part.split for part in parts], sizes),
        unprivileged=unprivileged,
        where="the arrays",
        called=called,
    )
    return Arrays(table, seed=seed, test_share=test_share, min_samples=min_samples, pooled_test=pooled_test)


@dataclass(frozen=True)
class _Part:
    """What one client was given, to train or to test with."""

    name: str
    where: str
    x: NDArray[Any]
    y: NDArray[Any]
    group: NDArray[Any] | None
    split: int


def _parts(clients: Mapping[Any, Given], split: int) -> list[_Part]:
    names = Counter(str(name) for name in clients)
    if names and (twice := names.most_common(1)[0])[1] > 1:
        raise DataError(f"{twice[1]} clients are called '{twice[0]}'; names must differ as texts")
    nameless = [name for name in names if name.strip().lower() in MISSING]
    if nameless:
        raise DataError(f"a client is called '{nameless[0]}', which means that there is none; give it a name")
    return [_part(str(name), given, split) for name, given in clients.items()]


def _part(name: str, given: Given, split: int) -> _Part:
    where = f"client '{name}'{', to test with' if split == TEST else ''}"
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        raise DataError(f"{where} must be (x, y) or (x, y, group)")
    x, y = as_inputs(given[0], where), as_column(given[1], "label", where)
    if y.ndim != 1 or len(x) != len(y):
        raise DataError(f"{where} has inputs of shape {x.shape} for labels of shape {y.shape}")
    given_group = given[2] if len(given) == 3 else None
    if given_group is None:
        return _Part(name, where, x, y, None, split)
    if is_nothing(given_group):
        raise DataError(f"{where} has no group but {given_group}")
    group = as_column(given_group, "group", where)
    if group.ndim and group.shape != y.shape:
        raise DataError(f"{where} has {len(group)} groups for {len(y)} rows")
    return _Part(name, where, x, y, np.broadcast_to(group, y.shape).astype(str), split)


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
    inputs, labels = as_inputs(x, "x"), as_column(y, "label", "y")
    if labels.ndim != 1 or len(labels) != len(inputs):
        raise DataError(f"there are inputs of shape {inputs.shape} for labels of shape {labels.shape}")
    known: dict[str, Any] = {"label": labels}
    if group is not None:
        known["group"] = as_column(group, "group", "group")
        if known["group"].shape != labels.shape:
            raise DataError(f"there are groups of shape {known['group'].shape} for labels of shape {labels.shape}")
    parts = deal(partitioner, {**known, **(columns or {})})
    width = len(str(len(parts) - 1))
    rows = np.concatenate(parts)
    table = checked(
        inputs[rows],
        labels[rows],
        np.repeat([f"{number:0{width}}" for number in range(len(parts))], [len(part) for part in parts]),
        group=known["group"][rows].astype(str) if group is not None else None,
        split=None,
        unprivileged=None,
        where="the arrays",
        called=lambda row: row_number(int(rows[row])),
    )
    return Arrays(table, seed=seed, test_share=test_share, pooled_test=pooled_test)
