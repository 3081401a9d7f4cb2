"""Every data set runs with every algorithm, as in the shipped experiments, only smaller."""

from dataclasses import replace

import pytest

from e2fl.algorithms import ALGORITHMS
from e2fl.cli import main
from e2fl.config.experiment import load
from e2fl.config.files import shipped
from e2fl.config.overrides import flattened, given
from e2fl.config.sections import completed
from e2fl.runs.runner import run_experiment

SMALL = {
    "adult": {"data": {}, "learner": {"epochs": 1, "batch_size": 256}},
    "femnist": {"data": {"writers": 6}, "learner": {"epochs": 1}},
    "mnist_writers": {"data": {"writers": 6}, "learner": {"epochs": 1}},
}
GROUPING, LAYERS = "algorithm.grouping", ("conv1", "conv2", "fc1", "fc2", "all")
VARIANTS = [  # groupavg needs clients that declare a group
    (name, variant)
    for name in SMALL
    for variant in sorted({*ALGORITHMS, *load(name).variants} - {"groupavg"})
]


@pytest.mark.parametrize("name", shipped())
def test_shipped_experiments_are_valid_in_every_variant_and_say_what_they_are(name):
    experiment = load(name)
    assert len(shipped()[name]) > 20
    for variant in [experiment.algorithm["name"], *experiment.variants]:
        experiment.variant(variant).build.algorithm()


@pytest.mark.parametrize(
    ("name", "variant", "settings"),
    [
        ("adult", "one_ranking", {"algorithm.inside": "majority"}),
        ("adult", "one_sex", {"data.partition": "by_group"}),
        *((name, "fedavg", {"rounds": 3000}) for name in ("table1", "femnist")),
        *((name, "qffl", {"rounds": 6000}) for name in ("table1", "femnist")),
        *(("table5", layer, {f"{GROUPING}.start": "tree"}) for layer in LAYERS),
        *(("table5", f"{layer}_random", {f"{GROUPING}.sample_edges": 0}) for layer in LAYERS),
        *(("table5", f"{layer}_random", {f"{GROUPING}.start": "random"}) for layer in LAYERS),
        *(("table5", layer, {f"{GROUPING}.layers": [layer]}) for layer in LAYERS),
    ],
)
def test_variants_are_those_of_the_paper(name, variant, settings):
    made = flattened(completed(load(name).variant(variant)).to_dict())
    assert {key: made[key] for key in settings} == settings


def test_table_6_clusters_femnist_into_two_to_five_groups_with_the_settings_of_table_2():
    table2 = load("femnist").variant("rank_clustering")
    for groups in (2, 3, 4, 5):
        found = load("table6").variant(f"q{groups}")
        assert found.algorithm["grouping"] == {"name": "rank_clustering", "groups": groups}
        assert found == replace(table2, name=found.name, algorithm=found.algorithm)


@pytest.mark.usefixtures("no_plots")
def test_all_algorithms_compare_on_the_bundled_data(tmp_path, capsys):
    small = ["rounds=2", "evaluate_every=2", "model={name='mlp', hidden=[8]}", "learner.epochs=1"]
    small += ["data.clients=20", "data.samples_per_client=40", "data.test_images=100"]
    changes = [word for change in small for word in ("--set", change)]
    names = ",".join(ALGORITHMS)
    assert main(["compare", "demo", "--algorithms", names, "--out", str(tmp_path), *changes]) == 0
    shown = capsys.readouterr().out
    for name, kind in ALGORITHMS.items():
        assert f"\n{kind.title} " in shown
        left = {path.name for path in (tmp_path / f"{name}-seed0").iterdir()}
        assert left >= {"history.jsonl", "clients.csv"}
        assert ("model.safetensors" in left) == (name != "local")


@pytest.fixture(scope="module")
def made():
    return {}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_a_shipped_experiment_runs(real_data, made, name, variant):
    experiment = load(name).variant(variant)
    values = experiment.changed(given(SMALL[name])).to_dict()
    values["data"]["dir"] = str(real_data)
    values["algorithm"]["clients_per_round"] = 5
    if variant == "local":
        values["algorithm"]["epochs"] = 1
    small = replace(
        experiment,
        **{section: values[section] for section in ("data", "learner", "algorithm")},
        rounds=2,
        evaluate_every=2,
        model={"name": "mlp", "hidden": [8]},
    )
    key = str(small.data)
    if key not in made:
        made[key] = small.build.data()
    found = run_experiment(small, data=made[key]).summary
    assert 0 <= found["clients"]["mean"] <= 100
    assert ("protected" in found) == (name == "adult")
