"""How many groups there are: found where there are some, and a warning where there are none."""

import tomllib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from e2fl.cli import main
from e2fl.config.experiment import from_dict
from e2fl.data.federated import Client, Examples, Population
from e2fl.errors import ConfigError
from e2fl.grouping import RankClustering
from e2fl.grouping.separation import blur, cloud, pieces, silhouette
from e2fl.runs.group_survey import MAX_RELATIVE_BLUR, Row, Survey, survey
from e2fl.testing.toy import Toy


def experiment(seed=0, **data):
    return from_dict(
        {
            "seed": seed,
            "data": {"name": "e2fl.testing.toy:Toy", "clients": 24, "styles": True, "seed": seed}
            | data,
            "model": {"name": "mlp", "hidden": [32]},
            "learner": {"learning_rate": 0.1},
            "algorithm": {
                "name": "e2fl",
                "grouping": {"name": "rank_clustering", "layers": ["all"]},
            },
        }
    )


def test_silhouette_by_hand():
    # Points 0 and 1, and 10: own distances 1 and 1, others 10 and 9; the third is alone and counts 0.
    distances = np.array([[0, 1, 10], [1, 0, 9], [10, 9, 0]], dtype=float)
    assert silhouette(distances, np.array([4, 4, 7])) == pytest.approx((9 / 10 + 8 / 9 + 0) / 3)
    assert silhouette(distances, np.array([1, 1, 1])) == 0


def test_blur_by_hand():
    places = np.array([0.0, 2, 10, 12])
    distances = (places[:, None] - places) ** 2
    # Two in a group are 4 apart, and their middles (100 + 144 + 64 + 100) / 4 - 4 / 2 - 4 / 2 = 98 from each other.
    # Client 0: own 4 - 4 / 2 = 2, next (100 + 144) / 2 - 4 / 2 = 120; (120 - 2) / 98 is beyond the middle, so 0.
    # Client 1: own 2, next (64 + 100) / 2 - 4 / 2 = 80; (80 - 2) / 98 of the way from the border to the middle.
    assert blur(distances, np.array([0, 0, 1, 1])) == pytest.approx((1 - 78 / 98) / 2)
    assert blur(distances, np.array([0, 1, 0, 1])) == 1  # no client is nearer to its own group
    assert blur(distances, np.array([5, 5, 5, 5])) == 1


def test_a_client_alone_in_its_group_is_all_blur():
    distances = np.array([[0, 1, 10], [1, 0, 10], [10, 10, 0]], dtype=float)
    # Clients 0 and 1 stand in the middle of their group, as far as the distances tell; client 2 is alone.
    assert blur(distances, np.array([0, 0, 1])) == pytest.approx(1 / 3)


