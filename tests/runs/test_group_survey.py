"""How many groups there are: found where there are some, and a warning where there are none."""

import tomllib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from e2fl.cli import main
from e2fl.data.federated import Client, Examples, Population
from e2fl.errors import ConfigError
from e2fl.grouping import RankClustering
from e2fl.runs.group_survey import NOISE, Row, Survey, survey
from e2fl.testing.toy import Toy
from tests.toys import toy_with


def experiment(seed=0, **data):
    return toy_with(
        seed=seed,
        data={"clients": 24, "styles": True, "seed": seed} | data,
        model={"name": "mlp", "hidden": [32]},
        learner={"learning_rate": 0.1},
        algorithm={"grouping": {"name": "rank_clustering", "layers": ["all"]}},
    )


def federation(clients):
    """Return what a survey needs of a data set, with these clients."""
    by_id = {client.id: client for client in clients}
    groups = {client.id: client.group for client in clients}
    known = [group for group in groups.values() if group is not None]
    population = Population(groups, 1 + max(known, default=-1))
    made = SimpleNamespace(
        population=population, client=by_id.__getitem__, shape=(16,), classes=3, groups=()
    )
    made.for_seed = lambda seed: made
    made.sized_population = lambda: population
    return made


@pytest.mark.parametrize(("groups", "seed"), [(2, 0), (2, 4), (3, 1), (5, 2)])
def test_the_groups_of_a_toy_problem_are_counted_right(groups, seed):
    found = survey(experiment(seed, groups=groups), 2, 6)
    best = found.fitting[0]
    assert best.groups == groups
    assert best.stability > 0.8
    assert best.matched == 100
    assert f"Use {groups} groups" in found.advice()


def test_a_small_group_beside_a_large_one_is_found():
    toy = Toy(clients=42, groups=2, styles=True)
    some = [toy.client(number) for number in range(42) if number % 2 == 0 or number < 6]  # 21 and 3
    (row,) = survey(experiment(), 2, 2, data=federation(some)).rows
    assert row.clear
    assert (row.smallest, row.matched) == (3, 100)
    nameless = [replace(client, group=None) for client in some]
    assert "declared" not in survey(experiment(), 2, 2, data=federation(nameless)).table()


@pytest.mark.parametrize("seed", range(2))
def test_a_federation_without_groups_is_called_noise(seed):
    found = survey(experiment(seed, groups=1), 2, 4)
    assert found.fitting == []
    assert found.advice() == NOISE


def test_clients_that_differ_only_in_how_much_data_they_have_are_no_groups():
    toy = Toy(clients=60, groups=1, styles=True, examples=200)
    amounts = np.geomspace(16, 200, 60).astype(int).tolist()
    some = [
        Client(number, Examples(whole.train.x[:amount], whole.train.y[:amount]), whole.test, 0)
        for number, amount in enumerate(amounts)
        for whole in [toy.client(number)]
    ]
    found = survey(experiment(), 2, 5, data=federation(some))
    assert found.fitting == [], found.table()


def row(groups, silhouette, **settings):
    known = {"stability": 0.9, "blur": 0.1, "cloud": 0.3, "smallest": 8}
    return Row(groups, silhouette=silhouette, **(known | settings))


@pytest.mark.parametrize(
    ("rows", "best"),
    [
        ([row(3, 0.2), row(2, 0.2)], 2),
        ([row(2, 0.1), row(3, 0.1995), row(4, 0.2)], 3),
        ([row(2, 0.1), row(3, 0.19), row(4, 0.2)], 4),
        ([row(2, 0.1), row(3, 0.3, blur=0.2), row(4, 0.3, stability=0.5)], 2),  # 3, 4: not clear
    ],
)
def test_of_equally_good_numbers_the_smallest_is_best(rows, best):
    assert Survey(tuple(rows)).fitting[0].groups == best


def test_a_flat_silhouette_names_the_range_and_the_most_groups_that_are_as_stable():
    flat = row(10, 0.199, stability=0.895), row(12, 0.2, stability=0.7)
    found = Survey((row(4, 0.1), row(5, 0.2), row(8, 0.2), *flat))
    assert found.fitting[0].groups == 5
    assert "flat from 5 to 12 groups" in found.advice()
    assert 'grouping = { name = "rank_clustering", groups = 10 }' in found.advice()
    assert "flat" not in Survey((row(2, 0.1), row(3, 0.2), row(4, 0.15))).advice()
    alone = Survey((row(5, 0.2, smallest=1), row(8, 0.2, stability=0.7))).advice()
    assert "the smallest has 1 client. Silhouettes are flat" in alone
    assert "as stable" not in alone


def test_the_advice_asks_for_the_clustering_that_was_surveyed():
    settings = {"layers": ("fc1", "fc2"), "start": "random", "sample_edges": 300}
    found = Survey((row(4, 0.2),), RankClustering(groups=12, **settings))
    wanted = tomllib.loads(f"grouping = {found.grouping(4)}")["grouping"]
    assert wanted.pop("name") == "rank_clustering"
    layers = tuple(wanted.pop("layers"))
    assert RankClustering(**wanted, layers=layers) == RankClustering(groups=4, **settings)
    assert found.grouping(4) in found.advice()


def test_the_command_prints_a_table_and_advice(tmp_path, capsys):
    config = tmp_path / "toy.toml"
    config.write_text(experiment().to_toml())
    assert main(["groups", str(config), "--from", "2", "--to", "3"]) == 0
    shown = capsys.readouterr()
    advice = 'Use 2 groups: grouping = { name = "rank_clustering", groups = 2, layers = ["all"] }'
    for words in ("stability", "2 *", advice, "as declared"):
        assert words in shown.out
    assert "clustering into 3 groups" in shown.err
    for first, last in ((1, 3), (4, 3), (2, 24)):
        with pytest.raises(ConfigError, match=f"not {first} and {last}"):
            survey(experiment(), first, last, data=Toy(clients=24))
