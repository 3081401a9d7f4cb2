"""Data sets.

To add one: write a subclass of `FederatedData` whose fields are its settings, or a function that makes one, and one
line in `DATASETS`.
"""

from collections.abc import Callable

from e2fl.data.arrays import Arrays, Npz, from_arrays, from_partitioner
from e2fl.data.federated import Client, ClientId, Examples, FederatedData, GroupId, Memory, Population
from e2fl.data.sets.adult import Adult
from e2fl.data.sets.fair_mnist_rotate import FairMNISTRotate
from e2fl.data.sets.femnist import Femnist
from e2fl.data.sets.mnist_writers import MNISTWriters
from e2fl.data.tabular.table import from_table

DATASETS: dict[str, Callable[..., FederatedData]] = {
    "fair_mnist_rotate": FairMNISTRotate,
    "mnist_writers": MNISTWriters,
    "femnist": Femnist,
    "adult": Adult,
    "table": from_table,
    "npz": Npz,
}

__all__ = [
    "DATASETS",
    "Arrays",
    "Client",
    "ClientId",
    "Examples",
    "FederatedData",
    "GroupId",
    "Memory",
    "Population",
    "from_arrays",
    "from_partitioner",
    "from_table",
]
