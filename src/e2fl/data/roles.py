"""The columns of a table by role: which is the label, which are inputs, and what is suspicious."""

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e2fl.construct import did_you_mean, look_up
from e2fl.data.encoding import FEW, NEARLY_ALL, first_few
from e2fl.data.partition import PARTITIONERS, NaturalId
from e2fl.data.rows import RowName
from e2fl.data.sheet import Cells, Sheet, Texts, as_text
from e2fl.errors import ConfigError, DataError

IDENTIFIER = re.compile(r"(^|[^a-z])(id|ids|uuid|key|index|number|no)$|^(row|record|case)", re.I)


@dataclass(frozen=True)
class Roles:
    """The role of each column."""

    used: Mapping[str, str | None]  # label, client, group and split, and their columns
    features: list[str]
    by: str | None  # the column to partition by

    @property
    def named(self) -> list[str]:
        """Columns of names rather than inputs."""
        return sorted({name for name in (*self.used.values(), self.by) if name is not None})


def choose_columns(
    sheet: Sheet,
    used: Mapping[str, str | None],
    features: Sequence[str] | None,
    words: Sequence[str],
    partition: Mapping[str, Any] | None,
) -> Roles:
    """Return the role of each column, after checking that the roles are possible."""
    if used["label"] is None:
        columns = first_few(sheet.header)
        raise ConfigError(
            f"{sheet.where}: name the column of classes with label = '...'; its columns: {columns}"
        )
    if (used["client"] is None) == (partition is None):
        raise ConfigError(
            "data needs either client, the column that names the client of a row, or partition, "
            'such as { name = "dirichlet", num_partitions = 10, partition_by = "label", alpha = 1 }'
        )
    known, by = dict.fromkeys(sheet.header), _partition_by(partition or {}, sheet, used)
    natural = partition is not None and NaturalId is look_up(
        str(partition.get("name")), PARTITIONERS, "partition"
    )
    taken = {name for name in (*used.values(), by if natural else None) if name is not None}
    inputs = list(features or [name for name in known if name not in taken])
    for name in (*taken, *inputs):
        if name not in known:
            raise ConfigError(f"{sheet.where} has no column '{name}'{did_you_mean(name, known)}")
    if not inputs:
        raise ConfigError(f"{sheet.where} has no column left to learn from")
    _reject_double_use(used, inputs)
    for name in words:
        if name not in inputs:
            hint = did_you_mean(name, inputs)
            raise ConfigError(f"data.words has '{name}', which is not an input column{hint}")
    return Roles(used, inputs, by)


def _reject_double_use(used: Mapping[str, str | None], features: Sequence[str]) -> None:
    """Raise an error if the label or split has another role; client and group may share one."""
    for role in ("label", "split"):
        name = used[role]
        others = [other for other in used if other != role and used[other] == name]
        others += ["a feature"] if name in features else []
        if name is not None and others:
            raise ConfigError(
                f"column '{name}' is both {role} and {others[0]}; choose another column for one "
                "of them"
            )
    for name, count in Counter(features).items():
        if count > 1:
            raise ConfigError(f"data.features has '{name}' twice")


def _partition_by(
    partition: Mapping[str, Any], sheet: Sheet, used: Mapping[str, str | None]
) -> str | None:
    """Return the column that a partition names; `label` and `group` mean these roles."""
    by = partition.get("partition_by")
    if not isinstance(by, str):
        return None
    column = by if by in sheet.header else used.get(by)
    if column is None:
        hint = did_you_mean(by, sheet.header)
        raise ConfigError(f"{sheet.where} has no column '{by}' to partition by{hint}")
    return column


def read_labels(
    texts: Texts, name: str, where: str, row_name: RowName
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return classes as 0, 1, ... and their names, in numeric or alphabetical order."""
    classes = sorted(set(texts.tolist()))
    numbers = {text: _exact_number(text) for text in classes}
    if None not in numbers.values():
        for text, number in numbers.items():
            if not isinstance(number, int):
                row = row_name(int((texts == text).argmax()))
                raise DataError(
                    f"{where}: {row} has {text} in column '{name}'; labels are classes: "
                    "integers or strings"
                )
        classes.sort(key=lambda text: (numbers[text], text))
    return pd.Index(classes, dtype=object).get_indexer(texts).astype(np.int64), tuple(classes)


def _exact_number(text: str) -> int | float | None:
    """Return the number in a text, exact if it is an integer; None if it is not a number."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return int(number) if float(number).is_integer() and kind is float else number
    return None


def positive_last(
    labels: NDArray[np.int64], classes: tuple[str, ...], positive: str | int | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels and classes with the favourable one as class 1."""
    if positive is None:
        return labels, classes
    if len(classes) != 2 or as_text(positive) not in classes:
        raise ConfigError(
            f"data.positive must be one of two labels, not '{positive}' of {first_few(classes)}"
        )
    return (1 - labels, classes[::-1]) if as_text(positive) == classes[0] else (labels, classes)


def warn_of_leaks(columns: Mapping[str, Cells], y: NDArray[np.int64], where: str) -> None:
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
