"""Configurations: what is read, what is written back, and mistakes that are explained."""

import sys
from dataclasses import replace

import pytest

from e2fl.algorithms import ALGORITHMS, SECTION_REGISTRIES
from e2fl.algorithms.e2fl import E2FL
from e2fl.cli import main
from e2fl.config.experiment import ALGORITHM_SECTIONS, from_dict, load
from e2fl.config.sections import completed
from e2fl.construct import importing_only, look_up
from e2fl.data import DATASETS
from e2fl.errors import ConfigError, RunError
from e2fl.networks import MODELS
from e2fl.participation import PARTICIPATION

GROUPS = {"name": "lowest_loss", "groups": 3}
TOO_MANY = {"ballot": {"name": "buckets", "buckets": 257}}


@pytest.fixture
def path(toy, tmp_path):
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    return tmp_path / "toy.toml"


def test_toml_survives_a_round_trip_and_changes_are_laid_over_it(toy, path):
    assert load(path) == toy
    changed = load(path, ["rounds=3", "rounds=4", "data.noise=0.7", "name='x y'"])
    assert (changed.rounds, changed.data["noise"], changed.name) == (4, 0.7, "x y")


def test_defaults_are_written_out_and_left_out(toy):
    full = completed(toy)
    assert full.model == {"name": "mlp", "hidden": [24], "keep": 0.5, "weight_scale": 1.0}
    assert full.algorithm["grouping"] == {"name": "known"}
    assert full.identity() == completed(full).identity()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["roundz=3"], "did you mean 'rounds'"),
        (["rounds=0"], "at least 1"),
        (["seed=-1"], "at least 0"),
        (["rounds=many"], "an integer"),
        (["rounds=true"], "an integer"),
        (["threads=0"], "at least 1"),
        (["data=5"], "must be a section"),
        (["rounds"], "key=value"),
        (["rounds.x=1"], "not a section"),
        (["data=5", "data.x=1"], "not a section"),
    ],
)
def test_mistakes_at_the_top_are_explained(path, changes, words):
    with pytest.raises(ConfigError, match=words):
        load(path, changes)


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        ("algorithm", {"name": "e2lf"}, "did you mean 'e2fl'"),
        ("algorithm", {"name": "e2fl", "group": 1}, "no setting 'group'; did you mean 'grouping'"),
        ("algorithm", {"name": "e2fl", "clients_per_round": "four"}, "must be an integer"),
        ("algorithm", {"name": "e2fl", "grouping": {"name": "knwon"}}, "did you mean 'known'"),
        ("algorithm", {"name": "e2fl", "grouping": {"groups": 2}}, "grouping needs a name"),
        ("algorithm", {"name": "no.such.module:Thing"}, "cannot be imported"),
        ("algorithm", {"name": "e2fl.testing.toy:Toy"}, "not a class"),
        ("algorithm", {"name": "e2fl", "vote": {"name": 5}}, "there is no .* '5'"),
        ("algorithm", {"name": "e2fl", **TOO_MANY}, r"^algorithm\.ballot: ballot\.buckets must be"),
        ("participation", {"name": 5}, "there is no .* '5'"),
        ("algorithm", {"name": "frl", "absent": "members"}, "has no setting 'absent'"),
        ("model", {"name": "mlp", "hiden": [3]}, "did you mean 'hidden'"),
        ("model", {"name": "mlp", "hidden": 3}, "must be a list"),
        ("model", {"name": "mlp", "keep": "half"}, "must be a number"),
        ("model", {"name": "lenet"}, "needs images"),
        ("data", {"name": "fair_mnist_rotat"}, "did you mean 'fair_mnist_rotate'"),
        ("learner", {"learning_rat": 0.1}, "did you mean 'learning_rate'"),
    ],
)
def test_mistakes_in_a_section_are_explained(toy, section, values, words):
    experiment = from_dict(toy.to_dict() | {section: values})

    def build():
        experiment.build.participation()
        experiment.build.algorithm()
        experiment.build.learner(experiment.build.model(experiment.build.data()))

    with pytest.raises(ConfigError, match=words):
        build()


def test_every_section_of_an_algorithm_can_be_given_by_its_name(toy):
    assert set(ALGORITHM_SECTIONS) == set(SECTION_REGISTRIES)
    short = from_dict(toy.to_dict() | {"algorithm": {"name": "e2fl", "vote": "borda"}})
    assert short.algorithm["vote"] == {"name": "borda"}


def test_broken_and_missing_files_are_explained(tmp_path):
    broken = tmp_path / "broken.toml"
    for raw, words in (
        (b"rounds = ", "not valid TOML"),
        (b"rounds = 3", "no section 'data'"),
        (b"\xff", "not valid TOML"),
    ):
        broken.write_bytes(raw)
        with pytest.raises(ConfigError, match=words):
            load(broken)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="did you mean 'demo'"):
        load("demmo")


