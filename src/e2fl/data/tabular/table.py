"""Your own table: a CSV or Parquet file with a column that says whose each row is.

Columns of numbers are standardised with the rows that are trained on, columns of words become one input for each word
seen in training; a word seen only in testing is none of them.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.construct import construct, did_you_mean, fields_of, look_up
from e2fl.data.arrays import Arrays, refuse_bad_shares, shares_of
from e2fl.data.federated import Examples
from e2fl.data.files.places import existing, sha256
from e2fl.data.partitioned import UNDECIDED
from e2fl.data.partitioners import PARTITIONERS, NaturalId, deal
from e2fl.data.tabular.cells import said
from e2fl.data.tabular.columns import (
    INPUT_LIMIT,
    Column,
    Sheet,
    Words,
    from_rows,
    is_missing,
    names_in,
    read,
    within_memory,
)
from e2fl.data.tabular.encoding import Choice, Encoding, learn
from e2fl.data.tabular.rows import SPLITS, checked
from e2fl.errors import ConfigError, DataError

ROWS_NAMED = 3  # of those that lack something


@dataclass(frozen=True)
class Encoded(Examples):
    """Rows that a table made inputs of, and what tells this table from others."""

    made_by: Mapping[str, object] = field(default_factory=dict)

    def take(self, rows: NDArray[np.int64]) -> "Encoded":
        part = super().take(rows)
        return Encoded(part.x, part.y, part.group, part.scale, part.shift, self.made_by)


@dataclass(frozen=True, eq=False)
class TableData(Arrays):
    """A table whose columns became inputs, and how they did."""

    name: str = "table"
    encoding: Encoding = field(kw_only=True)
    label: str = field(kw_only=True)
    group: str | None = field(kw_only=True)
    missing: str = field(kw_only=True)

    def encode(self, new: str | Path | Sequence[Mapping[str, Any]]) -> Encoded:
        """New rows, in a file or a list of dictionaries, as the inputs and labels this table would have made of them.

        As many as were given: rows that lack something are refused. A word that was not seen in training is warned of.
        Without the column of labels, these are -1: enough to predict with, not to train. A column of groups is used
        where groups lie inside clients.
        """
        with within_memory():
            return self._encode(new)

    def _encode(self, new: str | Path | Sequence[Mapping[str, Any]]) -> Encoded:
        features = list(self.encoding.columns)
        if isinstance(new, str | Path):
            file = existing(str(new))
            known = set(names_in(file))
        else:
            known = {name for row in new for name in row}
            if not len(new):
                raise DataError("there are no new rows")
        for name in features:
            if name not in known:
                raise DataError(f"the new rows have no column '{name}'{did_you_mean(name, known)}")
        group = self.group if self.dealt.rows.group is not None else None
        roles = [name for name in (self.label, group) if name is not None and name in known]
        wanted = {*features, *roles}
        sheet = read(file, wanted) if isinstance(new, str | Path) else from_rows(new, wanted)
        written = {name: sheet.names(name) for name in roles}
        columns = self.encoding.columns_of(sheet)
        _refuse_incomplete(written if self.missing == "fill" else {**columns, **written}, sheet)
        x, unseen = self.encoding.apply(columns)
        for name, rows in unseen.items():
            first = int(rows[0])
            warnings.warn(
                f"{sheet.where}: {len(rows)} cells of column '{name}' are words not seen in training, such as "
                f"'{columns[name][first][:40]}' in {sheet.called(first)}; known: {self._known(name)}",
                stacklevel=3,
            )
        y, groups = np.full(len(sheet), -1, dtype=np.int64), None
        if self.label in written:
            y = _places(written[self.label], self.table.labels, "label", sheet)
        if group is not None and group in written:
            groups = _places(written[group], self.table.groups, "group", sheet)
        about = self.about()
        return Encoded(x, y, groups, made_by={name: about[name] for name in ("encoding", "labels", "groups")})

    def _known(self, name: str) -> str:
        column = self.encoding.columns[name]
        assert isinstance(column, Choice)
        return _some(column.words)


def _refuse_incomplete(columns: Mapping[str, Column], sheet: Sheet) -> None:
    """Rows to be encoded that lack something: leaving them out would leave the others in wrong places."""
    lacking = sorted(
        (row, name) for name, column in columns.items() for row in np.flatnonzero(is_missing(column)).tolist()
    )
    if lacking:
        found = [f"{sheet.called(row)} has nothing in column '{name}'" for row, name in lacking[:ROWS_NAMED]]
        more = f" (and {len(lacking) - ROWS_NAMED} more)" if len(lacking) > ROWS_NAMED else ""
        raise DataError(f"{sheet.where}: {', '.join(found)}{more}; fill it in, or leave such rows out")


def _places(words: Words, known: tuple[str, ...], what: str, sheet: Sheet) -> NDArray[np.int64]:
    place = {word: number for number, word in enumerate(known)}
    for row, word in enumerate(words.tolist()):
        if word not in place:
            row_name = sheet.called(row)
            raise DataError(f"{sheet.where}: {row_name} has the {what} '{word}'{did_you_mean(word, known)}")
    return np.array([place[word] for word in words.tolist()], dtype=np.int64)


@within_memory()
def from_table(
    *,
    path: str,
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
) -> TableData:
    """A CSV or Parquet file: a row an example, columns for client and label, the others features.

    label: the column of classes. client: the column that says whose a row is; without it `partition` deals the rows
    out, such as { name = "iid", num_partitions = 10 }; it can go by any column, and rows it leaves to nobody are
    counted and not used. group: a column of groups, of clients or inside them. split: a column of train and test;
    without it `test_share` of each client's rows is drawn. features: columns to learn from; default: all the others.
    words: those of them that are words though most look like numbers, or though nearly every row has its own.
    missing: refuse such rows, drop them, or fill numbers with the mean and words with a word of its own. min_samples:
    who has fewer rows is a newcomer. pooled_test: test all clients on the same rows. unprivileged: the group that
    fairness measures call so; default: the first. positive: which of two labels is the favourable one, class 1;
    default: the later in the order of numbers or words.
    """
    refuse_bad_shares(test_share, min_samples)
    if missing not in ("refuse", "drop", "fill"):
        raise ConfigError(f"data.missing is refuse, drop or fill; not '{missing}'")
    if (client is None) == (partition is None):
        raise ConfigError(
            "data needs either client, the column that says whose a row is, "
            'or partition, such as { name = "dirichlet", num_partitions = 10, partition_by = "label", alpha = 1 }'
        )
    file = existing(path)
    known = names_in(file)
    by = None if partition is None else _partition_column(partition, file, known, {"label": label, "group": group})
    natural = partition is not None and look_up(str(partition.get("name")), PARTITIONERS, "partition") is NaturalId
    roles = {"label": label, "client": by if natural else client, "group": group, "split": split}
    used = {role: name for role, name in roles.items() if name is not None}
    names = list(features) if features is not None else [name for name in known if name not in used.values()]
    for name in (*used.values(), *names):
        if name not in known:
            raise ConfigError(f"{file} has no column '{name}'{did_you_mean(name, known)}")
    if not names:
        raise ConfigError(f"{file} has no column left to learn from")
    _refuse_double_use({role: name for role, name in used.items() if not (natural and role == "client")}, names)
    for name in words:
        if name not in names:
            raise ConfigError(f"data.words has '{name}', which is not learnt from{did_you_mean(name, names)}")
    named = {*used.values()} if by is None else {*used.values(), by}
    sheet = read(file, {*named, *names})
    written = {name: sheet.names(name) for name in sorted(named)}
    columns = {name: sheet.words(name) if name in words else sheet.feature(name) for name in names}
    rows = _present(written, columns, missing, sheet)
    if partition is None:
        whose = written[used["client"]][rows]
    else:
        offered: dict[str, NDArray[Any]] = {name: written[name][rows] for name in (by, group) if name is not None}
        offered[label] = _labels(written[label][rows], label, rows, sheet)[0]
        offered = {"label": offered[label]} | ({} if group is None else {"group": offered[group]}) | offered
        dealt = _dealt_out(partition, seed, offered)
        rows, whose = rows[dealt != ""], dealt[dealt != ""]
    kept = {name: column[rows] for name, column in columns.items()}
    cells = {role: written[name][rows] for role, name in used.items()}
    purpose = _train_or_test(cells.get("split"), rows, sheet)
    labels, classes = _labels(cells["label"], label, rows, sheet)
    if positive is not None:
        if len(classes) != 2 or said(positive) not in classes:
            raise ConfigError(f"data.positive must be one of two labels, not '{positive}' of {_some(classes)}")
        if said(positive) == classes[0]:
            labels, classes = 1 - labels, classes[::-1]
    shares, _ = shares_of(
        whose, purpose, test_share=test_share, seed=seed, min_samples=min_samples, pooled_test=pooled_test
    )
    train = np.zeros(len(rows), dtype=np.bool_)
    train[np.concatenate([share.train for share in shares])] = True
    encoding = learn(kept, train, sheet, rows, listed=words)
    if encoding.width * len(rows) * 4 > INPUT_LIMIT:
        raise DataError(f"{file}: {len(rows)} rows of {encoding.width} inputs are more than {INPUT_LIMIT // 2**30} GiB")
    inputs, unseen = encoding.apply(kept)
    facts = {
        "inputs": encoding.width,
        "columns": encoding.kinds,
        "encoding": encoding.digest,
        "values_unseen_in_training": sum(len(places) for places in unseen.values()),
        "rows_left_out": len(sheet) - len(rows),
        "sha256": sha256(file),
    }
    found = checked(
        inputs,
        labels,
        whose,
        classes=classes,
        group=cells.get("group"),
        split=None if split is None else purpose,
        unprivileged=None if unprivileged is None else said(unprivileged),
        where=str(file),
        facts=facts,
        called=lambda row: sheet.called(int(rows[row])),
    )
    return TableData(
        found,
        seed,
        test_share,
        min_samples,
        pooled_test,
        encoding=encoding,
        label=label,
        group=group,
        missing=missing,
    )


def _refuse_double_use(used: Mapping[str, str], features: Sequence[str]) -> None:
    """A label that is learnt from is known too well; client and group may be one column, and be learnt from."""
    for role in ("label", "split"):
        others = {other: name for other, name in used.items() if other != role}
        for other, name in [*others.items(), *(("a feature", feature) for feature in features)]:
            if name == used.get(role):
                raise ConfigError(f"column '{name}' is both {role} and {other}; one of them must be another column")
    for name in features:
        if features.count(name) > 1:
            raise ConfigError(f"data.features has '{name}' twice")


def _present(
    written: Mapping[str, Column], features: Mapping[str, Column], missing: str, sheet: Sheet
) -> NDArray[np.int64]:
    """The rows to keep. A client, label, group or split is never made up."""
    lacking = [
        (name, is_missing(column), columns is features)
        for columns in (written, features)
        for name, column in columns.items()
    ]
    if missing == "drop":
        rows = np.flatnonzero(~np.any([bad for _, bad, _ in lacking], axis=0))
        if not len(rows):
            raise DataError(f"{sheet.where}: every row has nothing in some column; no rows are left")
        return rows
    for name, bad, is_feature in lacking:
        if bad.any() and (missing == "refuse" or not is_feature):
            advice = "fill it in, or set missing = 'drop'" + (" or 'fill'" if is_feature else "")
            row = sheet.called(int(bad.argmax()))
            raise DataError(f"{sheet.where}: {row} has nothing in column '{name}'; {advice}")
    return np.arange(len(sheet))


def _partition_column(
    partition: dict[str, Any], file: Path, known: Sequence[str], roles: Mapping[str, str | None]
) -> str | None:
    """The column that a partition goes by, if it says so; `label` and `group` stand for columns with these roles."""
    by = partition.get("partition_by")
    if not isinstance(by, str):
        return None
    column = by if by in known else roles.get(by)
    if column is None:
        raise ConfigError(f"{file} has no column '{by}' to partition by{did_you_mean(by, known)}")
    return column


def _dealt_out(partition: dict[str, Any], seed: int, offered: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Whose each row is, as a partitioner says; "" if nobody's."""
    values = {name: value for name, value in partition.items() if name != "name"}
    kind = look_up(str(partition.get("name")), PARTITIONERS, "partition")
    if "seed" in fields_of(kind):
        values.setdefault("seed", seed)
    partitioner = construct(kind, values, "data.partition")
    parts = deal(partitioner, offered)
    width = len(str(len(parts) - 1))
    client = np.full(len(offered["label"]), "", dtype=np.object_)
    for number, rows in enumerate(parts):
        natural = isinstance(partitioner, NaturalId)
        client[rows] = str(offered[partitioner.partition_by][rows[0]]) if natural else f"{number:0{width}}"
    return client


