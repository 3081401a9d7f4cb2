"""OnNodes: data that only the nodes have.

The server knows its shape and the clients there may be.
"""

from dataclasses import dataclass
from functools import cached_property

from e2fl.data.federated import Client, ClientId, FederatedData, Population
from e2fl.errors import ConfigError, DataError


@dataclass(frozen=True)
class OnNodes(FederatedData):
    """Each node loads its own examples, with the `load_client` passed to `client_app`.

    In a configuration: data = { name = "e2fl.flower.on_nodes:OnNodes", clients = 3, classes = 10,
    shape = [1, 28, 28] }
    """

    clients: int  # their ids are 0 to clients - 1
    classes: int
    shape: tuple[int, ...]  # of one input
    groups: int = 0  # how many groups nodes may declare or have among their examples; 0: unknown
    group_names: tuple[str, ...] = ()

    name = "on_nodes"

    def __post_init__(self) -> None:
        if self.clients < 1 or self.classes < 2 or min(self.shape, default=0) < 1:
            raise ConfigError("data: clients and each size in shape are at least 1, classes 2")
        if self.groups < 0 or len(self.group_names) not in (0, self.groups):
            raise ConfigError("data: groups is at least 0, and group_names names each of them")

    @cached_property
    def population(self) -> Population:  # type: ignore[override]  # depends on the settings
        return Population(dict.fromkeys(range(self.clients)), self.groups)

    def client(self, client_id: ClientId) -> Client:
        raise DataError(
            "this data is on the nodes; run the experiment with Flower, and pass a load_client "
            "that loads a node's own examples to client_app (docs/flower.md)"
        )
