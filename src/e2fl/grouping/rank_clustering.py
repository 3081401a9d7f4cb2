"""Rank clustering: the server groups clients with similar rankings, once, before the first round.

E2FL paper, "Clustering of rankings": K-means on rankings, with Spearman's footrule as the distance and the vote of the
members as the centroid. Departures, where the paper is silent: it stops when no assignment changes; a group that stays
empty takes the client that fits its own group worst; of several starts the one with the smallest sum of distances is
kept. Because a vote does not minimise the footrule, that sum may rise from one step to the next.

One departure where the paper is not silent: it starts from the rankings of random clients (start = "random"). That
seldom finds small groups, which are the ones E2FL is for, so by default K-means starts from a tree of all rankings and
continues as in the paper.

The ballots of this preparation carry only the layers that are looked at, so that it costs far fewer bytes than a
training round. A client that sends none is asked for it at its first turn to train.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import NDArray

from e2fl import compiled, metrics
from e2fl.data.federated import Client, ClientId, GroupId, Population
from e2fl.errors import ConfigError
from e2fl.evaluation import NO_GROUP
from e2fl.grouping.ballot_table import Centroids, Table, View, views
from e2fl.grouping.base import Cast, Grouping, Membership, Replies, require_count
from e2fl.grouping.messages import Invitation
from e2fl.grouping.tree import divide
from e2fl.learning import Learner
from e2fl.models import Layer, Model, ModelSpec
from e2fl.participation import Ask
from e2fl.randomness import stream
from e2fl.ranking import Mask, Ranking

STARTS = ("tree", "random", "spread")
ALL = "all"
TREE = 2000  # clients that a tree is made of, at most; the others join the group they are nearest to
EDGES = 20_000  # of each layer that a tree looks at, at most: it looks at all pairs of clients
PARTS = 10  # of the clients, that trees are made of once more to see whether they agree


@dataclass(frozen=True)
class Clustering:
    """What clustering found: the group of each client, the centroid of each group, and figures about them."""

    assignments: dict[ClientId, GroupId]
    centroids: dict[GroupId, Ranking]  # of the layers, and the edges in them, that were looked at
    metadata: dict[str, float | None]  # None: not defined


class FirstRankings(Mapping[ClientId, Ranking]):
    """The first ranking of each reply, decoded on access: all of them may not fit into memory."""

    def __init__(self, replies: Replies):
        self.replies = replies

    def __getitem__(self, client: ClientId) -> Ranking:
        return self.replies[client].rankings[0]

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.replies)

    def __len__(self) -> int:
        return len(self.replies)


@dataclass(frozen=True)
class Attempt:
    """Where one start ended: the group of every client, the centroids, and the sum of distances to them."""

    assigned: NDArray[np.int64]
    centroids: Centroids
    cost: float
    steps: int


@dataclass(frozen=True)
class Pairs:
    """The distances between clients; of many clients and edges only some are looked at."""

    places: NDArray[np.int64]  # in the table, rising
    distances: NDArray[np.float64]  # [places, places]

    @classmethod
    def of(cls, table: Table, seed: int) -> Self:
        places = np.sort(stream(seed, "clients of the tree").permutation(len(table))[:TREE])
        few = table.thinned(places.tolist(), EDGES, seed)
        return cls(places, few.pairwise(range(len(few))))


@dataclass(frozen=True)
class RankClustering(Grouping):
    """The server clusters one ballot of every client before round 1; nothing is asked of clients later."""

    groups: int = 2
    layers: tuple[str, ...] = ()  # names such as conv2, or all; default: conv2 where the model has it, else all
    normalise: bool = False  # let every layer count alike; else large layers dominate
    restarts: int = 10  # random or spread starts, of which that with the smallest sum of distances is kept
    steps: int = 20  # at most, for each start
    start: str = "tree"  # or random: any clients, as in the paper; or spread: clients far from each other
    sample_edges: int = 0  # look only at so many edges of each layer, drawn at random; 0: all

    def __post_init__(self) -> None:
        for name in ("groups", "restarts", "steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"algorithm.grouping.{name} must be at least 1, not {getattr(self, name)}")
        if self.start not in STARTS:
            raise ConfigError(f"algorithm.grouping.start is one of {', '.join(STARTS)}; not '{self.start}'")
        if self.sample_edges < 0 or self.sample_edges == 1:
            raise ConfigError(f"algorithm.grouping.sample_edges must be 0 or at least 2, not {self.sample_edges}")

    def begin(self, model: Model, population: Population, seed: int) -> Membership:
        require_count(self.groups, population, "algorithm.grouping.groups")
        self.reads(model.spec)  # a layer that does not exist is an error before anything is trained
        return Membership(self.groups, {}, found=True, seed=seed, origin=model.supernet(seed).ranking)

    def ask(self, membership: Membership, population: Population) -> Ask | None:
        if membership.centroids:
            return None
        # Ballots that are only clustered carry only the layers that clustering reads: far fewer bytes.
        whole = ModelSpec(tuple(Layer(name, rank.shape) for name, rank in membership.origin.items()))
        return Ask(population.ids, layers=tuple(layer.name for layer in self.reads(whole).layers), kind="prepare")

    def invite(
        self,
        membership: Membership,
        clients: Sequence[ClientId],
        ranking: Ranking,
        mask_of: Callable[[GroupId], Mask],
    ) -> Mapping[ClientId, Invitation]:
        # A client that missed the clustering starts where all others did, or its ballot would not compare.
        start, common = Invitation(membership.origin, ()), Invitation(ranking, ())
        clustered = bool(membership.centroids)
        return {client: start if clustered and client not in membership.assignments else common for client in clients}

    def check_group(self, membership: Membership, client: ClientId, group: GroupId) -> None:
        if group != NO_GROUP:
            super().check_group(membership, client, group)

    def sort(self, membership: Membership, replies: Replies) -> tuple[Membership, Cast]:
        if not replies:
            return membership, {}
        if not membership.centroids:
            found = self.cluster(FirstRankings(replies), membership.groups, membership.seed)
            return replace(
                membership, assignments=found.assignments, centroids=found.centroids, metadata=found.metadata
            ), {}
        late = {
            client: self.nearest(reply.rankings[0], membership.centroids, membership.seed)
            for client, reply in replies.items()
            if client not in membership.assignments
        }
        # A client that was placed only now trained from the initial ranking: it votes from its next turn on.
        _, cast = super().sort(membership, {client: reply for client, reply in replies.items() if client not in late})
        return self._joined(membership, late), cast

    def place_unseen(self, membership: Membership, client: Client, learner: Learner) -> Membership:
        if client.id in membership.assignments or not membership.centroids:
            return membership
        ballot = replace(learner, number=0).fit_scores(membership.origin, client.train)
        return self._joined(membership, {client.id: self.nearest(ballot, membership.centroids, membership.seed)})

    def _joined(self, membership: Membership, late: dict[ClientId, GroupId]) -> Membership:
        if not late:
            return membership
        return replace(membership, assignments=dict(sorted((membership.assignments | late).items())))

    def reads(self, model: ModelSpec) -> ModelSpec:
        """Return the layers that clustering looks at."""
        known = {short(layer): layer for layer in model.layers}
        wanted = self.layers or (("conv2",) if "conv2" in known else (ALL,))
        if ALL in wanted:
            return model
        for name in wanted:
            if name not in known:
                raise ConfigError(
                    f"algorithm.grouping.layers: the model has no layer '{name}'; it has {', '.join(known)}, or all"
                )
        return ModelSpec(tuple(layer for layer in model.layers if short(layer) in wanted))

    def cluster(self, ballots: Mapping[ClientId, Ranking], count: int, seed: int) -> Clustering:
        """Return the group of every client that sent a ballot. Ballots are read one at a time."""
        table = self.table(ballots, seed)
        count = min(count, len(table))
        pairs = Pairs.of(table, seed) if self.start == "tree" else None
        attempts = self.attempts(table, count, seed, pairs)
        best = cheapest(attempts)
        return Clustering(
            assignments=dict(zip(table.clients, best.assigned.tolist(), strict=True)),
            centroids={
                group: {layer: centroids[group] for layer, centroids in best.centroids.items()}
                for group in range(count)
            },
            metadata={
                "cost": best.cost,
                "steps": best.steps,
                "stability": stability(pairs, best, count, seed) if pairs else agreement(attempts),
                "sampling_error": table.sampling_error,
            },
        )

    def nearest(self, ballot: Ranking, centroids: Mapping[GroupId, Ranking], seed: int) -> GroupId:
        """Return the group of a client whose ballot comes after the clustering."""
        groups = sorted(centroids)
        looks = self._looks({layer: ballot[layer] for layer in centroids[groups[0]]}, seed)
        distances = [
            sum(view.scale * compiled.footrule(view.of(ballot[view.layer]), centroids[q][view.layer]) for view in looks)
            for q in groups
        ]
        return groups[int(np.argmin(distances))]

    def table(self, ballots: Mapping[ClientId, Ranking], seed: int) -> Table:
        """The ballots, as far as they are looked at."""
        return Table(ballots, self._looks(ballots[next(iter(ballots))], seed))

    def _looks(self, example: Ranking, seed: int) -> tuple[View, ...]:
        """How to look at ballots that have these layers."""
        spec = self.reads(ModelSpec(tuple(Layer(name, rank.shape) for name, rank in example.items())))
        return views(spec, self.sample_edges, seed, normalise=self.normalise)

    def attempts(self, table: Table, count: int, seed: int, pairs: Pairs | None) -> list[Attempt]:
        """Every start, carried through to its end; a tree, made of these pairs, is one."""
        if self.start == "tree":
            return [settle(table, from_tree(table, pairs or Pairs.of(table, seed), count), self.steps)]
        return [settle(table, self._drawn(table, count, seed, restart), self.steps) for restart in range(self.restarts)]

    def _drawn(self, table: Table, count: int, seed: int, restart: int) -> Centroids:
        """The rankings of some clients, to start from."""
        rng = stream(seed, "clustering start", restart)
        if self.start == "spread":
            return table.take(spread(table, count, int(rng.integers(len(table)))))
        return table.take(rng.choice(len(table), count, replace=False).tolist())


def short(layer: Layer) -> str:
    """What people call a layer: conv2, not conv2.weight."""
    return layer.name.removesuffix(".weight")


def spread(table: Table, count: int, first: int) -> list[int]:
    """Clients far from each other: each the one whose nearest client among those before it is farthest away."""
    chosen = [first]
    nearest = table.pairwise(chosen)[:, 0]
    while len(chosen) < count:
        nearest[chosen] = -1.0  # nobody twice, even where all are alike
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, table.pairwise(chosen[-1:])[:, 0])
    return chosen


def from_tree(table: Table, pairs: Pairs, count: int) -> Centroids:
    """The votes of the groups that a tree divides the clients into."""
    assigned = np.full(len(table), -1)
    assigned[pairs.places] = divide(pairs.distances, count)
    return table.vote(assigned, table.take(range(count)))


def settle(table: Table, centroids: Centroids, steps: int) -> Attempt:
    """Assign and vote in turn, from these first centroids, until nothing changes."""
    count = len(next(iter(centroids.values())))
    assigned: NDArray[np.int64] | None = None
    empty: set[int] = set()
    for step in range(1, steps + 1):
        distances = table.distances(centroids)
        before, assigned = assigned, distances.argmin(axis=1)  # ties: the lower group
        own = distances[np.arange(len(table)), assigned]
        if step == steps:
            break
        still = sorted(empty - set(assigned.tolist()))
        empty = set(range(count)) - set(assigned.tolist())
        worst = own.argsort(kind="stable")[::-1][: len(still)].tolist()
        if before is not None and np.array_equal(assigned, before) and not (still and own.max() > 0):
            break
        centroids = table.vote(assigned, centroids)
        for group, place in zip(still, worst, strict=True):
            for layer, row in table.take([place]).items():
                centroids[layer][group] = row[0]
    assert assigned is not None
    return Attempt(assigned, centroids, float(own.sum()), step)


def cheapest(attempts: Sequence[Attempt]) -> Attempt:
    """The one to keep."""
    return min(attempts, key=lambda attempt: attempt.cost)


def agreement(attempts: Sequence[Attempt]) -> float | None:
    """How far the cheaper half of the starts agree: the mean adjusted Rand index over pairs; 1 is full agreement.

    Some starts always end badly; whether the good ones end in the same place is what counts. One start says nothing.
    """
    cheap = sorted(attempts, key=lambda attempt: attempt.cost)[: max(2, (len(attempts) + 1) // 2)]
    pairs = [metrics.adjusted_rand(one.assigned, other.assigned) for one, other in combinations(cheap, 2)]
    return float(np.mean(pairs)) if pairs else None


def stability(pairs: Pairs, kept: Attempt, count: int, seed: int) -> float:
    """How far what is kept agrees with trees of three quarters of the clients, others each time: 1 is full agreement.

    The mean adjusted Rand index. It costs little, for no distance is measured again.
    """
    assigned = kept.assigned[pairs.places]
    size = max(count, -(-3 * len(assigned) // 4))
    found = []
    for number in range(PARTS):
        part = stream(seed, "part of the clients", number).permutation(len(assigned))[:size]
        found.append(metrics.adjusted_rand(divide(pairs.distances[np.ix_(part, part)], count), assigned[part]))
    return float(np.mean(found))
