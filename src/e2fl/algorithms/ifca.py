"""IFCA: one model for each group; a client trains the one that fits its data best.

Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020, Algorithm 1,
with model averaging (the paper's option II, the default here) or gradient averaging (option I). The
groups' models start from different random weights. Departures: a restart is judged after
`trial_rounds` rounds, by the mean training loss of that round's clients, and the best one
continues; `oracle_groups` sends each client only the model of the group it declares, which is
federated averaging within every group.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from typing_extensions import Doc

from e2fl.algorithms.base import ClientModels, Dense, Description, average, is_finite, to_all
from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError, WireError
from e2fl.grouping.base import require_count
from e2fl.grouping.inferred import lowest_loss
from e2fl.learning import Learner
from e2fl.models import Model, ModelSpec, Params
from e2fl.wire import Message, weights_size

AVERAGING = ("model", "gradient")


@dataclass(frozen=True)
class Choice(Message):
    """The models of all groups, or, with `oracle_groups`, only that of the client's own group."""

    groups: tuple[int, ...]
    models: tuple[Params, ...]

    def grouping_bytes(self, model: ModelSpec) -> int:
        return (len(self.models) - 1) * weights_size(model)


@dataclass(frozen=True)
class Chosen(Message):
    """The chosen group, the loss of its model, and the trained model, or the gradient and the step
    size.
    """

    params: Params
    group: int
    examples: int
    loss: float
    learning_rate: float


@dataclass(frozen=True)
class Trial:
    """One start: the groups' models, and the mean training loss of the last round's clients."""

    models: tuple[Params, ...]
    loss: float


@dataclass(frozen=True)
class Groups:
    """The models in use, the starts still to be tried, and the best one so far."""

    current: Trial
    waiting: tuple[Trial, ...]
    best: Trial | None
    rounds: int  # since the current start began
    chosen: tuple[int, ...]  # clients that chose each group, in the last round
    ever: tuple[int, ...]  # the same since the current start began
    # As declared, or as chosen last.
    assigned: dict[ClientId, GroupId] = field(default_factory=dict)


