"""Data sets.

To add one, write a subclass of `FederatedData` whose fields are its settings, or a function that
returns one, and add a line to `DATASETS`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from e2fl.construct import Setting, construct, fields_of, fit, look_up
from e2fl.data.encoding import Encoding
from e2fl.data.federated import (
    Client,
    ClientId,
    Examples,
    FederatedData,
    GroupId,
    Population,
    with_validation,
)
from e2fl.data.own import Npz, from_arrays, from_partitioner, rows_of
from e2fl.data.sets.acs_income import ACSIncome
from e2fl.data.sets.adult import Adult
from e2fl.data.sets.cifar10 import Cifar10
from e2fl.data.sets.fair_mnist_rotate import FairMNISTRotate
from e2fl.data.sets.femnist import Femnist
from e2fl.data.sets.mnist import MNISTWriters
from e2fl.data.table import from_table
from e2fl.errors import ConfigError

DATASETS: dict[str, Callable[..., FederatedData]] = {
    "fair_mnist_rotate": FairMNISTRotate,
    "mnist_writers": MNISTWriters,
    "femnist": Femnist,
    "cifar10": Cifar10,
    "adult": Adult,
    "acs_income": ACSIncome,
    "table": from_table,
    "npz": Npz,
}

# The setting of every data set.
VALIDATION_SHARE = Setting(
    float,
    0.0,
    "of each client's training rows that is set aside for validation: at least 0, below 1",
)


def build(section: Mapping[str, Any], *, seed: int) -> FederatedData:
    """Return the data set that a section of a configuration describes.

    seed: used unless the section has its own. `validation_share` is a setting of every data set.
    """
    kind = look_up(str(section["name"]), DATASETS, "data set")
    common = ("name", "validation_share")
    values = {key: value for key, value in section.items() if key not in common}
    if "seed" in fields_of(kind):
        values.setdefault("seed", seed)
    data = construct(kind, values, "data")
    if not isinstance(data, FederatedData):
        raise ConfigError(f"'{section['name']}' is not a data set")
    share = fit(section.get("validation_share", 0.0), float, "data.validation_share")
    return with_validation(data, share, seed=values.get("seed", seed))


__all__ = [
    "DATASETS",
    "Client",
    "ClientId",
    "Encoding",
    "Examples",
    "FederatedData",
    "GroupId",
    "Population",
    "build",
    "from_arrays",
    "from_partitioner",
    "from_table",
    "rows_of",
    "with_validation",
]