def points(sizes, seed, apart=3.0, edges=400):
    """Squared distances between points around one middle for each group, with noise in all directions."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    middles = apart * rng.standard_normal((len(sizes), edges)) / np.sqrt(edges)
    some = middles[group] + rng.standard_normal((len(group), edges)) / np.sqrt(edges)
    return ((some[:, None] - some) ** 2).sum(axis=-1)


def spread(distances):
    middle = np.eye(len(distances)) - 1 / len(distances)
    return np.linalg.eigvalsh(-middle @ distances @ middle / 2)


def test_a_cloud_is_as_wide_in_all_directions_as_what_it_stands_for():
    distances = points([5, 20], seed=0)
    drawn = cloud(distances, np.random.default_rng(0))
    np.testing.assert_allclose(spread(drawn), spread(distances), atol=1e-9)
    assert drawn.sum() == pytest.approx(distances.sum())
    assert not np.allclose(drawn, distances)


def sharpness(distances, count):
    """The blur of so many pieces, as a fraction of what it is for clouds."""
    clouds = [cloud(distances, np.random.default_rng(number)) for number in range(5)]
    found, *drawn = (blur(some, pieces(some, count)) for some in (distances, *clouds))
    return found / np.mean(drawn)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [(12, 12), (3, 40), (3, 5, 30), (4, 6, 8, 10, 12)])
def test_groups_are_sharper_than_a_cloud(sizes, seed):
    assert sharpness(points(sizes, seed), len(sizes)) < MAX_RELATIVE_BLUR


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("clients", [16, 40])
def test_pieces_of_a_cloud_are_as_blurred_as_a_cloud(clients, seed):
    rng = np.random.default_rng(seed)
    some = rng.standard_normal((clients, 200)) * np.linspace(1, 0.1, 200)
    some[:, 0] *= 8  # clients differ most in one direction, without groups
    distances = ((some[:, None] - some) ** 2).sum(axis=-1)
    assert min(sharpness(distances, count) for count in (2, 3, 4)) > MAX_RELATIVE_BLUR


@pytest.mark.parametrize(("groups", "seed"), [(2, 0), (2, 1), (2, 4), (3, 0), (3, 1), (5, 2)])
def test_the_groups_of_a_toy_problem_are_counted_right(groups, seed):
    found = survey(experiment(seed, groups=groups), 2, 6)
    assert found.best is not None
    assert found.best.groups == groups
    assert f"Use {groups} groups" in found.advice()
    assert found.best.stability > 0.8


def federation(clients, classes=3, shape=(16,)):
    population = Population(
        {client.id: client.group for client in clients}, 1 + max(client.group for client in clients)
    )
    by_id = {client.id: client for client in clients}
    return _data(population, by_id.__getitem__, shape, classes)


def _data(population, client, shape, classes):
    """Return what a survey needs of a data set."""
    made = SimpleNamespace(
        population=population, client=client, shape=shape, classes=classes, groups=()
    )
    made.for_seed = lambda seed: made
    made.sized_population = lambda: population
    return made


@pytest.mark.parametrize("seed", range(3))
def test_a_small_group_beside_a_large_one_is_found(seed):
    toy = Toy(seed=seed, clients=42, groups=2, styles=True)
    some = [toy.client(number) for number in range(42) if number % 2 == 0 or number < 6]  # 21 and 3
    (row,) = survey(experiment(seed), 2, 2, data=federation(some)).rows
    assert row.clear
    assert (row.smallest, row.agreement.matched) == (3, 100)


def test_declared_groups_tell_how_good_the_found_ones_are():
    (row,) = survey(experiment(groups=3), 3, 3).rows
    assert row.agreement is not None
    assert (row.agreement.matched, row.agreement.purity) == (100, 100)
    data = Toy(clients=24, groups=3, styles=True)
    unknown = replace(data.population, declared=dict.fromkeys(data.population.ids), groups=0)
    nameless = _data(unknown, data.client, data.shape, data.classes)
    found = survey(experiment(groups=3), 3, 3, data=nameless)
    assert found.rows[0].agreement is None
    assert "declared" not in found.table()


def test_random_starts_are_also_told_of_on_average():
    tree, random = experiment(groups=3), experiment(groups=3)
    random.algorithm["grouping"]["start"] = "random"
    of_tree, of_random = survey(tree, 3, 3), survey(random, 3, 3)
    assert of_tree.rows[0].mean_start is None
    assert "mean start" not in of_tree.table()
    mean = of_random.rows[0].mean_start
    assert 40 < mean.matched <= mean.purity <= 100
    assert mean.matched < of_random.rows[0].agreement.matched
    assert "mean start" in of_random.table()


@pytest.mark.parametrize("seed", range(6))
def test_a_federation_without_groups_is_called_noise(seed):
    found = survey(experiment(seed, groups=1), 2, 4)
    assert found.best is None
    assert found.advice().startswith("Warning: these groups look like noise")


@pytest.mark.parametrize("seed", range(2))
def test_clients_that_differ_only_in_how_much_data_they_have_are_no_groups(seed):
    toy = Toy(seed=seed, clients=60, groups=1, styles=True, examples=200)
    amounts = np.geomspace(16, 200, 60).astype(int).tolist()
    some = [
        Client(number, Examples(whole.train.x[:amount], whole.train.y[:amount]), whole.test, 0)
        for number, amount in enumerate(amounts)
        for whole in [toy.client(number)]
    ]
    found = survey(experiment(seed), 2, 5, data=federation(some))
    assert found.best is None, found.table()


def test_one_random_start_is_enough_to_look_for_groups():
    once = experiment(groups=2)
    once.algorithm["grouping"] |= {"restarts": 1, "start": "random"}
    found = survey(once, 2, 3)
    assert found.best is not None
    assert found.best.groups == 2
    assert "mean start" not in found.table()


def row(groups, silhouette, **settings):
    return Row(
        groups,
        **({"stability": 0.9, "blur": 0.1, "cloud": 0.3, "smallest": 8, "cost": 0.8} | settings),
        silhouette=silhouette,
    )


def test_of_equally_good_numbers_the_smallest_is_best():
    assert Survey((row(3, 0.2), row(2, 0.2))).best.groups == 2
    assert Survey((row(2, 0.1), row(3, 0.1995), row(4, 0.2))).best.groups == 3
    assert Survey((row(2, 0.1), row(3, 0.19), row(4, 0.2))).best.groups == 4


def test_groups_are_clear_where_they_are_steady_and_sharp():
    assert row(2, 0.1).clear
    assert not row(2, 0.1, stability=0.5).clear
    assert not row(2, 0.1, blur=0.2).clear
    assert Survey((row(2, 0.1), row(3, 0.3, blur=0.2))).best.groups == 2


@pytest.mark.parametrize(
    "settings",
    [{}, {"layers": ("fc1", "fc2"), "normalise": True}, {"start": "spread", "restarts": 3}],
)
def test_the_advice_asks_for_the_clustering_that_was_surveyed(settings):
    found = Survey((row(4, 0.2),), RankClustering(groups=12, **settings))
    wanted = tomllib.loads(f"grouping = {found.grouping(4)}")["grouping"]
    assert wanted.pop("name") == "rank_clustering"
    assert set(wanted) == {"groups", *settings}
    layers = tuple(wanted.pop("layers", ()))
    assert RankClustering(**wanted, layers=layers) == RankClustering(groups=4, **settings)
    assert found.grouping(4) in found.advice()


@pytest.mark.parametrize(("first", "last"), [(1, 3), (4, 3), (2, 24)])
def test_numbers_of_groups_that_make_no_sense_are_refused(first, last):
    with pytest.raises(ConfigError, match="--"):
        survey(experiment(), first, last, data=Toy(clients=24))


def test_the_command_prints_a_table_and_advice(tmp_path, capsys):
    config = tmp_path / "toy.toml"
    config.write_text(experiment().to_toml())
    assert main(["groups", str(config), "--from", "2", "--to", "3"]) == 0
    shown = capsys.readouterr()
    assert "stability" in shown.out
    assert "2 *" in shown.out
    assert (
        'Use 2 groups: grouping = { name = "rank_clustering", groups = 2, layers = ["all"] }'
        in shown.out
    )
    assert "as declared" in shown.out
    steps = [line.split(" s  ")[1] for line in shown.err.splitlines()]
    assert steps[0] == "training 24 clients once"
    assert steps[-2:] == ["clustering into 3 groups", "done"]
    assert main(["groups", str(config), "--to", "99"]) == 2
    assert "fewer groups" in capsys.readouterr().err
