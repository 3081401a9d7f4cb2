"""Rank clustering: the worked example, empty groups, and bounded memory."""

import subprocess
import sys

import numpy as np
import pytest

from e2fl import metrics
from e2fl.data.federated import Population
from e2fl.errors import ConfigError
from e2fl.grouping import RankClustering, ballot_table, rank_clustering
from e2fl.grouping.ballot_table import BallotTable, views_of
from e2fl.grouping.rank_clustering import kmeans
from e2fl.grouping.separation import divide
from e2fl.models import Layer, Model, ModelSpec
from e2fl.networks import mlp
from e2fl.rankings.order import invert

SPEC = ModelSpec((Layer("one.weight", (4,)), Layer("two.weight", (3,))))
ORDERS = [  # of six clients, in two layers
    ([0, 1, 2, 3], [0, 1, 2]),
    ([0, 1, 3, 2], [0, 1, 2]),
    ([1, 0, 2, 3], [0, 2, 1]),
    ([3, 2, 1, 0], [2, 1, 0]),
    ([3, 2, 0, 1], [2, 0, 1]),
    ([2, 3, 1, 0], [2, 1, 0]),
]
BALLOTS = {
    client: {
        layer.name: invert(np.array(order, dtype=np.int32))
        for layer, order in zip(SPEC.layers, orders, strict=True)
    }
    for client, orders in enumerate(ORDERS)
}
DISTANCES = [
    [0, 2, 4, 12, 12, 12],
    [2, 0, 6, 12, 12, 12],
    [4, 6, 0, 12, 10, 12],
    [12, 12, 12, 0, 4, 2],
    [12, 12, 10, 4, 0, 6],
    [12, 12, 12, 2, 6, 0],
]


def table_of(ballots=BALLOTS):
    return BallotTable(ballots, views_of(SPEC, 0, 0))


def kmeans_from(table, places, steps):
    return kmeans(table, table.take(places), steps)


def orders(centroids, group):
    return tuple(invert(layer[group]).tolist() for layer in centroids.values())


def recovered(clustering, true):
    return metrics.matched(list(clustering.assignments.values()), true)


@pytest.mark.parametrize("in_memory", [0, 10**6])
def test_the_worked_example(in_memory, monkeypatch):
    monkeypatch.setattr(ballot_table, "MAX_BYTES_IN_MEMORY", in_memory)
    table = table_of()
    assert table.on_disk == (in_memory == 0)
    assert table.pairwise().tolist() == DISTANCES
    # The last start has a bad end: its cost rose from 36.
    for start, steps, assigned, cost, used in (
        ([0, 3], 20, [0, 0, 0, 1, 1, 1], 12, 2),
        ([0, 1], 1, [0, 1, 0, 0, 0, 0], 40, 1),
        ([0, 1], 2, [1, 1, 1, 0, 0, 0], 18, 2),
        ([0, 1], 20, [1, 1, 1, 0, 0, 0], 12, 3),
        ([0, 2], 1, [0, 0, 1, 0, 1, 0], 36, 1),
        ([0, 2], 20, [0, 0, 1, 0, 1, 0], 38, 2),
    ):
        result = kmeans_from(table, start, steps)
        assert (result.assigned.tolist(), result.cost, result.steps) == (assigned, cost, used)
    centroids = kmeans_from(table, [0, 3], 20).centroids
    assert orders(centroids, 0) == ([0, 1, 2, 3], [0, 1, 2])
    assert orders(centroids, 1) == ([3, 2, 1, 0], [2, 1, 0])
    voted = table.vote(np.array([0, 1, 0, 0, 0, 0]), table.take([0, 1]))
    assert orders(voted, 0) == ([2, 3, 1, 0], [2, 0, 1])
    assert orders(voted, 1) == ([0, 1, 3, 2], [0, 1, 2])


def test_a_group_that_stays_empty_takes_whoever_fits_worst():
    # Clients 0 and 1 send the same ballot: ties go to the lower group, so group 1 is empty.
    table = table_of({client: BALLOTS[0 if client < 2 else 3] for client in range(5)})
    assert kmeans_from(table, [0, 1], 1).assigned.tolist() == [0, 0, 0, 0, 0]
    assert metrics.matched(kmeans_from(table, [0, 1], 20).assigned, [0, 0, 1, 1, 1]) == 100
    alike = kmeans_from(table_of(dict.fromkeys(range(4), BALLOTS[0])), [0, 1, 2, 3], 20)
    assert (alike.assigned.tolist(), alike.cost) == ([0, 0, 0, 0], 0)


def uneven_ballots(sizes, edges=2000, seed=0):
    """Rankings around one for each group; the noise of a client is larger than the difference."""
    rng = np.random.default_rng(seed)
    ballots, true = {}, []
    for group, size in enumerate(sizes):
        centre = rng.standard_normal(edges)
        for _ in range(size):
            scores = centre + 1.5 * rng.standard_normal(edges)
            ballots[len(ballots)] = {"fc1.weight": scores.argsort().argsort().astype(np.int32)}
            true.append(group)
    return ballots, true


def test_a_tree_finds_small_groups_that_random_starts_miss():
    ballots, true = uneven_ballots([3, 4, 5, 60, 120])
    by_tree, by_chance = (
        RankClustering(groups=5, start=start).cluster(ballots, 5, seed=0)
        for start in ("tree", "random")
    )
    assert recovered(by_tree, true) == 100 > recovered(by_chance, true)


