"""What an algorithm is: both halves, server and client, in one object that holds hyper-parameters only.

What changes between rounds is a state, a frozen dataclass of plain values: handed in, never changed, a new one handed
back. So it can be saved, compared, replayed and resumed. The runtimes (`simulator`, `flower`) call these methods and
know no algorithm by name.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

import numpy as np
import torch

from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError, DataError, WireError
from e2fl.learning import Learner
from e2fl.models import Model, ModelSpec, Params
from e2fl.ranking import Mask
from e2fl.wire import Message

State = TypeVar("State")
Down = TypeVar("Down", bound=Message)
Up = TypeVar("Up", bound=Message)
Served = TypeVar("Served", bound=Message)


@dataclass(frozen=True)
class ClientModel:
    """What a client predicts with: weights or a mask, or another one for the rows of some groups.

    Clients that use the very same object on the very same test examples are scored once for all.
    """

    model: Params | Mask
    by_group: Mapping[GroupId, Params | Mask] = field(default_factory=dict)


@dataclass(frozen=True)
class ClientModels:
    """The models a client tries, its own first, and the group it found itself in."""

    views: Mapping[str, ClientModel]
    group: GroupId | None = None


@dataclass(frozen=True)
class Algorithm(ABC, Generic[State, Down, Up, Served]):
    """One federated algorithm. Its fields are its hyper-parameters."""

    clients_per_round: int = 10

    down: ClassVar[type[Message]]  # what a client trains from
    up: ClassVar[type[Message]]  # what it answers
    served: ClassVar[type[Message]]  # what it is given to use
    improves: ClassVar[bool] = True  # False where rounds are mere turns: then only the last is worth evaluating

    @property
    def first_round(self) -> int:
        """1, or 0 where a round of preparation comes before."""
        return 1

    def __post_init__(self) -> None:
        if self.clients_per_round < 1:
            raise ConfigError(f"algorithm.clients_per_round must be at least 1, not {self.clients_per_round}")

    @classmethod
    def state_type(cls) -> type[Any]:
        """The class of this algorithm's states."""
        for base in cls.__mro__:
            for generic in getattr(base, "__orig_bases__", ()):
                found = get_args(generic)[0] if get_origin(generic) is Algorithm else None
                if isinstance(found, type):
                    return found
        raise TypeError(f"{cls.__name__} does not say what its states are: derive it from Algorithm[State, ...]")

    # On the server.

    @abstractmethod
    def start(self, model: Model, population: Population, seed: int) -> State:
        """The state before the first round."""

    def caution(self, model: Model, population: Population) -> str:
        """Why results on such data are to be taken with care; empty where all is well."""
        return ""

    def rounds(self, asked: int, population: Population) -> int:
        """How many rounds this algorithm has use for, when so many are asked for."""
        return asked

    def select(self, state: State, population: Population, number: int, rng: np.random.Generator) -> list[ClientId]:
        """Who takes part in a round, in rising order: drawn evenly, nobody twice."""
        drawn = rng.choice(len(population), size=min(self.clients_per_round, len(population)), replace=False)
        return sorted(population.ids[place] for place in drawn)

    def finale(self, state: State, population: Population) -> list[ClientId] | None:
        """Who takes part in the last round, where that is not to be drawn like any other."""
        return None

    @abstractmethod
    def broadcast(self, state: State, clients: Sequence[ClientId]) -> Mapping[ClientId, Down]:
        """What each client trains from. Clients told the same share one object, which is encoded once."""

    def check(self, state: State, client: ClientId, reply: Up) -> None:
        """Raise `WireError` if a reply, though well formed, is not one this client may send."""

    def reply_spec(self, number: int, model: ModelSpec) -> ModelSpec:
        """What the replies of a round are about: the whole model, or only some of its layers."""
        return model

    @abstractmethod
    def aggregate(self, state: State, replies: Mapping[ClientId, Up]) -> State:
        """The next state, from whoever answered; may be nobody. Replies come in rising order of client."""

    @abstractmethod
    def serve(self, state: State, clients: Sequence[ClientId]) -> Mapping[ClientId, Served]:
        """What each client is given to use."""

    def found(self, state: State) -> Mapping[ClientId, GroupId] | None:
        """The group each client was in when last heard of; None where groups are declared, or there are none."""
        return None

    def carried(self, state: State) -> Mapping[ClientId, GroupId] | None:
        """What is left of that when the next round begins: all, unless it begins with other groups."""
        return self.found(state)

    def models(self, state: State) -> Mapping[str, Params | Mask]:
        """The models to keep when a run ends, by name: weights, or masks of the supernetwork."""
        return {}

    def notes(self, state: State) -> Mapping[str, Any]:
        """Facts about the state for the history of the run, as plain JSON values."""
        return {}

    # On a client.

    @abstractmethod
    def train(self, message: Down, client: Client, learner: Learner) -> Up:
        """Learn from own data; only `client.memory` may change."""

    @abstractmethod
    def model_for(self, message: Served, client: Client, learner: Learner) -> ClientModels:
        """The models this client predicts with, its own first."""

    def welcome(self, state: State, client: Client, learner: Learner) -> ClientModels:
        """The same for a client that never took part: found from its own data and what the server knows."""
        return self.model_for(self.serve(state, [client.id])[client.id], client, learner)


def everybody_gets(message: Down, clients: Collection[ClientId]) -> dict[ClientId, Down]:
    """The same message for all."""
    return dict.fromkeys(clients, message)


def average(models: Sequence[Params], weights: Sequence[float]) -> Params:
    """The weighted mean of models, summed in double precision in the order given."""
    total = float(sum(weights))
    mean: Params = {}
    for name in models[0]:
        sums = torch.zeros(models[0][name].shape, dtype=torch.float64)
        for params, weight in zip(models, weights, strict=True):
            sums.add_(params[name], alpha=weight / total)
        mean[name] = sums.float()
    return mean


def refuse_no_loss(loss: float) -> None:
    """A loss that is no finite number, or below 0, would spoil whatever it is weighed with."""
    if not (math.isfinite(loss) and loss >= 0):
        raise WireError(f"a reply claims a loss of {loss}")


def is_finite(params: Params) -> bool:
    """Whether all weights are finite numbers."""
    return all(bool(value.isfinite().all()) for value in params.values())


def finite(params: Params) -> Params:
    """The same weights, or `DataError`: a client whose training went astray should not keep what came of it."""
    if not is_finite(params):
        raise DataError(
            "training ended in weights that are no finite numbers; look at this client's data, or lower the rate"
        )
    return params


def refuse_no_examples(examples: int) -> None:
    """A client that claims no examples, or fewer, would turn a mean upside down."""
    if examples < 1:
        raise WireError(f"a reply claims to be trained on {examples} examples")
