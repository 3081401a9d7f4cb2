"""Users' own tables: a file or a DataFrame with a column that names the client of each row.

Columns of numbers are standardised with the training rows; columns of texts become one input for
each category of the training rows. A category that occurs in no training row gets no input.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.construct import construct, did_you_mean, fields_of, fit, look_up
from e2fl.data.encoding import FEW, NEARLY_ALL, Encoded, Encoding, learn
from e2fl.data.federated import MinSamples, TestShare
from e2fl.data.own import (
    Inputs,
    OwnData,
    PooledTest,
    Positive,
    Roles,
    Seed,
    Unprivileged,
    names_of,
    numbered,
)
from e2fl.data.partition import PARTITIONERS, Rows
from e2fl.data.sheet import Cells, Origin, Sheet, Texts, missing_counts, open_sheet
from e2fl.errors import ConfigError

Missing = Literal["refuse", "drop", "fill"]
IDENTIFIER = re.compile(r"(^|[^a-z])(id|ids|uuid|key|index|number|no)$|^(row|record|case)", re.I)


@dataclass(frozen=True, eq=False, kw_only=True)
class TableData(OwnData):
    """Rows of a table, split into clients."""

    columns: Mapping[str, str]  # by role; by: that of the partition
    cells: Mapping[str, Cells]  # of the input columns
    words: Sequence[str]  # input columns that are categories although they look like numbers
    fill: bool  # whether missing inputs are filled in
    partition: Mapping[str, Any] | None  # instead of a column of clients
    facts: Mapping[str, object]  # for the record of a run

    name = "table"

    def roles_for(self, seed: int) -> Roles:
        roles = dict(self.roles)
        if self.partition is None:
            return roles
        settings, by = dict(self.partition), roles.pop("by")
        if self.columns["by"] == self.columns["label"]:
            by = numbered(by)[0]
        kind = look_up(str(settings.pop("name", None)), PARTITIONERS, "partition")
        if "seed" in fields_of(kind):
            settings.setdefault("seed", seed)
        partitioner = construct(kind, settings, "data.partition")
        name = str(settings.get("partition_by"))
        return roles | {"client": names_of(partitioner.clients({name: by}))}

    def inputs(self, train: Rows, *, grouped: bool) -> Inputs:
        encoding = Encoding(
            learn(self.cells, train, self.origin, self.words),
            self.columns["label"],
            self.label_names,
            self.columns.get("group") if grouped else None,
            self.group_names,
            self.fill,
        )
        x, unknown = encoding.apply(self.cells)
        self.origin.require_finite(x)
        vars(self).update(encoding=encoding, _unknown=sum(map(len, unknown.values())))
        return x

    def encode(self, new: str | Path | pd.DataFrame | Sequence[Mapping[str, Any]]) -> Encoded:
        """Return new rows as this table would have encoded them; see `Encoding.encode`."""
        encoded: Encoded = self.encoding.encode(new)
        return encoded

    def about(self) -> dict[str, object]:
        learnt = {
            "inputs": self.encoding.width,
            "columns": self.encoding.kinds,
            "values_unseen_in_training": vars(self)["_unknown"],
            "encoding": self.encoding.digest,
        }
        return {**super().about(), **learnt, **self.facts}


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
        Missing,
        Doc("or drop rows with missing values, or fill: with the mean, or a category of their own"),
    ] = "refuse",
    seed: Seed = None,
    test_share: TestShare = 0.2,
    min_samples: MinSamples = 2,
    pooled_test: PooledTest = False,
    unprivileged: Unprivileged = None,
    positive: Positive = None,
) -> OwnData:
    """A table with a row for each example: a pandas DataFrame, or a file at `path`.

    Either `client` names the client of each row, or `partition` splits the rows. Columns of numbers
    are standardised, columns of strings become one input for each category. Each run splits the
    rows with its own seed, unless `seed` is given.
    """
    if (frame is None) == (path is None):
        raise ConfigError("a table needs either data.path or, in Python, a DataFrame")
    sheet = open_sheet(path if frame is None else frame)
    given = {"label": label, "client": client, "group": group, "split": split}
    columns, inputs = _columns(sheet, given, features, partition)
    for name in words:
        if name not in inputs:
            hint = did_you_mean(name, inputs)
            raise ConfigError(f"data.words has '{name}', which is not an input column{hint}")
    roles = {role: sheet.texts(name) for role, name in columns.items()}
    cells = {name: sheet.texts(name) if name in words else sheet.cells(name) for name in inputs}
    names = {columns[role]: texts for role, texts in roles.items()}
    missing = fit(missing, Missing, "data.missing")
    kept = sheet.complete(  # a missing client, label, group or split is never filled in
        names if missing == "fill" else {**names, **cells},
        "fill it in, or set missing = 'drop' or, for inputs, 'fill'",
        drop=missing == "drop",
    )
    facts = {
        "missing_values": missing_counts({**names, **cells}),
        "rows_left_out": len(sheet) - len(kept),
        **({} if group is None else {"group_column": group}),
    }
    origin = Origin(sheet.where, sheet.index[kept])
    cells = {name: column[kept] for name, column in cells.items()}
    roles = {role: texts[kept] for role, texts in roles.items()}
    _warn_of_leaks(cells, roles["label"], origin)
    table = TableData(
        seed=seed,
        test_share=test_share,
        min_samples=min_samples,
        pooled_test=pooled_test,
        unprivileged=unprivileged,
        positive=positive,
        columns=columns,
        cells=cells,
        words=words,
        fill=missing == "fill",
        partition=partition,
        facts=facts,
    )
    return table.start(origin, roles, None, sheet.sha256)


def _columns(
    sheet: Sheet,
    given: Mapping[str, str | None],
    features: Sequence[str] | None,
    partition: Mapping[str, Any] | None,
) -> tuple[dict[str, str], list[str]]:
    """Return the columns by role, and the input columns, after checking that they are possible."""
    columns = {role: name for role, name in given.items() if name is not None}
    if "label" not in columns:
        raise ConfigError(f"name the column of classes with label = '...': {sheet.header}")
    if ("client" in columns) == (partition is not None):
        raise ConfigError(
            "data needs either client, the column that names the client of a row, or "
            "partition = { name = 'iid', num_partitions = 10 }"
        )
    taken = list(columns.values())
    inputs = list(features or [name for name in sheet.header if name not in taken])
    if partition is not None:
        by = str(partition.get("partition_by", columns["label"]))
        columns["by"] = by if by in sheet.header else columns.get(by, by)
    for name in (*columns.values(), *inputs):
        if name not in sheet.header:
            hint = did_you_mean(name, sheet.header)
            raise ConfigError(f"{sheet.where} has no column '{name}'{hint}")
    if not inputs:
        raise ConfigError(f"{sheet.where} has no column left to learn from")
    for role in {"label", "split"} & columns.keys():  # client and group may be one, or an input
        if [*taken, *inputs].count(columns[role]) > 1:
            raise ConfigError(f"column '{columns[role]}' is the {role}, and something else too")
    return columns, inputs


def _warn_of_leaks(columns: Mapping[str, Cells], label: Texts, origin: Origin) -> None:
    """Warn of input columns that are probably mistakes: a copy of the label, an identifier."""
    for name, cells in columns.items():
        pairs = pd.DataFrame({"cell": cells, "label": label}).drop_duplicates()
        if len(pairs) == pairs["cell"].nunique(dropna=False) == pairs["label"].nunique():
            reason = "says the label of every row: it is probably a copy of it"
        elif cells.dtype.kind == "f" and _is_identifier(name, cells.astype(np.float64)):
            reason = "has a different integer in nearly every row: it is probably an identifier"
        else:
            continue
        origin.warn(f"input column '{name}' {reason}; leave it out with features = [...]")


def _is_identifier(name: str, numbers: NDArray[np.float64]) -> bool:
    """Return whether nearly all numbers are different integers, dense or named as an identifier."""
    present = numbers[~np.isnan(numbers)]
    distinct = np.unique(present)
    if len(distinct) <= max(FEW, NEARLY_ALL * len(present)) or (distinct % 1 != 0).any():
        return False
    dense = distinct[-1] - distinct[0] < 2 * len(present)
    return bool(dense) or IDENTIFIER.search(name) is not None
