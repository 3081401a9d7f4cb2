"""Users' own tables: a CSV or Parquet file or a DataFrame with a column that names the client of each row.

Columns of numbers are standardised with the training rows; columns of texts become one input for each category of the
training rows. A category that occurs in no training row gets no input.
"""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.construct import construct, did_you_mean, fields_of, look_up
from e2fl.data.arrays import Arrays, client_rows, require_valid_settings
from e2fl.data.federated import Examples
from e2fl.data.files.places import existing, sha256
from e2fl.data.partitioned import UNDECIDED
from e2fl.data.partitioners import PARTITIONERS, NaturalId, partition_rows
from e2fl.data.tabular.cells import as_text
from e2fl.data.tabular.encoding import Choice, Encoding, learn
from e2fl.data.tabular.parquet import INPUT_LIMIT
from e2fl.data.tabular.reading import (
    Column,
    Frame,
    Sheet,
    Table,
    Texts,
    column_names,
    from_rows,
    is_missing,
    read,
    within_memory,
)
from e2fl.data.tabular.rows import SPLITS, RowName, check_rows
from e2fl.errors import ConfigError, DataError

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
        """New rows as the inputs and labels that this table would have made of them.

        new: a file, a DataFrame, or a list of dictionaries. Rows with missing values are rejected, so that the result
        has a row for each row given. Categories that do not occur in training are warned of. Without a label column
        all labels are -1: enough to predict with, not to train. A group column is used if groups lie inside clients.
        """
        with within_memory():
            return self._encode(new)

    def _encode(self, new: Any) -> Encoded:
        features = list(self.encoding.columns)
        source: Any = existing(str(new)) if isinstance(new, str | Path) else new
        is_table = isinstance(source, Path) or hasattr(source, "columns")
        if not is_table and not len(source):
            raise DataError("there are no new rows")
        known = set(column_names(source)) if is_table else {name for row in source for name in row}
        for name in features:
            if name not in known:
                raise DataError(f"the new rows have no column '{name}'{did_you_mean(name, known)}")
        group = self.group if self.partitioned.examples.group is not None else None
        roles = [name for name in (self.label, group) if name is not None and name in known]
        wanted = {*features, *roles}
        sheet = read(source, wanted) if is_table else from_rows(source, wanted)
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
        return _some(column.words)


def _reject_incomplete(columns: Mapping[str, Column], sheet: Sheet) -> None:
    """Reject rows with missing values: dropping them would shift the others."""
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
    path: str | None = None,
    label: str,
    client: str | None = None,
    group: str | None = None,
    split: str | None = None,
    features: tuple[str, ...] | None = None,
    words: tuple[str, ...] = (),
    partition: dict[str, Any] | None = None,
    missing: str = "refuse",
    seed: int = 0,
    test_share: float = 0.2,
    min_samples: int = 2,
    pooled_test: bool = False,
    unprivileged: str | int | None = None,
    positive: str | int | None = None,
    groups: str = "auto",
) -> TableData:
    """A table with a row for each example: a pandas DataFrame, or a CSV or Parquet file at `path`.

    label: the column of classes. client: the column that names the client of a row; without it `partition` splits the
    rows, such as { name = "iid", num_partitions = 10 }; it can partition by any column, and rows it assigns to no
    client are counted and not used. group: a column of groups, of clients or inside them; groups = "clients" or
    "inside" says which, "auto" looks at the rows. split: a column of train and test; without it `test_share` of each
    client's rows is drawn. features: the input columns; default: all others. words: input columns that hold
    categories although most cells look like numbers, or although nearly every row has its own. missing: refuse rows
    with missing values, drop them, or fill numbers with the mean and texts with a category of their own. min_samples:
    a client with fewer rows is an unseen client. pooled_test: test all clients on the same rows. unprivileged: the
    unprivileged group of fairness measures; default: the first. positive: which of two labels is the favourable one,
    class 1; default: the later in numeric or alphabetical order.
    """
    require_valid_settings(test_share, min_samples, groups)
    if missing not in ("refuse", "drop", "fill"):
        raise ConfigError(f"data.missing is refuse, drop or fill; not '{missing}'")
    if (client is None) == (partition is None):
        raise ConfigError(
            "data needs either client, the column that names the client of a row, "
            'or partition, such as { name = "dirichlet", num_partitions = 10, partition_by = "label", alpha = 1 }'
        )
    source, where = _source(frame, path)
    roles = _choose_columns(source, where, label, client, group, split, features, words, partition)
    sheet = read(source, {*roles.named, *roles.features})
    written = {name: sheet.names(name) for name in sorted(roles.named)}
    columns = {name: sheet.texts(name) if name in words else sheet.feature(name) for name in roles.features}
    rows = _complete_rows(written, columns, missing, sheet)
    if partition is None:
        owner = written[roles.used["client"]][rows]
    else:
        assigned = _assigned(partition, seed, _partition_columns(roles, written, rows, sheet))
        rows, owner = rows[assigned != ""], assigned[assigned != ""]
    columns = {name: column[rows] for name, column in columns.items()}
    purpose = _train_or_test(written[split][rows] if split is not None else None, rows, sheet)
    labels, classes = _labels(written[label][rows], label, rows, sheet)
    labels, classes = _positive_last(labels, classes, positive)
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
    } | ({"sha256": sha256(source)} if isinstance(source, Path) else {})
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
    """The name of a row of the result; the sheet itself, with all its cells, is not kept."""
    name = sheet.row_name
    return lambda row: name(int(rows[row]))


