"""MNIST by writer: the digits of MNIST, with their writers as clients.

The writers come from QMNIST's extended labels (Yadav and Bottou, "Cold Case: the Lost MNIST
Digits", 2019): 539 people wrote the training images, 297 others the test images. So a part of each
training writer's images is used for testing, and the test writers are unseen clients. Groups are
unknown.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from typing_extensions import Doc

from e2fl.data.clients import (
    TEST,
    UNDECIDED,
    Directory,
    Partition,
    PartitionedData,
    largest,
    split_clients,
)
from e2fl.data.federated import Examples
from e2fl.data.files import SOURCES, read_idx
from e2fl.data.sets.mnist import SCALE, SHIFT, standard
from e2fl.errors import DataError

CLASS, WRITER = 0, 2  # columns of the extended labels


@dataclass(frozen=True)
class MNISTWriters(PartitionedData):
    """MNIST by writer: the digits of MNIST, with their writers as clients.

    `writers` keeps only those with most images. `test_share` of each writer's training images are
    for testing; the writers of the test images are unseen clients.
    """

    seed: Annotated[int, Doc("of each writer's split")] = 0
    dir: Directory = None
    writers: Annotated[int | None, Doc("how many, those with most images; default: all")] = None
    min_samples: Annotated[int, Doc("images that a client has at least")] = 2
    test_share: Annotated[float, Doc("of each writer's images")] = 0.1

    name = "mnist_writers"
    classes = 10
    shape = (1, 28, 28)

    @cached_property
    def partitioned(self) -> Partition:  # type: ignore[override]  # known once the data is read
        digits, source = standard(self.dir), SOURCES["qmnist"]
        y = np.concatenate([digits.train_y, digits.test_y])
        tables = [read_idx(source.read(file.name, self.dir), file.name) for file in source.files]
        labels = np.concatenate([tables[0], tables[1][: len(digits.test_y)]])
        if not np.array_equal(labels[:, CLASS], y):
            raise DataError("the extended labels of QMNIST do not match MNIST's labels")
        clients, unseen, _ = split_clients(
            labels[:, WRITER].astype(np.int64),
            np.repeat([UNDECIDED, TEST], [len(digits.train_y), len(digits.test_y)]),
            test_share=self.test_share,
            seed=self.seed,
            min_samples=self.min_samples,
        )
        x = np.concatenate([digits.train_x, digits.test_x])[:, None]
        examples = Examples(x, y, None, SCALE, SHIFT)
        return Partition(examples, largest(clients, self.writers), tuple(unseen))

    def about(self) -> dict[str, object]:
        return self.image_counts()
