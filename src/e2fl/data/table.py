"""Users' own tables: a file or a DataFrame with a column that names the client of each row.

Columns of numbers are standardised with the training rows; columns of texts become one input for
each category of the training rows. A category that occurs in no training row gets no input.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.construct import construct, did_you_mean, fields_of, fit, look_up
from e2fl.data.clients import MinSamples, TestShare
from e2fl.data.encoding import FEW, NEARLY_ALL, Encoded, Encoding, first_few, learn
from e2fl.data.partition import PARTITIONERS, NaturalId, client_names, partition_rows
from e2fl.data.rows import (
    Division,
    Groups,
    OwnData,
    PooledTest,
    Unprivileged,
    as_splits,
    check_rows,
    encode_labels,
)
from e2fl.data.sheet import Cells, Sheet, Texts, as_text, missing_counts, missing_in, open_sheet
from e2fl.errors import ConfigError, DataError

IDENTIFIER = re.compile(r"(^|[^a-z])(id|ids|uuid|key|index|number|no)$|^(row|record|case)", re.I)


def from_table(
    frame: pd.DataFrame | str | Path | None = None,
    /,
    *,
    path: Annotated[str | None, Doc("a CSV, Parquet or xlsx file")] = None,
    label: Annotated[str | None, Doc("the column of classes: strings or integers")] = None,
    client: Annotated[str | None, Doc("the column that names the client of a row")] = None,
    group: Annotated[str | None, Doc("the column of groups, of clients or inside them")] = None,
    split: Annotated[
        str | None,
        Doc("a column of train and test; default: test_share of each client's rows is drawn"),
    ] = None,
    features: Annotated[
        tuple[str, ...] | None, Doc("the input columns; default: all without another role")
    ] = None,
    words: Annotated[
        tuple[str, ...], Doc("input columns that are categories although they look like numbers")
    ] = (),
    partition: Annotated[
        dict[str, Any] | None,
        Doc('instead of client, such as { name = "iid", num_partitions = 10 }'),
    ] = None,
    missing: Annotated[
        Literal["refuse", "drop", "fill"],
        Doc("or drop rows with missing values, or fill: with the mean, or a category of their own"),
    ] = "refuse",
    seed: Annotated[
        int | None, Doc("of the partition and the split; default: the seed of the run")
    ] = None,
    test_share: TestShare = 0.2,
    min_samples: MinSamples = 2,
    pooled_test: PooledTest = False,
    unprivileged: Unprivileged = None,
    positive: Annotated[
        str | int | None,
        Doc("the favourable one of two labels, class 1; default: the later in order"),
    ] = None,
    groups: Groups = "auto",
) -> "TableData":
    """A table with a row for each example: a pandas DataFrame, or a file at `path`.

    Either `client` names the client of each row, or `partition` splits the rows; rows that it
    assigns to no client are counted and not used. Columns of numbers are standardised, columns of
    strings become one input for each category. Each run splits the rows with its own seed, unless
    `seed` is given.
    """
    if (frame is None) == (path is None):
        raise ConfigError("a table needs either data.path or, in Python, a DataFrame")
    division = Division(test_share, min_samples, pooled_test, groups, seed)
    sheet = open_sheet(path if frame is None else frame)
    roles = {"label": label, "client": client, "group": group, "split": split}
    by = _partition_by(partition or {}, sheet, roles)
    inputs = _choose_columns(sheet, roles, features, words, partition, by)
    named = sorted({name for name in (*roles.values(), by) if name is not None})
    table = Table(
        sheet,
        roles,
        {name: sheet.names(name) for name in named},
        {name: sheet.texts(name) if name in words else sheet.feature(name) for name in inputs},
        words,
        partition,
        fit(missing, Literal["refuse", "drop", "fill"], "data.missing"),
        division,
        None if unprivileged is None else as_text(unprivileged),
        None if positive is None else as_text(positive),
    )
    return table.build(0)


@dataclass(frozen=True, eq=False)
class TableData(OwnData):
    """A table with its encoding, which can be applied to new rows."""

    name: str = "table"
    encoding: Encoding = field(kw_only=True)
    source: "Table" = field(kw_only=True)

    def about(self) -> dict[str, object]:
        return super().about() | {"encoding": self.encoding.digest}

    def encode(self, new: str | Path | pd.DataFrame | Sequence[Mapping[str, Any]]) -> Encoded:
        """Return new rows as this table would have encoded them; see `Encoding.encode`."""
        return self.encoding.encode(new)

    def for_seed(self, seed: int) -> "TableData":
        if self.division.seed is not None or seed == self.run_seed:
            return self
        built = self.source.built  # algorithms that are compared share the data of a seed
        if seed not in built:
            built.clear()
            built[seed] = self.source.build(seed)
        return built[seed]


def _choose_columns(
    sheet: Sheet,
    roles: Mapping[str, str | None],
    features: Sequence[str] | None,
    words: Sequence[str],
    partition: Mapping[str, Any] | None,
    by: str | None,
) -> list[str]:
    """Return the input columns, after checking that the roles of all columns are possible."""
    where, known = sheet.where, sheet.header
    if roles["label"] is None:
        raise ConfigError(
            f"{where}: name the column of classes with label = '...'; its columns: "
            f"{first_few(known)}"
        )
    if (roles["client"] is None) == (partition is None):
        raise ConfigError(
            "data needs either client, the column that names the client of a row, or partition, "
            'such as { name = "dirichlet", num_partitions = 10, partition_by = "label", alpha = 1 }'
        )
    natural = partition is not None and _partitioner(partition) is NaturalId
    taken = {name for name in (*roles.values(), by if natural else None) if name is not None}
    inputs = list(features or [name for name in known if name not in taken])
    for name in (*taken, *inputs):
        if name not in known:
            raise ConfigError(f"{where} has no column '{name}'{did_you_mean(name, known)}")
    if not inputs:
        raise ConfigError(f"{where} has no column left to learn from")
    for role in ("label", "split"):  # client and group may be one column, and an input
        others = [other for other in roles if other != role and roles[other] == roles[role]]
        others += ["a feature"] if roles[role] in inputs else []
        if roles[role] is not None and others:
            raise ConfigError(f"column '{roles[role]}' is both {role} and {others[0]}")
    for name in words:
        if name not in inputs:
            hint = did_you_mean(name, inputs)
            raise ConfigError(f"data.words has '{name}', which is not an input column{hint}")
    return inputs


def _partitioner(partition: Mapping[str, Any]) -> Any:
    return look_up(str(partition.get("name")), PARTITIONERS, "partition")


def _partition_by(
    partition: Mapping[str, Any], sheet: Sheet, roles: Mapping[str, str | None]
) -> str | None:
    """Return the column that a partition names; `label` and `group` mean these roles."""
    by = partition.get("partition_by")
    if not isinstance(by, str):
        return None
    column = by if by in sheet.header else roles.get(by)
    if column is None:
        hint = did_you_mean(by, sheet.header)
        raise ConfigError(f"{sheet.where} has no column '{by}' to partition by{hint}")
    return column


@dataclass(frozen=True)
class Table:
    """A table and the settings of `from_table`; `build` splits its rows into clients."""

    sheet: Sheet
    roles: dict[str, str | None]  # label, client, group and split, and their columns
    names: dict[str, Texts]  # the columns of names rather than inputs
    inputs: dict[str, Cells]  # as numbers or texts
    words: tuple[str, ...]
    partition: dict[str, Any] | None
    missing: str
    division: Division
    unprivileged: str | None
    positive: str | None
    built: dict[int, TableData] = field(default_factory=dict)  # the last one, by its seed

    @cached_property
    def complete(self) -> NDArray[np.int64]:
        """The rows to keep. A missing client, label, group or split is never filled in."""
        columns = self.names | ({} if self.missing == "fill" else self.inputs)
        if self.missing == "drop":
            whole = ~np.any([missing_in(cells) for cells in columns.values()], axis=0)
            if not whole.any():
                raise DataError(f"{self.sheet.where}: every row has a missing value")
            return np.flatnonzero(whole)
        advice = "fill it in, or set missing = 'drop' or, for inputs, 'fill'"
        self.sheet.refuse_missing(columns, advice)
        return np.arange(len(self.sheet))

    def build(self, run_seed: int) -> TableData:
        """Return the rows split into clients; run_seed: the seed if the table has none."""
        sheet, division = self.sheet, self.division
        rows, client = self._clients(run_seed if division.seed is None else division.seed)
        cells = {name: column[rows] for name, column in self.inputs.items()}
        role = {
            role: None if name is None else self.names[name][rows]
            for role, name in self.roles.items()
        }
        origin = sheet.only(rows)
        split = None if role["split"] is None else as_splits(role["split"], origin)
        texts = self.names[str(self.roles["label"])][rows]
        y, classes = encode_labels(texts, origin, self.positive)
        _warn_of_leaks(cells, y, sheet.where)
        clients, _ = division.clients(client, split, run_seed)
        train = np.zeros(len(rows), dtype=np.bool_)
        train[np.concatenate([part.train for part in clients])] = True
        encoding = Encoding(learn(cells, train, origin, listed=self.words))
        x, unknown = encoding.apply(cells)
        metadata = {
            "inputs": encoding.width,
            "columns": encoding.kinds,
            "values_unseen_in_training": sum(map(len, unknown.values())),
            "rows_left_out": len(sheet) - len(rows),
            "missing_values": missing_counts({**self.names, **self.inputs}),
            "group_column": self.roles["group"],
            "sha256": sheet.sha256,
        }
        metadata = {name: value for name, value in metadata.items() if value is not None}
        checked = check_rows(
            x,
            y,
            client,
            division,
            origin,
            classes=classes,
            group=role["group"],
            split=split,
            unprivileged=self.unprivileged,
            metadata=metadata,
        )
        encoding = replace(
            encoding,
            label=str(self.roles["label"]),
            labels=checked.labels,
            group=self.roles["group"] if checked.inside or division.pooled_test else None,
            groups=checked.groups,
            fill=self.missing == "fill",
        )
        return TableData(checked, division, run_seed=run_seed, encoding=encoding, source=self)

    def _clients(self, seed: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the rows that belong to a client, and the client of each."""
        rows = self.complete
        if self.partition is None:
            return rows, self.names[str(self.roles["client"])][rows]
        values = {name: value for name, value in self.partition.items() if name != "name"}
        kind = _partitioner(self.partition)
        if "seed" in fields_of(kind):
            values.setdefault("seed", seed)
        partitioner = construct(kind, values, "data.partition")
        columns: dict[str, NDArray[Any]] = {
            name: column[rows] for name, column in self.names.items()
        }
        label, _ = encode_labels(columns[str(self.roles["label"])], self.sheet.only(rows))
        columns[str(self.roles["label"])] = label
        columns.setdefault("label", label)
        if self.roles["group"] is not None:
            columns.setdefault("group", columns[self.roles["group"]])
        parts = partition_rows(partitioner, columns)
        names = client_names(parts)
        if isinstance(partitioner, NaturalId):
            names = [str(columns[partitioner.partition_by][part[0]]) for part in parts]
        client = np.full(len(rows), "", dtype=np.object_)
        for name, part in zip(names, parts, strict=True):
            client[part] = name
        return rows[client != ""], client[client != ""]


