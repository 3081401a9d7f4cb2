"""E2FL: clients send rankings of edges.

The server votes inside each group, then once across the groups.

Mozaffari and Houmansadr, "E2FL: Equal and Equitable Federated Learning". With one group it is FRL
(Mozaffari et al., "Every Vote Counts: Ranking-Based Training of Federated Learning to Resist
Poisoning Attacks", USENIX Security 2023).

Departures, all where the paper is silent: ties go to the lower edge number; the mask and the
ranking are decided by the same non-negative initial scores; the setting `absent` decides how a
group without ballots in a round votes; a client with several groups casts one ballot for each;
ballots used only for clustering carry only the layers that clustering reads; a client that missed
the clustering sends its ballot for it the next time it is asked, and votes from the time after
that. `incumbents` is not in the paper: 0, the default, is the paper's vote.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, cast

import numpy as np
from typing_extensions import Doc

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, Description
from e2fl.data.federated import Client, ClientId, Examples, GroupId, Population
from e2fl.errors import ConfigError, WireError, expect
from e2fl.grouping import Grouping, KnownGroups, Membership
from e2fl.grouping.base import ExamplesByGroup, Replies
from e2fl.learning import Learner
from e2fl.models import Model
from e2fl.participation import Ask, Draw
from e2fl.rankings.ballots import Ballot, Boundary, Buckets, Exact, Reference
from e2fl.rankings.messages import (
    AnyBallots,
    AnyInvitation,
    AnyMasks,
    Ballots,
    CodedBallots,
    CodedInvitation,
    Invitation,
    Masks,
    ServedRankings,
    UncodedBallots,
)
from e2fl.rankings.order import Mask, Ranking, mask_layers
from e2fl.rankings.votes import Borda, Vote, elect

ABSENT = ("carry_forward", "present_only", "init_vote", "members")
INSIDE = ("each", "majority")
FOLDS = 5  # one fifth of a client's training rows decides between weights of its own vote


@dataclass(frozen=True)
class Rankings:
    """The state of the server after a round."""

    global_ranking: Ranking
    groups: dict[GroupId, Ranking]  # the latest ranking of every group that has voted
    membership: Membership
    keep: float
    # Kept if absent groups vote with it or ballots are coded.
    initial: Ranking = field(default_factory=dict)
    # Inputs per unit, by layer; for coded ballots.
    fan_in: dict[str, int] = field(default_factory=dict)
    # The elected global ranking, if clients get it rounded.
    unrounded: Ranking = field(default_factory=dict)
    # With smoothing, what is served instead of the latest rankings: averages over rounds.
    smooth_groups: dict[GroupId, Ranking] = field(default_factory=dict)
    smooth_global: Ranking = field(default_factory=dict)


@dataclass(frozen=True)
class E2FL(Algorithm[Rankings, AnyInvitation, AnyBallots, AnyMasks]):
    """E2FL: clients send rankings of edges.

    The server votes inside each group, then once across the groups.

    `grouping` says how clients find their group: `KnownGroups`, or a strategy that infers groups.
    `absent` says how a group without ballots votes in a round, and `incumbents` how many ballots
    its previous ranking counts for. `smoothing` averages the rankings that are served over rounds
    and leaves training as it is. With `own_vote`, a client's own ranking takes part in the vote on
    what it is served. `ballot` and `downlink` are the formats of rankings that clients
    send and receive: exact as in the paper, or coarse and compressed.
    """

    title: ClassVar[str] = "E2FL"
    paper: ClassVar[str] = "Mozaffari and Houmansadr, arXiv 2205.10454"

    grouping: Grouping = field(default_factory=KnownGroups)
    absent: Annotated[
        str,
        Doc(
            "or present_only, init_vote, members: how a group without ballots in a round votes; "
            "members: with its last ranking, while any client belongs to it"
        ),
    ] = "carry_forward"
    inside: Annotated[
        str, Doc("or majority: a client with several groups votes in each, or in its largest")
    ] = "each"
    final_full_vote: Annotated[
        bool, Doc("one more round, in which all clients of every small group vote")
    ] = False
    incumbents: Annotated[
        float,
        Doc("ballots that a group's previous ranking counts for in its next vote; 0: the paper"),
    ] = 0.0
    smoothing: Annotated[
        float,
        Doc("weight of the ranking served before, relative to the one just elected; 0: the paper"),
    ] = 0.0
    vote: Annotated[Vote, Doc("the rule that elects a ranking from ballots")] = field(
        default_factory=Borda
    )
    ballot: Annotated[
        Ballot, Doc("how clients send rankings: exact as in the paper, or coarse")
    ] = field(default_factory=Exact)
    downlink: Annotated[Ballot, Doc("how the server sends the global ranking")] = field(
        default_factory=Exact
    )

    own_vote: Annotated[
        tuple[float, ...],
        Doc(
            "weight of a client's own ranking in what it is served, relative to its group's; "
            "of several, each client chooses one on a fifth of its training rows; none: the paper"
        ),
    ] = ()
    served: Annotated[
        Ballot, Doc("with own_vote, how group rankings are served; two buckets: as masks")
    ] = field(default_factory=Buckets)

    trains_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.absent in ABSENT, "absent", " or ".join(ABSENT))
        self.require(self.inside in INSIDE, "inside", " or ".join(INSIDE))
        for name in ("incumbents", "smoothing"):
            weight = getattr(self, name)
            self.require(weight == 0 or 0.001 <= weight <= 1000, name, "0, or 0.001 to 1000")
        for weight in self.own_vote:
            self.require(weight == 0 or 0.001 <= weight <= 1000, "own_vote", "0, or 0.001 to 1000")
        if self.final_full_vote and self.absent == "present_only":
            raise ConfigError(
                "algorithm.final_full_vote would let only small groups vote; use carry_forward"
            )
        if isinstance(self.downlink, Boundary):
            raise ConfigError(
                "algorithm.downlink cannot be 'boundary': clients need the whole ranking; "
                "use 'buckets'"
            )

    @property
    def coded(self) -> bool:
        """Whether messages are coded; otherwise they are those of the paper, to the byte."""
        return self.ballot != Exact() or self.downlink != Exact()

    # On the server.

    def start(self, model: Model, population: Population, seed: int) -> Rankings:
        ranking = model.supernet(seed).ranking
        begun = self.grouping.begin(model, population, seed)
        membership = expect(begun, Membership, self.grouping, "begin")
        known = self.coded or self.own_vote or self.absent == "init_vote"
        initial = ranking if known else {}
        return Rankings(ranking, {}, membership, model.keep, initial, fan_in_of(model))

    def rounds(self, asked: int, population: Population) -> int:
        return asked + 1 if self.final_full_vote else asked

    def ask(
        self, state: Rankings, population: Population, round_number: int, last: int, draw: Draw
    ) -> Ask:
        preparation = self.grouping.ask(state.membership, population)
        if preparation is not None:
            return preparation
        small: list[ClientId] = []
        if self.final_full_vote and round_number == last:
            # All clients of groups that often have a single ballot.
            assignments = sorted(state.membership.assignments.items())
            sizes = Counter(group for _, group in assignments)
            small = [
                client for client, group in assignments if sizes[group] <= self.clients_per_round
            ]
        return Ask(small or draw(self.clients_per_round))

    def broadcast(
        self, state: Rankings, clients: Sequence[ClientId]
    ) -> Mapping[ClientId, AnyInvitation]:
        plain = self.grouping.invite(
            state.membership,
            clients,
            state.global_ranking,
            lambda group: mask_layers(self._ranking(state, group, state.groups), state.keep),
        )
        if not self.coded:
            return plain
        distinct = {id(invitation): invitation for invitation in plain.values()}
        coded = {
            key: CodedInvitation.of(invitation, self.downlink, self._origin(state))
            for key, invitation in distinct.items()
        }
        return {client: coded[id(invitation)] for client, invitation in plain.items()}

    def _origin(self, state: Rankings) -> Reference:
        """Return the reference for what the server sends: the initial ranking."""
        return Reference(state.initial, state.fan_in, state.keep)

    def check(self, state: Rankings, client: ClientId, reply: AnyBallots) -> Ballots:
        """Return the ballots of a reply, decoded against the ranking that its client was sent."""
        expected = CodedBallots if self.coded else Ballots
        if not isinstance(reply, expected):
            raise WireError(f"a reply is {type(reply).__name__}; {expected.__name__} is expected")
        # Before decoding, because a few bytes may stand for many rankings.
        ballots = len(reply.rankings if isinstance(reply, Ballots) else reply.lengths)
        self.grouping.check(state.membership, client, reply.groups, ballots)
        if isinstance(reply, Ballots):
            return reply
        return reply.decode(self.ballot, self._reference(state, client))

    def _reference(self, state: Rankings, client: ClientId) -> Reference:
        """Return the reference for a client's ballots: the ranking it was sent."""
        elected = state.unrounded or state.global_ranking
        start = self.grouping.start_for(state.membership, client, state.global_ranking)
        base = self.grouping.start_for(state.membership, client, elected)
        reference = Reference(start, state.fan_in, state.keep, base)
        layers = self.grouping.ask_layers(state.membership)
        return reference if layers is None else reference.only(layers)

    def aggregate(self, state: Rankings, replies: Mapping[ClientId, AnyBallots]) -> Rankings:
        ballots = cast(Replies, replies)
        membership, by_group = expect(
            self.grouping.sort(state.membership, ballots), tuple, self.grouping, "sort"
        )
        # One vote inside each group, in which its previous ranking may take part.
        elected = {
            group: elect(rankings, state.groups.get(group), self.incumbents, rule=self.vote)
            for group, rankings in by_group.items()
        }
        if not elected:
            return replace(state, membership=membership)
        groups = state.groups | elected
        # One vote per group, whatever its size: this is what makes a small group count.
        voters = self._voters(state, membership, groups, elected)
        global_ranking = elect(voters, rule=self.vote)
        after = replace(state, global_ranking=global_ranking, groups=groups, membership=membership)
        if self.downlink != Exact():  # clients train from the ranking as they decode it
            rounded = self.downlink.rounded(global_ranking, self._origin(state))
            after = replace(after, global_ranking=rounded, unrounded=global_ranking)
        return self._smoothed(after, elected, global_ranking) if self.smoothing else after

    def _voters(
        self,
        state: Rankings,
        membership: Membership,
        groups: dict[GroupId, Ranking],
        elected: dict[GroupId, Ranking],
    ) -> Iterable[Ranking]:
        """Return the rankings that vote across groups.

        `absent` decides about groups without ballots this round.
        """
        if self.absent == "present_only":
            return elected.values()
        if self.absent == "init_vote":
            return [groups.get(group, state.initial) for group in range(state.membership.groups)]
        if self.absent == "members":
            alive = elected.keys() | set(membership.assignments.values())
            return [ranking for group, ranking in groups.items() if group in alive]
        return groups.values()

    def _smoothed(
        self, state: Rankings, elected: dict[GroupId, Ranking], global_ranking: Ranking
    ) -> Rankings:
        """Return the state with these rankings averaged into those that are served."""

        def averaged(ranking: Ranking, before: Ranking | None) -> Ranking:
            return elect([ranking], before, self.smoothing, rule=self.vote)

        groups = {
            group: averaged(ranking, state.smooth_groups.get(group))
            for group, ranking in elected.items()
        }
        smooth_global = averaged(global_ranking, state.smooth_global or None)
        return replace(
            state, smooth_groups=state.smooth_groups | groups, smooth_global=smooth_global
        )

    def _ranking(
        self, state: Rankings, group: GroupId, rankings: Mapping[GroupId, Ranking]
    ) -> Ranking:
        """Return the ranking of a group.

        A group that has not voted uses its start, or the initial or global ranking.
        """
        fallback = state.initial if self.absent == "init_vote" else state.global_ranking
        return rankings.get(group, state.membership.starts.get(group, fallback))

    def _served(
        self, state: Rankings, groups: Iterable[GroupId]
    ) -> tuple[dict[GroupId, Ranking], Ranking]:
        """Return the rankings of these groups, and the global one."""
        served = state.groups | state.smooth_groups
        rankings = {group: self._ranking(state, group, served) for group in sorted(groups)}
        return rankings, state.smooth_global or state.global_ranking

    def serve(self, state: Rankings, clients: Sequence[ClientId]) -> Mapping[ClientId, AnyMasks]:
        offers = {client: self.grouping.offer(state.membership, client) for client in clients}
        offered = {group for groups in offers.values() for group in groups}
        rankings, global_ranking = self._served(state, offered)
        global_mask = mask_layers(global_ranking, state.keep)

        def message(groups: tuple[GroupId, ...]) -> AnyMasks:
            if not self.own_vote:
                voted = tuple(group for group in groups if group in state.groups)
                masks = tuple(mask_layers(rankings[group], state.keep) for group in groups)
                return Masks(groups, voted, masks, global_mask)
            # A group that never voted has learned nothing: it stands for the global ranking.
            codes = [
                self.served.encode(
                    rankings[group] if group in state.groups else global_ranking,
                    self._origin(state),
                )
                for group in groups
            ]
            return ServedRankings(groups, tuple(map(len, codes)), b"".join(codes), global_mask)

        messages = {groups: message(groups) for groups in set(offers.values())}
        return {client: messages[groups] for client, groups in offers.items()}

    def describe(self, state: Rankings) -> Description:
        def models() -> dict[str, Mask]:
            rankings, global_ranking = self._served(state, state.groups)
            named = {"global": global_ranking} | {f"group{q}": rankings[q] for q in rankings}
            return {name: mask_layers(ranking, state.keep) for name, ranking in named.items()}

        membership = state.membership
        clustering = {"clustering": dict(membership.metadata)} if membership.metadata else {}
        return Description(
            models=models,
            metadata={"groups_seen": sorted(state.groups)} | clustering,
            assignments=membership.assignments if membership.found else None,
        )

    # On a client.

    def opened(self, message: AnyInvitation, learner: Learner) -> Invitation:
        """Return an invitation, decoded if it is coded."""
        if isinstance(message, CodedInvitation):
            keep = learner.model.keep
            origin = Reference(learner.supernet.ranking, fan_in_of(learner.model), keep)
            message = message.decode(self.downlink, origin, self.grouping.most_masks())
        assert isinstance(message, Invitation)
        return message

    def train(self, message: AnyInvitation, client: Client, learner: Learner) -> AnyBallots:
        message = self.opened(message, learner)
        parts = checked_parts(
            self.grouping.examples_by_group(message.masks, client, learner), self.grouping
        )
        if self.inside == "majority" and len(parts) > 1:
            largest, _ = max(parts, key=lambda part: len(part[1]))  # ties: the first
            parts = [(largest, client.train)]
        groups = tuple(group for group, _ in parts)
        rankings = tuple(
            learner.fit_scores(message.ranking, rows, part=position)
            for position, (_, rows) in enumerate(parts)
        )
        if not self.coded:
            return Ballots(groups, rankings)
        reference = Reference(message.ranking, fan_in_of(learner.model), learner.model.keep)
        return UncodedBallots(groups, rankings, self.ballot, reference, learner.meter)

    def model_for(self, message: AnyMasks, client: Client, learner: Learner) -> ClientModels:
        rankings: dict[GroupId, Ranking] = {}
        if isinstance(message, ServedRankings):
            keep = learner.model.keep
            origin = Reference(learner.supernet.ranking, fan_in_of(learner.model), keep)
            rankings = message.decode(self.served, origin)
            own_masks = tuple(mask_layers(ranking, keep) for ranking in rankings.values())
            message = Masks(message.groups, message.groups, own_masks, message.global_mask)
        assert isinstance(message, Masks)
        global_model = ClientModel(message.global_mask)
        masks = dict(zip(message.groups, message.masks, strict=True))
        own = self.grouping.own_group(message.groups, message.masks, client, learner)
        if own is not None and own not in masks:
            raise ConfigError(
                f"{type(self.grouping).__name__}.own_group returned {own!r}; "
                f"it must return one of {message.groups}, or None"
            )
        if own is not None:
            # A group that never voted has learned nothing: its clients use the global model.
            model = global_model
            if own in message.voted:
                ranking = rankings.get(own)
                mask = self._own_mask(ranking, client.train, learner) if ranking else masks[own]
                model = ClientModel(mask)
            return ClientModels({"group": model, "global": global_model}, own)
        by_group = masks | {
            group: self._own_mask(ranking, client.train.of_group(group), learner)
            for group, ranking in rankings.items()
            if client.train.group is not None
        }
        views = {
            "group": ClientModel(message.global_mask, by_group=by_group),
            "global": global_model,
        }
        if len(masks) == 2 and client.test.group is not None:
            # Two groups inside a client, such as women and men: what if one group's model served
            # all rows?
            views |= {f"as_group{group}": ClientModel(mask) for group, mask in masks.items()}
        return ClientModels(views)

    def _own_mask(self, ranking: Ranking, examples: Examples, learner: Learner) -> Mask:
        """Return the mask that a group's ranking and the client's own one elect.

        The client trains its own ranking from the group's on these examples. Of several weights, it
        takes the one with the lowest loss on every fifth example, after training on the others.
        """

        def elected(own: Ranking, weight: float) -> Mask:
            return mask_layers(elect([ranking], own, weight, rule=self.vote), learner.model.keep)

        rows = np.flatnonzero(examples.y >= 0)
        if not len(rows):
            return mask_layers(ranking, learner.model.keep)
        weight = self.own_vote[0]
        if len(self.own_vote) > 1 and len(rows) >= FOLDS:
            held_out = examples.take(rows[::FOLDS])
            own = learner.fit_scores(ranking, examples.take(np.setdiff1d(rows, rows[::FOLDS])))
            losses = [
                learner.loss(learner.weights_of(elected(own, weight)), held_out)
                for weight in self.own_vote
            ]
            weight = self.own_vote[int(np.argmin(losses))]
        own = learner.fit_scores(ranking, examples.take(rows))
        return elected(own, weight)

    def for_unseen(self, state: Rankings, client: Client, learner: Learner) -> ClientModels:
        membership = self.grouping.place_unseen(state.membership, client, learner)
        return super().for_unseen(replace(state, membership=membership), client, learner)


def checked_parts(parts: object, grouping: Grouping) -> ExamplesByGroup:
    """Return what `Grouping.examples_by_group` returned if it is pairs of a group and examples, or
    raise an error.
    """
    pairs = expect(parts, list, grouping, "examples_by_group")
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], Examples):
            raise ConfigError(
                f"{type(grouping).__name__}.examples_by_group returned {pair!r:.60}; it must "
                "return pairs of a group and examples, such as [(0, client.train)]"
            )
    return pairs


def fan_in_of(model: Model) -> dict[str, int]:
    """Return the number of inputs per unit, for every layer."""
    return {layer.name: layer.fan_in for layer in model.spec.layers}