def _source(frame: Any, path: str | None) -> tuple[Table, str]:
    if (frame is None) == (path is None):
        raise ConfigError("a table needs either data.path or, in Python, a DataFrame")
    if path is not None:
        file = existing(path)
        return file, str(file)
    if not hasattr(frame, "columns"):
        raise DataError(f"a table is a DataFrame or a path = '...', not a {type(frame).__name__}")
    return frame, "the DataFrame"


@dataclass(frozen=True)
class _Roles:
    """Which column is what."""

    used: dict[str, str]  # label, client, group and split, where there are such columns
    features: list[str]
    by: str | None  # the column to partition by

    @property
    def named(self) -> set[str]:
        """Columns of names rather than inputs."""
        return {*self.used.values()} if self.by is None else {*self.used.values(), self.by}


def _choose_columns(
    source: Table,
    where: str,
    label: str,
    client: str | None,
    group: str | None,
    split: str | None,
    features: tuple[str, ...] | None,
    words: tuple[str, ...],
    partition: dict[str, Any] | None,
) -> _Roles:
    """The role of each column, after checking that the columns exist and their roles are compatible."""
    names = column_names(source)
    known = dict.fromkeys(names)
    by = None if partition is None else _partition_by(partition, where, known, {"label": label, "group": group})
    natural = partition is not None and look_up(str(partition.get("name")), PARTITIONERS, "partition") is NaturalId
    roles = {"label": label, "client": by if natural else client, "group": group, "split": split}
    used = {role: name for role, name in roles.items() if name is not None}
    taken = set(used.values())
    inputs = list(features) if features is not None else [name for name in names if name not in taken]
    for name in (*used.values(), *inputs):
        if name not in known:
            raise ConfigError(f"{where} has no column '{name}'{did_you_mean(name, known)}")
    if not inputs:
        raise ConfigError(f"{where} has no column left to learn from")
    _reject_double_use({role: name for role, name in used.items() if not (natural and role == "client")}, inputs)
    for name in words:
        if name not in inputs:
            raise ConfigError(f"data.words has '{name}', which is not an input column{did_you_mean(name, inputs)}")
    return _Roles(used, inputs, by)


def _reject_double_use(used: Mapping[str, str], features: Sequence[str]) -> None:
    """A label must not be an input too; client and group may be one column, and be inputs."""
    counts = Counter(features)
    for role in ("label", "split"):
        for other, name in used.items():
            if other != role and name == used.get(role):
                raise ConfigError(f"column '{name}' is both {role} and {other}; choose another column for one of them")
        if used.get(role) in counts:
            raise ConfigError(
                f"column '{used[role]}' is both {role} and a feature; choose another column for one of them"
            )
    for name, count in counts.items():
        if count > 1:
            raise ConfigError(f"data.features has '{name}' twice")


