"""Configurations: what is read, what is written back, and mistakes that are explained."""

from dataclasses import replace

import pytest

from e2fl.algorithms.e2fl import E2FL
from e2fl.config.experiment import from_dict, load
from e2fl.config.files import shipped
from e2fl.errors import ConfigError


def variation(toy, **changes):
    return from_dict(toy.to_dict() | changes)


def test_toml_survives_a_round_trip(toy, tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(toy.to_toml())
    assert load(path) == toy


def test_changes_are_laid_over_the_file(tmp_path, toy):
    path = tmp_path / "toy.toml"
    path.write_text(toy.to_toml())
    changed = load(
        path, ["rounds=3", "algorithm.absent=present_only", "data.noise=0.7", "name='x y'"]
    )
    assert (changed.rounds, changed.algorithm["absent"], changed.data["noise"], changed.name) == (
        3,
        "present_only",
        0.7,
        "x y",
    )


@pytest.mark.parametrize("name", shipped())
def test_shipped_experiments_are_valid_in_every_variant(name):
    experiment = load(name)
    assert shipped()[name]
    for variant in [experiment.algorithm["name"], *experiment.variants]:
        experiment.variant(variant).build_algorithm()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["roundz=3"], "did you mean 'rounds'"),
        (["rounds=0"], "at least 1"),
        (["rounds=many"], "an integer"),
        (["rounds=true"], "an integer"),
        (["evaluate_every=0"], "at least 1"),
        (["threads=0"], "at least 1"),
        (["data=5"], "must be a section"),
        (["rounds"], "key=value"),
        (["rounds.x=1"], "not a section"),
        (["data=5", "data.x=1"], "not a section"),
    ],
)
def test_mistakes_at_the_top_are_explained(tmp_path, toy, change, words):
    path = tmp_path / "toy.toml"
    path.write_text(toy.to_toml())
    with pytest.raises(ConfigError, match=words):
        load(path, change)


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        ("algorithm", {"name": "e2lf"}, "did you mean 'e2fl'"),
        (
            "algorithm",
            {"name": "e2fl", "group": 1},
            "has no setting 'group'; did you mean 'grouping'",
        ),
        ("algorithm", {"name": "e2fl", "clients_per_round": "four"}, "must be an integer"),
        ("algorithm", {"name": "e2fl", "grouping": {"name": "knwon"}}, "did you mean 'known'"),
        (
            "algorithm",
            {"name": "e2fl", "grouping": {"name": "known", "x": 1}},
            "has no setting 'x'",
        ),
        ("algorithm", {"name": "no.such.module:Thing"}, "cannot be imported"),
        ("algorithm", {"name": "e2fl.algorithms:Nothing"}, "cannot be imported"),
        ("algorithm", {"name": "frl", "absent": "init_vote"}, "has no setting 'absent'"),
    ],
)
def test_mistakes_in_the_algorithm_are_explained(toy, section, values, words):
    with pytest.raises(ConfigError, match=words):
        variation(toy, **{section: values}).build_algorithm()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "lenett"}, "did you mean 'lenet'"),
        ({"name": "mlp", "hiden": [3]}, "did you mean 'hidden'"),
        ({"name": "mlp", "hidden": 3}, "must be a list"),
        ({"name": "mlp", "keep": 0}, "above 0"),
        ({"name": "mlp", "keep": "half"}, "must be a number"),
        ({"name": "lenet"}, "needs images"),
    ],
)
def test_mistakes_in_the_model_are_explained(toy, values, words):
    experiment = variation(toy, model=values)
    with pytest.raises(ConfigError, match=words):
        experiment.build_model(experiment.build_data())


def test_mistakes_in_the_data_and_learner_are_explained(toy):
    with pytest.raises(ConfigError, match="did you mean 'fair_mnist_rotate'"):
        variation(toy, data={"name": "fair_mnist_rotat"}).build_data()
    experiment = variation(toy, learner={"learning_rat": 0.1})
    model = experiment.build_model(experiment.build_data())
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        experiment.build_learner(model)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rounds = ", "not valid TOML"),
        ("rounds = 3", "no section 'data'"),
        ("\xff", "not valid TOML"),
    ],
)
def test_broken_files_are_explained(tmp_path, text, words):
    path = tmp_path / "broken.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=words):
        load(path)


def test_a_missing_file_is_explained(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="did you mean 'demo'"):
        load("demmo")


def test_a_variant_changes_only_what_it_names(toy):
    experiment = replace(
        toy,
        variants={
            "fedavg": {"learner": {"learning_rate": 0.01}},
            "absentees": {"algorithm": {"absent": "present_only"}},
        },
    )
    fedavg = experiment.variant("fedavg")
    assert fedavg.learner == toy.learner | {"learning_rate": 0.01}
    assert fedavg.algorithm == {"name": "fedavg", "clients_per_round": 4}
    absentees = experiment.variant("absentees")
    assert absentees.build_algorithm() == E2FL(clients_per_round=4, absent="present_only")
    assert absentees.label == "absentees"
    assert experiment.variant("e2fl").algorithm == toy.algorithm
    with pytest.raises(ConfigError, match="did you mean 'absentees'"):
        experiment.variant("absentee")