@pytest.mark.parametrize("sizes", [[3, 200], [30, 30], [4, 10, 40]])
def test_groups_that_are_there_are_stable(sizes):
    ballots, true = uneven_ballots(sizes)
    result = RankClustering(groups=len(sizes)).cluster(ballots, len(sizes), seed=0)
    assert recovered(result, true) == 100
    assert result.metadata["stability"] > 0.9


@pytest.mark.parametrize("count", [2, 5])
def test_groups_that_are_not_there_are_not_stable(count):
    ballots, _ = uneven_ballots([60])
    assert RankClustering(groups=count).cluster(ballots, count, seed=0).metadata["stability"] < 0.5


@pytest.mark.parametrize(("limit", "value"), [("MAX_TREE_CLIENTS", 60), ("MAX_TREE_EDGES", 700)])
def test_a_tree_of_some_clients_or_edges_serves_all(limit, value, monkeypatch):
    monkeypatch.setattr(rank_clustering, limit, value)
    ballots, true = uneven_ballots([40, 60, 100])
    assert recovered(RankClustering(groups=3).cluster(ballots, 3, seed=0), true) == 100


@pytest.mark.parametrize("settings", [{}, {"sample_edges": 700}])
def test_distances_on_a_sample_of_edges_come_near(settings):
    ballots, true = uneven_ballots([40, 60])
    few, clustering = [5, 50, 70], RankClustering(groups=2, **settings)
    exact = RankClustering(groups=2).table(ballots, 0).pairwise()[np.ix_(few, few)]
    table = clustering.table(ballots, 0)
    thin = table.thinned(few, 700, 0).pairwise()
    near = table.pairwise()[np.ix_(few, few)] if settings else thin
    np.testing.assert_allclose(near, exact, rtol=0.1)
    late = ballots.pop(0)  # a ballot that is not clustered goes to the nearest group
    result = clustering.cluster(ballots, 2, seed=0)
    assert recovered(result, true[1:]) == 100
    assert clustering.nearest(late, result.centroids, seed=0) == result.assignments[1]


def test_a_tree_worked_by_hand():
    # {0, 1} and {2, 3} are 3 apart, clients of one pair 1, and client 4 is 9 from all.
    distances = np.array(
        [[0, 1, 3, 3, 9], [1, 0, 3, 3, 9], [3, 3, 0, 1, 9], [3, 3, 1, 0, 9], [9, 9, 9, 9, 0]], float
    )
    assert divide(distances, 1).tolist() == [0, 0, 0, 0, 0]
    assert divide(distances, 2).tolist() == [0, 0, 0, 0, 1]
    assert divide(distances, 3).tolist() == [0, 0, 1, 1, 2]
    assert divide(distances, 5).tolist() == [0, 1, 2, 3, 4]
    for count in (1, 2, 3, 7):
        assert set(divide(np.zeros((7, 7)), count).tolist()) == set(range(count))


def test_more_groups_than_ballots_leaves_groups_without_members():
    result = RankClustering(groups=9, layers=("all",)).cluster(BALLOTS, 9, seed=0)
    assert set(result.assignments) == set(range(6)) == set(result.centroids)
    assert set(RankClustering(groups=1).cluster(BALLOTS, 1, seed=0).assignments.values()) == {0}


LENET = ModelSpec(
    (Layer("conv1.weight", (2, 4)), Layer("conv2.weight", (3, 4)), Layer("fc1.weight", (5, 4)))
)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ((), ["conv2"]),
        (("conv1", "fc1"), ["conv1", "fc1"]),
        (("all",), ["conv1", "conv2", "fc1"]),
    ],
)
def test_layers_are_called_by_their_short_names(layers, expected):
    read = RankClustering(layers=layers).compared_layers(LENET)
    assert [layer.name for layer in read.layers] == [f"{name}.weight" for name in expected]


def test_layers_and_clients_that_are_not_there_are_refused():
    with pytest.raises(ConfigError, match="no layer 'conv3'; it has conv1, conv2, fc1, or all"):
        RankClustering(layers=("conv3",)).compared_layers(LENET)
    model = Model(mlp((4,), 3, hidden=(5,)))
    with pytest.raises(ConfigError, match="at most 3 clients"):
        RankClustering(groups=5).begin(model, Population(dict.fromkeys(range(3))), 0)


def test_memory_stays_bounded_however_many_ballots_there_are():
    """200 MB of rankings are clustered with far less in memory, by the operating system's count."""
    code = """
import resource, numpy as np
from e2fl.data.federated import Lazy
from e2fl.grouping import ballot_table
from e2fl.grouping.ballot_table import BallotTable, views_of
from e2fl.grouping.rank_clustering import kmeans
from e2fl.models import Layer, ModelSpec
ballots = Lazy(range(200), lambda c: {"fc1": np.roll(np.arange(250_000, dtype=np.int32), 999 * c)})
wide = views_of(ModelSpec((Layer("fc1", (250_000,)),)), 0, 0)
few = BallotTable({0: ballots[0], 1: ballots[1]}, wide)
kmeans(few, few.take([0, 1]), 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ballot_table.MAX_BYTES_IN_MEMORY = 0
table = BallotTable(ballots, wide)
assert table.on_disk
kmeans(table, table.take([0, 1, 2]), 2)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    grown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(grown.stdout) < 100  # MB; blocks of 16 MB, a few at a time
