"""Your own table: a CSV or Parquet file with a column that says whose each row is.

Columns of numbers are standardised with the rows that are trained on, columns of words become one input for each word
seen in training; a word seen only in testing is none of them. A row is called by its number in the file, counting from
1 after the header.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.data.columns import INPUT_LIMIT, Column, Words, is_missing, names_in, read
from e2fl.data.dealt import UNDECIDED
from e2fl.data.encoding import learn
from e2fl.data.own import SPLITS, Arrays, checked, refuse_bad_shares, shares_of
from e2fl.data.partition import PARTITIONERS, deal
from e2fl.data.places import existing
from e2fl.errors import ConfigError, DataError
from e2fl.settings import construct, did_you_mean, fields_of, look_up


def from_table(
    *,
    path: str,
    label: str,
    client: str | None = None,
    group: str | None = None,
    split: str | None = None,
    features: tuple[str, ...] | None = None,
    partition: dict[str, Any] | None = None,
    missing: str = "refuse",
    seed: int = 0,
    test_share: float = 0.2,
    min_samples: int = 2,
    pooled_test: bool = False,
    unprivileged: str | None = None,
) -> Arrays:
    """A CSV or Parquet file: a row an example, columns for client and label, the others features.

    label: the column of classes. client: the column that says whose a row is; without it `partition` deals the rows
    out, such as { name = "iid", num_partitions = 10 }. group: a column of groups, of clients or inside them.
    split: a column of train and test; without it `test_share` of each client's rows is drawn. features: columns to
    learn from; default: all the others. missing: refuse such rows, drop them, or fill numbers with the mean and words
    with a word of its own. min_samples: who has fewer rows is a newcomer. pooled_test: test all clients on the same
    rows. unprivileged: the group that fairness measures call so; default: the first.
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
    roles = {"label": label, "client": client, "group": group, "split": split}
    used = {role: name for role, name in roles.items() if name is not None}
    names = list(features) if features is not None else [name for name in known if name not in used.values()]
    for name in (*used.values(), *names):
        if name not in known:
            raise ConfigError(f"{file} has no column '{name}'{did_you_mean(name, known)}")
    if not names:
        raise ConfigError(f"{file} has no column left to learn from")
    sheet = read(file, {*used.values(), *names})
    columns = {name: sheet.feature(name) for name in (*used.values(), *names)}
    rows = _present(columns, set(names), missing, file)
    kept = {name: column[rows] for name, column in columns.items()}
    words = {role: _words(kept[name]) for role, name in used.items()}
    purpose = _train_or_test(words.get("split"), rows, file)
    labels = _labels(kept[label], label, rows, file)
    whose = words["client"] if partition is None else _dealt_out(partition, seed, labels, {group: words.get("group")})
    shares, _ = shares_of(
        whose, purpose, test_share=test_share, seed=seed, min_samples=min_samples, pooled_test=pooled_test
    )
    train = np.zeros(len(rows), dtype=np.bool_)
    train[np.concatenate([share.train for share in shares])] = True
    encoding = learn({name: kept[name] for name in names}, train, str(file))
    if encoding.width * len(rows) * 4 > INPUT_LIMIT:
        raise DataError(f"{file}: {len(rows)} rows of {encoding.width} inputs are more than {INPUT_LIMIT // 2**30} GiB")
    inputs, unseen = encoding.apply(kept)
    facts = {"inputs": encoding.width, "values_unseen_in_training": unseen}
    found = checked(
        inputs,
        labels,
        whose,
        group=words.get("group"),
        split=None if split is None else purpose,
        unprivileged=unprivileged,
        where=str(file),
        facts={**facts, "rows_left_out": len(sheet) - len(rows)},
    )
    return Arrays(found, seed, test_share, min_samples, pooled_test, name="table")


def _present(columns: dict[str, Column], features: set[str], missing: str, path: Path) -> NDArray[np.int64]:
    """The rows to keep. A client, label, group or split is never made up."""
    lacking = {name: is_missing(column) for name, column in columns.items()}
    if missing == "drop":
        return np.flatnonzero(~np.any(list(lacking.values()), axis=0))
    for name, bad in lacking.items():
        if bad.any() and (missing == "refuse" or name not in features):
            advice = "fill it in, or set missing = 'drop'" + (" or 'fill'" if name in features else "")
            raise DataError(f"{path}: row {bad.argmax() + 1} has nothing in column '{name}'; {advice}")
    return np.arange(len(next(iter(columns.values()))))


def _dealt_out(
    partition: dict[str, Any], seed: int, labels: NDArray[Any], groups: dict[str | None, NDArray[Any] | None]
) -> NDArray[Any]:
    """Whose each row is, as a partitioner says."""
    values = {name: value for name, value in partition.items() if name != "name"}
    kind = look_up(str(partition.get("name")), PARTITIONERS, "partition")
    if "seed" in fields_of(kind):
        values.setdefault("seed", seed)
    known = {"label": labels}
    for name, group in groups.items():
        if group is not None:
            known |= {"group": group, str(name): group}
    parts = deal(construct(kind, values, "data.partition"), known)
    width = len(str(len(parts) - 1))
    client = np.full(len(labels), "", dtype=f"U{width}")
    for number, rows in enumerate(parts):
        client[rows] = f"{number:0{width}}"
    if (client == "").any():
        raise DataError("the partition left rows to nobody; all must go to somebody")
    return client


def _words(column: Column) -> Words:
    """What a column says; numbers without a needless fraction."""
    if column.dtype.kind != "f":
        return column.astype(np.object_)
    words = [str(int(value)) if value == int(value) else str(value) for value in column.tolist()]
    return np.array(words, dtype=np.object_)


def _labels(column: Column, name: str, rows: NDArray[np.int64], path: Path) -> NDArray[Any]:
    if column.dtype.kind != "f":
        return column
    fraction = np.flatnonzero(column != np.floor(column))
    if len(fraction):
        row, value = rows[fraction[0]] + 1, column[fraction[0]]
        raise DataError(f"{path}: row {row} has {value} in column '{name}'; labels are classes: whole numbers or words")
    return column.astype(np.int64)


def _train_or_test(split: Words | None, rows: NDArray[np.int64], path: Path) -> NDArray[np.int64]:
    if split is None:
        return np.full(len(rows), UNDECIDED)
    for row, word in zip(rows.tolist(), split.tolist(), strict=True):
        if word.lower() not in SPLITS:
            raise DataError(f"{path}: row {row + 1} has the split '{word}'; it is train or test")
    return np.array([SPLITS[word.lower()] for word in split.tolist()])
