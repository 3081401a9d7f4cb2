"""Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020, Algorithm
1, with model averaging (the paper's option II, the default here) or gradient averaging (option I).
The groups' models start from different random weights. Departures: there is one start, where the
authors try several and keep the best; `oracle_groups` sends each client only the model of the group
it declares, which is federated averaging within every group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from typing_extensions import Doc

from e2fl.algorithms.base import ClientModels, Dense, Description, average
from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError, WireError
from e2fl.grouping.base import require_count
from e2fl.grouping.inferred import lowest_loss
from e2fl.learning import Learner
from e2fl.models import Model, ModelSpec, Params, is_finite
from e2fl.wire import Message, weights_size


@dataclass(frozen=True)
class GroupModels(Message, wire_name="Choice"):
    """The models of all groups, or, with `oracle_groups`, only that of the client's own group."""

    groups: tuple[int, ...]
    models: tuple[Params, ...]

    def grouping_bytes(self, model: ModelSpec) -> int:
        return (len(self.models) - 1) * weights_size(model)


@dataclass(frozen=True)
class IFCAReply(Message, wire_name="Chosen"):
    """The chosen group, the loss of its model, and the trained model or its gradient and rate."""

    params: Params
    group: int
    examples: int
    loss: float
    learning_rate: float


@dataclass(frozen=True)
class IFCAState:
    """The models of all groups, and who chose them."""

    current: GroupModels
    chosen: tuple[int, ...]  # clients that chose each group, in the last round
    ever: tuple[int, ...]  # the same since the run began
    assigned: dict[ClientId, GroupId]  # as declared, or as chosen last


@dataclass(frozen=True)
class IFCA(Dense[IFCAState, GroupModels, IFCAReply, GroupModels]):
    """IFCA: one model for each group; a client trains the one that fits its data best."""

    groups: Annotated[int | None, Doc("how many; default: as many as the data declares")] = None
    averaging: Annotated[
        Literal["model", "gradient"], Doc("gradient: one step a round, on the server")
    ] = "model"
    weighted: Annotated[bool, Doc("by the number of examples, where models are averaged")] = False
    oracle_groups: Annotated[bool, Doc("each client trains the model of the group it declares")] = (
        False
    )

    # On the server.

    def start(self, model: Model, population: Population, seed: int) -> IFCAState:
        count = population.groups if self.groups is None else self.groups
        if self.groups is None and count < 1:
            raise ConfigError("this data declares no groups; set algorithm.groups to their number")
        declared = population.declared_groups if self.oracle_groups else {}
        if self.oracle_groups and (population.groups > count or len(declared) < len(population)):
            raise ConfigError(
                f"algorithm.oracle_groups needs clients that declare one of {count} groups"
            )
        require_count(count, population, "algorithm.groups")
        models = tuple(model.initial_weights(seed, group) for group in range(count))
        none = (0,) * count
        return IFCAState(GroupModels(tuple(range(count)), models), none, none, dict(declared))

    def broadcast(
        self, state: IFCAState, clients: Sequence[ClientId]
    ) -> Mapping[ClientId, GroupModels]:
        if not self.oracle_groups:
            return dict.fromkeys(clients, state.current)
        single = {
            group: GroupModels((group,), (model,))
            for group, model in enumerate(state.current.models)
        }
        return {
            client: single.get(state.assigned.get(client, -1), state.current) for client in clients
        }

    def serve(
        self, state: IFCAState, clients: Sequence[ClientId]
    ) -> Mapping[ClientId, GroupModels]:
        return self.broadcast(state, clients)

    def check(self, state: IFCAState, client: ClientId, reply: IFCAReply) -> IFCAReply:
        super().check(state, client, reply)
        allowed = state.assigned.get(client, reply.group) if self.oracle_groups else reply.group
        if not 0 <= reply.group < len(state.chosen) or reply.group != allowed:
            raise WireError(f"a reply chose group {reply.group}, which its client may not choose")
        return reply

    def origin(self, sent: GroupModels, reply: IFCAReply) -> Params | None:
        if self.averaging == "gradient":
            return {}
        return sent.models[sent.groups.index(reply.group)] if reply.group in sent.groups else None

    def aggregate(self, state: IFCAState, replies: Mapping[ClientId, IFCAReply]) -> IFCAState:
        groups, models = state.current.groups, []
        members = [[reply for reply in replies.values() if reply.group == q] for q in groups]
        for model, of_group in zip(state.current.models, members, strict=True):
            models.append(self._merged(model, of_group, len(replies)) if of_group else model)
        counts = tuple(map(len, members))
        chosen = {client: reply.group for client, reply in replies.items()}
        return IFCAState(
            GroupModels(groups, tuple(models)),
            counts,
            tuple(before + now for before, now in zip(state.ever, counts, strict=True)),
            state.assigned if self.oracle_groups else state.assigned | chosen,
        )

    def _merged(self, model: Params, members: Sequence[IFCAReply], clients: int) -> Params:
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

    def describe(self, state: IFCAState) -> Description:
        return Description(
            models=lambda: {f"group{q}": model for q, model in enumerate(state.current.models)},
            metadata={
                "chosen": list(state.chosen),
                "chosen_ever": list(state.ever),
                "groups_nobody_chose": sum(count == 0 for count in state.ever),
            },
            assignments=None if self.oracle_groups else state.assigned,
        )

    # On a client.

    def train(self, message: GroupModels, client: Client, learner: Learner) -> IFCAReply:
        group, model, loss = self._choose(message, client, learner)
        if loss is None:
            loss = learner.loss(model, client.train)
        fit = learner.gradient if self.averaging == "gradient" else learner.fit
        return IFCAReply(fit(model, client.train), group, len(client.train), loss, learner.rate)

    def model_for(self, message: GroupModels, client: Client, learner: Learner) -> ClientModels:
        group, model, _ = self._choose(message, client, learner)
        return self.client_models({"group": model}, client, learner, group)

    def _choose(
        self, message: GroupModels, client: Client, learner: Learner
    ) -> tuple[GroupId, Params, float | None]:
        """Return the group of a client, its model, and the loss if models were compared."""
        if self.oracle_groups and client.group in message.groups:
            return client.group, message.models[message.groups.index(client.group)], None
        position, loss = lowest_loss(message.models, client, learner)
        return message.groups[position], message.models[position], loss
