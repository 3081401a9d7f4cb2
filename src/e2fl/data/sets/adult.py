"""Adult: census rows of women and men, both inside every client; the label is a high income.

The statistics of the E2FL paper are those of the complete rows, and its network has 101 inputs.
This encoding gives exactly 101: seven one-hot columns (96 categories) and five numbers. Sex is the
protected attribute, not an input; `fnlwgt`, a sampling weight, is left out. All clients are tested
on one pooled test set.

The means and deviations of the numbers come from the training rows only. The **categories come from
all rows, test rows included**: one native country occurs in a single row, and the network must have
101 inputs for every split. The input of a category that occurs only in test rows is 0 in training,
so training uses only the existence of that category.
"""

import io
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.data.clients import require_share
from e2fl.data.federated import Client, ClientId, Examples, FederatedData, Population
from e2fl.data.files import SOURCES
from e2fl.data.partition import BasePartitioner, ByGroup, Dirichlet, Iid, Rows, partition_rows
from e2fl.errors import ConfigError, DataError
from e2fl.randomness import stream

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip
WORDS = (
    "workclass", "education", "marital-status", "occupation", "relationship", "race",
    "native-country",
)  # fmt: skip
NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
NUMBERS_BESIDE_SEX = ("age", "capital-gain", "capital-loss", "hours-per-week")
FEMALE, MALE = 0, 1


