"""Mozaffari and Houmansadr, "E2FL: Equal and Equitable Federated Learning", arXiv 2205.10454. With
one group it is FRL (`frl.py`).

Departures, all where the paper is silent: ties go to the lower edge number; the mask and the
ranking are decided by the same non-negative initial scores; the setting `absent` decides how a
group without ballots in a round votes; a client with several groups casts one ballot for each;
ballots used only for clustering carry only the layers that clustering reads; a client that missed
the clustering sends its ballot for it the next time it is asked, and votes from the time after
that. `incumbents`, `smoothing`, `own_vote` and `reading` are not in the paper; their defaults are
the paper's algorithm.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Annotated, Literal, cast

from typing_extensions import Doc

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, Description, Election
from e2fl.algorithms.readings import (
    AnyModel,
    DecodedMessage,
    ModelContext,
    Rankings,
    Reading,
    WeightReading,
    context_of,
)
from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId, Examples, GroupId, Population
from e2fl.errors import ConfigError, WireError, expect
from e2fl.grouping import Grouping, KnownGroups, Membership
from e2fl.learning import Learner
from e2fl.models import Model
from e2fl.participation import Ask, Draw
from e2fl.rankings.ballots import Ballot, Boundary, Buckets, Exact, Reference
from e2fl.rankings.messages import (
    Ballots,
    CodedBallots,
    ExactBallots,
    Invitation,
    Masks,
    RankedBallots,
)
from e2fl.rankings.order import Ranking, median_of
from e2fl.rankings.votes import Borda, Vote, elect, name_of, share_of

WEIGHT_LIMITS = Limits(least=0, most=1000)  # of a ranking in a vote, relative to a ballot
MIN_WEIGHT = 0.001  # above 0; `share_of` would round smaller ones to 0


@dataclass(frozen=True)
class E2FLState(ModelContext):
    """The state of the server after a round."""

    global_ranking: Ranking
    groups: dict[GroupId, Ranking]  # the latest ranking of every group that has voted
    membership: Membership
    # The elected global ranking, if clients get it rounded.
    unrounded: Ranking = field(default_factory=dict)
    # With smoothing, what is served instead of the latest rankings: averages over rounds.
    smooth_groups: dict[GroupId, Ranking] = field(default_factory=dict)
    smooth_global: Ranking = field(default_factory=dict)

    def ranking_of(self, group: GroupId, rankings: Mapping[GroupId, Ranking]) -> Ranking:
        """Return the ranking of a group; before it has voted, its start, or the global ranking."""
        return rankings.get(group, self.membership.starts.get(group, self.global_ranking))


@dataclass(frozen=True)
class E2FL(Algorithm[E2FLState, Invitation, Ballots, Masks]):
    """E2FL: clients send rankings of edges.

    The server votes inside each group, then once across the groups.
    """

    grouping: Annotated[Grouping, Doc("how clients find their group")] = field(
        default_factory=KnownGroups
    )
    absent: Annotated[
        Literal["carry_forward", "present_only", "members"],
        Doc(
            "whether a group without ballots in a round votes with its last ranking; members: "
            "while any client belongs to it"
        ),
    ] = "carry_forward"
    inside: Annotated[
        Literal["each", "majority"],
        Doc("a client with several groups votes in each, or in its largest"),
    ] = "each"
    incumbents: Annotated[
        float,
        Doc("ballots that a group's previous ranking counts for in its next vote; 0: the paper"),
        WEIGHT_LIMITS,
    ] = 0.0
    smoothing: Annotated[
        float,
        Doc("weight of the ranking served before, relative to the one just elected; 0: the paper"),
        WEIGHT_LIMITS,
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
        WEIGHT_LIMITS,
    ] = ()
    served: Annotated[
        Ballot, Doc("with own_vote, how group rankings are served; two buckets: as masks")
    ] = field(default_factory=Buckets)
    reading: Annotated[
        Literal["mask", "weights"],
        Doc(
            "weights: the place of an edge in a ranking is its weight, looked up in a table "
            "that clients adapt; the server then sends every ranking in the format of downlink"
        ),
    ] = "mask"

    @property
    def trains_scores(self) -> bool:  # type: ignore[override]
        return self.reading == "mask"

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = {"incumbents": [self.incumbents], "smoothing": [self.smoothing]}
        for name, values in (weights | {"own_vote": self.own_vote}).items():
            lost = any(0 < weight < MIN_WEIGHT for weight in values)
            self.require(not lost, name, f"0, or at least {MIN_WEIGHT}")
        whole = not isinstance(self.downlink, Boundary)
        self.require(whole, "downlink", "a format of whole rankings, such as buckets")

    def read(self, context: ModelContext) -> Reading:
        """Return how rankings are read and sent."""
        kind = Reading if self.reading == "mask" else WeightReading
        served = self.served if self.own_vote else None
        return kind(context, self.ballot, self.downlink, served, self.vote)

    # On the server.

    def start(self, model: Model, population: Population, seed: int) -> E2FLState:
        ranking = model.supernet(seed).ranking
        begun = self.grouping.begin(model, population, seed)
        membership = expect(begun, Membership, self.grouping, "begin")
        context = context_of(model, {} if self.trains_scores else model.initial_weights(seed))
        state = E2FLState(ranking, {}, membership, **vars(context))
        exact = self.read(state).replies is ExactBallots and not self.own_vote
        return state if exact else replace(state, initial=ranking)

    def ask(
        self, state: E2FLState, population: Population, round_number: int, last: int, draw: Draw
    ) -> Ask:
        layers = self.grouping.current(state.membership).ask_layers(state.membership)
        if layers is None:
            return Ask(draw(self.clients_per_round))
        return Ask(population.ids, layers=layers, kind="prepare")

    def broadcast(
        self, state: E2FLState, clients: Sequence[ClientId]
    ) -> Mapping[ClientId, Invitation]:
        """Send the global ranking and, where clients find their group, what the groups elected."""
        grouping = self.grouping.current(state.membership)
        groups = {
            group: state.ranking_of(group, state.groups)
            for group in grouping.candidate_groups(state.membership)
        }
        late = {client: grouping.missed_clustering(state.membership, client) for client in clients}
        starts = {False: state.global_ranking, True: state.membership.origin}
        reading = self.read(state)
        messages = {kind: reading.invitation(starts[kind], groups) for kind in {*late.values()}}
        return {client: messages[kind] for client, kind in late.items()}

    def check(self, state: E2FLState, client: ClientId, reply: Ballots) -> ExactBallots:
        """Return the ballots of a reply, decoded against the ranking that its client was sent."""
        expected = self.read(state).replies
        if type(reply) is not expected:
            raise WireError(f"a reply is {type(reply).__name__}; {expected.__name__} is expected")
        ballots = cast(ExactBallots | CodedBallots, reply)
        grouping = self.grouping.current(state.membership)
        # Before decoding, because a few bytes may stand for many rankings.
        count = len(ballots.rankings if isinstance(ballots, ExactBallots) else ballots.lengths)
        grouping.check(state.membership, client, ballots.groups, count)
        return ballots.decode(self.ballot, self.reference(state, client), state.table)

    def reference(self, state: E2FLState, client: ClientId) -> Reference:
        """Return the reference for a client's ballots: the ranking it was sent."""
        grouping = self.grouping.current(state.membership)
        start, base = state.global_ranking, state.unrounded or state.global_ranking
        if grouping.missed_clustering(state.membership, client):
            start = base = state.membership.origin
        reference = state.reference(start, base)
        layers = grouping.ask_layers(state.membership)
        return reference if layers is None else reference.only(layers)

    def aggregate(self, state: E2FLState, replies: Mapping[ClientId, Ballots]) -> E2FLState:
        ballots = cast(Mapping[ClientId, ExactBallots], replies)
        grouping = self.grouping.current(state.membership)
        sorted_ = grouping.sort(state.membership, ballots)
        membership, by_group = expect(sorted_, tuple, grouping, "sort")
        # One vote inside each group, in which its previous ranking may take part.
        elected = {
            group: elect(rankings, state.groups.get(group), self.incumbents, rule=self.vote)
            for group, rankings in by_group.items()
        }
        if not elected:
            return replace(state, membership=membership)
        groups = state.groups | elected
        # One vote per group, whatever its size: this is what makes a small group count.
        voters = self._voters(membership, groups, elected)
        global_ranking = elect(voters.values(), rule=self.vote)
        after = replace(state, global_ranking=global_ranking, groups=groups, membership=membership)
        if not self.trains_scores:
            tables = [
                table
                for client, reply in replies.items()
                if not grouping.missed_clustering(state.membership, client)
                for table in cast(RankedBallots, reply).tables
            ]
            after = replace(after, table=median_of(tables))
        if self.downlink != Exact():  # clients train from the ranking as they decode it
            rounded = self.downlink.rounded(global_ranking, state.origin)
            after = replace(after, global_ranking=rounded, unrounded=global_ranking)
        return self._smoothed(after, elected, global_ranking) if self.smoothing else after

    def _voters(self, membership: Membership, groups: Rankings, elected: Rankings) -> Rankings:
        """Return the rankings that vote across groups, one of each group."""
        if self.absent == "present_only":
            return elected
        if self.absent == "members":
            alive = elected.keys() | set(membership.assignments.values())
            return {group: ranking for group, ranking in groups.items() if group in alive}
        return groups

    def _smoothed(self, state: E2FLState, elected: Rankings, global_ranking: Ranking) -> E2FLState:
        """Return the state with these rankings averaged into those that are served."""
        averaged = partial(elect, weight=self.smoothing, rule=self.vote)
        smooth = {q: averaged([new], state.smooth_groups.get(q)) for q, new in elected.items()}
        return replace(
            state,
            smooth_groups=state.smooth_groups | smooth,
            smooth_global=averaged([global_ranking], state.smooth_global or None),
        )

    def serve(self, state: E2FLState, clients: Sequence[ClientId]) -> Mapping[ClientId, Masks]:
        membership, served_groups = state.membership, self.grouping.served_groups
        groups_of = {client: served_groups(membership, client) for client in clients}
        latest, reading = state.groups | state.smooth_groups, self.read(state)
        global_ranking = state.smooth_global or state.global_ranking

        def message(groups: tuple[GroupId, ...]) -> Masks:
            rankings = {group: state.ranking_of(group, latest) for group in groups}
            voted = tuple(group for group in groups if group in state.groups)
            return reading.masks(global_ranking, rankings, voted)

        messages = {groups: message(groups) for groups in set(groups_of.values())}
        return {client: messages[groups] for client, groups in groups_of.items()}

    def describe(self, state: E2FLState) -> Description:
        def models() -> dict[str, AnyModel]:
            reading, latest = self.read(state), state.groups | state.smooth_groups
            named = {"global": state.smooth_global or state.global_ranking}
            named |= {f"group{group}": latest[group] for group in sorted(latest)}
            return {name: reading.model(ranking) for name, ranking in named.items()}

        membership = state.membership
        clustering = {"clustering": dict(membership.metadata)} if membership.metadata else {}
        return Description(
            models=models,
            metadata={"groups_seen": sorted(state.groups)} | clustering,
            assignments=membership.assignments if membership.found else None,
        )

    def election(
        self, before: E2FLState, replies: Mapping[ClientId, Ballots], after: E2FLState
    ) -> Election:
        grouping = self.grouping.current(before.membership)
        elected = {
            group: ranking
            for group, ranking in after.groups.items()
            if before.groups.get(group) is not ranking
        }

        def ballots() -> Iterator[tuple[ClientId, GroupId, Ranking]]:
            for client, reply in cast(Mapping[ClientId, ExactBallots], replies).items():
                if not grouping.missed_clustering(before.membership, client):
                    for group, ranking in grouping.ballots(after.membership, client, reply):
                        yield client, group, ranking

        voters = self._voters(after.membership, after.groups, elected) if elected else {}
        weights = {"incumbents": self.incumbents, "smoothing": self.smoothing}
        rules = {
            "vote": {"name": name_of(self.vote), **asdict(self.vote)},
            "absent": self.absent,
            "keep": before.keep,
            # Whether the masks that are served are those of elected rankings.
            "masks": self.trains_scores and (self.downlink == Exact() or self.smoothing > 0),
            **{name: share_of(weight).as_integer_ratio() for name, weight in weights.items()},
        }
        global_ranking = after.unrounded or after.global_ranking
        return Election(rules, ballots, before.groups, elected, voters, global_ranking)

    # On a client.

    def decoded(self, message: Invitation | Masks, learner: Learner) -> DecodedMessage:
        """Return a message decoded, once for all clients that share it."""
        if "decoded" not in message.cache:
            context = replace(context_of(learner.model), initial=learner.supernet.ranking)
            message.cache["decoded"] = self.read(context).decode(message)
        decoded: DecodedMessage = message.cache["decoded"]
        return decoded

    def train(self, message: Invitation, client: Client, learner: Learner) -> Ballots:
        sent = self.decoded(message, learner)
        models = list(sent.models.values())
        examples = self.grouping.checked_examples(models, client, learner)
        if self.inside == "majority" and len(examples) > 1:
            largest, _ = max(examples, key=lambda part: len(part[1]))  # ties: the first
            examples = [(largest, client.train)]
        trained = [
            (group, sent.reading.fit(sent.ranking, rows, learner, part))
            for part, (group, rows) in enumerate(examples)
        ]
        return sent.reading.reply(sent.ranking, trained, learner.meter)

    def model_for(self, message: Masks, client: Client, learner: Learner) -> ClientModels:
        sent = self.decoded(message, learner)
        groups, models = tuple(sent.models), list(sent.models.values())
        own_group = self.grouping.own_group(groups, models, client, learner)
        if own_group is not None and own_group not in sent.models:
            raise ConfigError(
                f"{type(self.grouping).__name__}.own_group returned {own_group!r}; "
                f"it must return one of {groups}, or None"
            )

        def model(group: GroupId, rows: Examples) -> AnyModel:
            if not self.own_vote:
                return sent.models[group]
            return sent.reading.own_model(sent.rankings[group], rows, self.own_vote, learner)

        global_model = ClientModel(sent.global_model)
        if own_group is not None:
            # A group that never voted has learned nothing: its clients use the global model.
            voted = own_group in sent.voted
            group_model = ClientModel(model(own_group, client.train)) if voted else global_model
            return ClientModels({"group": group_model, "global": global_model}, own_group)
        by_group = dict(sent.models)
        if client.train.group is not None:
            by_group = {group: model(group, client.train.of_group(group)) for group in by_group}
        views = {"group": ClientModel(sent.global_model, by_group), "global": global_model}
        if len(by_group) == 2 and client.test.group is not None:
            # Two groups inside a client, such as women and men: what if one group's model served
            # all rows?
            views |= {f"as_group{q}": ClientModel(other) for q, other in sent.models.items()}
        return ClientModels(views)

    def for_unseen(self, state: E2FLState, client: Client, learner: Learner) -> ClientModels:
        def train(ranking: Ranking) -> Ranking:
            """Return the ballot for the clustering before round 1."""
            context = context_of(learner.model, {} if self.trains_scores else learner.initial)
            reading, first = self.read(context), replace(learner, round_number=0)
            return reading.ranked(reading.fit(ranking, client.train, first))[0]

        membership = self.grouping.place_unseen(state.membership, client, train)
        return super().for_unseen(replace(state, membership=membership), client, learner)
