"""Rank clustering: the worked example, what is done with empty groups, and that memory and threads do not matter."""

import json
import subprocess
import sys

import numpy as np
import pytest

from e2fl import metrics
from e2fl.algorithms.e2fl import Rankings
from e2fl.config.experiment import from_dict
from e2fl.data.federated import Population
from e2fl.errors import ConfigError
from e2fl.grouping import RankClustering, rank_clustering
from e2fl.grouping.ballot_table import BallotTable, views_of
from e2fl.grouping.rank_clustering import kmeans, spread
from e2fl.grouping.tree import divide
from e2fl.models import Layer, Model, ModelSpec
from e2fl.networks import mlp
from e2fl.rankings.order import footrule, invert
from e2fl.runs.checkpoint import load
from e2fl.runs.runner import run_experiment

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


def example(**settings):
    return BallotTable(BALLOTS, views_of(SPEC, 0, 0, normalise=False), **settings)


def kmeans_from(table, places, steps):
    return kmeans(table, table.take(places), steps)


def orders(centroids, group):
    return tuple(invert(layer[group]).tolist() for layer in centroids.values())


def test_distance_is_between_ranks_not_between_orders():
    a, b, c = (
        invert(np.array(o, dtype=np.int32))
        for o in ([0, 2, 4, 5, 3, 1], [0, 2, 3, 1, 4, 5], [4, 0, 2, 3, 5, 1])
    )
    assert (footrule(a, b), footrule(c, a), footrule(c, b)) == (8, 6, 10)


@pytest.mark.parametrize("in_memory", [0, 10**6])
def test_distances_of_the_worked_example(in_memory):
    table = example(in_memory=in_memory)
    assert table.on_disk == (in_memory == 0)
    assert table.pairwise(range(6)).tolist() == DISTANCES


@pytest.mark.parametrize(
    ("start", "assigned", "cost", "steps"),
    [
        ([0, 3], [0, 0, 0, 1, 1, 1], 12, 2),
        ([0, 1], [1, 1, 1, 0, 0, 0], 12, 3),
        (
            [0, 2],
            [0, 0, 1, 0, 1, 0],
            38,
            2,
        ),  # a bad end: the cost rose from 36, and restarts are needed
    ],
)
@pytest.mark.parametrize("in_memory", [0, 10**6])
def test_the_worked_example_from_three_starts(start, assigned, cost, steps, in_memory):
    found = kmeans_from(example(in_memory=in_memory), start, 20)
    assert (found.assigned.tolist(), found.cost, found.steps) == (assigned, cost, steps)


def test_centroids_of_the_worked_example():
    found = kmeans_from(example(), [0, 3], 20)
    assert orders(found.centroids, 0) == ([0, 1, 2, 3], [0, 1, 2])
    assert orders(found.centroids, 1) == ([3, 2, 1, 0], [2, 1, 0])
    table = example()
    voted = table.vote(np.array([0, 1, 0, 0, 0, 0]), table.take([0, 1]))
    assert orders(voted, 0) == ([2, 3, 1, 0], [2, 0, 1])
    assert orders(voted, 1) == ([0, 1, 3, 2], [0, 1, 2])


@pytest.mark.parametrize(
    ("start", "steps", "assigned", "cost"),
    [
        ([0, 1], 1, [0, 1, 0, 0, 0, 0], 40),
        ([0, 1], 2, [1, 1, 1, 0, 0, 0], 18),
        ([0, 2], 1, [0, 0, 1, 0, 1, 0], 36),
    ],
)
def test_the_worked_example_step_by_step(start, steps, assigned, cost):
    found = kmeans_from(example(), start, steps)
    assert (found.assigned.tolist(), found.cost) == (assigned, cost)


@pytest.mark.parametrize("start", ["random", "spread"])
def test_restarts_keep_the_cheapest_end(start):
    found = RankClustering(groups=2, layers=("all",), start=start).cluster(BALLOTS, 2, seed=0)
    assert metrics.matched(list(found.assignments.values()), [0, 0, 0, 1, 1, 1]) == 100
    assert found.metadata["cost"] == 12
    assert -1 <= found.metadata["stability"] <= 1