def test_a_section_of_another_name_starts_empty_in_any_order(toy, path):
    assert load(path, ["model.name=lenet"]).model == {"name": "lenet"}
    assert load(path, ["model.name=mlp"]).model == toy.model
    assert load(path, ["model={name='mlp'}"]).model == {"name": "mlp"}
    for changes in (["model.x=1", "model.name=new"], ["model.name=new", "model.x=1"]):
        assert load(path, changes).model == {"name": "new", "x": 1}
    grouping = ["algorithm.grouping.groups=3", "algorithm.grouping.name=lowest_loss"]
    whole = ["algorithm.grouping={name='lowest_loss'}", grouping[0]]
    for changes in (grouping, grouping[::-1], whole):
        assert load(path, changes).algorithm["grouping"] == GROUPS


def test_a_variant_changes_only_what_it_names(toy):
    variants = {
        "fedavg": {"learner": {"learning_rate": 0.01}},
        "absentees": {"algorithm": {"absent": "present_only"}},
    }
    experiment = replace(toy, variants=variants)
    fedavg = experiment.variant("fedavg")
    assert fedavg.learner == toy.learner | {"learning_rate": 0.01}
    assert fedavg.algorithm == {"name": "fedavg", "clients_per_round": 4}
    absentees = experiment.variant("absentees")
    assert absentees.build.algorithm() == E2FL(clients_per_round=4, absent="present_only")
    assert absentees.label == "absentees"
    assert experiment.variant("e2fl").algorithm == toy.algorithm
    with pytest.raises(ConfigError, match="did you mean 'absentees'"):
        experiment.variant("absentee")


def test_what_is_asked_for_wins_over_the_variant(toy, path):
    own = {"q": 0.1, "clients_per_round": 3}
    variants = {
        "qffl": {"rounds": 600, "learner": {"learning_rate": 0.01}, "algorithm": own},
        "narrow": {"model": {"hidden": [4]}},
    }
    path.write_text(replace(toy, variants=variants).to_toml())
    untouched = load(path, algorithm="qffl")
    assert (untouched.rounds, untouched.learner["learning_rate"]) == (600, 0.01)
    asked = ["rounds=2", "learner.learning_rate=0.05", "algorithm.q=5.0", "seed=4"]
    changed = load(path, asked, algorithm="qffl")
    assert (changed.rounds, changed.seed) == (2, 4)
    assert changed.learner == toy.learner | {"learning_rate": 0.05}
    assert changed.algorithm == {"name": "qffl", "q": 5.0, "clients_per_round": 3}
    narrow = {"name": "mlp", "hidden": [4]}
    assert load(path, ["model.keep=0.3"], algorithm="narrow").model == narrow | {"keep": 0.3}
    assert load(path, ["model.name=lenet"], algorithm="narrow").model == narrow | {"name": "lenet"}
    assert load(path, ["algorithm.groups=3"], algorithm="ifca").build.algorithm().groups == 3
    many = load(path, ["variants.many={algorithm={name='ifca', groups=7}}"], algorithm="many")
    assert (many.build.algorithm().groups, many.label, many.variants) == (7, "many", {})


@pytest.mark.parametrize(
    "change", ["algorithm.name=fedavg", "algorithm={name='fedavg'}", "algorithm={groups=3}"]
)
def test_an_algorithm_is_named_in_one_place(path, change):
    with pytest.raises(ConfigError, match="cannot be set together with the algorithm 'ifca'"):
        load(path, [change], algorithm="ifca")


def test_an_algorithm_takes_over_the_settings_of_one_that_it_is_derived_from(toy):
    shared = {"clients_per_round": 3, "grouping": GROUPS, "absent": "members"}
    experiment = replace(toy, algorithm={"name": "e2fl", "label": "mine"} | shared)
    assert experiment.variant("e2fl_steady").algorithm == shared | {"name": "e2fl_steady"}
    for name in ("frl", "ifca", "e2fl.algorithms.fedavg:FedAvg"):
        assert experiment.variant(name).algorithm == {"name": name, "clients_per_round": 3}


def test_what_never_changes_a_result_is_not_in_the_identity(toy):
    free = {"threads": 3, "checkpoint_seconds": 9.0, "rounds": 9, "device": "cuda", "name": "x"}
    free["runtime"] = {"name": "ray"}
    assert replace(toy, **free).identity() == toy.identity()
    assert replace(toy, seed=2**60).identity() != replace(toy, seed=2**60 + 1).identity()


