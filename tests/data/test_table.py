"""Users' own tables: roles, partitions, seeds, warnings; on data of scikit-learn."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from torch import nn

from e2fl import assign
from e2fl.cli import main
from e2fl.config.experiment import from_dict, load
from e2fl.data import build, from_arrays, from_partitioner, with_validation
from e2fl.data import from_table as table
from e2fl.data.partition import Iid
from e2fl.errors import ConfigError, DataError, E2flWarning
from e2fl.models import Model
from e2fl.runs.runner import run_experiment
from tests.data.golden import digest, mixed
from tests.runs.helpers import Noting

ROLES = {"client": "who", "label": "y"}
REGIONS = {"client": "who", "label": "y", "group": "region"}


def frame(count=20, **columns):
    """Two clients, labels in pairs, and these columns."""
    rows = range(count)
    return pd.DataFrame(
        {"who": ["ab"[r % 2] for r in rows], "y": [r // 2 % 2 for r in rows], **columns}
    )


def names(data):
    return [data.client_name(number) for number in data.population.ids]


def trained(data, part="train"):
    return np.concatenate([getattr(data.client(n), part).x for n in data.population.ids])


def experiment(path, **data):
    return from_dict(
        {
            "rounds": 1,
            "seed": 1,
            "data": {"name": "table", "path": str(path), **ROLES, **data},
            "model": {"name": "mlp", "hidden": [4]},
            "algorithm": {"name": "fedavg", "clients_per_round": 2},
        }
    )


def test_a_table_of_hospitals_runs_from_a_file_and_new_rows_are_read_as_it_was(tmp_path):
    found = load_breast_cancer(as_frame=True)
    cancer = found.data.assign(finding=found.target_names[found.target])
    cancer["hospital"] = [f"H{row % 10}" for row in cancer.index]
    cancer["region"] = ["north" if row % 10 < 3 else "south" for row in cancer.index]
    cancer.to_csv(tmp_path / "cancer.csv", index=False)
    roles = {"client": "hospital", "label": "finding", "group": "region"}
    made = from_dict(
        {
            "rounds": 5,
            "evaluate_every": 5,
            "data": {"name": "table", "path": "cancer.csv", **roles},
            "model": {"name": "mlp", "hidden": [32]},
            "learner": {"learning_rate": 0.1, "batch_size": 8},
            "algorithm": {"name": "e2fl", "clients_per_round": 5},
        }
    )
    (tmp_path / "my.toml").write_text(made.to_toml())
    run = run_experiment(load(tmp_path / "my.toml"), out=tmp_path / "run")
    assert run.summary["clients"]["mean"] > 80
    groups = {name: group["clients"] for name, group in run.summary["groups"].items()}
    assert groups == {"north": 3, "south": 7}
    assert {row["client"] for row in run.clients} == {f"H{number}" for number in range(10)}
    assert run.summary["data"]["labels"] == ["benign", "malignant"]
    data = load(tmp_path / "my.toml").build.data()
    new = pd.read_csv(tmp_path / "cancer.csv", dtype=str)
    for given in (tmp_path / "cancer.csv", new, new.to_dict("records")):
        again = data.encode(given)
        assert np.array_equal(again.x, data.partitioned.examples.x)
        assert np.array_equal(again.y, data.partitioned.examples.y)
        assert again.group is None  # clients declare theirs
    joined = assign(tmp_path / "run", data.encode(new[:60]), test=data.encode(new[60:]), group=1)
    assert joined.score.accuracy > 80
    assert data.encode(new[:3].drop(columns="finding")).y.tolist() == [-1] * 3


def test_numbers_are_standardised_and_words_are_one_hot_by_the_training_rows():
    rows = pd.DataFrame(
        {
            "who": list("aaabbb"),
            "colour": ["red", "blue", "red", "red", "blue", "green"],
            "size": [1, 3, 2, 5, 7, 9],
            "y": ["no", "yes", "no", "yes", "no", "yes"],
            "part": ["train", "train", "test"] * 2,
        }
    )
    data = table(rows, **ROLES, split="part")
    assert data.shape == (3,)  # blue, red; size
    sizes = (np.array([1, 3, 5, 7, 9]) - 4) / np.sqrt(5)
    a, b = data.client(0), data.client(1)
    assert a.train.x == pytest.approx(np.array([[0, 1, sizes[0]], [1, 0, sizes[1]]]))
    assert a.train.y.tolist() == [0, 1]
    assert b.test.x == pytest.approx(np.array([[0, 0, sizes[4]]]))  # green is not in training
    assert data.about()["values_unseen_in_training"] == 1


def test_constant_and_very_large_columns():
    part = ["train"] * 14 + ["test"] * 2
    data = table(frame(16, k=[0.1] * 14 + [0.2, 0.1], part=part), **ROLES, split="part")
    assert trained(data, "test")[:, 0] == pytest.approx([0.1, 0])  # not blown up
    for first, last in ((1e308, 0), (1, 1e300)):
        sizes = [0, first] * 7 + [last] * 2
        with pytest.raises(DataError, match="input 0 is missing or not finite"):
            table(frame(16, size=sizes, part=part), **ROLES, split="part")


BIG = 12345678901234567  # and the next are the same float64


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_names_and_labels_are_kept_as_they_are_written(tmp_path, form):
    rows = frame(who=[BIG + row % 2 for row in range(20)], k=range(20))
    rows["y"] = rows["y"] * 8 + 2
    rows["g"] = [["7", "007"][row % 2] for row in range(20)]
    path = tmp_path / f"t.{form}"
    rows.to_csv(path, index=False) if form == "csv" else rows.to_parquet(path)
    data = table(path, **ROLES, group="g", features=("k",))
    assert names(data) == [str(BIG), str(BIG + 1)]
    assert data.about()["labels"] == ["2", "10"]  # as numbers, not as words
    assert data.group_names == ("007", "7")


GOOD = frame(4, size=[1, 2, 3, 4], colour=["red", "red", "blue", "red"])


@pytest.mark.parametrize(
    ("column", "values", "settings", "word"),
    [
        ("y", [0, 1, None, 1], {"missing": "fill"}, "row 2 has nothing in column 'y'"),
        ("y", [0, 0.5, 0, 1], {}, "row 1 has a label with decimals"),
        ("y", [1, 1, 1, 1], {}, "1 different labels"),
        (None, None, {"label": "z"}, "no column 'z'"),
        (None, None, {"label": None}, r"label = .*\['who', 'y', 'size', 'colour'\]"),
        (None, None, {"client": None}, "either client"),
        (None, None, {"missing": "guess"}, "refuse, drop, fill"),
        (None, None, {"split": "colour"}, "row 0 has the split 'red'; use train or test"),
        (None, None, {"group": "colour", "unprivileged": "x"}, "no group 'x'; known: blue, red"),
        (None, None, {"unprivileged": "x"}, "no group 'x'; known: there are none"),
        (None, None, {"positive": "fine"}, "no label 'fine'; known: 0, 1"),
        (None, None, {"words": ("y",)}, "'y', which is not an input column; known"),
        (None, None, {"features": ("size", "y")}, "'y' is the label, and something else"),
        (None, None, {"group": "y"}, "'y' is the label, and something else"),
        (None, None, {"split": "who"}, "'who' is the split, and something else"),
    ],
)
def test_what_a_table_cannot_mean_is_refused(column, values, settings, word):
    rows = GOOD if column is None else GOOD.assign(**{column: values})
    with pytest.raises((DataError, ConfigError), match=word):
        table(rows, **ROLES | settings)


def test_clients_may_be_the_groups_and_be_learnt_from_and_a_favourable_label_is_class_1():
    rows = frame(size=np.arange(20) / 7)
    data = table(rows, **ROLES, group="who", features=("size", "who"))
    assert data.group_names == ("a", "b")
    assert data.shape == (3,)
    rows["y"] = rows["y"].map({0: "good", 1: "poor"})
    plain, turned = table(rows, **ROLES), table(rows, **ROLES, positive="good")
    assert (plain.label_names, turned.label_names) == (("good", "poor"), ("poor", "good"))
    assert np.array_equal(turned.client(0).train.y, 1 - plain.client(0).train.y)
    assert np.array_equal(turned.client(0).train.x, plain.client(0).train.x)


def test_missing_values_are_counted_and_can_be_dropped_or_filled():
    rows = frame(size=np.arange(20) / 7, colour="red")
    rows.loc[[3, 5], "size"] = None
    rows.loc[7, "colour"] = "?"
    with pytest.raises(DataError, match=r"row 3 has nothing in column 'size'.*size 2, colour 1"):
        table(rows, **ROLES)
    dropped = table(rows, **ROLES, missing="drop")
    assert dropped.about()["rows_left_out"] == 3
    assert dropped.about()["missing_values"] == {"size": 2, "colour": 1}
    filled = table(rows, **ROLES, missing="fill").partitioned.examples.x
    assert filled[[3, 5], 0].tolist() == [0, 0]  # the mean


def test_groups_inside_clients_are_known_by_their_rows():
    rows = frame(40, sex=["f", "f", "m", "m"] * 10, n=np.arange(40) / 7)
    rows["y"] = [row // 4 % 2 for row in range(40)]
    data = table(rows, **ROLES, group="sex", unprivileged="m", pooled_test=True)
    assert data.group_names == ("m", "f")
    assert set(data.population.declared.values()) == {None}
    assert data.client(0).groups() == [0, 1]
    assert data.client(0).test is data.client(1).test
    assert data.shape == (1,)  # sex is a group, not a feature


def test_one_central_test_set_serves_all_clients():
    rows = frame(18, n=np.arange(18) / 7, part=["train"] * 12 + ["test"] * 6)
    rows.loc[12:, "who"] = "server"
    data = table(rows, **ROLES, split="part", pooled_test=True)
    assert names(data) == ["a", "b"]
    assert len(data.client(0).train) == len(data.client(0).test) == 6
    assert data.client(0).test is data.client(1).test


def clinics(**settings):
    """Rows of three hospitals, the smallest with two rows."""
    rows = range(42)
    given = {
        "hospital": ["CAB"[0 if row < 2 else 1 + row % 2] for row in rows],
        "row": ["uvw"[row % 3] for row in rows],
        "size": [row / 7 for row in rows],
        "y": [row % 4 // 2 for row in rows],
    }
    return table(pd.DataFrame(given), label="y", **settings)


def test_a_partition_names_a_role_or_a_column_that_may_be_learnt_from_too():
    for by in ("row", "group"):
        partition = {"name": "by_group", "num_partitions": 3, "partition_by": by}
        data = clinics(group="row", partition=partition)
        groups = data.population.declared.values()
        assert [data.group_name(group) for group in groups] == list("uvw")
    partition = {"name": "dirichlet", "num_partitions": 2, "partition_by": "hospital", "alpha": 0.1}
    data = clinics(partition=partition | {"min_partition_size": 4})
    assert data.shape == (7,)  # three hospitals, three letters, a size
    assert len(data.population) == 2


@pytest.mark.parametrize(
    ("partition", "word"),
    [
        ({"name": "by_group", "partition_by": "hospitl"}, "did you mean 'hospital'"),
        ({"name": "by_group", "partition_by": "group"}, "no column 'group'"),
        ({"name": "iid", "num_partitions": 5, "beta": 1}, "no setting 'beta'"),
        ({"name": "os:getcwd"}, "not a class or function"),
    ],
)
def test_partitions_that_cannot_be_made_are_refused(partition, word):
    with pytest.raises(ConfigError, match=word):
        clinics(partition=partition)


@pytest.mark.parametrize(
    "settings",
    [REGIONS, {"label": "y", "partition": {"name": "iid", "num_partitions": 3}}],
    ids=["clients", "partition"],
)
def test_each_seed_in_python_has_the_split_of_the_configuration(tmp_path, settings):
    path = mixed(tmp_path / "t.csv")
    section = {"name": "table", "path": path, **settings}
    for data in (table(path=path, **settings), table(pd.read_csv(path), **settings)):
        splits = [digest(data.for_seed(seed)) for seed in (0, 1, 2, 1)]
        assert splits == [digest(build(section, seed=seed)) for seed in (0, 1, 2, 1)]
        assert data.about() | {"sha256": 0} == build(section, seed=0).about() | {"sha256": 0}
        assert len(set(splits)) == 3
    fixed = table(path=path, **settings, seed=5)
    assert fixed.for_seed(1) is fixed
    assert digest(fixed) == digest(build(section | {"seed": 5}, seed=1))


def test_arrays_and_validation_rows_follow_the_seed():
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    for make in (
        lambda **seed: from_arrays({"a": (x[::2], y[::2]), "b": (x[1::2], y[1::2])}, **seed),
        lambda **seed: from_partitioner(x, y, Iid(3), **seed),
        lambda **seed: with_validation(from_arrays({"a": (x, y)}, **seed), 0.3, **seed),
    ):
        data = make()
        assert digest(data.for_seed(1)) == digest(make(seed=1)) != digest(data)
        assert digest(make(seed=1).for_seed(2)) == digest(make(seed=1))


DRAWN = np.random.default_rng(1).permutation(10**6)[:60]


@pytest.mark.parametrize(
    ("name", "values", "word"),
    [
        ("patient", range(60), "identifier"),
        ("case_id", DRAWN, "identifier"),
        ("outcome", [["ill", "well"][row // 2 % 2] for row in range(60)], "copy"),
        ("income", DRAWN, None),
        ("grade", np.arange(60) % 5, None),
        ("size", np.arange(60) / 7, None),
    ],
)
def test_a_copy_of_the_label_and_an_identifier_are_warned_of(name, values, word):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table(frame(60, **{name: values}), **ROLES)
    messages = [str(warning.message) for warning in caught]
    assert [f"'{name}'" in one and word in one for one in messages] == [True] * bool(word)


def test_more_outputs_than_classes_are_warned_of():
    model = Model(nn.Sequential(nn.Flatten(), nn.Linear(4, 5)))
    with pytest.warns(E2flWarning, match="5 outputs for 3 classes"):
        model.require_fit((4,), 3, "own")


def test_an_input_that_was_the_group_of_an_earlier_run_is_warned_of(tmp_path):
    frame(60, age=DRAWN / 7, sex=["f", "m"] * 30).to_csv(tmp_path / "t.csv", index=False)
    watcher = Noting()
    for name, settings in (("a", {"group": "sex"}), ("b", {"group": "sex"}), ("c", {})):
        made = experiment(tmp_path / "t.csv", **settings)
        run_experiment(made, out=tmp_path / "runs" / name, watcher=watcher)
    assert sum("column 'sex' is an input here" in message for message in watcher.warnings) == 1


def test_a_path_in_a_configuration_starts_at_its_own_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "study").mkdir()
    frame(60, age=DRAWN / 7).to_csv(tmp_path / "study" / "t.csv", index=False)
    (tmp_path / "study" / "my.toml").write_text(experiment("t.csv").to_toml())
    monkeypatch.chdir(tmp_path)
    assert load("study/my.toml", ["data.path=other.csv"]).data["path"] == "other.csv"
    (tmp_path / "study" / "wrong.toml").write_text(experiment("absent.csv").to_toml())
    assert main(["data", "show", "study/wrong.toml"]) == 2
    assert f"no file or folder absent.csv in {tmp_path / 'study'}" in capsys.readouterr().err
    assert main(["data", "show", "study/my.toml"]) == 0
    assert "table: 2 clients, 2 classes, inputs 1" in capsys.readouterr().out
    assert (tmp_path / "my.svg").is_file()
