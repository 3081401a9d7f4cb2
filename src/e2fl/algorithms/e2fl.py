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
that. `incumbents`, `smoothing`, `own_vote` and `reading` are not in the paper; their defaults are
the paper's algorithm.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar, cast

from typing_extensions import Doc

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, Description, Election
from e2fl.algorithms.readings import (
    AsMask,
    AsWeights,
    Offer,
    Reading,
    fan_in_of,
    origin_of,
    params_from,
)
from e2fl.data.federated import Client, ClientId, Examples, GroupId, Population
from e2fl.errors import ConfigError, WireError, expect
from e2fl.grouping import Grouping, KnownGroups, Membership
from e2fl.grouping.base import ExamplesByGroup, Replies
from e2fl.learning import Learner
from e2fl.models import Model, Params
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
    RankedBallots,
    RankedWeights,
    ServedRankings,
    TabledBallots,
    UncodedBallots,
)
from e2fl.rankings.order import Mask, Ranking, Table, mask_layers, median_of, table_of
from e2fl.rankings.votes import Borda, Vote, elect, name_of, share_of

ABSENT = ("carry_forward", "present_only", "init_vote", "members")
INSIDE = ("each", "majority")
READINGS = ("mask", "weights")


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
    # Where rankings are read as weights: the table, and the shapes of the layers.
    table: Table = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class E2FL(Algorithm[Rankings, AnyInvitation, AnyBallots, AnyMasks]):
    """E2FL: clients send rankings of edges.

    The server votes inside each group, then once across the groups.

    `grouping` says how clients find their group: `KnownGroups`, or a strategy that infers groups.
    `absent` says how a group without ballots votes in a round, and `incumbents` how many ballots
    its previous ranking counts for. `smoothing` averages the rankings that are served over rounds
    and leaves training as it is. With `own_vote`, a client's own ranking takes part in the vote on
    what it is served. `reading` says whether a ranking selects frozen weights or orders trained
    ones. `ballot` and `downlink` are the formats of rankings that clients send and receive: exact
    as in the paper, or coarse and compressed.
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

    reading: Annotated[
        str,
        Doc(
            "or weights: the place of an edge in a ranking is its weight, looked up in a table "
            "that clients adapt; the server then sends every ranking in the format of downlink"
        ),
    ] = "mask"

    @property
    def trains_scores(self) -> bool:  # type: ignore[override]
        return not self.ranks_weights

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.absent in ABSENT, "absent", " or ".join(ABSENT))
        self.require(self.inside in INSIDE, "inside", " or ".join(INSIDE))
        self.require(self.reading in READINGS, "reading", " or ".join(READINGS))
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
        return self.ranks_weights or self.ballot != Exact() or self.downlink != Exact()

    @property
    def ranks_weights(self) -> bool:
        """Whether rankings are read as weights."""
        return self.reading == "weights"

    # On the server.

    def start(self, model: Model, population: Population, seed: int) -> Rankings:
        ranking = model.supernet(seed).ranking
        begun = self.grouping.begin(model, population, seed)
        membership = expect(begun, Membership, self.grouping, "begin")
        known = self.coded or self.own_vote or self.absent == "init_vote"
        initial = ranking if known else {}
        state = Rankings(ranking, {}, membership, model.keep, initial, fan_in_of(model))
        if not self.ranks_weights:
            return state
        shapes = {layer.name: layer.shape for layer in model.spec.layers}
        return replace(state, table=table_of(model.initial_weights(seed)), shapes=shapes)

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
        def sent_of(group: GroupId) -> Mask:
            ranking = self._ranking(state, group, state.groups)
            # A grouping passes on what it is given: here the ranking itself.
            return cast(Mask, ranking) if self.ranks_weights else mask_layers(ranking, state.keep)

        plain = self.grouping.invite(state.membership, clients, state.global_ranking, sent_of)
        if not self.coded:
            return plain
        origin = self._origin(state)

        def encoded(invitation: Invitation) -> AnyInvitation:
            if not self.ranks_weights:
                return CodedInvitation.of(invitation, self.downlink, origin)
            groups = cast(Mapping[int, Ranking], dict(enumerate(invitation.masks)))
            return RankedWeights.of(invitation.ranking, groups, state.table, self.downlink, origin)

        distinct = {id(invitation): invitation for invitation in plain.values()}
        coded = {key: encoded(invitation) for key, invitation in distinct.items()}
        return {client: coded[id(invitation)] for client, invitation in plain.items()}

    def _origin(self, state: Rankings) -> Reference:
        """Return the reference for what the server sends: the initial ranking."""
        return Reference(state.initial, state.fan_in, state.keep)

    def check(self, state: Rankings, client: ClientId, reply: AnyBallots) -> Ballots:
        """Return the ballots of a reply, decoded against the ranking that its client was sent."""
        expected: type[AnyBallots] = CodedBallots if self.coded else Ballots
        if self.ranks_weights:
            expected = TabledBallots
        if type(reply) is not expected:
            raise WireError(f"a reply is {type(reply).__name__}; {expected.__name__} is expected")
        # Before decoding, because a few bytes may stand for many rankings.
        ballots = (
            reply.lengths if isinstance(reply, CodedBallots) else cast(Ballots, reply).rankings
        )
        self.grouping.check(state.membership, client, reply.groups, len(ballots))
        if isinstance(reply, TabledBallots):
            return reply.decode_tables(self.ballot, self._reference(state, client), state.table)
        if isinstance(reply, CodedBallots):
            return reply.decode(self.ballot, self._reference(state, client))
        return cast(Ballots, reply)

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
        global_ranking = elect(voters.values(), rule=self.vote)
        after = replace(state, global_ranking=global_ranking, groups=groups, membership=membership)
        if self.ranks_weights:
            tables = [
                table
                for client, reply in cast(Mapping[ClientId, RankedBallots], replies).items()
                if not self.grouping.is_late(state.membership, client)
                for table in reply.tables
            ]
            after = replace(after, table=median_of(tables))
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
    ) -> dict[GroupId, Ranking]:
        """Return the rankings that vote across groups, one of each group.

        `absent` decides about groups without ballots this round.
        """
        if self.absent == "present_only":
            return elected
        if self.absent == "init_vote":
            every = range(state.membership.groups)
            return {group: groups.get(group, state.initial) for group in every}
        if self.absent == "members":
            alive = elected.keys() | set(membership.assignments.values())
            return {group: ranking for group, ranking in groups.items() if group in alive}
        return groups

    def election(
        self, before: Rankings, replies: Mapping[ClientId, AnyBallots], after: Rankings
    ) -> Election:
        elected = {
            group: ranking
            for group, ranking in after.groups.items()
            if before.groups.get(group) is not ranking
        }

        def ballots() -> Iterator[tuple[ClientId, GroupId, Ranking]]:
            assignments = after.membership.assignments
            for client, reply in cast(Replies, replies).items():
                alone = len(reply.groups) == 1
                for group, ranking in zip(reply.groups, reply.rankings, strict=True):
                    own = assignments.get(client, group) if alone else group
                    if not self.grouping.is_late(before.membership, client):
                        yield client, own, ranking

        voters = self._voters(before, after.membership, after.groups, elected) if elected else {}
        weights = {"incumbents": self.incumbents, "smoothing": self.smoothing}
        rules = {
            "vote": {"name": name_of(self.vote), **asdict(self.vote)},
            "absent": self.absent,
            "keep": before.keep,
            # Whether the masks that are served are those of elected rankings.
            "masks": not self.ranks_weights and (self.downlink == Exact() or self.smoothing > 0),
            **{name: share_of(weight).as_integer_ratio() for name, weight in weights.items()},
        }
        global_ranking = after.unrounded or after.global_ranking
        return Election(rules, ballots, before.groups, elected, voters, global_ranking)

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
        origin = self._origin(state)

        def message(groups: tuple[GroupId, ...]) -> AnyMasks:
            voted = tuple(group for group in groups if group in state.groups)
            # A group that never voted has learned nothing: it stands for the global ranking.
            own = {group: rankings[group] if group in voted else global_ranking for group in groups}
            if self.ranks_weights:
                return RankedWeights.of(global_ranking, own, state.table, self.downlink, origin)
            global_mask = mask_layers(global_ranking, state.keep)
            if not self.own_vote:
                masks = tuple(mask_layers(rankings[group], state.keep) for group in groups)
                return Masks(groups, voted, masks, global_mask)
            codes = [self.served.encode(ranking, origin) for ranking in own.values()]
            return ServedRankings(groups, tuple(map(len, codes)), b"".join(codes), global_mask)

        messages = {groups: message(groups) for groups in set(offers.values())}
        return {client: messages[groups] for client, groups in offers.items()}

    def describe(self, state: Rankings) -> Description:
        def model(ranking: Ranking) -> Mask | Params:
            if self.ranks_weights:
                return params_from(ranking, state.table, state.shapes)
            return mask_layers(ranking, state.keep)

        def models() -> dict[str, Mask | Params]:
            rankings, global_ranking = self._served(state, state.groups)
            named = {"global": global_ranking} | {f"group{q}": rankings[q] for q in rankings}
            return {name: model(ranking) for name, ranking in named.items()}

        membership = state.membership
        clustering = {"clustering": dict(membership.metadata)} if membership.metadata else {}
        return Description(
            models=models,
            metadata={"groups_seen": sorted(state.groups)} | clustering,
            assignments=membership.assignments if membership.found else None,
        )

    # On a client.

    def opened(self, message: AnyInvitation, learner: Learner) -> Invitation:
        """Return an invitation, decoded if it is coded; where rankings are read as weights, with
        the masks of the groups' rankings.
        """
        origin, most = origin_of(learner), self.grouping.most_masks()
        if isinstance(message, CodedInvitation):
            return message.decode(self.downlink, origin, most)
        if isinstance(message, RankedWeights):
            ranking, rankings, _ = message.decode(self.downlink, origin, most)
            masks = (mask_layers(own, origin.keep) for own in rankings.values())
            return Invitation(ranking, tuple(masks))
        assert isinstance(message, Invitation)
        return message

    def _reading(self, learner: Learner, table: Table) -> Reading[Any]:
        """Return how a client reads rankings."""
        return AsWeights(learner, table) if table else AsMask(learner, self.vote)

    def train(self, message: AnyInvitation, client: Client, learner: Learner) -> AnyBallots:
        origin = origin_of(learner)
        table: Table = {}
        if isinstance(message, RankedWeights):
            most = self.grouping.most_masks()
            start, rankings, table = message.decode(self.downlink, origin, most)
            models = [self._reading(learner, table).model(own) for own in rankings.values()]
        else:
            invitation = self.opened(message, learner)
            start, models = invitation.ranking, list(invitation.masks)
        parts = checked_parts(
            self.grouping.examples_by_group(cast(Sequence[Mask], models), client, learner),
            self.grouping,
        )
        if self.inside == "majority" and len(parts) > 1:
            largest, _ = max(parts, key=lambda part: len(part[1]))  # ties: the first
            parts = [(largest, client.train)]
        groups = tuple(group for group, _ in parts)
        reading = self._reading(learner, table)
        ballots = [
            reading.ballot(reading.fit(start, rows, part=position))
            for position, (_, rows) in enumerate(parts)
        ]
        voted = tuple(ranking for ranking, _ in ballots)
        if not self.coded:
            return Ballots(groups, voted)
        tables = tuple(own for _, own in ballots if own)
        reference = replace(origin, ranking=start)
        return UncodedBallots(groups, voted, self.ballot, reference, learner.meter, tables)

    def model_for(self, message: AnyMasks, client: Client, learner: Learner) -> ClientModels:
        offer = self._offer(message, learner)
        reading = self._reading(learner, offer.table)
        own = self.grouping.own_group(
            tuple(offer.models), cast(Sequence[Mask], list(offer.models.values())), client, learner
        )
        if own is not None and own not in offer.models:
            raise ConfigError(
                f"{type(self.grouping).__name__}.own_group returned {own!r}; "
                f"it must return one of {tuple(offer.models)}, or None"
            )

        def model(group: GroupId, examples: Examples) -> Mask | Params:
            if not self.own_vote:
                return offer.models[group]
            return reading.own_model(offer.rankings[group], examples, self.own_vote)

        global_model = ClientModel(offer.global_model)
        if own is not None:
            # A group that never voted has learned nothing: its clients use the global model.
            group_model = global_model
            if own in offer.voted:
                group_model = ClientModel(model(own, client.train))
            return ClientModels({"group": group_model, "global": global_model}, own)
        by_group = dict(offer.models)
        if client.train.group is not None:
            by_group = {group: model(group, client.train.of_group(group)) for group in by_group}
        views = {
            "group": ClientModel(offer.global_model, by_group=by_group),
            "global": global_model,
        }
        if len(by_group) == 2 and client.test.group is not None:
            # Two groups inside a client, such as women and men: what if one group's model served
            # all rows?
            views |= {f"as_group{q}": ClientModel(one) for q, one in offer.models.items()}
        return ClientModels(views)

    def _offer(self, message: AnyMasks, learner: Learner) -> Offer:
        """Return what a client is served, decoded once for all clients that share the message."""
        if "offer" not in message.opened:
            message.opened["offer"] = self._decoded(message, learner)
        offer: Offer = message.opened["offer"]
        return offer

    def _decoded(self, message: AnyMasks, learner: Learner) -> Offer:
        if isinstance(message, Masks):
            masks = dict(zip(message.groups, message.masks, strict=True))
            return Offer(masks, message.voted, message.global_mask)
        if isinstance(message, RankedWeights):
            most = len(message.groups)
            ranking, rankings, table = message.decode(self.downlink, origin_of(learner), most)
            model = self._reading(learner, table).model
            models = {group: model(own) for group, own in rankings.items()}
            return Offer(models, message.groups, model(ranking), rankings, table)
        assert isinstance(message, ServedRankings)
        rankings = message.decode(self.served, origin_of(learner))
        own_masks = {group: mask_layers(own, learner.model.keep) for group, own in rankings.items()}
        return Offer(own_masks, message.groups, message.global_mask, rankings)

    def for_unseen(self, state: Rankings, client: Client, learner: Learner) -> ClientModels:
        def train(ranking: Ranking) -> Ranking:
            """Return the ballot for the clustering before round 1."""
            table = table_of(learner.initial) if self.ranks_weights else {}
            reading = self._reading(replace(learner, round_number=0), table)
            return reading.ballot(reading.fit(ranking, client.train))[0]

        membership = self.grouping.place_unseen(state.membership, client, train)
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
