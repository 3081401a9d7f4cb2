"""The models of a round are averaged inside each group, then the groups' averages, each counting
once; all clients train from that mean, and a client is served the average of its group. No paper:
the ablation that shows what rankings add. As in E2FL, a group without replies keeps its last
average. The grouping must not cluster rankings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from typing_extensions import Doc

from e2fl.algorithms.base import ClientModels, Dense, Description, average
from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError
from e2fl.grouping import Grouping, KnownGroups, Membership
from e2fl.learning import Learner
from e2fl.models import Model, ModelSpec, Params
from e2fl.wire import Message, weights_size


@dataclass(frozen=True)
class GroupAvgModels(Message, wire_name="Models"):
    """The mean of all groups, and the models of the groups that the client may belong to."""

    params: Params
    groups: tuple[int, ...]
    models: tuple[Params, ...]

    def grouping_bytes(self, model: ModelSpec) -> int:
        return len(self.models) * weights_size(model)


@dataclass(frozen=True)
class GroupAvgReply(Message, wire_name="Member"):
    """A trained model, and the group of its client: -1 if the server knows it."""

    params: Params
    group: int

    @property
    def groups(self) -> tuple[GroupId, ...]:
        return (self.group,)

    @property
    def rankings(self) -> tuple[Params, ...]:
        """What `Grouping.sort` sorts by group."""
        return (self.params,)


@dataclass(frozen=True)
class GroupAvgState:
    """The mean of the groups' averages, and these averages."""

    params: Params
    groups: dict[GroupId, Params]  # the latest average of every group heard of
    membership: Membership
    # Models of groups that clients infer, until the group is heard of.
    starts: dict[GroupId, Params] = field(default_factory=dict)
    smooth: dict[GroupId, Params] = field(default_factory=dict)  # with smoothing, what is served


@dataclass(frozen=True)
class GroupAvg(Dense[GroupAvgState, GroupAvgModels, GroupAvgReply, GroupAvgModels]):
    """GroupAvg: E2FL's two levels with means of weights in place of votes on rankings."""

    grouping: Grouping = field(default_factory=KnownGroups)
    smoothing: Annotated[
        float,
        Doc("weight of the model served before, relative to the newest average; 0: none"),
        Limits(least=0, most=1000),
    ] = 0.0

    def start(self, model: Model, population: Population, seed: int) -> GroupAvgState:
        membership = self.grouping.begin(model, population, seed)
        if self.grouping.current(membership).ask_layers(membership) is not None:
            raise ConfigError("groupavg sends no rankings that its grouping could cluster")
        if not membership.found and len(membership.assignments) < len(population):
            raise ConfigError("groupavg needs clients that declare a group; use lowest_loss")
        starts = {group: model.initial_weights(seed, group) for group in membership.starts}
        return GroupAvgState(model.initial_weights(seed), {}, membership, starts)

    def broadcast(
        self, state: GroupAvgState, clients: Sequence[ClientId]
    ) -> Mapping[ClientId, GroupAvgModels]:
        grouping = self.grouping.current(state.membership)
        models, compared = state.starts | state.groups, grouping.candidate_groups(state.membership)
        message = GroupAvgModels(state.params, compared, tuple(models[group] for group in compared))
        return dict.fromkeys(clients, message)

    def train(self, message: GroupAvgModels, client: Client, learner: Learner) -> GroupAvgReply:
        models: Any = message.models  # a grouping compares models of any kind
        examples = self.grouping.checked_examples(models, client, learner)
        group, _ = max(examples, key=lambda pair: len(pair[1]))
        return GroupAvgReply(learner.fit(message.params, client.train), group)

    def check(self, state: GroupAvgState, client: ClientId, reply: GroupAvgReply) -> GroupAvgReply:
        grouping = self.grouping.current(state.membership)
        grouping.check(state.membership, client, reply.groups, 1)
        return super().check(state, client, reply)

    def origin(self, sent: GroupAvgModels, reply: GroupAvgReply) -> Params:
        return sent.params

    def aggregate(
        self, state: GroupAvgState, replies: Mapping[ClientId, GroupAvgReply]
    ) -> GroupAvgState:
        grouping: Any = self.grouping.current(state.membership)  # sorts replies of any kind
        membership, by_group = grouping.sort(state.membership, replies)
        averages = {group: average(models) for group, models in by_group.items()}
        groups = dict(sorted((state.groups | averages).items()))
        smooth = {
            group: average([new, state.smooth.get(group, new)], [1, self.smoothing])
            for group, new in averages.items()
        }
        return replace(
            state,
            params=average(list(groups.values())),
            groups=groups,
            membership=membership,
            smooth=state.smooth | smooth if self.smoothing else {},
        )

    def serve(
        self, state: GroupAvgState, clients: Sequence[ClientId]
    ) -> Mapping[ClientId, GroupAvgModels]:
        membership, served_groups = state.membership, self.grouping.served_groups
        groups_of = {client: served_groups(membership, client) for client in clients}
        served = state.groups | state.smooth
        messages = {
            groups: GroupAvgModels(
                state.params, groups, tuple(served.get(group, state.params) for group in groups)
            )
            for groups in set(groups_of.values())
        }
        return {client: messages[groups] for client, groups in groups_of.items()}

    def describe(self, state: GroupAvgState) -> Description:
        served = state.groups | state.smooth
        return Description(
            models=lambda: {"global": state.params} | {f"group{q}": served[q] for q in served},
            metadata={"groups_seen": sorted(state.groups)},
            assignments=state.membership.assignments if state.membership.found else None,
        )

    def model_for(self, message: GroupAvgModels, client: Client, learner: Learner) -> ClientModels:
        models: Any = message.models
        own_group = self.grouping.own_group(message.groups, models, client, learner)
        views = {"group": message.params, "global": message.params}
        if own_group is not None:
            views["group"] = message.models[message.groups.index(own_group)]
        return self.client_models(views, client, learner, own_group)
