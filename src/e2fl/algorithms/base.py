"""The interface of an algorithm: both halves, server and client, in one object that holds
hyper-parameters only.

What changes between rounds is a state: a frozen dataclass of plain values that is passed in, never
modified, and returned anew, so that it can be saved, compared and resumed. The runtimes
(`simulation`, `flower`) call these methods and know no algorithm by name.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args, get_origin

import numpy as np
import torch
from typing_extensions import Doc

from e2fl.construct import Checked, Limits
from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError, WireError
from e2fl.learning import Learner, diverged
from e2fl.models import Model, Params, is_finite
from e2fl.participation import Ask, Draw, Participation, Uniform
from e2fl.rankings.order import Mask, Ranking
from e2fl.wire import Message, Weights

State = TypeVar("State")
Down = TypeVar("Down", bound=Message)
Up = TypeVar("Up", bound=Message)
Served = TypeVar("Served", bound=Message)

# Fields of replies with numbers that clients claim: what an honest client sends, and the error.
CLAIMS: dict[str, tuple[Callable[[float], bool], str]] = {
    "examples": (lambda examples: examples >= 1, "to be trained on {} examples"),
    "loss": (lambda loss: loss >= 0, "a loss of {}"),
    "learning_rate": (lambda rate: rate > 0, "a learning rate of {}"),
}


@dataclass(frozen=True)
class Types:
    """The four types an algorithm names."""

    state: type[Any]
    down: type[Message]
    up: type[Message]
    served: type[Message]


@dataclass(frozen=True)
class ClientModel:
    """The weights or mask a client predicts with; for the rows of some groups, maybe another one.

    Clients that share the same object and the same test examples are evaluated once.
    """

    model: Params | Mask
    by_group: Mapping[GroupId, Params | Mask] = field(default_factory=dict)


@dataclass(frozen=True)
class ClientModels:
    """The models a client evaluates, its own first, and the group it belongs to."""

    views: Mapping[str, ClientModel]
    group: GroupId | None = None


@dataclass(frozen=True)
class Description:
    """The contents of a state, for files and reports.

    models: returns the models to store, by name; called when they are needed, since making masks
    takes time.
    metadata: plain JSON values for the history.
    assignments: the group each client was last known to be in; None where groups are declared or
    there are none.
    warnings: reasons to interpret results on this data with care.
    """

    models: Callable[[], Mapping[str, Params | Mask]] = dict
    metadata: Mapping[str, Any] = field(default_factory=dict)
    assignments: Mapping[ClientId, GroupId] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Election:
    """What a server counted in a round, so that others can count it again."""

    rules: Mapping[str, Any]  # plain JSON values
    ballots: Callable[[], Iterator[tuple[ClientId, GroupId, Ranking]]]  # the group it counts in
    before: Mapping[GroupId, Ranking]  # what groups had elected in earlier rounds
    elected: Mapping[GroupId, Ranking]  # by the groups with ballots
    voters: Mapping[GroupId, Ranking]  # the ballot of each group in the global vote
    global_ranking: Ranking  # as elected by them


@dataclass(frozen=True)
class Algorithm(Checked, ABC, Generic[State, Down, Up, Served]):
    """One federated algorithm. Its fields are its hyper-parameters.

    A subclass names four types, `Algorithm[State, Down, Up, Served]`: its state, and three messages
    (`e2fl.wire`): the one a client trains from, its reply, and the one it predicts with.
    """

    clients_per_round: Annotated[int, Doc("clients asked in a round"), Limits(least=1)] = 10

    section: ClassVar[str] = "algorithm"
    title: ClassVar[str]  # the name in tables and charts; default: that of the class
    # The policy that draws clients, unless the experiment names one.
    participation: ClassVar[Participation] = Uniform()

    trains_scores: ClassVar[bool] = False  # at learner.score_rate; otherwise weights
    weighs_losses: ClassVar[bool] = True  # a high loss gains weight, so that of a liar is cut

    # The four types, as far as base classes name them.
    _named: ClassVar[tuple[Any, ...]] = (State, Down, Up, Served)  # type: ignore[misc]

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "title" not in vars(cls):
            cls.title = cls.__name__
        for base in vars(cls).get("__orig_bases__", ()):
            parameters = getattr(get_origin(base), "__parameters__", ())
            arguments = dict(zip(parameters, get_args(base), strict=False))
            cls._named = tuple(arguments.get(kind, kind) for kind in cls._named)

    # On the server.

    @abstractmethod
    def start(self, model: Model, population: Population, seed: int) -> State:
        """Return the state before the first round."""

    def rounds(self, asked: int, population: Population) -> int:
        """Return how many rounds a run has when the experiment asks for this many."""
        return asked

    def ask(
        self, state: State, population: Population, round_number: int, last: int, draw: Draw
    ) -> Ask:
        """Return which clients are asked next, and the layers they reply with.

        round_number: from 1 to `last`; 0 asks whether a preparation comes first (`Ask.kind`).
        draw: draws this many clients by the experiment's participation policy.
        """
        return Ask(draw(self.clients_per_round))

    @abstractmethod
    def broadcast(self, state: State, clients: Sequence[ClientId]) -> Mapping[ClientId, Down]:
        """Return the message that each client trains from.

        Clients that get equal messages share one object, which is encoded once.
        """

    def check(self, state: State, client: ClientId, reply: Up) -> Up:
        """Return the reply as `aggregate` reads it, decoded if it is coded.

        Raise `WireError` if a well-formed reply is not one this client may send. Here: if its
        `examples`, `loss` or `learning_rate` is a number that no honest client sends.
        """
        for name, (honest, words) in CLAIMS.items():
            claim = getattr(reply, name, None)
            if claim is not None and not (math.isfinite(claim) and honest(claim)):
                raise WireError(f"a reply claims {words.format(claim)}")
        return reply

    def origin(self, sent: Down, reply: Up) -> Params | None:
        """Return the weights that an update is measured from, to find those that are too large.

        Empty: the reply holds the update itself, such as a gradient. None: not measured.
        """
        return None

    @abstractmethod
    def aggregate(self, state: State, replies: Mapping[ClientId, Up]) -> State:
        """Return the next state.

        replies: as `check` returned them, in rising order of client; at least one.
        """

    @abstractmethod
    def serve(self, state: State, clients: Sequence[ClientId]) -> Mapping[ClientId, Served]:
        """Return the message that each client predicts with."""

    def election(
        self, before: State, replies: Mapping[ClientId, Up], after: State
    ) -> Election | None:
        """Return the election in `aggregate`; None if there is none. Replies are read lazily."""
        return None

    def describe(self, state: State) -> Description:
        """Return the contents of this state, for files and reports."""
        return Description()

    # On a client.

    @abstractmethod
    def train(self, message: Down, client: Client, learner: Learner) -> Up:
        """Train on the client's own data; only `client.memory` may change."""

    @abstractmethod
    def model_for(self, message: Served, client: Client, learner: Learner) -> ClientModels:
        """Return the models this client evaluates, its own first."""

    def for_unseen(self, state: State, client: Client, learner: Learner) -> ClientModels:
        """Return the models of an unseen client, from its data and the server's state."""
        return self.model_for(self.serve(state, [client.id])[client.id], client, learner)