def _labels(
    words: Words, name: str, rows: NDArray[np.int64], sheet: Sheet
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Classes as 0, 1, ... and what they are called: numbers in rising order, or words in theirs."""
    classes = sorted(set(words.tolist()))
    numbers = {word: _number(word) for word in classes}
    if None not in numbers.values():
        for row, word in zip(rows.tolist(), words.tolist(), strict=True):
            if not isinstance(numbers[word], int):
                raise DataError(
                    f"{sheet.where}: {sheet.called(row)} has {word} in column '{name}'; "
                    "labels are classes: whole numbers or words"
                )
        classes.sort(key=lambda word: (numbers[word], word))
    place = {word: number for number, word in enumerate(classes)}
    return np.array([place[word] for word in words.tolist()], dtype=np.int64), tuple(classes)


def _some(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:5]) + (", ..." if len(classes) > 5 else "")


def _number(word: str) -> int | float | None:
    """The number that is written here, exact where it is whole; None: a word."""
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        return None
    return int(number) if number.is_integer() else number


def _train_or_test(split: Words | None, rows: NDArray[np.int64], sheet: Sheet) -> NDArray[np.int64]:
    if split is None:
        return np.full(len(rows), UNDECIDED)
    for row, word in zip(rows.tolist(), split.tolist(), strict=True):
        if word.lower() not in SPLITS:
            raise DataError(f"{sheet.where}: {sheet.called(row)} has the split '{word}'; it is train or test")
    return np.array([SPLITS[word.lower()] for word in split.tolist()])
