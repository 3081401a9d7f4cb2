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

import torch
from typing_extensions import Doc

from e2fl.algorithms.base import (
    Algorithm,
    ClientModel,
    ClientModels,
    Description,
    average,
    is_finite,
    require_examples,
    require_loss,
    require_rate,
    to_all,
)
from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError, DataError, WireError
from e2fl.grouping.base import require_count
from e2fl.grouping.lowest_loss import lowest_loss
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
class IFCA(Algorithm[Groups, Choice, Chosen, Choice]):
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
        if self.averaging not in AVERAGING:
            raise ConfigError(
                f"algorithm.averaging is one of {', '.join(AVERAGING)}; not '{self.averaging}'"
            )
        for name in ("restarts", "trial_rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"algorithm.{name} must be at least 1, not {getattr(self, name)}")

    def start(self, model: Model, population: Population, seed: int) -> Groups:
        count = population.groups if self.groups is None else self.groups
        if self.groups is None and count < 1:
            raise ConfigError("this data declares no groups; set algorithm.groups to their number")
        if self.oracle_groups and (
            population.groups > count
            or any(group is None for group in population.declared.values())
        ):
            raise ConfigError(
                f"algorithm.oracle_groups needs clients that declare one of {count} groups"
            )
        require_count(count, population, "algorithm.groups")
        first, *others = (
            Trial(
                tuple(model.initial_weights(seed, start * count + group) for group in range(count)),
                math.inf,
            )
            for start in range(self.restarts)
        )
        known = dict(population.declared_groups) if self.oracle_groups else {}
        return Groups(first, tuple(others), None, 0, (0,) * count, (0,) * count, known)

    def rounds(self, asked: int, population: Population) -> int:
        """Return the rounds asked for, for the start that is kept, plus the trials of the others."""
        if self.restarts > 1 and self.trial_rounds > asked:
            raise ConfigError(
                f"algorithm.trial_rounds is {self.trial_rounds}, but a run has only {asked} rounds"
            )
        return asked + (self.restarts - 1) * self.trial_rounds

    def broadcast(self, state: Groups, clients: Sequence[ClientId]) -> Mapping[ClientId, Choice]:
        return self._offer(self._up_next(state), clients)

    def _offer(self, state: Groups, clients: Sequence[ClientId]) -> Mapping[ClientId, Choice]:
        models = state.current.models
        everything = Choice(tuple(range(len(models))), models)
        if not self.oracle_groups:
            return to_all(everything, clients)
        own = {group: Choice((group,), (model,)) for group, model in enumerate(models)}
        return {
            client: own[state.assigned[client]] if client in state.assigned else everything
            for client in clients
        }

    def train(self, message: Choice, client: Client, learner: Learner) -> Chosen:
        if self.oracle_groups:
            group, model = self._declared(message, client)
            loss = learner.loss(model, client.train)
        else:
            group, loss = lowest_loss(message.models, client, learner)
            model = message.models[group]
        n, rate = len(client.train), learner.rate
        if self.averaging == "gradient":
            return Chosen(learner.gradient(model, client.train), group, n, loss, rate)
        return Chosen(learner.fit(model, client.train), group, n, loss, rate)

    def _declared(self, message: Choice, client: Client) -> tuple[GroupId, Params]:
        """Return the group a client declares, and its model."""
        if client.group is None or client.group not in message.groups:
            raise DataError(
                f"client {client.id} declares no group it was sent a model for; algorithm.oracle_groups needs one"
            )
        return client.group, message.models[message.groups.index(client.group)]

    def check(self, state: Groups, client: ClientId, reply: Chosen) -> Chosen:
        require_examples(reply.examples)
        require_loss(reply.loss)
        if not 0 <= reply.group < len(state.current.models):
            raise WireError(
                f"a reply chose group {reply.group}; there are groups 0 to {len(state.chosen) - 1}"
            )
        if self.oracle_groups and reply.group != state.assigned.get(client, reply.group):
            raise WireError(
                f"a reply chose group {reply.group}; its client is in group {state.assigned[client]}"
            )
        require_rate(reply.learning_rate)
        return reply

    def origin(self, sent: Choice, reply: Chosen) -> Params | None:
        if self.averaging == "gradient":
            return {}
        return sent.models[sent.groups.index(reply.group)] if reply.group in sent.groups else None

    def aggregate(self, state: Groups, replies: Mapping[ClientId, Chosen]) -> Groups:
        if not replies:
            return state
        state = self._up_next(state)
        by_group: dict[GroupId, list[Chosen]] = {}
        chosen: dict[ClientId, GroupId] = {}
        for client, reply in replies.items():
            by_group.setdefault(reply.group, []).append(reply)
            chosen[client] = reply.group
        models = list(state.current.models)
        for group, members in by_group.items():  # a group that no client chose stays unchanged
            models[group] = self._merged(models[group], members, len(replies))
        loss = sum(reply.loss for reply in replies.values()) / len(replies)
        counts = tuple(len(by_group.get(group, ())) for group in range(len(models)))
        return replace(
            state,
            current=Trial(tuple(models), loss),
            rounds=state.rounds + 1,
            chosen=counts,
            ever=tuple(before + now for before, now in zip(state.ever, counts, strict=True)),
            assigned=state.assigned if self.oracle_groups else state.assigned | chosen,
        )

    def _merged(self, model: Params, chosen: Sequence[Chosen], clients: int) -> Params:
        if self.averaging == "model":
            weights = [reply.examples if self.weighted else 1 for reply in chosen]
            return average([reply.params for reply in chosen], weights)
        stepped = {name: value.double() for name, value in model.items()}
        for reply in chosen:
            for name, gradient in reply.params.items():
                # Divided by all clients of the round, not by those of the group: as in the paper.
                stepped[name] -= (reply.learning_rate / clients) * gradient.double()
        after = {name: value.to(torch.float32) for name, value in stepped.items()}
        return after if is_finite(after) else model

    def _up_next(self, state: Groups) -> Groups:
        """Return the state for the next round: unchanged, or after a trial the next start, and
        finally the best one.
        """
        if (
            self.restarts == 1
            or state.rounds != self.trial_rounds
            or (not state.waiting and state.best is None)
        ):
            return state
        best = (
            state.current
            if state.best is None or state.current.loss < state.best.loss
            else state.best
        )
        if not state.waiting and best is state.current:
            return replace(state, best=None)
        none = (0,) * len(state.chosen)  # earlier choices were among the models of another trial
        other = replace(
            state, chosen=none, ever=none, assigned=state.assigned if self.oracle_groups else {}
        )
        if state.waiting:
            return replace(
                other, current=state.waiting[0], waiting=state.waiting[1:], best=best, rounds=0
            )
        return replace(other, current=best, best=None)

    def _in_use(self, state: Groups) -> Groups:
        """Return the start tried last, while starts are tried; after that, the best."""
        return state if state.waiting else self._up_next(state)

    def serve(self, state: Groups, clients: Sequence[ClientId]) -> Mapping[ClientId, Choice]:
        return self._offer(self._in_use(state), clients)

    def model_for(self, message: Choice, client: Client, learner: Learner) -> ClientModels:
        if self.oracle_groups and client.group is not None:
            group, model = self._declared(message, client)
            return ClientModels({"group": ClientModel(model)}, group)
        group, _ = lowest_loss(message.models, client, learner)
        return ClientModels({"group": ClientModel(message.models[group])}, group)

    def describe(self, state: Groups) -> Description:
        in_use = self._in_use(state).current.models
        return Description(
            models=lambda: {f"group{group}": model for group, model in enumerate(in_use)},
            metadata={
                "chosen": list(state.chosen),
                "chosen_ever": list(state.ever),
                "groups_nobody_chose": sum(count == 0 for count in state.ever),
                "starts_waiting": len(state.waiting),
            },
            assignments=None if self.oracle_groups else state.assigned,
            # Groups chosen among the models of one start cannot be compared with those of the next.
            next_assignments=None if self.oracle_groups else self._up_next(state).assigned,
        )