def types_of(
    algorithm: Algorithm[Any, Any, Any, Any] | type[Algorithm[Any, Any, Any, Any]],
) -> Types:
    """Return the types that an algorithm names, or raise `ConfigError` if it does not."""
    state, *messages = algorithm._named
    sendable = [isinstance(kind, type) and issubclass(kind, Message) for kind in messages]
    if not isinstance(state, type) or not all(sendable):
        cls = algorithm if isinstance(algorithm, type) else type(algorithm)
        raise ConfigError(
            f"{cls.__name__} does not name its types: derive it from Algorithm[State, Down, Up, "
            "Served], of which the last three are messages, or from an algorithm that does"
        )
    return Types(state, *messages)


@dataclass(frozen=True)
class Shared:
    """One model for all clients."""

    params: Params


ModelState = TypeVar("ModelState", bound=Shared)


@dataclass(frozen=True)
class Dense(Algorithm[State, Down, Up, Served]):
    """A base for algorithms that serve weights, which clients may fine-tune before use."""

    finetune_epochs: Annotated[
        int,
        Doc("epochs on its own data that a client trains what it is served before use"),
        Limits(least=0),
    ] = 0

    def client_models(
        self,
        served: Mapping[str, Params],
        client: Client,
        learner: Learner,
        group: GroupId | None = None,
    ) -> ClientModels:
        """Return the models a client is served, by view.

        With fine-tuning, the first view is `own`: a copy of the first model, trained on the
        client's own data if it has labelled training rows.
        """
        views = {name: ClientModel(params) for name, params in served.items()}
        if self.finetune_epochs:
            personal = next(iter(served.values()))
            if (client.train.y >= 0).any():
                epochs, purpose = self.finetune_epochs, "batches of fine-tuning"
                personal = learner.fit(personal, client.train, epochs=epochs, purpose=purpose)
            views = {"own": ClientModel(require_finite(personal))} | views
        return ClientModels(views, group)


