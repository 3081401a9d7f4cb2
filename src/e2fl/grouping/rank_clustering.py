"""Rank clustering: the server groups clients with similar rankings, once, before the first round.

E2FL paper, "Clustering of rankings": K-means on rankings, with Spearman's footrule as the distance
and the vote of the members as the centroid. Departures, where the paper is silent: it stops when no
assignment changes, and a group that stays empty takes the client that fits its own group worst.
Because a vote does not minimise the footrule, the sum of distances may rise from one step to the
next.

One departure where the paper is not silent: it starts from the rankings of random clients (start =
"random"). That seldom finds small groups, which are the ones E2FL is for, so by default K-means
starts from a tree of all rankings and continues as in the paper.

Ballots in this preparation carry only the layers that are compared, so it costs far fewer bytes
than a training round. A client that sends none is asked for it when it is first drawn to train.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl import metrics
from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId, GroupId, Lazy, Population
from e2fl.errors import ConfigError, expect
from e2fl.evaluation import NO_GROUP
from e2fl.grouping.ballot_table import BallotTable, Centroids, views_of
from e2fl.grouping.base import BallotsByGroup, Grouping, Membership, Replies, require_count
from e2fl.grouping.separation import Separation, divide
from e2fl.models import Layer, Model, ModelSpec
from e2fl.randomness import stream
from e2fl.rankings.order import Ranking

ALL = "all"
MAX_STEPS = 20  # of K-means, at most
MAX_TREE_CLIENTS = 2000  # clients in a tree, at most; the others join the nearest group
MAX_TREE_EDGES = 20_000  # of each layer in a tree, at most, since it compares all pairs of clients
SUBSETS = 10  # subsets of the clients whose trees are compared, to measure stability


@dataclass(frozen=True)
class Clustering:
    """The group of each client, the centroid of each group, and measures of quality."""

    assignments: dict[ClientId, GroupId]
    centroids: dict[GroupId, Ranking]  # of the layers and edges that were compared
    metadata: Mapping[str, float | None]  # None: not defined


def first_rankings(replies: Replies) -> Mapping[ClientId, Ranking]:
    """Return the first ranking of each reply, decoded on access."""
    return Lazy(replies, lambda client: replies[client].rankings[0])


@dataclass(frozen=True)
class KMeansResult:
    """What K-means found: the group of every client, the centroids, the sum of distances."""

    assigned: NDArray[np.int64]
    centroids: Centroids
    cost: float
    steps: int


class ClusteringInput:
    """Ballots, and the distances between clients; of very many clients or edges, of a sample."""

    def __init__(self, table: BallotTable, seed: int):
        self.table, self.seed = table, seed
        shuffled = stream(seed, "clients of the tree").permutation(len(table))
        self.sampled = np.sort(shuffled[:MAX_TREE_CLIENTS])
        self.distances = table.thinned(self.sampled.tolist(), MAX_TREE_EDGES, seed).pairwise()

    @cached_property
    def separation(self) -> Separation:
        """What the groups of any result are compared with."""
        return Separation(self.distances, self.seed)

    def quality(self, result: KMeansResult, count: int) -> dict[str, float]:
        """Return how stable groups are and, of several, how well separated (`separation.py`).

        Stability is the mean adjusted Rand index with trees of random three quarters of the
        clients; 1 is full agreement. No distance is computed again.
        """
        assigned = result.assigned[self.sampled]
        size = max(count, -(-3 * len(assigned) // 4))
        values = []
        for number in range(SUBSETS):
            random = stream(self.seed, "part of the clients", number)
            subset = random.permutation(len(assigned))[:size]
            divided = divide(self.distances[np.ix_(subset, subset)], count)
            values.append(metrics.adjusted_rand(divided, assigned[subset]))
        stability = {"stability": float(np.mean(values))}
        return stability | (self.separation.blurs(assigned, count) if count > 1 else {})


@dataclass(frozen=True)
class RankClustering(Grouping):
    """The server clusters one ballot of every client, once, before round 1."""

    groups: Annotated[int, Doc("how many"), Limits(least=1)] = 2
    layers: Annotated[
        tuple[str, ...],
        Doc("names such as conv2, or all; default: conv2 where the model has it, otherwise all"),
    ] = ()
    start: Annotated[
        Literal["tree", "random"], Doc("random: from random clients, as in the paper")
    ] = "tree"
    sample_edges: Annotated[
        int, Doc("compare only this many random edges of each layer; 0: all"), Limits(least=0)
    ] = 0

    def begin(self, model: Model, population: Population, seed: int) -> Membership:
        require_count(self.groups, population, "algorithm.grouping.groups")
        self.compared_layers(model.spec)  # an unknown layer is an error before any training
        return Membership(
            self.groups, {}, found=True, seed=seed, origin=model.supernet(seed).ranking
        )

    def ask_layers(self, membership: Membership) -> tuple[str, ...] | None:
        if membership.centroids:
            return None
        # Ballots that are only clustered carry only the layers that clustering reads.
        compared = self.compared_layers(spec_of(membership.origin))
        return tuple(layer.name for layer in compared.layers)

    def missed_clustering(self, membership: Membership, client: ClientId) -> bool:
        # It then trains from the initial ranking, as the others did.
        return bool(membership.centroids) and client not in membership.assignments

    def check_group(self, membership: Membership, client: ClientId, group: GroupId) -> None:
        if group != NO_GROUP:
            super().check_group(membership, client, group)

    def sort(self, membership: Membership, replies: Replies) -> tuple[Membership, BallotsByGroup]:
        if not membership.centroids:
            ballots = first_rankings(replies)
            clustering = self.cluster(ballots, membership.groups, membership.seed)
            return replace(membership, **vars(self._checked(clustering, replies))), {}
        late = {
            client: self.nearest(reply.rankings[0], membership.centroids, membership.seed)
            for client, reply in replies.items()
            if self.missed_clustering(membership, client)
        }
        # A client placed just now trained from the initial ranking, so it votes only from its next
        # ballot on.
        in_time = {client: reply for client, reply in replies.items() if client not in late}
        _, by_group = super().sort(membership, in_time)
        assignments = dict(sorted((membership.assignments | late).items()))
        rounds = membership.rounds + bool(by_group)
        return replace(membership, assignments=assignments, rounds=rounds), by_group

    def _checked(self, returned: object, replies: Replies) -> Clustering:
        """Return the clustering if it gives every client a group with a centroid."""
        clustering = expect(returned, Clustering, self, "cluster")
        for client in replies:
            group = clustering.assignments.get(client)
            if group not in clustering.centroids:
                what = "no group" if group is None else f"group {group!r}, which has no centroid,"
                raise ConfigError(
                    f"{type(self).__name__}.cluster returned {what} for client {client}; it must "
                    "return a group for each ballot, and a centroid for each group"
                )
        return clustering

    def place_unseen(
        self, membership: Membership, client: Client, train: Callable[[Ranking], Ranking]
    ) -> Membership:
        if client.id in membership.assignments or not membership.centroids:
            return membership
        group = self.nearest(train(membership.origin), membership.centroids, membership.seed)
        return replace(membership, assignments=membership.assignments | {client.id: group})

    def served_groups(self, membership: Membership, client: ClientId) -> tuple[GroupId, ...]:
        assigned = membership.assignments.get(client)
        # A client that has not been placed uses the global model.
        return () if assigned is None else (assigned,)

    def compared_layers(self, model: ModelSpec) -> ModelSpec:
        """Return the layers that clustering compares."""
        by_name = {short(layer): layer for layer in model.layers}
        wanted = self.layers or (("conv2",) if "conv2" in by_name else (ALL,))
        if ALL in wanted:
            return model
        for name in wanted:
            if name not in by_name:
                raise ConfigError(
                    f"algorithm.grouping.layers: the model has no layer '{name}'; "
                    f"it has {', '.join(by_name)}, or all"
                )
        return ModelSpec(tuple(layer for layer in model.layers if short(layer) in wanted))

    def cluster(self, ballots: Mapping[ClientId, Ranking], count: int, seed: int) -> Clustering:
        """Return the group of every client that sent a ballot. Ballots are read one at a time."""
        compared = ClusteringInput(self.table(ballots, seed), seed)
        count = min(count, len(ballots))
        result = self.result(compared, count)
        return Clustering(
            assignments=dict(zip(compared.table.clients, result.assigned.tolist(), strict=True)),
            centroids={
                group: {layer: centroids[group] for layer, centroids in result.centroids.items()}
                for group in range(count)
            },
            metadata={"cost": result.cost, "steps": result.steps} | compared.quality(result, count),
        )

    def nearest(self, ballot: Ranking, centroids: Mapping[GroupId, Ranking], seed: int) -> GroupId:
        """Return the nearest group for a ballot that was not clustered."""
        groups, table = sorted(centroids), self.table({0: ballot}, seed)
        stacked = {layer: np.stack([centroids[q][layer] for q in groups]) for layer in table.rows}
        return groups[int(table.distances(stacked).argmin())]

    def table(self, ballots: Mapping[ClientId, Ranking], seed: int) -> BallotTable:
        """Return the table of these ballots, with the layers and edges that are compared."""
        spec = self.compared_layers(spec_of(ballots[next(iter(ballots))]))
        return BallotTable(ballots, views_of(spec, self.sample_edges, seed))

    def result(self, compared: ClusteringInput, count: int) -> KMeansResult:
        """Run K-means from the start that `start` names."""
        table = compared.table
        if self.start == "tree":
            assigned = np.full(len(table), -1)
            assigned[compared.sampled] = divide(compared.distances, count)
            return kmeans(table, table.vote(assigned, table.take(range(count))))
        rng = stream(compared.seed, "clustering start", 0)
        positions = rng.choice(len(table), count, replace=False).tolist()
        return kmeans(table, table.take(positions))


def short(layer: Layer) -> str:
    """Return the short name of a layer: conv2, not conv2.weight."""
    return layer.name.removesuffix(".weight")


def spec_of(ranking: Ranking) -> ModelSpec:
    """Return the layers of a ranking."""
    return ModelSpec(tuple(Layer(name, rank.shape) for name, rank in ranking.items()))


def kmeans(table: BallotTable, centroids: Centroids, steps: int = MAX_STEPS) -> KMeansResult:
    """Run K-means from these centroids: assign and vote in turn, until no assignment changes."""
    count = len(next(iter(centroids.values())))
    assigned = np.full(len(table), -1)
    empty: set[int] = set()
    for step in range(1, steps + 1):
        distances = table.distances(centroids)
        before, assigned = assigned, distances.argmin(axis=1)  # ties: the lower group
        nearest = distances[np.arange(len(table)), assigned]
        if step == steps:
            break
        still = sorted(empty - set(assigned.tolist()))
        empty = set(range(count)) - set(assigned.tolist())
        if np.array_equal(assigned, before) and not (still and nearest.max() > 0):
            break
        centroids = table.vote(assigned, centroids)
        worst = nearest.argsort(kind="stable")[::-1][: len(still)].tolist()
        for group, position in zip(still, worst, strict=True):
            for layer, row in table.take([position]).items():
                centroids[layer][group] = row[0]
    return KMeansResult(assigned, centroids, float(nearest.sum()), step)
