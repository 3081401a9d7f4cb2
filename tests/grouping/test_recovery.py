"""How good found groups are: the measures by worked examples, and in a run's files."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl import metrics
from e2fl.algorithms.e2fl import E2FL
from e2fl.errors import RunError
from e2fl.evaluation import Score
from e2fl.grouping import LowestLoss
from e2fl.rounds import Traffic
from e2fl.runs.measure import Totals, inference
from e2fl.runs.runner import run_experiment
from e2fl.testing.toy import Toy
from tests.runs.helpers import Noting
from tests.toys import toy_with

FOUND = [0, 0, 0, 1, 1, 2, 2, 2]
TRUE = [5, 5, 6, 6, 6, 7, 5, 5]  # pairs: 0-5 twice, 0-6, 1-6 twice, 2-7, 2-5 twice


def test_measures_of_found_groups_by_hand():
    # Matching is one to one: 0-5, 1-6, 2-7. Purity lets two groups be the same.
    assert metrics.matched(FOUND, TRUE) == 100 * (2 + 2 + 1) / 8
    assert metrics.purity(FOUND, TRUE) == 100 * (2 + 2 + 2) / 8
    # Pairs together in both: 1 + 1 + 1; in FOUND: 3 + 1 + 3; in TRUE: 6 + 3 + 0; of 28 pairs.
    expected = 7 * 9 / 28
    rand = (3 - expected) / ((7 + 9) / 2 - expected)
    assert metrics.adjusted_rand(FOUND, TRUE) == pytest.approx(rand)
    rng = np.random.default_rng(0)
    assert abs(metrics.adjusted_rand(rng.integers(5, size=5000), rng.integers(5, size=5000))) < 0.01
    assert metrics.changed({0: 1, 1: 1, 2: 0, 3: 0}, {0: 1, 1: 0, 2: 1}) == pytest.approx(200 / 3)
    assert metrics.changed({0: 1}, {}) is None


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.permutations(range(5)))
def test_what_groups_are_called_does_not_matter(groups, names):
    renamed = [names[group] for group in groups]
    assert metrics.matched(renamed, groups) == metrics.purity(renamed, groups) == 100
    assert metrics.adjusted_rand(renamed, groups) == 1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30))
def test_a_one_to_one_matching_is_never_better_than_purity(pairs):
    found, true = zip(*pairs, strict=True)
    assert 0 < metrics.matched(found, true) <= metrics.purity(found, true) <= 100


def test_groupings_of_different_clients_do_not_compare():
    with pytest.raises(ValueError, match="same clients"):
        metrics.matched([0, 1], [0])
    with pytest.raises(ValueError, match="same clients"):
        metrics.purity([], [])


def test_groups_without_truth_are_measured_as_far_as_can_be():
    data = Toy(inside=True)
    scores = {client: Score({}, client % 2, 3.0) for client in data.population.ids}
    found = inference(scores, data.population, Totals(traffic=Traffic(grouping_bytes=7)))
    assert found["matched"] is None
    assert (found["passes_per_client"], found["bytes"]) == (3.0, 7)
    assert found["found"] == {"0": 4, "1": 4}
    assert inference({0: Score({})}, data.population, Totals()) is None


def toy(grouping, rounds=4):
    return toy_with(rounds=rounds, data={"styles": True}, algorithm={"grouping": grouping})


GROUPINGS = [
    {"name": "rank_clustering", "groups": 2},
    {"name": "lowest_loss", "groups": 2},
    {"name": "one_shot", "groups": 2},
    {"name": "binary", "groups": 4},
]


@pytest.mark.parametrize("grouping", GROUPINGS, ids=lambda grouping: grouping["name"])
def test_every_round_of_training_says_how_well_groups_are_found(grouping):
    run = run_experiment(toy(grouping, rounds=5))
    rounds = [entry for line in run.history for entry in line["inference"]["rounds"]]
    first = 0 if grouping["name"] == "rank_clustering" else 1
    assert [entry["round"] for entry in rounds] == list(range(first, 6))
    assert [len(line["inference"]["rounds"]) for line in run.history] == [3 - first, 2, 1]
    passes = {"rank_clustering": 0, "lowest_loss": 2, "one_shot": 1, "binary": 2}[grouping["name"]]
    assert [entry["passes"] for entry in rounds] == [4 * passes] * len(rounds)
    last = run.history[-1]["inference"]
    keys = "matched purity adjusted_rand changed passes_per_client passes bytes found rounds"
    assert last == run.summary["inference"]
    assert last.keys() == set(keys.split())
    if grouping["name"] == "lowest_loss":  # two masks for each of four clients in five rounds
        layers = run.experiment.build.model(Toy()).spec.layers
        assert last["bytes"] == 5 * 4 * 2 * sum((layer.edges + 7) // 8 for layer in layers)
    for key in ("passes", "bytes"):
        assert sum(entry[key] for entry in rounds) == last[key]
    heard = [entry["clients"] for entry in rounds]
    assert heard == sorted(heard)
    assert all(0 < entry["matched"] <= entry["purity"] <= 100 for entry in rounds)
    assert rounds[0]["changed"] is None
    assert any(entry["changed"] is not None for entry in rounds)


def test_a_client_of_a_group_without_votes_uses_the_global_model():
    """Its mask is a random start: good for telling groups apart, not for predicting."""
    algorithm = E2FL(grouping=LowestLoss(groups=3))
    experiment, data = toy({"name": "known"}), Toy(clients=8, styles=True)
    model = experiment.build.model(data)
    learner, state = experiment.build.learner(model), algorithm.start(model, data.population, 0)
    for voted in ({}, dict.fromkeys((0, 1, 2), model.random_ranking(0, "a vote"))):
        message = algorithm.serve(replace(state, groups=voted), [0])[0]
        uses = algorithm.model_for(message, data.client(0), learner)
        assert (uses.views["group"].model is uses.views["global"].model) == (not voted)
        assert uses.group is not None


def test_clustering_costs_one_small_ballot_per_client():
    """Only the layer that is looked at is sent, and it is sent once."""
    sections = [{"name": "rank_clustering", "groups": 2, "layers": [n]} for n in ("fc2", "all")]
    runs = [run_experiment(toy(section)) for section in sections]
    few, all_of_it = (run.summary["inference"]["bytes"] for run in runs)
    model = toy({"name": "known"}).build.model(Toy())
    first = model.spec.layers[0]
    assert all_of_it - few == 8 * ((first.edges * (first.edges - 1).bit_length() + 7) // 8)


# What cannot be is said, or has a clear result.


@pytest.mark.parametrize("name", ["rank_clustering", "lowest_loss", "one_shot", "binary"])
def test_one_group_is_frl(name):
    one = run_experiment(toy({"name": name, "groups": 1}))
    assert one.summary["inference"]["found"] == {"0": 8}
    frl = run_experiment(
        replace(toy({"name": "known"}), algorithm={"name": "frl", "clients_per_round": 4})
    )
    assert one.summary["clients"] == frl.summary["clients"]


def poisoned(data, *clients):
    """The same federation, some of whose clients hold inputs that are NaN."""
    for client in clients:
        data.client(client).train.x[:] = np.nan
    return data


@pytest.mark.parametrize("name", ["local", "fedavg", "ifca", "fairfed", "afl", "e2fl"])
def test_a_client_whose_loss_is_no_number_is_left_out_and_named(name):
    experiment = replace(toy({"name": "known"}), algorithm={"name": name, "clients_per_round": 8})
    noting = Noting()
    run = run_experiment(experiment, data=poisoned(Toy(styles=True), 3), watcher=noting)
    assert any("client 3 left out" in warning for warning in noting.warnings)
    assert run.history[-1]["answered"] == 7
    assert np.isfinite(run.summary["clients"]["mean"])
    assert np.isfinite([group["loss"] for group in run.summary["groups"].values()]).all()


@pytest.mark.parametrize("name", ["fedavg", "afl"])
def test_a_federation_that_holds_no_numbers_at_all_is_an_error_not_a_silent_nan(name):
    experiment = replace(toy({"name": "known"}), algorithm={"name": name, "clients_per_round": 8})
    with pytest.raises(RunError, match="no client sent a usable reply"):
        run_experiment(experiment, data=poisoned(Toy(clients=8, styles=True), *range(8)))
