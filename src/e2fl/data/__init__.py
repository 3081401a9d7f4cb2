"""Data sets.

To add one: write a subclass of `FederatedData` whose fields are its settings, and one line in `DATASETS`.
"""

from e2fl.data.adult import Adult
from e2fl.data.fair_mnist_rotate import FairMNISTRotate
from e2fl.data.federated import Client, ClientId, Examples, FederatedData, GroupId, Memory, Roll
from e2fl.data.femnist import Femnist
from e2fl.data.mnist_writers import MNISTWriters

DATASETS: dict[str, type[FederatedData]] = {
    "fair_mnist_rotate": FairMNISTRotate,
    "mnist_writers": MNISTWriters,
    "femnist": Femnist,
    "adult": Adult,
}

__all__ = ["DATASETS", "Client", "ClientId", "Examples", "FederatedData", "GroupId", "Memory", "Roll"]