@dataclass(frozen=True)
class Adult(FederatedData):
    """Adult: census rows of women and men; the label is an income above 50,000 dollars.

    Rows are split into `clients` clients by `partition`: Dirichlet with concentration `alpha`, iid,
    or clients of one sex only.
    """

    seed: int = 0
    dir: Annotated[
        str | None, Doc("where the files are; default: E2FL_DATA, or the user's cache")
    ] = None
    clients: int = 5
    partition: Annotated[str, Doc("or iid, or by_group: clients of one sex only")] = "dirichlet"
    partition_by: Annotated[str, Doc("or label: the column of a Dirichlet partition")] = "sex"
    alpha: Annotated[float, Doc("large: all clients alike; 1: very different")] = 5000.0
    min_partition_size: Annotated[
        int, Doc("the draw is repeated until every client has this many rows")
    ] = 50
    test_share: float = 0.25
    pooled_validation_share: Annotated[
        float, Doc("of the training rows; above 0, all clients are tested on these instead")
    ] = 0.0
    sex_as_input: Annotated[bool, Doc("instead of education-num")] = False

    name = "adult"
    classes = 2
    shape = (101,)
    group_names = ("female", "male")  # 0 is the unprivileged group
    label_names = ("<=50K", ">50K")

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("partition", self.partition, ("dirichlet", "iid", "by_group")),
            ("partition_by", self.partition_by, ("sex", "label")),
        ):
            if value not in choices:
                raise ConfigError(f"data.{name} is one of {', '.join(choices)}; not '{value}'")
        if self.clients < 1:
            raise ConfigError(f"data.clients must be at least 1, not {self.clients}")
        require_share(self.test_share, "test_share")
        require_share(self.pooled_validation_share, "pooled_validation_share", zero=True)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The complete rows, those of the official training file first."""
        return read_table(self.dir)

    @cached_property
    def sex(self) -> NDArray[np.int64]:
        """The sex of each row: 0 female, 1 male."""
        return (self.table["sex"] == "Male").to_numpy().astype(np.int64)

    @cached_property
    def y(self) -> NDArray[np.int64]:
        """The label of each row; 1: more than 50,000 dollars."""
        return self.table["income"].str.startswith(">").to_numpy().astype(np.int64)

    @cached_property
    def population(self) -> Population:  # type: ignore[override]  # depends on the settings
        return Population(dict.fromkeys(range(self.clients)), groups=2)

    def client(self, client_id: ClientId) -> Client:
        return Client(client_id, self._trains[client_id], self._test)

    def train_sizes(self) -> tuple[int, ...]:
        return tuple(len(train) for train in self._trains)

    def about(self) -> dict[str, object]:
        dirichlet = f"dirichlet({self.alpha:g})"
        return {
            "rows": len(self.table),
            "test_rows": len(self._test),
            "tested_on": "validation" if self.pooled_validation_share else "test",
            "train_rows": [len(train) for train in self._trains],
            "train_women": [int(np.count_nonzero(train.group == FEMALE)) for train in self._trains],
            "partition": dirichlet if self.partition == "dirichlet" else self.partition,
        }

    @cached_property
    def split(self) -> tuple[Rows, Rows]:
        """Training and test rows, stratified by sex."""
        rows = np.arange(len(self.table))
        train, test = stratified(self.sex, rows, self.test_share, self.seed, "test")
        if self.pooled_validation_share:
            share = self.pooled_validation_share
            train, test = stratified(self.sex, train, share, self.seed, "validation")
        return train, test

    @cached_property
    def _inputs(self) -> NDArray[np.float32]:
        table, (train, _) = self.table, self.split
        numbers = NUMBERS_BESIDE_SEX if self.sex_as_input else NUMBERS
        columns = [one_hot(table[name].to_numpy(dtype=str)) for name in WORDS]
        columns += [
            standardised(table[name].to_numpy(dtype=np.float64), train)[:, None] for name in numbers
        ]
        if self.sex_as_input:
            columns.append(self.sex[:, None].astype(np.float32))
        inputs = np.concatenate(columns, axis=1)
        if inputs.shape[1:] != self.shape:
            raise DataError(f"the rows give {inputs.shape[1]} inputs instead of {self.shape[0]}")
        return inputs

    def _examples(self, rows: Rows) -> Examples:
        return Examples(self._inputs[rows], self.y[rows], self.sex[rows])

    @cached_property
    def _test(self) -> Examples:
        return self._examples(self.split[1])

    @cached_property
    def _trains(self) -> list[Examples]:
        train = self.split[0]
        columns = {"sex": self.sex[train], "label": self.y[train]}
        parts = partition_rows(self._partitioner(), columns)
        return [self._examples(train[rows]) for rows in parts]

    def _partitioner(self) -> BasePartitioner:
        if self.partition == "iid":
            return Iid(self.clients, self.seed)
        if self.partition == "by_group":
            return ByGroup(self.clients, "sex", self.seed)
        return Dirichlet(
            self.clients, self.partition_by, self.alpha, self.min_partition_size, self.seed
        )


def read_table(directory: str | None = None) -> pd.DataFrame:
    """Return both files of Adult, without rows that have missing values."""
    parts = []
    for file in SOURCES["adult"].files:
        raw = io.BytesIO(SOURCES["adult"].read(file.name, directory))
        parts.append(
            pd.read_csv(raw, names=COLUMNS, skipinitialspace=True, na_values="?", comment="|")
        )
    return pd.concat(parts).dropna(ignore_index=True)


def one_hot(values: NDArray[np.str_]) -> NDArray[np.float32]:
    """Return a column of 0 and 1 for each category, in alphabetical order."""
    known, codes = np.unique(values, return_inverse=True)
    columns: NDArray[np.float32] = np.eye(len(known), dtype=np.float32)[codes]
    return columns


def standardised(values: NDArray[np.float64], train: Rows) -> NDArray[np.float32]:
    """Return values with mean 0 and deviation 1 over the training rows; constants become 0."""
    deviation = values[train].std() or 1.0
    scaled: NDArray[np.float32] = ((values - values[train].mean()) / deviation).astype(np.float32)
    return scaled


def stratified(
    values: NDArray[np.int64], rows: Rows, share: float, seed: int, purpose: str
) -> tuple[Rows, Rows]:
    """Split rows at random into the rest and a share, the same share of each value."""
    rest, taken = [], []
    for value in np.unique(values):
        order = stream(seed, purpose, int(value)).permutation(rows[values[rows] == value])
        count = round(len(order) * share)
        taken.append(order[:count])
        rest.append(order[count:])
    return np.sort(np.concatenate(rest)), np.sort(np.concatenate(taken))
