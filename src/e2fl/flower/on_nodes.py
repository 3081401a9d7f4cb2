"""OnNodes: data that nobody but the nodes has. The server knows its shape, and who may come."""

from dataclasses import dataclass
from functools import cached_property

from e2fl.data.federated import Client, ClientId, FederatedData, Population
from e2fl.errors import ConfigError, DataError


@dataclass(frozen=True)
class OnNodes(FederatedData):
    """Each node brings its own examples, with a `load_client` of its own.

    In a configuration: data = { name = "e2fl.flower.on_nodes:OnNodes", clients = 3, classes = 10, shape = [1, 28, 28] }
    """

    clients: int  # their numbers are 0 to clients - 1
    classes: int
    shape: tuple[int, ...]  # of one input
    groups: int = 0  # how many groups nodes may declare, or have inside; 0: none are known
    group_names: tuple[str, ...] = ()

    name = "on_nodes"

    def __post_init__(self) -> None:
        if self.clients < 1 or self.classes < 2 or not self.shape or min(self.shape) < 1 or self.groups < 0:
            raise ConfigError("data: clients must be at least 1, classes 2, sizes in shape 1, groups 0")
        if len(self.group_names) not in (0, self.groups):
            raise ConfigError(f"data.group_names has {len(self.group_names)} names for {self.groups} groups")

    @cached_property
    def population(self) -> Population:  # type: ignore[override]  # known only when the settings are
        return Population(dict.fromkeys(range(self.clients)), self.groups)

    def client(self, number: ClientId) -> Client:
        raise DataError(
            "this data is on the nodes: run the experiment with Flower, and give client_app a load_client "
            "that brings a node's own examples (docs/flower.md)"
        )
