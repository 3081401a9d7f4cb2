"""Users' own tables: a file or a DataFrame with a column that names the client of each row.

Columns of numbers are standardised with the training rows; columns of texts become one input for
each category of the training rows. A category that occurs in no training row gets no input.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.construct import construct, did_you_mean, fields_of, fit, look_up
from e2fl.data.arrays import require_finite
from e2fl.data.clients import MinSamples, TestShare
from e2fl.data.encoding import FEW, NEARLY_ALL, Encoding, first_few, learn
from e2fl.data.own import (
    CheckedRows,
    Division,
    Inputs,
    OwnData,
    PooledTest,
    Unprivileged,
    numbered,
    own_data,
)
from e2fl.data.partition import PARTITIONERS, Rows, client_names, partition_rows
from e2fl.data.sheet import Cells, Sheet, Texts, missing_counts, missing_in, open_sheet
from e2fl.errors import ConfigError, DataError

IDENTIFIER = re.compile(r"(^|[^a-z])(id|ids|uuid|key|index|number|no)$|^(row|record|case)", re.I)
Missing = Literal["refuse", "drop", "fill"]


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
) -> OwnData:
    """A table with a row for each example: a pandas DataFrame, or a file at `path`.

    Either `client` names the client of each row, or `partition` splits the rows. Columns of numbers
    are standardised, columns of strings become one input for each category. Each run splits the
    rows with its own seed, unless `seed` is given.
    """
    if (frame is None) == (path is None):
        raise ConfigError("a table needs either data.path or, in Python, a DataFrame")
    division = Division(test_share, min_samples, pooled_test, seed, unprivileged, positive)
    sheet = open_sheet(path if frame is None else frame)
    roles = {"label": label, "client": client, "group": group, "split": split}
    by = _partition_by(partition, sheet, roles)
    chosen = _input_columns(sheet, roles, features, words)
    names = {name: sheet.texts(name) for name in (*roles.values(), by) if name is not None}
    cells = {name: sheet.texts(name) if name in words else sheet.feature(name) for name in chosen}
    facts: dict[str, object] = {
        "missing_values": missing_counts({**names, **cells}),
        "group_column": group,
        "sha256": sheet.sha256,
    }
    kept = _complete(sheet, names, cells, fit(missing, Missing, "data.missing"))
    facts["rows_left_out"] = len(sheet) - len(kept)
    names = {name: column[kept] for name, column in names.items()}
    cells = {name: column[kept] for name, column in cells.items()}
    origin, label = sheet.only(kept), str(label)
    _warn_of_leaks(cells, names[label], sheet.where)

    def columns(seed: int) -> dict[str, Texts]:
        given = {role: names[name] for role, name in roles.items() if name is not None}
        if partition is not None:
            by_column = names[by] if by not in (None, label) else numbered(names[label])[0]
            given["client"] = _deal(partition, by_column, seed)
        return given

    def inputs(rows: CheckedRows, train: Rows) -> tuple[Inputs, dict[str, Any]]:
        encoding = Encoding(
            learn(cells, train, origin, listed=words),
            label,
            rows.labels,
            group if rows.inside or pooled_test else None,
            rows.groups,
            missing == "fill",
        )
        x, unknown = encoding.apply(cells)
        require_finite(x, origin)
        metadata = {
            "inputs": encoding.width,
            "columns": encoding.kinds,
            "values_unseen_in_training": sum(map(len, unknown.values())),
            **{name: value for name, value in facts.items() if value is not None},
            "encoding": encoding.digest,
        }
        return x, {"name": "table", "encoding": encoding, "metadata": metadata}

    return own_data(columns, inputs, division, origin)


def _deal(partition: Mapping[str, Any], by: NDArray[Any], seed: int) -> Texts:
    """Return the client of each row, as a partition by this column deals them out."""
    values = dict(partition)
    kind = look_up(str(values.pop("name", None)), PARTITIONERS, "partition")
    if "seed" in fields_of(kind):
        values.setdefault("seed", seed)
    partitioner = construct(kind, values, "data.partition")
    parts = partition_rows(partitioner, {str(values.get("partition_by")): by})
    client = np.empty(len(by), dtype=np.object_)
    for name, part in zip(client_names(parts), parts, strict=True):
        client[part] = name
    return client


def _partition_by(
    partition: Mapping[str, Any] | None, sheet: Sheet, roles: Mapping[str, str | None]
) -> str | None:
    """Return the column that a partition names; `label` and `group` mean these roles."""
    if (roles["client"] is None) == (partition is None):
        raise ConfigError(
            "data needs either client, the column that names the client of a row, or partition, "
            'such as { name = "dirichlet", num_partitions = 10, partition_by = "label", alpha = 1 }'
        )
    by = (partition or {}).get("partition_by")
    if not isinstance(by, str):
        return None
    column = by if by in sheet.header else roles.get(by)
    if column is None:
        hint = did_you_mean(by, sheet.header)
        raise ConfigError(f"{sheet.where} has no column '{by}' to partition by{hint}")
    return column


def _input_columns(
    sheet: Sheet,
    roles: Mapping[str, str | None],
    features: Sequence[str] | None,
    words: Sequence[str],
) -> list[str]:
    """Return the input columns, after checking that the roles of all columns are possible."""
    where, known = sheet.where, sheet.header
    if roles["label"] is None:
        columns = first_few(known)
        raise ConfigError(
            f"{where}: name the column of classes with label = '...'; its columns: {columns}"
        )
    taken = [name for name in roles.values() if name is not None]
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


def _complete(
    sheet: Sheet, names: Mapping[str, Texts], inputs: Mapping[str, Cells], missing: Missing
) -> NDArray[np.int64]:
    """Return the rows to keep. A missing client, label, group or split is never filled in."""
    columns = {**names, **({} if missing == "fill" else inputs)}
    if missing != "drop":
        advice = "fill it in, or set missing = 'drop' or, for inputs, 'fill'"
        sheet.refuse_missing(columns, advice)
        return np.arange(len(sheet))
    whole = ~np.any([missing_in(cells) for cells in columns.values()], axis=0)
    if not whole.any():
        raise DataError(f"{sheet.where}: every row has a missing value")
    return np.flatnonzero(whole)


def _warn_of_leaks(columns: Mapping[str, Cells], label: Texts, where: str) -> None:
    """Warn of input columns that are probably mistakes: a copy of the label, an identifier."""
    for name, cells in columns.items():
        pairs = pd.DataFrame({"cell": cells, "label": label}).drop_duplicates()
        if len(pairs) == pairs["cell"].nunique(dropna=False) == pairs["label"].nunique():
            reason = "says the label of every row: it is probably a copy of it"
        elif cells.dtype.kind == "f" and _is_identifier(name, cells.astype(np.float64)):
            reason = "has a different integer in nearly every row: it is probably an identifier"
        else:
            continue
        warnings.warn(
            f"{where}: input column '{name}' {reason}; leave it out with features = [...]",
            stacklevel=3,
        )


def _is_identifier(name: str, numbers: NDArray[np.float64]) -> bool:
    """Return whether nearly all numbers are different integers, dense or named as an identifier."""
    present = numbers[~np.isnan(numbers)]
    distinct = np.unique(present)
    if len(distinct) <= max(FEW, NEARLY_ALL * len(present)) or (distinct % 1 != 0).any():
        return False
    dense = distinct[-1] - distinct[0] < 2 * len(present)
    return bool(dense) or IDENTIFIER.search(name) is not None
