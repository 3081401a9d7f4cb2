"""Validation rows for any data set: a share of each client's training rows.

`validation_share` in the section `data` of a configuration, or `with_validation` in Python, splits these rows off when
a client is built. Each client draws its own, at random, from the seed and its id: the same seed gives the same rows,
whatever the other clients have. A client with two or more training rows keeps at least one of them and gives at least
one; a client with a single row has no validation rows. Test rows and unseen clients stay as they are. Whatever a data
set learns from its training rows, such as means and categories of columns, it learns before the split.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from e2fl.data.federated import Client, ClientId, FederatedData, GroupId
from e2fl.data.partitioners import held_out, split_rows
from e2fl.errors import ConfigError
from e2fl.randomness import stream


def with_validation(data: FederatedData, share: float, *, seed: int = 0) -> FederatedData:
    """Return the data with a share of each client's training rows as `client.validation`; unchanged for 0."""
    if not 0 <= share < 1:
        raise ConfigError(f"data.validation_share must be at least 0 and below 1, not {share}")
    return ValidationSplit(data, share, seed) if share else data


@dataclass(frozen=True, eq=False)
class ValidationSplit(FederatedData):
    """A data set whose clients have validation rows. Everything else is the same as in `data`."""

    data: FederatedData
    share: float
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("name", "classes", "shape", "group_names", "label_names", "population"):
            object.__setattr__(self, name, getattr(self.data, name))

    def __getattr__(self, name: str) -> Any:
        """Return attributes that only some data sets have, such as `encode` of a table."""
        if name.startswith("__") or name == "data":
            raise AttributeError(name)
        return getattr(self.data, name)

    def client(self, client_id: ClientId) -> Client:
        client = self.data.client(client_id)
        count = len(client.train)
        if count < 2:
            return client
        train, validation = split_rows(np.arange(count), self.share, stream(self.seed, "validation rows", client_id))
        return replace(client, train=client.train.take(train), validation=client.train.take(validation))

    def client_name(self, client_id: ClientId) -> str:
        return self.data.client_name(client_id)

    def group_name(self, group: GroupId) -> str:
        return self.data.group_name(group)

    def unseen(self) -> Mapping[ClientId, Client]:
        return self.data.unseen()

    def train_sizes(self) -> tuple[int, ...]:
        return tuple(size - held_out(size, self.share) if size > 1 else size for size in self.data.train_sizes())

    def about(self) -> dict[str, object]:
        return self.data.about() | {"validation_share": self.share}