@dataclass(frozen=True)
class GlobalModel(Dense[ModelState, Weights, Up, Weights]):
    """A base for algorithms that train one dense model for all clients.

    The state derives from `Shared` or has its first field, `params`.

    A subclass writes `train` and `aggregate`, and `start` if its state has other fields without
    defaults. Replies hold trained weights; where they hold a gradient or a difference, `origin`
    must return {}.
    """

    def start(self, model: Model, population: Population, seed: int) -> ModelState:
        state: ModelState = types_of(self).state(model.initial_weights(seed))
        return state

    def origin(self, sent: Weights, reply: Up) -> Params | None:
        return sent.params

    def broadcast(
        self, state: ModelState, clients: Sequence[ClientId]
    ) -> Mapping[ClientId, Weights]:
        return dict.fromkeys(clients, Weights(state.params))

    def serve(self, state: ModelState, clients: Sequence[ClientId]) -> Mapping[ClientId, Weights]:
        return dict.fromkeys(clients, Weights(state.params))

    def describe(self, state: ModelState) -> Description:
        return Description(models=lambda: {"global": state.params})

    def model_for(self, message: Weights, client: Client, learner: Learner) -> ClientModels:
        return self.client_models({"global": message.params}, client, learner)


@dataclass(frozen=True)
class ModelAndLoss(Message, wire_name="Graded"):
    """A trained model, and the loss of the model that training started from."""

    params: Params
    loss: float


@dataclass(frozen=True)
class GlobalModelWithLoss(GlobalModel[ModelState, ModelAndLoss]):
    """A base for algorithms in which clients report the loss of the model they were sent."""

    def train(self, message: Weights, client: Client, learner: Learner) -> ModelAndLoss:
        loss = learner.loss(message.params, client.train)
        return ModelAndLoss(learner.fit(message.params, client.train), loss)


def average(models: Sequence[Params], weights: Sequence[float] | None = None) -> Params:
    """Return the weighted mean of models, summed in double precision in the order given."""
    weights = [1] * len(models) if weights is None else weights
    total = float(sum(weights))
    mean: Params = {}
    for name in models[0]:
        sums = torch.zeros(models[0][name].shape, dtype=torch.float64)
        for params, weight in zip(models, weights, strict=True):
            sums.add_(params[name], alpha=weight / total)
        mean[name] = sums.float()
    return mean


def require_finite(params: Params) -> Params:
    """Return the weights, or raise `DataError`: a client must never store a diverged model."""
    if not is_finite(params):
        raise diverged("weights")
    return params


def squared_norm(params: Params) -> float:
    """Return the squared Euclidean norm over all layers."""
    # By NumPy: torch splits a large sum among its threads, so the last bit depends on their number.
    return sum(float(np.square(value.double().numpy().ravel()).sum()) for value in params.values())