@dataclass(frozen=True)
class IFCA(Dense[Groups, Choice, Chosen, Choice]):
    """IFCA: one model for each group; a client trains the one that fits its data best.

    `groups` is the number of models; `averaging` averages trained models or gradients. With
    `restarts` above 1, several random starts are tried for `trial_rounds` rounds each, and the best
    one continues. `oracle_groups` gives each client the model of the group it declares.
    """

    title: ClassVar[str] = "IFCA"
    paper: ClassVar[str] = "Ghosh et al., NeurIPS 2020"

    groups: Annotated[int | None, Doc("how many; default: as many as the data declares")] = None
    averaging: Annotated[str, Doc("or gradient: one step a round, on the server")] = "model"
    weighted: Annotated[bool, Doc("by the number of examples, where models are averaged")] = False
    restarts: Annotated[int, Doc("starts to try; the best continues")] = 1
    trial_rounds: Annotated[
        int, Doc("rounds that each start is tried for, where there are several")
    ] = 10
    oracle_groups: Annotated[bool, Doc("each client trains the model of the group it declares")] = (
        False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.averaging in AVERAGING, "averaging", " or ".join(AVERAGING))
        self.require(self.restarts >= 1, "restarts", "at least 1")
        self.require(self.trial_rounds >= 1, "trial_rounds", "at least 1")

    # On the server.

    def start(self, model: Model, population: Population, seed: int) -> Groups:
        count = population.groups if self.groups is None else self.groups
        if self.groups is None and count < 1:
            raise ConfigError("this data declares no groups; set algorithm.groups to their number")
        declared = population.declared_groups if self.oracle_groups else {}
        if self.oracle_groups and (population.groups > count or len(declared) < len(population)):
            raise ConfigError(
                f"algorithm.oracle_groups needs clients that declare one of {count} groups"
            )
        require_count(count, population, "algorithm.groups")
        weights = [model.initial_weights(seed, which) for which in range(self.restarts * count)]
        first, *others = (
            Trial(tuple(weights[begin : begin + count]), math.inf)
            for begin in range(0, len(weights), count)
        )
        none = (0,) * count
        return Groups(first, tuple(others), None, 0, none, none, dict(declared))

    def rounds(self, asked: int, population: Population) -> int:
        """Return the rounds asked for, for the start that is kept, plus those of the others."""
        if self.restarts > 1 and self.trial_rounds > asked:
            raise ConfigError(
                f"algorithm.trial_rounds is {self.trial_rounds}, but a run has only {asked} rounds"
            )
        return asked + (self.restarts - 1) * self.trial_rounds

    def broadcast(self, state: Groups, clients: Sequence[ClientId]) -> Mapping[ClientId, Choice]:
        return self._offer(self._next(state), clients)

    def serve(self, state: Groups, clients: Sequence[ClientId]) -> Mapping[ClientId, Choice]:
        return self._offer(self._served(state), clients)

    def _offer(self, state: Groups, clients: Sequence[ClientId]) -> Mapping[ClientId, Choice]:
        models = state.current.models
        everything = Choice(tuple(range(len(models))), models)
        if not self.oracle_groups:
            return to_all(everything, clients)
        own = {group: Choice((group,), (model,)) for group, model in enumerate(models)}
        return {client: own.get(state.assigned.get(client, -1), everything) for client in clients}

    def check(self, state: Groups, client: ClientId, reply: Chosen) -> Chosen:
        super().check(state, client, reply)
        own = state.assigned.get(client, reply.group) if self.oracle_groups else reply.group
        if not 0 <= reply.group < len(state.chosen) or reply.group != own:
            raise WireError(f"a reply chose group {reply.group}, which its client may not choose")
        return reply

    def origin(self, sent: Choice, reply: Chosen) -> Params | None:
        if self.averaging == "gradient":
            return {}
        return sent.models[sent.groups.index(reply.group)] if reply.group in sent.groups else None

    def aggregate(self, state: Groups, replies: Mapping[ClientId, Chosen]) -> Groups:
        if not replies:
            return state
        state = self._next(state)
        by_group: dict[GroupId, list[Chosen]] = {}
        for reply in replies.values():
            by_group.setdefault(reply.group, []).append(reply)
        models = list(state.current.models)
        for group, members in by_group.items():  # a group that no client chose stays unchanged
            models[group] = self._merged(models[group], members, len(replies))
        loss = sum(reply.loss for reply in replies.values()) / len(replies)
        counts = tuple(len(by_group.get(group, ())) for group in range(len(models)))
        chosen = {client: reply.group for client, reply in replies.items()}
        return replace(
            state,
            current=Trial(tuple(models), loss),
            rounds=state.rounds + 1,
            chosen=counts,
            ever=tuple(before + now for before, now in zip(state.ever, counts, strict=True)),
            assigned=state.assigned if self.oracle_groups else state.assigned | chosen,
        )

    def _merged(self, model: Params, members: Sequence[Chosen], clients: int) -> Params:
        if self.averaging == "model":
            weights = [reply.examples if self.weighted else 1 for reply in members]
            return average([reply.params for reply in members], weights)
        stepped = {name: value.double() for name, value in model.items()}
        for reply in members:
            for name, gradient in reply.params.items():
                # Divided by all clients of the round, not by those of the group: as in the paper.
                stepped[name] -= (reply.learning_rate / clients) * gradient.double()
        after = {name: value.float() for name, value in stepped.items()}
        return after if is_finite(after) else model

    def _next(self, state: Groups) -> Groups:
        """Return the state for the next round: unchanged, or after a trial the next start, and
        finally the best one.
        """
        over = state.best is None and not state.waiting
        if self.restarts == 1 or state.rounds != self.trial_rounds or over:
            return state
        best = min(filter(None, (state.best, state.current)), key=lambda trial: trial.loss)
        if best is state.current and not state.waiting:
            return replace(state, best=None)
        none = (0,) * len(state.chosen)  # earlier choices were among the models of another trial
        assigned = state.assigned if self.oracle_groups else {}
        if not state.waiting:
            return Groups(best, (), None, state.rounds, none, none, assigned)
        following, *others = state.waiting
        return Groups(following, tuple(others), best, 0, none, none, assigned)

    def _served(self, state: Groups) -> Groups:
        """Return the start tried last, while starts are tried; after that, the best."""
        return state if state.waiting else self._next(state)

    def describe(self, state: Groups) -> Description:
        models = self._served(state).current.models
        return Description(
            models=lambda: {f"group{group}": model for group, model in enumerate(models)},
            metadata={
                "chosen": list(state.chosen),
                "chosen_ever": list(state.ever),
                "groups_nobody_chose": sum(count == 0 for count in state.ever),
                "starts_waiting": len(state.waiting),
            },
            assignments=None if self.oracle_groups else state.assigned,
            # Groups chosen among the models of one start cannot be compared with those of the next.
            next_assignments=None if self.oracle_groups else self._next(state).assigned,
        )

    # On a client.

    def train(self, message: Choice, client: Client, learner: Learner) -> Chosen:
        group, model, loss = self._choose(message, client, learner)
        if loss is None:
            loss = learner.loss(model, client.train)
        fit = learner.gradient if self.averaging == "gradient" else learner.fit
        return Chosen(fit(model, client.train), group, len(client.train), loss, learner.rate)

    def model_for(self, message: Choice, client: Client, learner: Learner) -> ClientModels:
        group, model, _ = self._choose(message, client, learner)
        return self.client_models({"group": model}, client, learner, group)

    def _choose(
        self, message: Choice, client: Client, learner: Learner
    ) -> tuple[GroupId, Params, float | None]:
        """Return the group of a client, its model, and the loss if models were compared."""
        if self.oracle_groups and client.group in message.groups:
            return client.group, message.models[message.groups.index(client.group)], None
        position, loss = lowest_loss(message.models, client, learner)
        return message.groups[position], message.models[position], loss