def _warn_of_leaks(columns: Mapping[str, Cells], y: NDArray[np.int64], where: str) -> None:
    """Warn of input columns that are probably mistakes: a copy of the label, an identifier."""
    for name, cells in columns.items():
        pairs = pd.DataFrame({"cell": cells, "y": y}).drop_duplicates()
        if len(pairs) == pairs["cell"].nunique(dropna=False) == pairs["y"].nunique():
            reason = "says the label of every row: it is probably a copy of it"
        elif cells.dtype.kind == "f" and _is_identifier(name, cells.astype(np.float64)):
            reason = "has a different integer in nearly every row: it is probably an identifier"
        else:
            continue
        warnings.warn(
            f"{where}: input column '{name}' {reason}; leave it out with features = [...]",
            stacklevel=4,
        )


def _is_identifier(name: str, numbers: NDArray[np.float64]) -> bool:
    """Return whether nearly all numbers are different integers, dense or named as an identifier."""
    present = numbers[~np.isnan(numbers)]
    distinct = np.unique(present)
    if len(distinct) <= max(FEW, NEARLY_ALL * len(present)) or (distinct % 1 != 0).any():
        return False
    dense = distinct[-1] - distinct[0] < 2 * len(present)
    return bool(dense) or IDENTIFIER.search(name) is not None
