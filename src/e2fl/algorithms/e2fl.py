"""E2FL: clients send rankings of edges; the server votes within each group, then once more among the groups.

Mozaffari and Houmansadr, "E2FL: Equal and Equitable Federated Learning". With one group it is FRL (Mozaffari et al.,
"Every Vote Counts: Ranking-Based Training of Federated Learning to Resist Poisoning Attacks", USENIX Security 2023).

Departures, all where the paper is silent: ties go to the lower edge number; the mask and the ranking are decided by the
same non-negative start scores; a group without a ballot in a round is treated as `absent` says; groups that lie inside
a client get one ballot each; ballots that are only clustered carry only the layers that clustering looks at; a client
that missed the clustering sends its ballot for it when its turn comes, and votes from the next time on.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, everybody_gets
from e2fl.data.federated import Client, ClientId, Examples, GroupId, Population
from e2fl.errors import ConfigError, WireError
from e2fl.evaluation import NO_GROUP
from e2fl.grouping import Grouping, KnownGroups, OneGroup, RankClustering
from e2fl.learning import Learner
from e2fl.models import Model, ModelSpec
from e2fl.ranking import Mask, Ranking, mask_layers, vote_layers
from e2fl.wire import Message, mask_size

ABSENT = ("carry_forward", "present_only", "init_vote")
INSIDE = ("each", "majority")


@dataclass(frozen=True)
class Invitation(Message):
    """The ranking to start from, and every group's mask where the client must find its group."""

    ranking: Ranking
    masks: tuple[Mask, ...]

    def finding_bytes(self, model: ModelSpec) -> int:
        return len(self.masks) * mask_size(model)


@dataclass(frozen=True)
class Ballots(Message):
    """One ranking for each group the client speaks for; `NO_GROUP` where the server knows better."""

    groups: tuple[int, ...]
    rankings: tuple[Ranking, ...]


@dataclass(frozen=True)
class Masks(Message):
    """Subnetworks to use: of the groups that may concern the client, and of everybody.

    A mask of a group that never voted is only there to be compared with the others, where clients look for their group.
    """

    groups: tuple[int, ...]
    voted: tuple[int, ...]  # those of these groups that have voted
    masks: tuple[Mask, ...]
    overall: Mask


@dataclass(frozen=True)
class Rankings:
    """What the server knows after a round."""

    overall: Ranking
    groups: dict[GroupId, Ranking]  # of every group that has voted, as it voted last
    starts: dict[GroupId, Ranking]  # shown for a group that has not voted, to clients that look for theirs
    assigned: dict[ClientId, GroupId]  # as far as the server knows: declared, clustered, or said with the last ballot
    prepared: bool  # False until everybody has been clustered, where that is needed
    count: int  # of groups
    keep: float
    seed: int
    origin: Ranking = field(default_factory=dict)  # what all began with, where clustering or absent groups need it
    centroids: dict[GroupId, Ranking] = field(default_factory=dict)  # what clustering found
    facts: dict[str, float | None] = field(default_factory=dict)  # figures about it


