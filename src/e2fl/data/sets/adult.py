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
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.data.federated import ClientRows, Directory, Examples, Partition, PartitionedData
from e2fl.data.files import SOURCES
from e2fl.data.partition import BasePartitioner, ByGroup, Dirichlet, Iid, Rows
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
FEMALE, MALE = 0, 1


@dataclass(frozen=True)
class Adult(PartitionedData):
    """Adult: census rows of women and men; the label is an income above 50,000 dollars.

    Rows are split into `clients` clients by `partition`: Dirichlet with concentration `alpha`, iid,
    or clients of one sex only.
    """

    seed: int = 0
    dir: Directory = None
    clients: int = 5
    partition: Annotated[
        Literal["dirichlet", "iid", "by_group"], Doc("or iid, or by_group: clients of one sex only")
    ] = "dirichlet"
    partition_by: Annotated[
        Literal["sex", "label"], Doc("or label: the column of a Dirichlet partition")
    ] = "sex"
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

    @cached_property
    def table(self) -> pd.DataFrame:
        """The complete rows, those of the official training file first."""
        raw = io.BytesIO(b"".join(SOURCES["adult"].read(self.dir)))
        rows = pd.read_csv(raw, names=COLUMNS, skipinitialspace=True, na_values="?", comment="|")
        return rows.dropna(ignore_index=True)

    @cached_property
    def sex(self) -> NDArray[np.int64]:
        """The sex of each row: 0 female, 1 male."""
        return (self.table["sex"] == "Male").to_numpy().astype(np.int64)

    @cached_property
    def y(self) -> NDArray[np.int64]:
        """The label of each row; 1: more than 50,000 dollars."""
        return self.table["income"].str.startswith(">").to_numpy().astype(np.int64)

    @cached_property
    def split(self) -> tuple[Rows, Rows]:
        """Training and test rows, stratified by sex."""
        train, test = self._stratified(np.arange(len(self.table)), self.test_share, "test")
        if self.pooled_validation_share:
            train, test = self._stratified(train, self.pooled_validation_share, "validation")
        return train, test

    @cached_property
    def partitioned(self) -> Partition:  # type: ignore[override]  # known once the data is read
        train, test = self.split
        count, seed, least = self.clients, self.seed, self.min_partition_size
        partitioners: dict[str, BasePartitioner] = {
            "iid": Iid(count, seed),
            "by_group": ByGroup(count, "sex", seed),
            "dirichlet": Dirichlet(count, self.partition_by, self.alpha, least, seed),
        }
        columns = {"sex": self.sex[train], "label": self.y[train]}
        owner = partitioners[self.partition].clients(columns)
        clients = tuple(
            ClientRows(str(number), train[owner == number], test) for number in range(self.clients)
        )
        return Partition(Examples(self._inputs(), self.y, self.sex), clients, (), 2, test)

    def about(self) -> dict[str, object]:
        trains = [rows.train for rows in self.partitioned.clients]
        dirichlet = f"dirichlet({self.alpha:g})"
        return {
            "rows": len(self.table),
            "test_rows": len(self.split[1]),
            "tested_on": "validation" if self.pooled_validation_share else "test",
            "train_rows": [len(train) for train in trains],
            "train_women": [int(np.count_nonzero(self.sex[train] == FEMALE)) for train in trains],
            "partition": dirichlet if self.partition == "dirichlet" else self.partition,
        }

    def _inputs(self) -> NDArray[np.float32]:
        table, train = self.table, self.split[0]
        columns = [pd.get_dummies(table[list(WORDS)], dtype=np.float32).to_numpy()]
        columns += [
            standardised(table[name].to_numpy(dtype=np.float64), train)[:, None]
            for name in NUMBERS
            if not (self.sex_as_input and name == "education-num")
        ]
        if self.sex_as_input:
            columns.append(self.sex[:, None].astype(np.float32))
        return np.concatenate(columns, axis=1)

    def _stratified(self, rows: Rows, share: float, purpose: str) -> tuple[Rows, Rows]:
        """Split rows at random into the rest and a share, the same share of each sex."""
        rest, taken = [], []
        for sex in (FEMALE, MALE):
            order = stream(self.seed, purpose, sex).permutation(rows[self.sex[rows] == sex])
            count = round(len(order) * share)
            taken.append(order[:count])
            rest.append(order[count:])
        return np.sort(np.concatenate(rest)), np.sort(np.concatenate(taken))


def standardised(values: NDArray[np.float64], train: Rows) -> NDArray[np.float32]:
    """Return values with mean 0 and deviation 1 over the training rows; constants become 0."""
    deviation = values[train].std() or 1.0
    scaled: NDArray[np.float32] = ((values - values[train].mean()) / deviation).astype(np.float32)
    return scaled