def test_a_section_of_another_name_starts_empty(toy, tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(toy.to_toml())
    assert load(path, ["model.name=lenet"]).model == {"name": "lenet"}
    assert load(path, ["model.name=mlp"]).model == toy.model
    assert load(path, ["model={name='mlp'}"]).model == {"name": "mlp"}
    assert load(path, ["name=other"]).model == toy.model


def test_the_name_of_a_section_comes_before_what_is_in_it(toy, tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(toy.to_toml())
    one, other = (
        load(path, typed).model
        for typed in (["model.x=1", "model.name=new"], ["model.name=new", "model.x=1"])
    )
    assert one == other == {"name": "new", "x": 1}
    grouping = ["algorithm.grouping.groups=3", "algorithm.grouping.name=lowest_loss"]
    for changes in (
        grouping,
        grouping[::-1],
        ["algorithm.grouping={name='lowest_loss'}", grouping[0]],
    ):
        assert load(path, changes).algorithm["grouping"] == {"name": "lowest_loss", "groups": 3}
    assert load(path, ["rounds=3", "rounds=4"]).rounds == 4


@pytest.mark.parametrize("part", ["ballot", "downlink"])
def test_mistakes_in_how_rankings_are_sent_name_the_section(toy, part):
    wrong = replace(toy, algorithm=toy.algorithm | {part: {"name": "buckets", "buckets": 257}})
    with pytest.raises(
        ConfigError, match=rf"^algorithm\.{part}: buckets must be 2 to 256, not 257"
    ):
        wrong.build_algorithm()


def test_a_grouping_without_a_name_is_explained(toy):
    with pytest.raises(ConfigError, match="grouping needs a name"):
        variation(toy, algorithm={"name": "e2fl", "grouping": {"groups": 2}}).build_algorithm()


def test_what_is_asked_for_wins_over_the_variant(toy, tmp_path):
    path = tmp_path / "toy.toml"
    variants = {
        "qffl": {
            "rounds": 600,
            "learner": {"learning_rate": 0.01},
            "algorithm": {"q": 0.1, "clients_per_round": 3},
        },
        "narrow": {"model": {"hidden": [4]}},
    }
    path.write_text(replace(toy, variants=variants).to_toml())
    untouched = load(path, algorithm="qffl")
    assert (untouched.rounds, untouched.learner["learning_rate"], untouched.algorithm["q"]) == (
        600,
        0.01,
        0.1,
    )
    asked = [
        "rounds=2",
        "learner.learning_rate=0.05",
        "algorithm.q=5.0",
        "algorithm.clients_per_round=2",
        "seed=4",
    ]
    found = load(path, asked, algorithm="qffl")
    assert (found.rounds, found.seed, found.learner["learning_rate"], found.learner["epochs"]) == (
        2,
        4,
        0.05,
        2,
    )
    assert found.algorithm == {"name": "qffl", "q": 5.0, "clients_per_round": 2}
    assert load(path, ["model.keep=0.3"], algorithm="narrow").model == {
        "name": "mlp",
        "hidden": [4],
        "keep": 0.3,
    }
    assert load(path, ["model.name=lenet"], algorithm="narrow").model == {
        "name": "lenet",
        "hidden": [4],
    }


def test_settings_of_an_algorithm_that_is_asked_for_are_checked(toy, tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(toy.to_toml())
    assert load(path, ["algorithm.groups=3"], algorithm="ifca").build_algorithm().groups == 3
    with pytest.raises(ConfigError, match="'ifca' has no setting 'nonsense'"):
        load(path, ["algorithm.nonsense=3"], algorithm="ifca").build_algorithm()


@pytest.mark.parametrize(
    "change", ["algorithm.name=fedavg", "algorithm={name='fedavg'}", "algorithm={groups=3}"]
)
def test_an_algorithm_is_named_in_one_place(toy, tmp_path, change):
    path = tmp_path / "toy.toml"
    path.write_text(toy.to_toml())
    with pytest.raises(ConfigError, match="cannot be set together with the algorithm 'ifca'"):
        load(path, [change], algorithm="ifca")


def test_a_variant_may_be_asked_for_with_its_settings(toy, tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(toy.to_toml())
    found = load(path, ["variants.many={algorithm={name='ifca', groups=7}}"], algorithm="many")
    assert (found.build_algorithm().groups, found.label, found.variants) == (7, "many", {})


def test_an_algorithm_of_ones_own_may_be_named_like_a_variant(toy):
    own = toy.variant("e2fl.algorithms.fedavg:FedAvg")
    assert own.algorithm == {"name": "e2fl.algorithms.fedavg:FedAvg", "clients_per_round": 4}
    assert own.label == "e2fl.algorithms.fedavg:FedAvg"


def test_what_never_changes_a_result_is_not_in_the_identity(toy):
    assert replace(toy, threads=3, checkpoint_seconds=9.0).identity() == toy.identity()
    assert replace(toy, seed=1).identity() != toy.identity()


def test_an_algorithm_derived_from_that_of_the_experiment_takes_over_its_settings(toy):
    grouping = {"name": "lowest_loss", "groups": 2}
    own = {
        "name": "e2fl",
        "label": "mine",
        "clients_per_round": 3,
        "grouping": grouping,
        "final_full_vote": True,
    }
    experiment = replace(toy, algorithm=own)
    shared = {key: value for key, value in own.items() if key not in ("name", "label")}
    assert experiment.variant("e2fl_steady").algorithm == shared | {"name": "e2fl_steady"}
    assert experiment.variant("frl").algorithm == {"name": "frl", "clients_per_round": 3}
    assert experiment.variant("ifca").algorithm == {"name": "ifca", "clients_per_round": 3}
