"""A small synthetic federation with known groups, for tests.

Classes are clouds of points around corners; each group permutes the labels, so that no single model
fits all groups.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from e2fl.data.federated import Client, ClientId, Examples, FederatedData, GroupId, Population
from e2fl.randomness import stream

FEATURES = 16


@dataclass(frozen=True)
class Toy(FederatedData):
    """Synthetic clients, assigned to groups in turn: client 0 to group 0, client 1 to group 1."""

    seed: int = 0
    clients: int = 8
    groups: int = 2
    classes: int = 3
    examples: int = 48  # training examples of each client; the same number for testing
    noise: float = 0.4
    inside: bool = False  # groups lie inside every client
    image: bool = False  # inputs are 4 x 4 images instead of 16 numbers
    styles: bool = False  # groups permute the inputs instead of the labels
    held_out: int = 0  # clients kept out of training

    name = "toy"

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # follows from a setting
        return (1, 4, 4) if self.image else (FEATURES,)

    @cached_property
    def population(self) -> Population:  # type: ignore[override]  # as above
        return Population(
            {client: self._group(client) for client in range(self.clients)}, self.groups
        )

    def client(self, client_id: ClientId) -> Client:
        if client_id not in self._made:
            train, test = (self._examples(client_id, part) for part in (0, 1))
            self._made.setdefault(client_id, Client(client_id, train, test, self._group(client_id)))
        return self._made[client_id]

    def train_sizes(self) -> tuple[int, ...]:
        return (self.examples,) * self.clients

    def unseen(self) -> dict[ClientId, Client]:
        return {
            client_id: self.client(client_id)
            for client_id in range(self.clients, self.clients + self.held_out)
        }

    def _group(self, client_id: ClientId) -> GroupId | None:
        return None if self.inside else client_id % self.groups

    def _examples(self, client_id: ClientId, part: int) -> Examples:
        rng = stream(self.seed, "toy", client_id, part)
        corners = stream(self.seed, "toy corners").choice(
            [-1.0, 1.0], size=(self.classes, FEATURES)
        )
        cloud = rng.integers(self.classes, size=self.examples)
        x = corners[cloud] + self.noise * rng.standard_normal((self.examples, FEATURES))
        group = (
            rng.integers(self.groups, size=self.examples)
            if self.inside
            else np.full(self.examples, client_id % self.groups)
        )
        if self.styles:
            turns = [
                stream(self.seed, "toy style", style).permutation(FEATURES)
                for style in range(self.groups)
            ]
            x = x[np.arange(self.examples)[:, None], np.stack(turns)[group]]
        y = cloud if self.styles else (cloud + group) % self.classes
        shaped = x.reshape(self.examples, *self.shape).astype(np.float32)
        return Examples(shaped, y.astype(np.int64), group.astype(np.int64) if self.inside else None)

    @cached_property
    def _made(self) -> dict[ClientId, Client]:
        return {}
