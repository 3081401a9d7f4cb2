"""Users' own tables: a CSV or Parquet file or a DataFrame with a column that names the client of each row.

Columns of numbers are standardised with the training rows; columns of strings become one input for each category of the
training rows. A category that occurs in no training row gets no input.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from e2fl.construct import did_you_mean
from e2fl.data.arrays import Arrays
from e2fl.data.federated import Examples
from e2fl.data.partitioned import UNDECIDED
from e2fl.data.tabular.encoding import Choice, Encoding, learn
from e2fl.data.tabular.roles import (
    assigned_clients,
    choose_columns,
    complete_rows,
    first_few,
    partition_columns,
    positive_last,
    read_labels,
)
from e2fl.data.tabular.rows import RowName, as_splits, check_rows
from e2fl.data.tabular.sheet import Column, Frame, Sheet, Texts, is_missing, within_memory
from e2fl.data.user_data import client_rows, require_valid_settings
from e2fl.errors import ConfigError, DataError
from e2fl.tables.cells import as_text

INPUT_LIMIT = 8 * 2**30  # bytes of inputs
ROWS_NAMED = 3  # incomplete rows that a message names


@dataclass(frozen=True)
class Encoded(Examples):
    """Rows that a table encoded, and what distinguishes this table from others."""

    made_by: Mapping[str, object] = field(default_factory=dict)

    def take(self, rows: NDArray[np.int64]) -> "Encoded":
        part = super().take(rows)
        return Encoded(part.x, part.y, part.group, part.scale, part.shift, self.made_by)


@dataclass(frozen=True, eq=False)
class TableData(Arrays):
    """A table with its encoding, which can be applied to new rows."""

    name: str = "table"
    encoding: Encoding = field(kw_only=True)
    label: str = field(kw_only=True)
    group: str | None = field(kw_only=True)
    missing: str = field(kw_only=True)

    def encode(self, new: str | Path | Frame | Sequence[Mapping[str, Any]]) -> Encoded:
        """Return new rows as the inputs and labels that this table would have made of them.

        new: a file, a DataFrame, or a list of dictionaries. Rows with missing values are rejected, so that the result
        has a row for each row given. Categories that do not occur in training raise a warning. Without a label column
        all labels are -1: enough to predict with, not to train. A group column is used if groups lie inside clients.
        """
        with within_memory():
            return self._encode(new)

    def _encode(self, new: Any) -> Encoded:
        features = list(self.encoding.columns)
        if isinstance(new, Sequence) and not isinstance(new, str) and not new:
            raise DataError("there are no new rows")
        sheet = Sheet(new)
        known = dict.fromkeys(sheet.header)
        for name in features:
            if name not in known:
                raise DataError(f"the new rows have no column '{name}'{did_you_mean(name, known)}")
        group = self.group if self.partitioned.examples.group is not None else None
        roles = [name for name in (self.label, group) if name is not None and name in known]
        sheet.read({*features, *roles})
        written = {name: sheet.names(name) for name in roles}
        columns = self.encoding.columns_of(sheet)
        _reject_incomplete(written if self.missing == "fill" else {**columns, **written}, sheet)
        x, unknown = self.encoding.apply(columns)
        for name, rows in unknown.items():
            first = int(rows[0])
            warnings.warn(
                f"{sheet.where}: {len(rows)} cells of column '{name}' are categories that do not occur in training, "
                f"such as '{columns[name][first][:40]}' in {sheet.row_name(first)}; known: {self._known(name)}",
                stacklevel=3,
            )
        y, groups = np.full(len(sheet), -1, dtype=np.int64), None
        if self.label in written:
            y = _indices(written[self.label], self.table.labels, "label", sheet)
        if group is not None and group in written:
            groups = _indices(written[group], self.table.groups, "group", sheet)
        about = self.about()
        return Encoded(x, y, groups, made_by={name: about[name] for name in ("encoding", "labels", "groups")})

    def _known(self, name: str) -> str:
        column = self.encoding.columns[name]
        assert isinstance(column, Choice)
        return first_few(column.words)


def _reject_incomplete(columns: Mapping[str, Column], sheet: Sheet) -> None:
    """Raise an error for rows with missing values: dropping them would shift the others."""
    missing = sorted(
        (row, name) for name, column in columns.items() for row in np.flatnonzero(is_missing(column)).tolist()
    )
    if missing:
        found = [f"{sheet.row_name(row)} has nothing in column '{name}'" for row, name in missing[:ROWS_NAMED]]
        more = f" (and {len(missing) - ROWS_NAMED} more)" if len(missing) > ROWS_NAMED else ""
        raise DataError(f"{sheet.where}: {', '.join(found)}{more}; fill it in, or leave such rows out")


def _indices(texts: Texts, known: tuple[str, ...], what: str, sheet: Sheet) -> NDArray[np.int64]:
    index = {text: number for number, text in enumerate(known)}
    for row, text in enumerate(texts.tolist()):
        if text not in index:
            raise DataError(f"{sheet.where}: {sheet.row_name(row)} has the {what} '{text}'{did_you_mean(text, known)}")
    return np.array([index[text] for text in texts.tolist()], dtype=np.int64)


@within_memory()
def from_table(
    frame: Frame | None = None,
    /,
    *,
    path: str | None = None,  # a CSV or Parquet file
    label: str,  # the column of classes: strings or integers
    client: str | None = None,  # the column that names the client of a row
    group: str | None = None,  # the column of groups, of clients or inside them
    split: str | None = None,  # a column of train and test; default: test_share of each client's rows is drawn
    features: tuple[str, ...] | None = None,  # the input columns; default: all without another role
    words: tuple[str, ...] = (),  # input columns that are categories although they look like numbers or identifiers
    partition: dict[str, Any] | None = None,  # instead of client, such as { name = "iid", num_partitions = 10 }
    missing: Literal[
        "refuse", "drop", "fill"
    ] = "refuse",  # or drop rows with missing values, or fill: with the mean, or a category of their own
    seed: int = 0,  # of the partition and the split
    test_share: float = 0.2,  # of each client's rows, if there is no split
    min_samples: int = 2,  # a client with fewer rows is an unseen client
    pooled_test: bool = False,  # test all clients on the same rows
    unprivileged: str | int | None = None,  # the unprivileged group of fairness measures; default: the first
    positive: str | int | None = None,  # the favourable one of two labels, class 1; default: the later in order
    groups: Literal[
        "auto", "clients", "inside"
    ] = "auto",  # clients: each client has one group; inside: each row has its own; auto: look at the rows
) -> TableData:
    """A table with a row for each example: a pandas DataFrame, or a CSV or Parquet file at `path`.

    Either `client` names the client of each row, or `partition` splits the rows; rows that it assigns to no client are
    counted and not used. Columns of numbers are standardised, columns of strings become one input for each category.
    """
    require_valid_settings(test_share, min_samples, groups)
    if missing not in ("refuse", "drop", "fill"):
        raise ConfigError(f"data.missing is refuse, drop or fill; not '{missing}'")
    if (client is None) == (partition is None):
        raise ConfigError(
            "data needs either client, the column that names the client of a row, "
            'or partition, such as { name = "dirichlet", num_partitions = 10, partition_by = "label", alpha = 1 }'
        )
    if (frame is None) == (path is None):
        raise ConfigError("a table needs either data.path or, in Python, a DataFrame")
    if frame is not None and not hasattr(frame, "columns") and not hasattr(frame, "to_pandas"):
        raise DataError(f"a table is a DataFrame or a path = '...', not a {type(frame).__name__}")
    sheet = Sheet(path if frame is None else frame)
    where = sheet.where
    roles = choose_columns(sheet.header, where, label, client, group, split, features, words, partition)
    sheet.read({*roles.named, *roles.features})
    written = {name: sheet.names(name) for name in sorted(roles.named)}
    columns = {name: sheet.texts(name) if name in words else sheet.feature(name) for name in roles.features}
    rows = complete_rows(written, columns, missing, sheet)
    if partition is None:
        owner = written[roles.used["client"]][rows]
    else:
        assigned = assigned_clients(partition, seed, partition_columns(roles, written, rows, sheet))
        rows, owner = rows[assigned != ""], assigned[assigned != ""]
    columns = {name: column[rows] for name, column in columns.items()}
    purpose = np.full(len(rows), UNDECIDED)
    if split is not None:
        purpose = as_splits(written[split][rows], where, _row_names(sheet, rows))
    labels, classes = read_labels(written[label][rows], label, rows, sheet)
    labels, classes = positive_last(labels, classes, positive)
    clients, _ = client_rows(
        owner, purpose, test_share=test_share, seed=seed, min_samples=min_samples, pooled_test=pooled_test
    )
    train = np.zeros(len(rows), dtype=np.bool_)
    train[np.concatenate([rows.train for rows in clients])] = True
    encoding = learn(columns, train, sheet, rows, listed=words)
    if encoding.width * len(rows) * 4 > INPUT_LIMIT:
        raise DataError(f"{where}: {len(rows)} rows of {encoding.width} inputs exceed {INPUT_LIMIT // 2**30} GiB")
    inputs, unknown = encoding.apply(columns)
    metadata = {
        "inputs": encoding.width,
        "columns": encoding.kinds,
        "encoding": encoding.digest,
        "values_unseen_in_training": sum(len(places) for places in unknown.values()),
        "rows_left_out": len(sheet) - len(rows),
    } | ({} if path is None else {"sha256": sheet.source.sha256()})
    found = check_rows(
        inputs,
        labels,
        owner,
        classes=classes,
        group=written[group][rows] if group is not None else None,
        split=None if split is None else purpose,
        unprivileged=None if unprivileged is None else as_text(unprivileged),
        where=where,
        metadata=metadata,
        row_name=_row_names(sheet, rows),
    )
    data = TableData(
        found,
        seed,
        test_share,
        min_samples,
        pooled_test,
        groups,
        encoding=encoding,
        label=label,
        group=group,
        missing=missing,
    )
    data.partitioned  # noqa: B018  # warnings and errors about groups come now
    return data


def _row_names(sheet: Sheet, rows: NDArray[np.int64]) -> RowName:
    """Return a function that names a row of the result; the sheet with all its cells is not kept."""
    name = sheet.row_name
    return lambda row: name(int(rows[row]))