@dataclass(frozen=True)
class E2FL(Algorithm[Rankings, Invitation, Ballots, Masks]):
    grouping: Grouping = field(default_factory=KnownGroups)
    absent: str = "carry_forward"  # or present_only, init_vote: does a group vote in a round nobody voted in it?
    inside: str = "each"  # or majority: a client with several groups casts a ballot for each, or for its largest
    final_full_vote: bool = False  # one round more, in which every client of every small group votes

    down: ClassVar[type[Message]] = Invitation
    up: ClassVar[type[Message]] = Ballots
    served: ClassVar[type[Message]] = Masks

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value, choices in (("absent", self.absent, ABSENT), ("inside", self.inside, INSIDE)):
            if value not in choices:
                raise ConfigError(f"algorithm.{name} is one of {', '.join(choices)}; not '{value}'")
        if self.final_full_vote and self.absent == "present_only":
            raise ConfigError(
                "algorithm.final_full_vote would leave the overall vote to small groups; use carry_forward"
            )

    @property
    def first_round(self) -> int:
        return 0 if self.grouping.clusters else 1

    def start(self, model: Model, population: Population, seed: int) -> Rankings:
        overall = model.supernet(seed).ranking
        count = self.grouping.count(population)
        self.grouping.reads(model.spec)  # a layer that is not there is a mistake to be told now
        return Rankings(
            overall=overall,
            groups={},
            starts={
                group: model.random_ranking(seed, "start of a group", group)
                for group in (range(count) if self.grouping.infers else ())
            },
            assigned=self.grouping.declared(population),
            prepared=not self.grouping.clusters,
            count=count,
            keep=model.keep,
            seed=seed,
            origin=overall if self.grouping.clusters or self.absent == "init_vote" else {},
        )

    def _shown(self, state: Rankings, group: GroupId) -> Ranking:
        """What a group looks like from outside."""
        unseen = state.origin if self.absent == "init_vote" else state.overall
        return state.groups.get(group, state.starts.get(group, unseen))

    def rounds(self, asked: int, population: Population) -> int:
        return asked + 1 if self.final_full_vote else asked

    def finale(self, state: Rankings, population: Population) -> list[ClientId] | None:
        if not (self.final_full_vote and state.prepared):
            return None
        # The last ranking of a group no larger than a round's draw is mostly the vote of one or two of its clients.
        sizes = Counter(state.assigned.values())
        small = [
            client
            for client in population.ids
            if sizes[state.assigned.get(client, -1)] in range(1, self.clients_per_round + 1)
        ]
        return small or None

    def reply_spec(self, number: int, model: ModelSpec) -> ModelSpec:
        # A ballot that is only clustered carries the layers that clustering looks at: far fewer bytes.
        return self.grouping.reads(model) if self.grouping.clusters and number < 1 else model

    def select(self, state: Rankings, population: Population, number: int, rng: np.random.Generator) -> list[ClientId]:
        return super().select(state, population, number, rng) if state.prepared else list(population.ids)

    def broadcast(self, state: Rankings, clients: Sequence[ClientId]) -> Mapping[ClientId, Invitation]:
        masks: tuple[Mask, ...] = ()
        if self.grouping.infers:
            masks = tuple(mask_layers(self._shown(state, group), state.keep) for group in range(state.count))
        late = [client for client in clients if self._is_late(state, client)]
        # Whoever missed the clustering starts where everybody else did, or its ballot would not compare.
        again = everybody_gets(Invitation(state.origin, ()), late) if late else {}
        return everybody_gets(Invitation(state.overall, masks), clients) | again

    def _is_late(self, state: Rankings, client: ClientId) -> bool:
        return self.grouping.clusters and state.prepared and client not in state.assigned

    def train(self, message: Invitation, client: Client, learner: Learner) -> Ballots:
        parts = self._parts(message.masks, client, learner)
        rankings = (learner.fit_scores(message.ranking, rows, part=place) for place, (_, rows) in enumerate(parts))
        return Ballots(tuple(group for group, _ in parts), tuple(rankings))

    def _parts(self, masks: Sequence[Mask], client: Client, learner: Learner) -> list[tuple[GroupId, Examples]]:
        """The groups this client speaks for, and the examples it does so with."""
        if self.grouping.infers:
            return [(self.grouping.find(masks, client, learner), client.train)]
        if self.grouping.clusters or client.train.group is None or isinstance(self.grouping, OneGroup):
            return [(NO_GROUP, client.train)]
        if self.inside == "majority":
            return [(int(np.bincount(client.train.group).argmax()), client.train)]
        return [(group, client.train.of_group(group)) for group in client.groups()]

    def check(self, state: Rankings, client: ClientId, reply: Ballots) -> None:
        if len(reply.groups) != len(reply.rankings) or not reply.groups:
            raise WireError(f"a reply has {len(reply.rankings)} rankings for {len(reply.groups)} groups")
        if len(set(reply.groups)) != len(reply.groups):
            raise WireError("a reply votes twice in one group")
        # Only groups that lie inside clients give one more than one vote; where some declare theirs, they do not.
        alone = self.grouping.infers or self.grouping.clusters or client in state.assigned
        if (alone or state.assigned) and len(reply.groups) > 1:
            raise WireError(f"a reply votes in {len(reply.groups)} groups; its client is in one")
        for group in reply.groups:
            if group == NO_GROUP and alone and not self.grouping.infers:
                continue
            if not 0 <= group < state.count:
                raise WireError(f"a reply votes in group {group}; there are groups 0 to {state.count - 1}")
            if not self.grouping.infers and state.assigned.get(client, group) != group:
                raise WireError(f"a reply votes in group {group}; its client is in group {state.assigned[client]}")

    def aggregate(self, state: Rankings, replies: Mapping[ClientId, Ballots]) -> Rankings:
        if not replies:
            return state
        if not state.prepared:
            found = self.grouping.cluster(FirstRankings(replies), state.count, state.seed)
            return replace(state, assigned=found.assigned, centroids=found.centroids, facts=found.facts, prepared=True)
        late = [client for client in replies if self._is_late(state, client)]
        if late:
            return self._admit(state, late, replies)
        said = self._said(state, replies)
        assigned = state.assigned | said if said else state.assigned  # not copied in vain: it may name very many
        elected = elect(assigned, replies)
        groups = state.groups | elected
        # One vote a group, however many clients it has: this is what makes a small group count.
        initial = dict.fromkeys(range(state.count), state.origin) if self.absent == "init_vote" else {}
        voting = elected if self.absent == "present_only" else initial | groups
        overall = vote_layers(voting[group] for group in sorted(voting))
        return replace(state, overall=overall, groups=groups, assigned=assigned)

    def _admit(self, state: Rankings, late: Sequence[ClientId], replies: Mapping[ClientId, Ballots]) -> Rankings:
        """Find the groups of clients that were not clustered; they vote from the next time on."""
        found = {
            client: self.grouping.nearest(replies[client].rankings[0], state.centroids, state.seed) for client in late
        }
        others = {client: reply for client, reply in replies.items() if client not in late}
        return replace(self.aggregate(state, others), assigned=dict(sorted((state.assigned | found).items())))

    def _said(self, state: Rankings, replies: Mapping[ClientId, Ballots]) -> dict[ClientId, GroupId]:
        """The groups that clients found, or, where they could only guess among random masks, the server."""
        if not self.grouping.infers:
            return {}
        if self.grouping.warm and not state.assigned:
            return RankClustering(groups=state.count).cluster(FirstRankings(replies), state.count, state.seed).assigned
        return {client: reply.groups[0] for client, reply in replies.items()}

    def serve(self, state: Rankings, clients: Sequence[ClientId]) -> Mapping[ClientId, Masks]:
        overall = mask_layers(state.overall, state.keep)
        masks = {group: mask_layers(self._shown(state, group), state.keep) for group in range(state.count)}
        everything = Masks(tuple(masks), tuple(sorted(state.groups)), tuple(masks.values()), overall)
        own = {
            group: Masks((group,), (group,) if group in state.groups else (), (mask,), overall)
            for group, mask in masks.items()
        }
        if self.grouping.infers:
            return everybody_gets(everything, clients)
        return {client: own[state.assigned[client]] if client in state.assigned else everything for client in clients}

    def model_for(self, message: Masks, client: Client, learner: Learner) -> ClientModels:
        overall = ClientModel(message.overall)
        masks = dict(zip(message.groups, message.masks, strict=True))
        if self.grouping.infers:
            own = self.grouping.find(message.masks, client, learner)
            # Nobody has taught the start of a group that never voted: its clients use everybody's model meanwhile.
            return ClientModels(
                {"group": ClientModel(masks[own]) if own in message.voted else overall, "global": overall}, own
            )
        if len(masks) == 1:
            ((own, mask),) = masks.items()
            return ClientModels({"group": ClientModel(mask), "global": overall}, own)
        declared = self.grouping.declared(Population({client.id: client.group})).get(client.id)
        if declared in masks:
            return ClientModels({"group": ClientModel(masks[declared]), "global": overall}, declared)
        views = {"group": ClientModel(message.overall, by_group=masks), "global": overall}
        if len(masks) == 2 and client.test.group is not None:
            # Two groups inside a client, such as women and men: what if one group's model served everybody?
            views |= {f"as_group{group}": ClientModel(mask) for group, mask in masks.items()}
        return ClientModels(views)

    def welcome(self, state: Rankings, client: Client, learner: Learner) -> ClientModels:
        if self._is_late(state, client.id):
            invitation = self.broadcast(state, [client.id])[client.id]
            state = self.aggregate(state, {client.id: self.train(invitation, client, replace(learner, number=0))})
        return super().welcome(state, client, learner)

    def found(self, state: Rankings) -> Mapping[ClientId, GroupId] | None:
        return state.assigned if self.grouping.infers or self.grouping.clusters else None

    def models(self, state: Rankings) -> Mapping[str, Mask]:
        masks = {f"group{group}": mask_layers(ranking, state.keep) for group, ranking in sorted(state.groups.items())}
        return {"global": mask_layers(state.overall, state.keep)} | masks

    def notes(self, state: Rankings) -> Mapping[str, Any]:
        clustering = {"clustering": dict(state.facts)} if state.facts else {}
        return {"groups_seen": sorted(state.groups)} | clustering


