"""The columns of a table by role: checks of their use, rows without gaps, clients, labels and splits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.construct import construct, did_you_mean, fields_of, look_up
from e2fl.data.partitioners import PARTITIONERS, NaturalId, partition_rows
from e2fl.data.tabular.sheet import Column, Sheet, Texts, is_missing
from e2fl.errors import ConfigError, DataError
from e2fl.tables.cells import as_text


@dataclass(frozen=True)
class Roles:
    """The role of each column."""

    used: dict[str, str]  # label, client, group and split, where there are such columns
    features: list[str]
    by: str | None  # the column to partition by

    @property
    def named(self) -> set[str]:
        """Columns of names rather than inputs."""
        return {*self.used.values()} if self.by is None else {*self.used.values(), self.by}


def choose_columns(
    names: Sequence[str],
    where: str,
    label: str,
    client: str | None,
    group: str | None,
    split: str | None,
    features: tuple[str, ...] | None,
    words: tuple[str, ...],
    partition: dict[str, Any] | None,
) -> Roles:
    """Return the role of each column, after checking that the columns exist and their roles are compatible."""
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
    return Roles(used, inputs, by)


def _reject_double_use(used: Mapping[str, str], features: Sequence[str]) -> None:
    """Raise an error if the label or split has another role too; client and group may be one column, and inputs."""
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


def complete_rows(
    written: Mapping[str, Column], features: Mapping[str, Column], missing: str, sheet: Sheet
) -> NDArray[np.int64]:
    """Return the rows to keep. A missing client, label, group or split is never filled in."""
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
    """Return the column that a partition names, if any; `label` and `group` mean the columns with these roles."""
    by = partition.get("partition_by")
    if not isinstance(by, str):
        return None
    column = by if by in known else roles.get(by)
    if column is None:
        raise ConfigError(f"{where} has no column '{by}' to partition by{did_you_mean(by, known)}")
    return column


def partition_columns(
    roles: Roles, written: Mapping[str, Texts], rows: NDArray[np.int64], sheet: Sheet
) -> dict[str, NDArray[Any]]:
    """Return what a partitioner may partition by: label and group, also by their own names, and one more column."""
    label, group = roles.used["label"], roles.used.get("group")
    found: dict[str, NDArray[Any]] = {name: written[name][rows] for name in (roles.by, group) if name is not None}
    found[label] = read_labels(written[label][rows], label, rows, sheet)[0]
    return {"label": found[label]} | ({} if group is None else {"group": found[group]}) | found


def assigned_clients(partition: dict[str, Any], seed: int, columns: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the client of each row according to a partitioner; "" if it has none."""
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


def read_labels(
    texts: Texts, name: str, rows: NDArray[np.int64], sheet: Sheet
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return classes as 0, 1, ... and their names: numbers in ascending order, or strings in alphabetical order."""
    classes = sorted(set(texts.tolist()))
    numbers = {text: _exact_number(text) for text in classes}
    if None not in numbers.values():
        for row, text in zip(rows.tolist(), texts.tolist(), strict=True):
            if not isinstance(numbers[text], int):
                raise DataError(
                    f"{sheet.where}: {sheet.row_name(row)} has {text} in column '{name}'; "
                    "labels are classes: integers or strings"
                )
        classes.sort(key=lambda text: (numbers[text], text))
    index = {text: number for number, text in enumerate(classes)}
    return np.array([index[text] for text in texts.tolist()], dtype=np.int64), tuple(classes)


def positive_last(
    labels: NDArray[np.int64], classes: tuple[str, ...], positive: str | int | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels and classes with the favourable one as class 1."""
    if positive is None:
        return labels, classes
    if len(classes) != 2 or as_text(positive) not in classes:
        raise ConfigError(f"data.positive must be one of two labels, not '{positive}' of {first_few(classes)}")
    return (1 - labels, classes[::-1]) if as_text(positive) == classes[0] else (labels, classes)


def first_few(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:5]) + (", ..." if len(classes) > 5 else "")


def _exact_number(text: str) -> int | float | None:
    """Return the number in a string, exact if it is an integer; None if it is not a number."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else number