def test_paths_in_a_toml_are_relative_to_the_toml(toy, tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "rows.csv").write_text("x,y\n1,0\n")
    variants = {"other": {"data": {"path": "rows.csv", "dir": "elsewhere"}}}
    data = {"name": "table", "path": "rows.csv", "label": "y"}
    (folder / "mine.toml").write_text(replace(toy, data=data, variants=variants).to_toml())
    monkeypatch.chdir(tmp_path)
    mine = load("project/mine.toml")
    assert mine.data["path"] == mine.variant("other").data["path"] == "project/rows.csv"
    assert mine.variant("other").data["dir"] == "elsewhere"  # not beside the file
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(mine.to_toml())
    assert load("run/config.toml").data["path"] == "project/rows.csv"
    monkeypatch.chdir(folder)
    assert load("mine.toml").data["path"] == "rows.csv"


CODE = """
from dataclasses import dataclass

import beside_{0}
from e2fl.algorithms.fedavg import FedAvg
from e2fl.testing.toy import Toy


@dataclass(frozen=True)
class Mine(FedAvg):
    title = "Mine {0}"


@dataclass(frozen=True, eq=False)
class Data(Toy):
    pass


def hits(y_true, outputs):
    \"\"\"Hits, percent.\"\"\"
    return 100 * float((outputs.argmax(axis=1) == y_true).mean())
"""


@pytest.fixture
def project(no_plots, toy, tmp_path, monkeypatch):
    """A folder with a configuration and code beside it, seen from the folder above."""
    folder = tmp_path / "project"
    folder.mkdir()
    name = f"mine_{tmp_path.name.translate({ord('-'): '_'})}"
    (folder / f"{name}.py").write_text(CODE.format(name))
    (folder / f"beside_{name}.py").write_text("")
    own = replace(
        toy,
        rounds=2,
        data={"name": f"{name}:Data"},
        algorithm={"name": f"{name}.py:Mine", "clients_per_round": 4},
        measures=(f"{name}.py:hits",),
    )
    (folder / "my.toml").write_text(own.to_toml())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", sys.path.copy())
    return f"project/{name}"


def test_code_beside_a_toml_is_found_by_every_command_from_any_folder(project, capsys):
    """`resume`, `groups` and `data show` did not find it."""
    experiment = load("project/my.toml")
    assert experiment.imports() == [f"{project}:Data", f"{project}.py:Mine", f"{project}.py:hits"]
    attacked = replace(experiment, attack={"name": f"{project}:Attack"})
    assert f"{project}:Attack" in attacked.imports()
    parts = {"name": "table", "partition": {"name": f"{project}:Parts"}}
    assert f"{project}:Parts" in replace(experiment, data=parts).imports()
    assert experiment.label == f"{project.partition('/')[2]}.py:Mine"
    assert main(["data", "show", "project/my.toml"]) == 0
    assert main(["groups", "project/my.toml", "--to", "2"]) == 0
    assert main(["run", "project/my.toml", "--out", "run", "--set", "rounds=1"]) == 0
    assert main(["resume", "run"]) == 2
    assert f"if you trust {project}:Data, pass --trust" in capsys.readouterr().err
    assert main(["resume", "run", "--trust", "--set", "rounds=2"]) == 0
    compare = ["compare", "project/my.toml", "--algorithms", f"{project}.py:Mine,fedavg"]
    assert main([*compare, "--out", "all", "--set", "rounds=1"]) == 0
    assert main(["resume", "all", "--trust", "--set", "rounds=2"]) == 0
    assert "Mine mine_" in capsys.readouterr().out


def test_code_that_another_module_hides_is_not_taken_for_it(project, tmp_path):
    (tmp_path / "project" / "json.py").write_text(CODE.format("none"))
    with pytest.raises(ConfigError, match=r"json is also the name of .*; rename yours"):
        look_up("project/json.py:Mine", ALGORITHMS, "algorithm")
    with pytest.raises(ConfigError, match="cannot be imported: ModuleNotFoundError"):
        look_up("elsewhere/absent_module.py:Mine", ALGORITHMS, "algorithm")


@pytest.mark.parametrize(
    "name", ["e2fl.x/../../project/mine:Mine", "e2fl.x/mine:Mine", "os:getcwd"]
)
def test_code_of_another_folder_never_passes_for_the_packages_own(name):
    with importing_only([]), pytest.raises(RunError, match="pass --trust"):
        look_up(name, ALGORITHMS, "algorithm")


@pytest.mark.parametrize("registry", [MODELS, ALGORITHMS, DATASETS, PARTICIPATION])
@pytest.mark.parametrize(
    "name", ["subprocess:run", "os:system", "shutil:rmtree", "torch.hub:load", "e2fl.files:remove"]
)
def test_only_code_of_the_expected_kind_is_looked_up(name, registry):
    """What Python, torch and this package define is no network of the user's."""
    with pytest.raises(ConfigError, match="right kind"):
        look_up(name, registry, "part")
