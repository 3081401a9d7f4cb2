"""FEMNIST: handwritten digits and letters; every writer is a client.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018. Read from the HDF5 files of
TensorFlow Federated, which `e2fl data get femnist` downloads, or from one .npz with the arrays x
(bytes), y, writer (an index into writer_ids), split (0 train, 1 test, 2 neither) and writer_ids.
Labels: 0-9 digits, 10-35 upper case, 36-61 lower case. The split of the source is kept; if there is
none, a tenth of each writer's images are test images. Writers with fewer than `min_samples` images
are left out; writers with test images only are unseen clients. Groups are unknown.

The sources have ink of 0 on a white background of 255. It is turned: ink is 1 on a background of 0.
By default the inputs are then standardised, as MNIST's are, with the mean and deviation of the
training images of the partial set that LEAF's scripts make (300 writers, 41,199 images);
`scaling = "ink"` keeps them in [0, 1].
"""

import string
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import h5py
import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.data.clients import (
    TEST,
    TRAIN,
    Directory,
    Partition,
    PartitionedData,
    largest,
    split_clients,
)
from e2fl.data.federated import Examples
from e2fl.data.files import data_directory, existing, load_arrays
from e2fl.errors import DataError, reason_of

CLASSES = 62
SIDE = 28
TEST_SHARE = 0.1
NPZ, PARTIAL = "femnist.npz", "femnist_leaf_partial.npz"
H5 = {"fed_emnist_train.h5": TRAIN, "fed_emnist_test.h5": TEST}
ARRAYS = ("x", "y", "writer", "split", "writer_ids")
MEAN, DEVIATION = 0.0385, 0.1642  # of the ink in the training images of the partial set, in [0, 1]


@dataclass(frozen=True)
class Femnist(PartitionedData):
    """FEMNIST: handwritten digits and letters; every writer is a client.

    `path` names the source, or `dir` the data directory to search for it. `writers` keeps only
    those with most images; `scaling` says whether inputs are standardised or lie in [0, 1].
    """

    seed: Annotated[int, Doc("of the split, if the source has none")] = 0
    path: Annotated[
        str | None,
        Doc("an .npz, or the folder of TensorFlow Federated's files; default: search `dir`"),
    ] = None
    dir: Directory = None
    writers: Annotated[int, Doc("at most, those with most images")] = 3400
    min_samples: Annotated[int, Doc("writers with fewer images are left out")] = 2
    scaling: Annotated[Literal["standardised", "ink"], Doc("ink: 1 on a background of 0")] = (
        "standardised"
    )

    name = "femnist"
    classes = CLASSES
    label_names = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
    shape = (1, SIDE, SIDE)

    @cached_property
    def source(self) -> Path:
        """The file of the images; of two, that for training."""
        return find(existing(self.path) if self.path else data_directory(self.dir))

    @cached_property
    def partitioned(self) -> Partition:  # type: ignore[override]  # known once the data is read
        images = read(self.source)
        count = len(images.names)
        whole = np.bincount(images.writer, minlength=count)
        tested = np.bincount(images.writer[images.split == TEST], minlength=count)
        if whole.max() < self.min_samples:
            raise DataError(f"{self.source}: no writer has {self.min_samples} images")
        kept = (whole >= self.min_samples) | (whole == tested)
        clients, unseen, _ = (
            [replace(rows, name=images.names[int(rows.name)]) for rows in part]
            for part in split_clients(
                images.writer,
                images.split,
                test_share=TEST_SHARE,
                seed=self.seed,
                min_samples=self.min_samples,
                rows=np.flatnonzero(kept[images.writer]),
            )
        )
        scale, shift = -1 / 255, 1.0
        if self.scaling == "standardised":
            scale, shift = scale / DEVIATION, (shift - MEAN) / DEVIATION
        examples = Examples(images.x[:, None], images.y.astype(np.int64), None, scale, shift)
        return Partition(examples, largest(clients, self.writers), tuple(unseen))

    def about(self) -> dict[str, object]:
        return {"source": self.source.name, "scaling": self.scaling} | self.image_counts()


@dataclass(frozen=True)
class Images:
    """The images of all writers, as the source has them."""

    x: NDArray[np.uint8]  # [images, 28, 28]
    y: NDArray[np.uint8]
    writer: NDArray[np.integer[Any]]  # an index into `names`
    split: NDArray[np.uint8]  # 0 train, 1 test, 2 if the source has no split
    names: list[str]


def find(place: Path) -> Path:
    """Return the first of the known files in a folder, or in its folder femnist."""
    if place.is_file():
        return place
    for folder in (place / "femnist", place):
        for name in (NPZ, next(iter(H5)), PARTIAL):
            if (folder / name).is_file():
                return folder / name
    raise DataError(
        f"no FEMNIST in {place / 'femnist'}: run `e2fl data get femnist`, or put there {NPZ} or "
        f"{' and '.join(H5)}, or name it with data.path"
    )


def read(path: Path) -> Images:
    """Return all images of a source."""
    if path.suffix == ".npz":
        x, y, writer, split, names = load_arrays(path, ARRAYS).values()
        images = x.dtype == np.uint8 and x.shape == (len(y), SIDE, SIDE) and len(y) > 0
        if not images or y.max() >= CLASSES:
            raise DataError(f"{path}: x must be bytes [images, {SIDE}, {SIDE}], y below {CLASSES}")
        return Images(x, y.astype(np.uint8), writer, split.astype(np.uint8), names.tolist())
    pixels, labels, writers, splits = [], [], [], []
    numbers: dict[str, int] = {}
    for file in (path.with_name(name) for name in H5):
        try:
            with h5py.File(file, "r") as archive:
                for name, data in archive["examples"].items():
                    pixels.append(_bytes(data["pixels"][()]))
                    labels.append(data["label"][()].reshape(-1))
                    writers.append(numbers.setdefault(name, len(numbers)))
                    splits.append(H5[file.name])
        except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            raise DataError(
                f"{file} is damaged or not a file of FEMNIST: {reason_of(error)}"
            ) from error
    counts = list(map(len, labels))
    y = np.concatenate(labels)
    if not np.isin(y, range(CLASSES)).all() or counts != list(map(len, pixels)):
        raise DataError(f"{path} has labels that are not 0 to {CLASSES - 1}, one for each image")
    return Images(
        np.concatenate(pixels),
        y.astype(np.uint8),
        np.repeat(writers, counts),
        np.repeat(splits, counts).astype(np.uint8),
        list(numbers),
    )


def _bytes(x: NDArray[Any]) -> NDArray[np.uint8]:
    """Return grey values from 0 to 1 as bytes."""
    if x.shape[1:] != (SIDE, SIDE) or not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"images must be [images, {SIDE}, {SIDE}], with grey values 0 to 1")
    grey: NDArray[np.uint8] = np.rint(x * 255).astype(np.uint8)
    return grey