@pytest.mark.parametrize("start", ["random", "spread"])
def test_the_stability_of_one_start_cannot_be_told(start):
    clustering = RankClustering(groups=2, layers=("all",), start=start, restarts=1)
    assert clustering.cluster(BALLOTS, 2, seed=0).metadata["stability"] is None


def test_a_stability_that_cannot_be_told_is_null_on_disk(tmp_path):
    experiment = from_dict(
        {
            "rounds": 1,
            "data": {"name": "e2fl.testing.toy:Toy"},
            "model": {"name": "mlp", "hidden": [8]},
            "algorithm": {
                "name": "e2fl",
                "grouping": {"name": "rank_clustering", "start": "random", "restarts": 1},
            },
        }
    )
    run_experiment(experiment, out=tmp_path)
    (line,) = (tmp_path / "history.jsonl").read_text().splitlines()
    assert json.loads(line)["metadata"]["clustering"]["stability"] is None
    (saved,) = (tmp_path / "checkpoint").iterdir()
    assert load(saved, Rankings).state.membership.metadata["stability"] is None


def test_normalised_layers_count_by_their_largest_distance():
    table = BallotTable(BALLOTS, views_of(SPEC, 0, 0, normalise=True))
    # Clients 0 and 3 stand in opposite orders in both layers: the largest distance there is, floor(d * d / 2).
    assert table.pairwise([0])[3, 0] == pytest.approx(1 + 1)
    assert table.pairwise([0])[1, 0] == pytest.approx(2 / 8)


def test_spread_starts_reach_far_from_each_other():
    assert spread(example(), 2, 0) == [0, 3]
    assert len(set(spread(example(), 6, 2))) == 6


def test_nobody_is_a_start_twice_even_where_all_are_alike():
    alike = BallotTable(dict.fromkeys(range(4), BALLOTS[0]), views_of(SPEC, 0, 0, normalise=False))
    assert sorted(spread(alike, 4, 1)) == [0, 1, 2, 3]
    found = kmeans_from(alike, [0, 1, 2, 3], 20)
    assert found.assigned.tolist() == [0, 0, 0, 0]
    assert found.cost == 0


def test_a_group_that_stays_empty_takes_whoever_fits_worst():
    # Clients 0 and 1 send the same ballot, so a start from both leaves group 1 empty: ties go to the lower group.
    ballots = {0: BALLOTS[0], 1: BALLOTS[0], 2: BALLOTS[3], 3: BALLOTS[3], 4: BALLOTS[3]}
    table = BallotTable(ballots, views_of(SPEC, 0, 0, normalise=False))
    found = kmeans_from(table, [0, 1], 20)
    assert metrics.matched(found.assigned, [0, 0, 1, 1, 1]) == 100
    assert kmeans_from(table, [0, 1], 1).assigned.tolist() == [0, 0, 0, 0, 0]


def uneven_ballots(sizes, edges=2000, seed=0):
    """Rankings around one for each group; the noise of a client is larger than what tells groups apart."""
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
    of_tree, of_random = (
        RankClustering(groups=5, start=start, restarts=3).cluster(ballots, 5, seed=0)
        for start in ("tree", "random")
    )
    assert metrics.matched(list(of_tree.assignments.values()), true) == 100
    assert metrics.matched(list(of_random.assignments.values()), true) < 100


def test_a_tree_goes_through_all_rankings_only_once(monkeypatch):
    starts = []
    monkeypatch.setattr(
        rank_clustering, "kmeans", lambda *arguments: starts.append(1) or kmeans(*arguments)
    )
    RankClustering(groups=2, layers=("all",)).cluster(BALLOTS, 2, seed=0)
    assert len(starts) == 1
    RankClustering(groups=2, layers=("all",), start="random").cluster(BALLOTS, 2, seed=0)
    assert len(starts) == 1 + 10