class FirstRankings(Mapping[ClientId, Ranking]):
    """The first ranking of each reply, read when it is asked for: replies may be more than memory holds."""

    def __init__(self, replies: Mapping[ClientId, Ballots]):
        self.replies = replies

    def __getitem__(self, client: ClientId) -> Ranking:
        return self.replies[client].rankings[0]

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.replies)

    def __len__(self) -> int:
        return len(self.replies)


def elect(assigned: Mapping[ClientId, GroupId], replies: Mapping[ClientId, Ballots]) -> dict[GroupId, Ranking]:
    """The vote of each group; a ballot counts where the server knows its client belongs, else where it says."""
    cast: dict[GroupId, list[Ranking]] = {}
    for client, reply in replies.items():
        for group, ranking in zip(reply.groups, reply.rankings, strict=True):
            place = assigned[client] if len(reply.groups) == 1 and client in assigned else group
            cast.setdefault(place, []).append(ranking)
    return {group: vote_layers(cast[group]) for group in sorted(cast)}


@dataclass(frozen=True)
class FRL(E2FL):
    """E2FL with everybody in one group: a single flat vote."""

    grouping: Grouping = field(default_factory=OneGroup, init=False)
    absent: str = field(default="carry_forward", init=False)
    inside: str = field(default="each", init=False)
    final_full_vote: bool = field(default=False, init=False)
