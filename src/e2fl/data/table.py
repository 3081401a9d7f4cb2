"""Users' own tables: a file or a DataFrame with a column that names the client of each row.

Columns of numbers are standardised with the training rows; columns of texts become one input for
each category of the training rows. A category that occurs in no training row gets no input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.construct import construct, fields_of, look_up
from e2fl.data.arrays import Arrays
from e2fl.data.clients import UNDECIDED
from e2fl.data.encoding import Encoded, Encoding, learn
from e2fl.data.partition import PARTITIONERS, NaturalId, client_names, partition_rows
from e2fl.data.roles import Roles, choose_columns, positive_last, read_labels, warn_of_leaks
from e2fl.data.rows import (
    CheckedRows,
    as_splits,
    check_rows,
    client_rows,
    require_valid_settings,
)
from e2fl.data.sheet import Cells, Sheet, Texts, as_text, is_missing, open_sheet
from e2fl.errors import ConfigError, DataError


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
    test_share: Annotated[float, Doc("of each client's rows, if there is no split")] = 0.2,
    min_samples: Annotated[int, Doc("a client with fewer rows is an unseen client")] = 2,
    pooled_test: Annotated[bool, Doc("test all clients on the same rows")] = False,
    unprivileged: Annotated[
        str | int | None, Doc("the unprivileged group of fairness measures; default: the first")
    ] = None,
    positive: Annotated[
        str | int | None,
        Doc("the favourable one of two labels, class 1; default: the later in order"),
    ] = None,
    groups: Annotated[
        Literal["auto", "clients", "inside"],
        Doc("clients: each client has one group; inside: each row has one; auto: look at the rows"),
    ] = "auto",
) -> "TableData":
    """A table with a row for each example: a pandas DataFrame, or a file at `path`.

    Either `client` names the client of each row, or `partition` splits the rows; rows that it
    assigns to no client are counted and not used. Columns of numbers are standardised, columns of
    strings become one input for each category. Each run splits the rows with its own seed, unless
    `seed` is given.
    """
    settings = {name: value for name, value in locals().items() if name not in ("frame", "path")}
    if (frame is None) == (path is None):
        raise ConfigError("a table needs either data.path or, in Python, a DataFrame")
    table = path if frame is None else frame
    if not isinstance(table, str | Path | pd.DataFrame) and not hasattr(table, "to_pandas"):
        kind = type(table).__name__
        raise DataError(f"a table is a DataFrame or a path = '...', not a {kind}")
    return Table(open_sheet(table), **settings).build(0)


@dataclass(frozen=True, eq=False)
class TableData(Arrays):
    """A table with its encoding, which can be applied to new rows."""

    name: str = "table"
    learnt: Encoding = field(kw_only=True)
    source: "Table | None" = field(kw_only=True)  # if each run splits the rows anew

    @cached_property
    def encoding(self) -> Encoding:
        inside = self.partitioned.examples.group is not None
        return self.learnt if inside else replace(self.learnt, group=None)

    def about(self) -> dict[str, object]:
        return super().about() | {"encoding": self.encoding.digest}

    def encode(self, new: str | Path | pd.DataFrame | Sequence[Mapping[str, Any]]) -> Encoded:
        """Return new rows as this table would have encoded them; see `Encoding.encode`."""
        return self.encoding.encode(new)

    def for_seed(self, seed: int) -> "TableData":
        if self.source is None or seed == self.run_seed:
            return self
        built = self.source.built  # algorithms that are compared share the data of a seed
        if seed not in built:
            built.clear()
            built[seed] = self.source.build(seed)
        return built[seed]


@dataclass(frozen=True)
class Table:
    """A table and the settings of `from_table`; `build` splits its rows into clients."""

    sheet: Sheet
    label: str
    client: str | None
    group: str | None
    split: str | None
    features: tuple[str, ...] | None
    words: tuple[str, ...]
    partition: dict[str, Any] | None
    missing: str
    seed: int | None
    test_share: float
    min_samples: int
    pooled_test: bool
    unprivileged: str | int | None
    positive: str | int | None
    groups: str
    built: dict[int, TableData] = field(default_factory=dict)  # the last one, by its seed

    def __post_init__(self) -> None:
        require_valid_settings(self.test_share, self.min_samples, self.groups)
        if self.missing not in ("refuse", "drop", "fill"):
            raise ConfigError(f"data.missing is refuse, drop or fill; not '{self.missing}'")

    @cached_property
    def roles(self) -> Roles:
        """The role of each column."""
        return choose_columns(
            self.sheet,
            {"label": self.label, "client": self.client, "group": self.group, "split": self.split},
            self.features,
            self.words,
            self.partition,
        )

    @cached_property
    def names(self) -> dict[str, Texts]:
        """The columns of names, as texts."""
        return {name: self.sheet.names(name) for name in self.roles.named}

    @cached_property
    def inputs(self) -> dict[str, Cells]:
        """The input columns, as numbers or texts."""
        sheet, words = self.sheet, self.words
        return {
            name: sheet.texts(name) if name in words else sheet.feature(name)
            for name in self.roles.features
        }

    @cached_property
    def missing_values(self) -> dict[str, int]:
        """The number of missing cells of each column that has some."""
        columns = {**self.names, **self.inputs}
        counts = {name: int(is_missing(cells).sum()) for name, cells in columns.items()}
        return {name: count for name, count in counts.items() if count}

    @cached_property
    def complete(self) -> NDArray[np.int64]:
        """The rows to keep. A missing client, label, group or split is never filled in."""
        sheet, counts = self.sheet, self.missing_values
        columns = {**self.names, **self.inputs}
        if self.missing == "drop":
            whole = ~np.any([is_missing(cells) for cells in columns.values()], axis=0)
            if not whole.any():
                raise DataError(f"{sheet.where}: every row has a missing value; no rows are left")
            return np.flatnonzero(whole)
        for name in counts:
            if name in self.inputs and name not in self.names and self.missing == "fill":
                continue
            row = sheet.row_name(int(is_missing(columns[name]).argmax()))
            fill = " or 'fill'" if name in self.inputs else ""
            raise DataError(
                f"{sheet.where}: {row} has nothing in column '{name}'; fill it in, or set "
                f"missing = 'drop'{fill}. Missing values by column: "
                + ", ".join(f"{name} {count}" for name, count in counts.items())
            )
        return np.arange(len(sheet))

    def build(self, run_seed: int) -> TableData:
        """Return the rows split into clients; run_seed: the seed if the table has none."""
        seed = run_seed if self.seed is None else self.seed
        rows, client = self._clients(seed)
        cells = {name: column[rows] for name, column in self.inputs.items()}
        names = {name: column[rows] for name, column in self.names.items()}
        where, name_of = self.sheet.where, self.sheet.row_name

        def row_name(row: int) -> str:  # the sheet with all its cells is not kept
            return name_of(int(rows[row]))

        split = np.full(len(rows), UNDECIDED)
        if self.split is not None:
            split = as_splits(names[self.split], where, row_name)
        y, classes = read_labels(names[self.label], self.label, where, row_name)
        y, classes = positive_last(y, classes, self.positive)
        warn_of_leaks(cells, y, where)
        train = self._train(client, split, seed)
        learnt = learn(cells, train, where, row_name, listed=self.words)
        x, unknown = learnt.apply(cells)
        checked = check_rows(
            x,
            y,
            client,
            classes=classes,
            group=None if self.group is None else names[self.group],
            split=None if self.split is None else split,
            unprivileged=None if self.unprivileged is None else as_text(self.unprivileged),
            where=where,
            metadata=self._metadata(learnt, len(rows), sum(map(len, unknown.values()))),
            row_name=row_name,
        )
        return self._data(checked, learnt, run_seed)

    def _metadata(self, learnt: Encoding, rows: int, unknown: int) -> dict[str, object]:
        return {
            "inputs": learnt.width,
            "columns": learnt.kinds,
            "values_unseen_in_training": unknown,
            "rows_left_out": len(self.sheet) - rows,
            "missing_values": self.missing_values,
            **({} if self.group is None else {"group_column": self.group}),
            **({} if self.sheet.sha256 is None else {"sha256": self.sheet.sha256}),
        }

    def _data(self, checked: CheckedRows, learnt: Encoding, run_seed: int) -> TableData:
        data = TableData(
            checked,
            self.seed,
            self.test_share,
            self.min_samples,
            self.pooled_test,
            self.groups,
            run_seed=run_seed,
            learnt=replace(
                learnt,
                label=self.label,
                labels=checked.labels,
                group=self.group,
                groups=checked.groups,
                fill=self.missing == "fill",
            ),
            source=self if self.seed is None else None,
        )
        data.partitioned  # noqa: B018  # warnings and errors about groups come now
        return data

    def _clients(self, seed: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the rows that belong to a client, and the client of each."""
        rows = self.complete
        if self.partition is None:
            return rows, self.names[str(self.client)][rows]
        values = {name: value for name, value in self.partition.items() if name != "name"}
        kind = look_up(str(self.partition.get("name")), PARTITIONERS, "partition")
        if "seed" in fields_of(kind):
            values.setdefault("seed", seed)
        partitioner = construct(kind, values, "data.partition")
        columns = self._partition_columns(rows)
        parts = partition_rows(partitioner, columns)
        names = client_names(parts)
        if isinstance(partitioner, NaturalId):
            names = [str(columns[partitioner.partition_by][part[0]]) for part in parts]
        client = np.full(len(rows), "", dtype=np.object_)
        for name, part in zip(names, parts, strict=True):
            client[part] = name
        return rows[client != ""], client[client != ""]

    def _partition_columns(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return what to partition by: label and group, also by their own names, and a column."""
        by, name_of = self.roles.by, self.sheet.row_name
        label, _ = read_labels(
            self.names[self.label][rows],
            self.label,
            self.sheet.where,
            lambda row: name_of(int(rows[row])),
        )
        columns: dict[str, NDArray[Any]] = {"label": label}
        for role, name in (("group", self.group), (by, by)):
            if role is not None and name is not None:
                columns |= {role: self.names[name][rows], name: self.names[name][rows]}
        return columns | {self.label: label}

    def _train(
        self, client: NDArray[Any], split: NDArray[np.int64], seed: int
    ) -> NDArray[np.bool_]:
        """Return which rows are training rows."""
        clients, _ = client_rows(
            client,
            split,
            test_share=self.test_share,
            seed=seed,
            min_samples=self.min_samples,
            pooled_test=self.pooled_test,
        )
        train = np.zeros(len(client), dtype=np.bool_)
        train[np.concatenate([part.train for part in clients])] = True
        return train