def _complete_rows(
    written: Mapping[str, Column], features: Mapping[str, Column], missing: str, sheet: Sheet
) -> NDArray[np.int64]:
    """The rows to keep. A missing client, label, group or split is never filled in."""
    gaps = [
        (name, is_missing(column), columns is features)
        for columns in (written, features)
        for name, column in columns.items()
    ]
    if missing == "drop":
        bad_rows = np.zeros(len(sheet), dtype=np.bool_)
        for _, bad, _ in gaps:
            bad_rows |= bad
        if bad_rows.all():
            raise DataError(f"{sheet.where}: every row has a missing value; no rows are left")
        return np.flatnonzero(~bad_rows)
    for name, bad, is_feature in gaps:
        if bad.any() and (missing == "refuse" or not is_feature):
            advice = "fill it in, or set missing = 'drop'" + (" or 'fill'" if is_feature else "")
            row = sheet.row_name(int(bad.argmax()))
            raise DataError(f"{sheet.where}: {row} has nothing in column '{name}'; {advice}")
    return np.arange(len(sheet))


def _partition_by(
    partition: dict[str, Any], where: str, known: Mapping[str, object], roles: Mapping[str, str | None]
) -> str | None:
    """The column that a partition names, if any; `label` and `group` stand for the columns with these roles."""
    by = partition.get("partition_by")
    if not isinstance(by, str):
        return None
    column = by if by in known else roles.get(by)
    if column is None:
        raise ConfigError(f"{where} has no column '{by}' to partition by{did_you_mean(by, known)}")
    return column


def _partition_columns(
    roles: _Roles, written: Mapping[str, Texts], rows: NDArray[np.int64], sheet: Sheet
) -> dict[str, NDArray[Any]]:
    """What a partitioner may partition by: the columns label and group by these names and their own, and one more."""
    label, group = roles.used["label"], roles.used.get("group")
    found: dict[str, NDArray[Any]] = {name: written[name][rows] for name in (roles.by, group) if name is not None}
    found[label] = _labels(written[label][rows], label, rows, sheet)[0]
    return {"label": found[label]} | ({} if group is None else {"group": found[group]}) | found


def _assigned(partition: dict[str, Any], seed: int, columns: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The client of each row according to a partitioner; "" if it has none."""
    values = {name: value for name, value in partition.items() if name != "name"}
    kind = look_up(str(partition.get("name")), PARTITIONERS, "partition")
    if "seed" in fields_of(kind):
        values.setdefault("seed", seed)
    partitioner = construct(kind, values, "data.partition")
    parts = partition_rows(partitioner, columns)
    width = len(str(len(parts) - 1))
    client = np.full(len(columns["label"]), "", dtype=np.object_)
    for number, rows in enumerate(parts):
        natural = isinstance(partitioner, NaturalId)
        client[rows] = str(columns[partitioner.partition_by][rows[0]]) if natural else f"{number:0{width}}"
    return client


def _labels(
    texts: Texts, name: str, rows: NDArray[np.int64], sheet: Sheet
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Classes as 0, 1, ... and their names: numbers in ascending order, or texts in alphabetical order."""
    classes = sorted(set(texts.tolist()))
    numbers = {text: _exact_number(text) for text in classes}
    if None not in numbers.values():
        for row, text in zip(rows.tolist(), texts.tolist(), strict=True):
            if not isinstance(numbers[text], int):
                raise DataError(
                    f"{sheet.where}: {sheet.row_name(row)} has {text} in column '{name}'; "
                    "labels are classes: integers or texts"
                )
        classes.sort(key=lambda text: (numbers[text], text))
    index = {text: number for number, text in enumerate(classes)}
    return np.array([index[text] for text in texts.tolist()], dtype=np.int64), tuple(classes)


def _positive_last(
    labels: NDArray[np.int64], classes: tuple[str, ...], positive: str | int | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels and classes with the favourable one as class 1."""
    if positive is None:
        return labels, classes
    if len(classes) != 2 or as_text(positive) not in classes:
        raise ConfigError(f"data.positive must be one of two labels, not '{positive}' of {_some(classes)}")
    return (1 - labels, classes[::-1]) if as_text(positive) == classes[0] else (labels, classes)


def _some(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:5]) + (", ..." if len(classes) > 5 else "")


def _exact_number(text: str) -> int | float | None:
    """The number in a text, exact if it is whole; None if it is not a number."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else number


def _train_or_test(split: Texts | None, rows: NDArray[np.int64], sheet: Sheet) -> NDArray[np.int64]:
    if split is None:
        return np.full(len(rows), UNDECIDED)
    for row, text in zip(rows.tolist(), split.tolist(), strict=True):
        if text.lower() not in SPLITS:
            raise DataError(f"{sheet.where}: {sheet.row_name(row)} has the split '{text}'; use train or test")
    return np.array([SPLITS[text.lower()] for text in split.tolist()])
