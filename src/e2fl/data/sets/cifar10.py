"""CIFAR-10 (Krizhevsky, 2009), from the binary version of its files, divided among clients.

The published archive is read as it is, after its checksum: nothing is unpacked onto the disk, and
unlike the Python version it holds no pickles. As usual in personalised federated learning, all
60,000 images are divided among the clients by label, and a share of each client's images tests it.
"""

import io
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.data.federated import Directory, Examples, Partition, PartitionedData, split_clients
from e2fl.data.files import SOURCES
from e2fl.data.partition import Dirichlet

PARTS = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
SHAPE = (3, 32, 32)
MEAN, DEVIATION = 0.4734, 0.2516  # of all pixels of the training images, in [0, 1]
ANGLES = {1: (), 2: ("0°", "180°"), 4: ("0°", "90°", "180°", "270°")}


def standard(directory: str | None = None) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return all images [n, 3, 32, 32] and their labels, those of the training files first."""
    (raw,) = SOURCES["cifar10"].read(directory)
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        opened = {Path(member.name).name: tar.extractfile(member) for member in tar.getmembers()}
        parts = [np.frombuffer(file.read(), np.uint8) for name in PARTS if (file := opened[name])]
    rows = np.concatenate(parts).reshape(-1, 1 + np.prod(SHAPE))  # a label and an image
    return rows[:, 1:].reshape(-1, *SHAPE), rows[:, 0].astype(np.int64)


@dataclass(frozen=True)
class Cifar10(PartitionedData):
    """CIFAR-10: photographs of ten kinds of things, divided by label.

    With 2 or 4 `rotations`, clients are in as many groups of equal size, each with its images
    rotated by another angle; 2 is IFCA's rotated CIFAR.
    """

    seed: int = 0
    dir: Directory = None
    clients: int = 100
    alpha: Annotated[float, Doc("of labels over clients; large: all alike; 0.1: few labels")] = 0.5
    rotations: Annotated[Literal[1, 2, 4], Doc("groups of clients")] = 1
    test_share: Annotated[float, Doc("of each client's images")] = 0.2

    name = "cifar10"
    classes = 10
    shape = SHAPE
    label_names = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )

    @cached_property
    def group_names(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on the settings
        return ANGLES[self.rotations]

    @cached_property
    def partitioned(self) -> Partition:  # type: ignore[override]  # known once the data is read
        x, y = standard(self.dir)
        owner = Dirichlet(self.clients, "label", self.alpha, seed=self.seed).clients({"label": y})
        for turn in range(1, self.rotations):
            rows = owner % self.rotations == turn
            x[rows] = np.rot90(x[rows], turn * 4 // self.rotations, axes=(2, 3))
        groups = len(self.group_names)
        group = owner % groups if groups else None
        share = self.test_share
        clients, _, _ = split_clients(owner, seed=self.seed, test_share=share, group=group)
        examples = Examples(x, y, None, 1 / (255 * DEVIATION), -MEAN / DEVIATION)
        return Partition(examples, tuple(clients), (), groups)

    def about(self) -> dict[str, object]:
        counts = super().about()
        return {key: counts[key] for key in ("train_images", "test_images")}