@pytest.mark.parametrize("sizes", [[3, 200], [30, 30], [4, 10, 40]])
def test_groups_that_are_there_are_stable(sizes):
    ballots, true = uneven_ballots(sizes)
    found = RankClustering(groups=len(sizes)).cluster(ballots, len(sizes), seed=0)
    assert metrics.matched(list(found.assignments.values()), true) == 100
    assert found.metadata["stability"] > 0.9


@pytest.mark.parametrize("count", [2, 3, 5])
def test_groups_that_are_not_there_are_not_stable(count):
    ballots, _ = uneven_ballots([60])
    assert RankClustering(groups=count).cluster(ballots, count, seed=0).metadata["stability"] < 0.5


def test_a_tree_of_some_clients_serves_all(monkeypatch):
    monkeypatch.setattr(rank_clustering, "TREE", 60)
    ballots, true = uneven_ballots([40, 60, 100])
    found = RankClustering(groups=3).cluster(ballots, 3, seed=0)
    assert metrics.matched(list(found.assignments.values()), true) == 100


def test_a_tree_looks_at_some_edges_of_a_large_layer(monkeypatch):
    monkeypatch.setattr(rank_clustering, "EDGES", 700)
    ballots, true = uneven_ballots([40, 60, 100])
    table = RankClustering(groups=3).table(ballots, 0)
    thin = table.thinned([5, 50, 150], 700, 0)
    assert (len(thin), thin.views[0].width) == (3, 700)
    exact = table.pairwise([5, 50, 150])[[5, 50, 150]]
    np.testing.assert_allclose(thin.pairwise(range(3)), exact, rtol=0.1)
    found = RankClustering(groups=3).cluster(ballots, 3, seed=0)
    assert metrics.matched(list(found.assignments.values()), true) == 100


def test_a_tree_worked_by_hand():
    # Pieces {0, 1}, {2, 3} and {4}: clients of the first two are 3 apart, of one piece 1, and client 4 is 9 from all.
    distances = np.array(
        [[0, 1, 3, 3, 9], [1, 0, 3, 3, 9], [3, 3, 0, 1, 9], [3, 3, 1, 0, 9], [9, 9, 9, 9, 0]], float
    )
    assert divide(distances, 2).tolist() == [0, 0, 0, 0, 1]
    assert divide(distances, 3).tolist() == [0, 0, 1, 1, 2]
    assert divide(distances, 5).tolist() == [0, 1, 2, 3, 4]
    assert divide(distances, 1).tolist() == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_tree_of_equal_rankings_still_has_as_many_groups_as_wanted(count):
    assert set(divide(np.zeros((7, 7)), count).tolist()) == set(range(count))


def test_more_groups_than_ballots_leaves_groups_without_members():
    found = RankClustering(groups=9, layers=("all",)).cluster(BALLOTS, 9, seed=0)
    assert set(found.assignments) == set(range(6))
    assert len(found.centroids) == 6


def test_one_group_takes_everybody():
    found = RankClustering(groups=1).cluster(BALLOTS, 1, seed=0)
    assert set(found.assignments.values()) == {0}


def test_a_late_ballot_goes_to_the_nearest_group():
    clustering = RankClustering(groups=2, layers=("all",))
    found = clustering.cluster({client: BALLOTS[client] for client in (0, 2, 3, 5)}, 2, seed=0)
    for late, neighbour in ((1, 0), (4, 3)):
        assert (
            clustering.nearest(BALLOTS[late], found.centroids, seed=0)
            == found.assignments[neighbour]
        )


LENET = ModelSpec(
    (Layer("conv1.weight", (2, 4)), Layer("conv2.weight", (3, 4)), Layer("fc1.weight", (5, 4)))
)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ((), ["conv2"]),
        (("fc1",), ["fc1"]),
        (("conv1", "fc1"), ["conv1", "fc1"]),
        (("all",), ["conv1", "conv2", "fc1"]),
    ],
)
def test_layers_are_called_by_their_short_names(layers, expected):
    read = RankClustering(layers=layers).reads(LENET)
    assert [layer.name for layer in read.layers] == [f"{name}.weight" for name in expected]


