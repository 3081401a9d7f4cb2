"""The base of users' own data sets: checked rows, split into clients."""

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from e2fl.data.federated import Examples
from e2fl.data.partitioned import (
    TRAIN,
    UNDECIDED,
    ClientRows,
    Partition,
    PartitionedData,
    rows_by_client,
    split_clients,
)
from e2fl.data.partitioners import Rows
from e2fl.data.tabular.rows import CheckedRows, as_column, as_inputs
from e2fl.errors import ConfigError, DataError

GROUPS = ("auto", "clients", "inside")
STRAY = 0.05  # if fewer rows than this share are outside their client's main group, they are probably mistakes


class UserData(PartitionedData):
    """A data set made of `CheckedRows`; subclasses say where they come from."""

    name = "own"
    table: CheckedRows
    seed: int = 0
    test_share: float = 0.2
    min_samples: int = 2
    pooled_test: bool = False
    groups: str = "auto"

    @cached_property
    def classes(self) -> int:  # type: ignore[override]  # known only once the data has been read
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
    def partitioned(self) -> Partition:  # type: ignore[override]  # as above
        table = self.table
        split = np.full(len(table.y), UNDECIDED) if table.split is None else table.split
        clients, unseen = client_rows(
            table.client,
            split,
            test_share=self.test_share,
            seed=self.seed,
            min_samples=self.min_samples,
            pooled_test=self.pooled_test,
        )
        inside = table.group is not None and _groups_lie_inside(table, table.group, clients + unseen, self.groups)
        if table.group is not None and not inside:
            clients = [_declaring(rows, table.group) for rows in clients]
            unseen = [_declaring(rows, table.group) for rows in unseen]
        pooled = _untrained(clients, len(table.y)) if self.pooled_test else None
        group = table.group if inside or self.pooled_test else None
        examples = Examples(table.x, table.y, group, table.scale)
        return Partition(examples, tuple(clients), tuple(unseen), len(table.groups), pooled)

    def examples(self, x: ArrayLike, y: ArrayLike | None = None) -> Examples:
        """Return rows of an unseen client, scaled like these rows; y: class numbers, or None if unknown."""
        inputs = as_inputs(x, "x")
        if inputs.dtype != np.uint8:
            inputs = inputs.astype(np.float32)
        if inputs.shape[1:] != self.shape:
            raise DataError(f"x has rows of shape {inputs.shape[1:]}; this data has {self.shape}")
        if self.table.scale != 1.0 and inputs.dtype != np.uint8:
            raise DataError(f"x must be uint8, as in the training rows, not {np.asarray(x).dtype}")
        labels = np.full(len(inputs), -1) if y is None else as_column(y, "label", "y")
        return Examples(inputs, labels.astype(np.int64), None, self.table.scale)

    def about(self) -> dict[str, object]:
        scale = {} if self.table.scale == 1.0 else {"input_scale": self.table.scale}
        return {
            "rows": len(self.table.y),
            "clients": len(self.partitioned.clients),
            "unseen_clients": len(self.partitioned.unseen),
            "labels": list(self.table.labels),
            "groups": list(self.table.groups),
            "tested_on": "the same rows" if self.pooled_test else "own rows",
            **scale,
            **self.table.metadata,
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
    """Return the training and test rows of each client and of each unseen client; deterministic for a seed."""
    sources = rows_by_client(client, split)
    clients, unseen, untested = split_clients(sources, test_share=test_share, seed=seed, min_samples=min_samples)
    if untested and not pooled_test:
        raise DataError(
            f"client '{untested[0]}' has training rows but no test rows; "
            "add some, or test all clients on the same rows with pooled_test = true"
        )
    none = np.empty(0, dtype=np.int64)
    without = set(untested)
    clients += [ClientRows(rows.name, rows.parts[TRAIN], none) for rows in sources if rows.name in without]
    return clients, unseen


def _groups_lie_inside(
    table: CheckedRows, group: NDArray[np.int64], clients: Sequence[ClientRows], setting: str
) -> bool:
    """Return whether rows have groups of their own rather than clients; `setting` decides unless it is auto."""
    if setting == "inside":
        return True
    strays: list[int] = []
    mixed = 0
    for rows in clients:
        here = np.sort(rows.all())
        counts = np.bincount(group[here])
        other = here[group[here] != counts.argmax()]
        mixed += bool(len(other))
        strays += other.tolist()
    if not strays:
        return False
    row = min(strays)
    stray = (
        f"{table.row_name(row)} of client '{str(table.client[row])[:40]}' is in group "
        f"'{table.groups[group[row]][:40]}', unlike most rows of this client"
    )
    if setting == "clients":
        raise DataError(f"{stray}; with groups = 'clients' all rows of a client must be of one group")
    if len(strays) <= STRAY * len(group) or 2 * mixed <= len(clients):
        warnings.warn(
            f"{stray} ({len(strays)} such rows, in {mixed} of {len(clients)} clients): so groups lie inside clients, "
            "and no client declares one. Correct these rows and set groups = 'clients', or set groups = 'inside' if "
            "this is meant",
            stacklevel=3,
        )
    return True


def _untrained(clients: Sequence[ClientRows], count: int) -> Rows:
    """Return the rows that no client trains on: one test set for all."""
    rows = np.setdiff1d(np.arange(count), np.concatenate([rows.train for rows in clients]))
    if not len(rows):
        raise DataError("all rows are training rows; some must be test rows")
    return rows


def _declaring(rows: ClientRows, group: NDArray[np.int64]) -> ClientRows:
    return ClientRows(rows.name, rows.train, rows.test, int(group[rows.all()[0]]))


def require_valid_settings(test_share: float, min_samples: int, groups: str = "auto") -> None:
    """Raise an error for settings that no data can satisfy."""
    if groups not in GROUPS:
        raise ConfigError(f"groups must be one of {', '.join(GROUPS)}; not '{groups}'")
    if not 0 < test_share < 1:
        raise ConfigError(f"test_share must lie between 0 and 1, not {test_share}")
    if min_samples < 2:
        raise ConfigError(f"min_samples must be at least 2 (one training and one test row), not {min_samples}")
