"""FEMNIST: handwritten digits and letters; every writer is a client.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018. Read from one .npz with the arrays
x (bytes), y, writer (an index into writer_ids), split (0 train, 1 test, 2 neither) and writer_ids;
docs/data.md says how to make it from TensorFlow Federated's files, which have the paper's 3,400
writers. The split of the source is kept; if there is none, a tenth of each writer's images are test
images. Writers with test images only are unseen clients. Groups are unknown.

The sources have ink of 0 on a white background of 255. It is turned: ink is 1 on a background of 0.
By default the inputs are then standardised with the mean and deviation of the training images of
the partial set that LEAF's scripts make (300 writers, 41,199 images).
"""

import string
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.data.federated import (
    TEST,
    Directory,
    Examples,
    Partition,
    PartitionedData,
    largest,
    split_clients,
)
from e2fl.data.files import data_directory, existing, load_arrays
from e2fl.errors import DataError

CLASSES = 62
SIDE = 28
TEST_SHARE = 0.1
FILES = ("femnist.npz", "femnist_leaf_partial.npz")  # the second has the writers of LEAF's sample
ARRAYS = ("x", "y", "writer", "split", "writer_ids")
MEAN, DEVIATION = 0.0385, 0.1642  # of the ink in the training images of the partial set, in [0, 1]


@dataclass(frozen=True)
class Femnist(PartitionedData):
    """FEMNIST: handwritten digits and letters; every writer is a client.

    `path` names the source, or `dir` the data directory to search for it. `writers` keeps only
    those with most images; `scaling` says whether inputs are standardised or lie in [0, 1].
    """

    seed: Annotated[int, Doc("of the split, if the source has none")] = 0
    path: Annotated[str | None, Doc("an .npz, or its folder; default: search `dir`")] = None
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
        """The file of the images."""
        return find(existing(self.path) if self.path else data_directory(self.dir))

    @cached_property
    def partitioned(self) -> Partition:  # type: ignore[override]  # known once the data is read
        x, y, writer, split, names = read(self.source)
        whole = np.bincount(writer, minlength=len(names))
        tested = np.bincount(writer[split == TEST], minlength=len(names))
        if whole.max() < self.min_samples:
            raise DataError(f"{self.source}: no writer has {self.min_samples} images")
        kept = (whole >= self.min_samples) | (whole == tested)
        clients, unseen, _ = split_clients(
            np.where(kept[writer], writer, -1),
            seed=self.seed,
            test_share=TEST_SHARE,
            split=split,
            names=names.tolist(),
            min_samples=self.min_samples,
        )
        scale, shift = -1 / 255, 1.0
        if self.scaling == "standardised":
            scale, shift = scale / DEVIATION, (shift - MEAN) / DEVIATION
        examples = Examples(x[:, None], y, None, scale, shift)
        return Partition(examples, largest(clients, self.writers), tuple(unseen))

    def about(self) -> dict[str, object]:
        return {"source": self.source.name, "scaling": self.scaling} | super().about()


def find(place: Path) -> Path:
    """Return the first of the known files in a folder, or in its folder femnist."""
    if place.is_file():
        return place
    for path in (folder / name for folder in (place / "femnist", place) for name in FILES):
        if path.is_file():
            return path
    raise DataError(f"no {FILES[0]} in {place / 'femnist'}; docs/data.md says how to make it")


def read(path: Path) -> tuple[NDArray[Any], ...]:
    """Return the arrays of all images: x, y, writer, split, and the names of writers."""
    x, y, writer, split, names = load_arrays(path, ARRAYS).values()
    images = x.dtype == np.uint8 and x.shape == (len(y), SIDE, SIDE) and len(y) > 0
    if not images or y.max() >= CLASSES:
        raise DataError(f"{path}: x must be bytes [images, {SIDE}, {SIDE}], y below {CLASSES}")
    return x, y.astype(np.int64), writer, split.astype(np.int64), names