def test_a_layer_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="no layer 'conv3'; it has conv1, conv2, fc1, or all"):
        RankClustering(layers=("conv3",)).reads(LENET)


@pytest.mark.parametrize(
    "settings",
    [{"groups": 0}, {"restarts": 0}, {"steps": 0}, {"start": "best"}, {"sample_edges": 1}],
)
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        RankClustering(**settings)


def test_more_groups_than_clients_is_a_mistake():
    with pytest.raises(ConfigError, match="groups is 5, but there are only 3 clients"):
        RankClustering(groups=5).begin(
            Model(mlp((4,), 3, hidden=(5,))), Population(dict.fromkeys(range(3))), 0
        )


def noisy_ballots(edges, clients=12, seed=0):
    """Rankings around two opposite ones."""
    rng = np.random.default_rng(seed)
    ballots = {}
    for client in range(clients):
        centre = np.arange(edges) if client % 2 else np.arange(edges)[::-1]
        scores = centre + rng.standard_normal(edges) * edges / 3
        ballots[client] = {"fc1.weight": scores.argsort().argsort().astype(np.int32)}
    return ballots


def test_distances_on_a_sample_of_edges_come_near_and_say_how_near():
    ballots = noisy_ballots(5000)
    clustering = RankClustering(groups=2, sample_edges=500)
    found = clustering.cluster(ballots, 2, seed=0)
    assert (
        metrics.matched(list(found.assignments.values()), [client % 2 for client in ballots]) == 100
    )
    assert 0 < found.metadata["sampling_error"] < 0.1
    assert all(len(centroid["fc1.weight"]) == 500 for centroid in found.centroids.values())
    exact = RankClustering(groups=2).table(ballots, 0).pairwise([0])
    sampled = clustering.table(ballots, 0).pairwise([0])
    np.testing.assert_allclose(sampled[1:], exact[1:], rtol=0.1)
    assert (
        clustering.nearest(noisy_ballots(5000, seed=1)[1], found.centroids, seed=0)
        == found.assignments[1]
    )


def test_memory_stays_bounded_however_many_ballots_there_are():
    """200 MB of rankings are clustered with far less in memory, counted by the operating system."""
    code = """
import resource, numpy as np
from collections.abc import Mapping
from e2fl.grouping.ballot_table import BallotTable, views_of
from e2fl.grouping.rank_clustering import kmeans
from e2fl.models import Layer, Model, ModelSpec
from e2fl.networks import mlp
EDGES, CLIENTS = 250_000, 200
class Ballots(Mapping):
    def __getitem__(self, client):
        return {"fc1": np.roll(np.arange(EDGES, dtype=np.int32), 1000 * client)}
    def __iter__(self): return iter(range(CLIENTS))
    def __len__(self): return CLIENTS
wide = views_of(ModelSpec((Layer("fc1", (EDGES,)),)), 0, 0, normalise=False)
few = BallotTable({0: Ballots()[0], 1: Ballots()[1]}, wide)
kmeans(few, few.take([0, 1]), 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
table = BallotTable(Ballots(), few.views, in_memory=0)
assert table.on_disk
kmeans(table, table.take([0, 1, 2]), 2)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    grown = int(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )
    assert grown < 100  # MB; blocks of 16 MB, a few at a time


@pytest.mark.slow
def test_rotated_digits_are_told_apart_after_two_epochs(real_data):
    """Three groups of real digits, a third of a turn apart."""
    experiment = from_dict(
        {
            "rounds": 1,
            "data": {
                "name": "fair_mnist_rotate",
                "dir": str(real_data / "mnist"),
                "group_sizes": [12, 20, 16],
                "angle_step": 120.0,
                "samples_per_client": 60,
                "test_images": 100,
            },
            "model": {"name": "lenet"},
            "algorithm": {
                "name": "e2fl",
                "grouping": {"name": "rank_clustering", "groups": 3, "layers": ["conv2"]},
            },
        }
    )
    found = run_experiment(experiment).summary["inference"]
    assert found["matched"] >= 90
