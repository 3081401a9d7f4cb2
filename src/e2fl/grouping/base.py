"""Grouping: how a client's group is determined. Variants of E2FL differ only in this.

A grouping has two halves, like an algorithm. On the server it keeps a `Membership`, may ask for a
preparation before round 1, names the groups whose models clients compare, and sorts ballots by
group. On the client it decides in which groups the client votes, which examples it trains on for
each, and which group's subnetwork it uses.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from e2fl.construct import Checked
from e2fl.data.federated import Client, ClientId, Examples, GroupId, Population
from e2fl.errors import ConfigError, WireError, expect
from e2fl.evaluation import NO_GROUP
from e2fl.learning import Learner
from e2fl.models import Model
from e2fl.rankings.messages import ExactBallots
from e2fl.rankings.order import Mask, Ranking

Replies = Mapping[ClientId, ExactBallots]
BallotsByGroup = dict[GroupId, list[Ranking]]  # only groups with ballots
ExamplesByGroup = list[tuple[GroupId, Examples]]


@dataclass(frozen=True)
class Membership:
    """Which client is in which group, as far as the server knows."""

    groups: int  # number of groups
    assignments: dict[ClientId, GroupId]  # declared, found, drawn, or last reported
    found: bool = False  # True: groups are inferred, not declared
    inside: bool = False  # True: groups lie inside clients, so that a client may vote in several
    seed: int = 0
    # Initial rankings of groups that have not voted.
    starts: dict[GroupId, Ranking] = field(default_factory=dict)
    # The ranking from which ballots for the clustering are trained.
    origin: Ranking = field(default_factory=dict)
    centroids: dict[GroupId, Ranking] = field(default_factory=dict)  # from rank clustering
    metadata: dict[str, float | None] = field(default_factory=dict)  # measures of the clustering
    rounds: int = 0  # of training in groups that were clustered or drawn


@dataclass(frozen=True)
class Grouping(Checked, ABC):
    """A way to determine groups. Its fields are its settings."""

    section: ClassVar[str] = "grouping"

    # On the server.

    @abstractmethod
    def begin(self, model: Model, population: Population, seed: int) -> Membership:
        """Return the membership before the first round."""

    def current(self, membership: Membership) -> "Grouping":
        """Return the grouping used on the server in the next round."""
        return self

    def ask_layers(self, membership: Membership) -> tuple[str, ...] | None:
        """Return the layers of the ballots that a preparation asks of all clients; None: none."""
        return None

    def candidate_groups(self, membership: Membership) -> tuple[GroupId, ...]:
        """Return the groups whose models a training client is sent, to find its own among them."""
        return ()

    def missed_clustering(self, membership: Membership, client: ClientId) -> bool:
        """Return whether a client missed the clustering.

        It then trains from `membership.origin`, as the others did, and its ballot only places it.
        """
        return False

    def check(
        self, membership: Membership, client: ClientId, groups: Sequence[GroupId], ballots: int
    ) -> None:
        """Raise `WireError` if the client may not cast this many ballots in the groups it names."""
        if len(groups) != ballots or not groups:
            raise WireError(f"a reply has {ballots} rankings for {len(groups)} groups")
        if len(set(groups)) != len(groups):
            raise WireError("a reply votes twice in one group")
        if len(groups) > 1 and not membership.inside:
            raise WireError(f"a reply votes in {len(groups)} groups; its client is in one")
        for group in groups:
            self.check_group(membership, client, group)

    def check_group(self, membership: Membership, client: ClientId, group: GroupId) -> None:
        """Raise `WireError` if the client may not vote in this group."""
        assigned = membership.assignments.get(client)
        if group == NO_GROUP and assigned is not None:
            return
        require_group(group, membership)
        if assigned not in (None, group):
            raise WireError(f"a reply votes in group {group}; its client is in group {assigned}")

    def ballots(
        self, membership: Membership, client: ClientId, reply: ExactBallots
    ) -> Iterable[tuple[GroupId, Ranking]]:
        """Return the ballots of a client, each with the group that it counts in."""
        assigned = membership.assignments.get(client) if len(reply.groups) == 1 else None
        return zip(reply.groups if assigned is None else (assigned,), reply.rankings, strict=True)

    def sort(self, membership: Membership, replies: Replies) -> tuple[Membership, BallotsByGroup]:
        """Return the updated membership, and the ballots sorted by group."""
        by_group: BallotsByGroup = {}
        for client, reply in replies.items():
            for group, ranking in self.ballots(membership, client, reply):
                by_group.setdefault(group, []).append(ranking)
        return membership, dict(sorted(by_group.items()))

    def served_groups(self, membership: Membership, client: ClientId) -> tuple[GroupId, ...]:
        """Return the groups whose subnetworks a client is sent: its own, or all if unknown."""
        assigned = membership.assignments.get(client)
        return tuple(range(membership.groups)) if assigned is None else (assigned,)

    # On the client.

    def examples_by_group(
        self, masks: Sequence[Mask], client: Client, learner: Learner
    ) -> ExamplesByGroup:
        """Return the groups in which this client votes, each with the examples to train on.

        masks: of the `candidate_groups`.
        """
        return [(NO_GROUP, client.train)]

    def checked_examples(
        self, masks: Sequence[Mask], client: Client, learner: Learner
    ) -> ExamplesByGroup:
        """Return `examples_by_group`; raise `ConfigError` if it does not return pairs."""
        pairs = self.examples_by_group(masks, client, learner)
        for pair in expect(pairs, list, self, "examples_by_group"):
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Examples)):
                what = f"{type(self).__name__}.examples_by_group returned {pair!r:.60}"
                raise ConfigError(f"{what}; it must return pairs, such as [(0, client.train)]")
        return pairs

    def own_group(
        self, groups: Sequence[GroupId], masks: Sequence[Mask], client: Client, learner: Learner
    ) -> GroupId | None:
        """Return the group whose subnetwork this client uses; None: it belongs to several."""
        return groups[0] if len(groups) == 1 else None

    def place_unseen(
        self, membership: Membership, client: Client, train: Callable[[Ranking], Ranking]
    ) -> Membership:
        """Return the membership with an unseen client added.

        train: returns the ballot of the client before round 1, trained from a ranking.
        """
        return membership


def require_group(group: GroupId, membership: Membership) -> None:
    """Raise `WireError` unless the group exists."""
    if not 0 <= group < membership.groups:
        raise WireError(f"a reply votes in group {group}; groups are 0 to {membership.groups - 1}")


def require_count(count: int, population: Population, where: str) -> None:
    """Raise `ConfigError` unless there is at least one group and a client for each."""
    if not 1 <= count <= len(population):
        raise ConfigError(
            f"{where} is {count}; it must be at least 1 and at most {len(population)} clients"
        )
