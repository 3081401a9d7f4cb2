"""Anybody's own data: arrays, tables and .npz files, well formed or not; on data that scikit-learn ships."""

import csv

import numpy as np
import pytest

from e2fl.data import DATASETS, from_arrays, from_partitioner
from e2fl.data.partition import Dirichlet
from e2fl.errors import ConfigError, DataError
from e2fl.experiment import from_dict, load
from e2fl.runner import run_experiment

table, npz = DATASETS["table"], DATASETS["npz"]


def digits():
    """1,797 images of digits, 8 x 8, from scikit-learn, as if 9 schools had collected them."""
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_digits(return_X_y=True)
    return x.reshape(-1, 1, 8, 8) / 16, y, np.arange(len(y)) // 200


def cancer(path):
    """The breast cancer table of scikit-learn, with made-up hospitals and regions beside its real columns."""
    datasets = pytest.importorskip("sklearn.datasets")
    found = datasets.load_breast_cancer()
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["hospital", "region", "finding", *found.feature_names])
        for row, (x, y) in enumerate(zip(found.data, found.target, strict=True)):
            hospital = row % 10
            out.writerow([f"H{hospital}", "north" if hospital < 3 else "south", found.target_names[y], *x])
    return path


CONFIG = """
name = "hospitals"
rounds = 5
evaluate_every = 5
data = { name = "table", path = "PATH", client = "hospital", label = "finding", group = "region" }
model = { name = "mlp", hidden = [32] }
learner = { learning_rate = 0.1, batch_size = 8 }
algorithm = { name = "e2fl", clients_per_round = 5 }
"""


@pytest.mark.parametrize("algorithm", ["local", "fedavg", "e2fl"])
def test_a_table_of_hospitals_runs_from_a_configuration_file(tmp_path, algorithm):
    path = cancer(tmp_path / "cancer.csv")
    config = tmp_path / "hospitals.toml"
    config.write_text(CONFIG.replace("PATH", str(path)))
    found = run_experiment(load(config).variant(algorithm), out=tmp_path / "run")
    assert found.summary["dataset"] == "table"
    assert found.summary["user"]["mean"] > 80
    assert {name: group["clients"] for name, group in found.summary["groups"].items()} == {"north": 3, "south": 7}
    assert sorted({row["client"] for row in found.clients}) == [f"H{number}" for number in range(10)]
    assert found.summary["data"]["labels"] == ["benign", "malignant"]


def test_features_of_a_table_are_standardised_and_words_are_one_hot(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "who,colour,size,y,part\n"
        "a,red,1,no,train\na,blue,3,yes,train\na,red,2,no,test\n"
        "b,red,5,yes,train\nb,blue,7,no,train\nb,green,9,yes,test\n"
    )
    data = table(path=str(path), client="who", label="y", split="part")
    assert data.shape == (3,)  # blue, red; size
    assert data.classes == 2
    a, b = data.client(0), data.client(1)
    sizes = (np.array([1, 3, 5, 7]) - 4) / np.sqrt(5)
    assert a.train.x == pytest.approx(np.array([[0, 1, sizes[0]], [1, 0, sizes[1]]]))
    assert a.train.y.tolist() == [0, 1]
    assert b.test.x == pytest.approx(np.array([[0, 0, (9 - 4) / np.sqrt(5)]]))  # green was not seen in training
    assert data.about()["values_unseen_in_training"] == 1


def test_parquet_gives_what_csv_gives(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "who": ["a", "a", "b", "b", "b"],
        "size": [1.5, 2, 3, 4, 5],
        "many": [1, 2, 3, 4, 5],
        "ill": [True, False, True, False, True],
        "colour": ["x", "y", "x", "y", "z"],
        "y": [0, 1, 0, 1, 1],
    }
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    with (tmp_path / "t.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(columns)
        out.writerows(zip(*(columns | {"ill": [1, 0, 1, 0, 1]}).values(), strict=True))
    left, right = (table(path=str(tmp_path / name), client="who", label="y") for name in ("t.parquet", "t.csv"))
    for number in (0, 1):
        assert np.array_equal(left.client(number).train.x, right.client(number).train.x)
        assert np.array_equal(left.client(number).test.y, right.client(number).test.y)


GOOD = [
    ["who", "size", "colour", "y"],
    ["a", "1", "red", "0"],
    ["a", "2", "red", "1"],
    ["b", "3", "blue", "0"],
    ["b", "4", "red", "1"],
]


def written(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def changed(row, column, value):
    return [[value if (r, c) == (row, column) else cell for c, cell in enumerate(line)] for r, line in enumerate(GOOD)]


@pytest.mark.parametrize(
    ("rows", "settings", "reason"),
    [
        (changed(3, 1, ""), {}, "row 3 has nothing in column 'size'"),
        (changed(2, 2, "?"), {}, "row 2 has nothing in column 'colour'"),
        (changed(4, 3, ""), {"missing": "fill"}, "row 4 has nothing in column 'y'"),
        (changed(2, 3, "0.5"), {}, r"row 2 has 0\.5 in column 'y'; labels are classes"),
        (changed(2, 1, "inf"), {}, "row 2 has no finite number in column 'size'"),
        (changed(0, 2, "size"), {}, "two columns 'size'"),
        (changed(0, 2, ""), {}, "names every column"),
        ([*GOOD, ["b", "3"]], {}, "row 5 has 2 fields, the header has 4"),
        (GOOD[:1], {}, "has no rows"),
        (GOOD, {"label": "z"}, "no column 'z'"),
        (GOOD, {"client": "whom"}, "did you mean 'who'"),
        (GOOD, {"missing": "guess"}, "refuse, drop or fill"),
        (GOOD, {"split": "colour"}, "row 1 has the split 'red'; it is train or test"),
        (GOOD, {"unprivileged": "x"}, "there are no groups"),
        (GOOD, {"group": "colour", "unprivileged": "x"}, "no group 'x'; known: blue, red"),
        (GOOD, {"partition": {"name": "iid", "num_partitions": 2}}, "either client"),
        (changed(1, 3, "1")[:3], {}, "1 different labels"),
    ],
)
def test_what_a_table_cannot_mean_is_refused_with_row_and_column(tmp_path, rows, settings, reason):
    path = written(tmp_path / "t.csv", rows)
    with pytest.raises((DataError, ConfigError), match=reason):
        table(**{"path": path, "client": "who", "label": "y", **settings}).roll  # noqa: B018


def test_missing_values_can_be_dropped_or_filled(tmp_path):
    path = written(tmp_path / "t.csv", changed(3, 1, "NA"))
    dropped = table(path=path, client="who", label="y", missing="drop")
    assert dropped.about()["rows_left_out"] == 1
    filled = table(path=path, client="who", label="y", missing="fill", features=("size",))
    assert sorted(filled.table.x[:, 0].tolist())[1] == pytest.approx(-0.267261, abs=1e-5)  # 2 of 1, 2, 4
    assert 0.0 in filled.table.x[:, 0].tolist()  # the mean


def test_an_identifier_among_the_features_is_pointed_out(tmp_path):
    rows = [["who", "id", "y"]] + [[row % 5, f"patient {row}", row % 2] for row in range(1500)]
    with pytest.raises(DataError, match=r"column 'id' has 1500 different words.*Leave it out"):
        table(path=written(tmp_path / "t.csv", rows), client="who", label="y")


def test_groups_inside_clients_are_known_by_their_rows(tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"{w},{s},{n},{(n + (s == 'f')) % 2}" for w in "ab" for s in "fm" for n in range(10)]
    path.write_text("who,sex,n,y\n" + "\n".join(lines) + "\n")
    data = table(path=str(path), client="who", label="y", group="sex", unprivileged="m", pooled_test=True)
    assert data.group_names == ("m", "f")
    assert set(data.roll.declared.values()) == {None}
    assert data.roll.groups == 2
    assert data.client(0).groups() == [0, 1]
    assert data.client(0).test is data.client(1).test
    assert data.shape == (1,)  # sex is a group, not a feature


def test_a_table_without_clients_is_dealt_out(tmp_path):
    rows = [["size", "y"]] + [[row, row % 3] for row in range(300)]
    path = written(tmp_path / "t.csv", rows)
    partition = {"name": "dirichlet", "num_partitions": 5, "partition_by": "label", "alpha": 0.5}
    data = table(path=path, label="y", partition=partition)
    assert len(data.roll) == 5
    assert sum(len(data.client(n).train) + len(data.client(n).test) for n in range(5)) == 300
    with pytest.raises(ConfigError, match=r"data\.partition has no setting 'beta'"):
        table(path=path, label="y", partition={"name": "iid", "num_partitions": 5, "beta": 1})
    with pytest.raises(ConfigError, match="no partition 'idd'; did you mean 'iid'"):
        table(path=path, label="y", partition={"name": "idd"})
    with pytest.raises(ConfigError, match="a str is no partitioner"):
        table(path=path, label="y", partition={"name": "os:getcwd"})


def test_clients_of_ragged_sizes_from_a_dictionary():
    x, y, school = digits()
    data = from_arrays({f"school {s}": (x[school == s], y[school == s]) for s in range(9)}, test_share=0.25)
    sizes = [(len(data.client(n).train), len(data.client(n).test)) for n in data.roll.ids]
    assert sizes == [(150, 50)] * 8 + [(148, 49)]
    assert data.shape == (1, 8, 8)
    assert data.classes == 10
    assert data.client_name(3) == "school 3"


def test_a_client_with_one_example_is_a_newcomer():
    data = from_arrays({"big": (np.eye(10), np.arange(10) % 2), "tiny": (np.eye(10)[:1], [1])})
    assert list(data.roll.ids) == [0]
    ((number, tiny),) = data.unseen().items()
    assert (data.client_name(number), len(tiny.train), len(tiny.test)) == ("tiny", 0, 1)


def test_groups_of_clients_are_declared_and_groups_of_rows_lie_inside():
    x, y = np.eye(6), np.arange(6) % 2
    declared = from_arrays({"a": (x, y, "north"), "b": (x, y, "south")})
    assert dict(declared.roll.declared) == {0: 0, 1: 1}
    assert declared.client(1).groups() == [1]
    assert declared.client(1).train.group is None
    inside = from_arrays({"a": (x, y, [0, 0, 0, 1, 1, 1]), "b": (x, y, np.ones(6, dtype=int))})
    assert dict(inside.roll.declared) == {0: None, 1: None}
    assert inside.roll.groups == 2


def test_a_test_part_of_ones_own_is_kept():
    x, y = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
    data = from_arrays({"a": (x, y)}, test={"a": (2 * x, y)})
    assert np.array_equal(data.client(0).train.x, x)
    assert np.array_equal(data.client(0).test.x, 2 * x)
    with pytest.raises(DataError, match="client 'b' has rows to train with but none to test with"):
        from_arrays({"a": (x, y), "b": (x, y)}, test={"a": (x, y)}).roll  # noqa: B018


@pytest.mark.parametrize(
    ("clients", "reason"),
    [
        ({}, "no clients"),
        ({"a": (np.eye(3), [0, 1])}, r"client 'a' has inputs of shape \(3, 3\) for labels of shape \(2,\)"),
        ({"a": (np.eye(3), [0, 1, 0]), "b": (np.eye(2), [0, 1])}, "'a' and 'b' have inputs of different shapes"),
        ({"a": (np.eye(2), [0, 1], "g"), "b": (np.eye(2), [0, 1])}, "client 'b' has no group"),
        ({"a": (np.array([[1.0], [np.nan]]), [0, 1])}, "row 1, input 0 is missing"),
        ({"a": (np.eye(2), [0.5, 1])}, r"row 0 has the label 0\.5"),
        ({"a": (np.array([["x"], ["y"]]), [0, 1])}, "inputs must be numbers"),
        ({"a": np.eye(2)}, r"must be \(x, y\)"),
        ({"a": (np.eye(2), [0, 1], [1, 2, 3])}, "3 groups for 2 rows"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(clients, reason):
    with pytest.raises(DataError, match=reason):
        from_arrays(clients)


def test_anybodys_partitioner_deals_out_arrays():
    x, y, _ = digits()
    data = from_partitioner(x, y, Dirichlet(num_partitions=6, partition_by="label", alpha=0.3, seed=3))
    assert len(data.roll) == 6
    mixes = [np.bincount(data.client(n).train.y, minlength=10).argmax() for n in data.roll.ids]
    assert len(set(mixes)) > 2


def test_an_npz_of_ones_own(tmp_path):
    x, y, school = digits()
    names = np.array([f"S{s}" for s in school])
    np.savez(tmp_path / "d.npz", x=x, y=y, client=names, group=np.where(school < 2, "small", "large"))
    data = npz(path=str(tmp_path / "d.npz"), unprivileged="small")
    assert data.client_name(8) == "S8"
    assert data.group_names == ("small", "large")
    assert dict(data.roll.declared) == {n: 0 if n < 2 else 1 for n in range(9)}
    assert data.about()["rows"] == 1797
    np.savez(tmp_path / "e.npz", x=x, y=y[:-1], client=names)
    with pytest.raises(DataError, match="y must have one entry for each of 1797 rows"):
        npz(path=str(tmp_path / "e.npz")).roll  # noqa: B018
    np.savez(tmp_path / "f.npz", x=np.float32(1), y=y, client=names)
    with pytest.raises(DataError, match=r"f\.npz: x must have an entry for each row"):
        npz(path=str(tmp_path / "f.npz")).roll  # noqa: B018


def test_images_of_ones_own_train_in_python():
    x, y, school = digits()
    data = from_arrays({s: (x[school == s], y[school == s]) for s in range(9)})
    experiment = {
        "rounds": 6,
        "evaluate_every": 6,
        "data": {"name": "own"},
        "model": {"name": "lenet", "channels": [4, 8], "hidden": 16},
        "learner": {"learning_rate": 0.05},
        "algorithm": {"name": "fedavg", "clients_per_round": 5},
    }
    assert run_experiment(from_dict(experiment), data=data).summary["user"]["mean"] > 75


def test_the_unprivileged_group_comes_first_and_the_others_keep_their_order():
    x, y = np.eye(4), np.arange(4) % 2
    data = from_arrays({"k": (x, y, "a"), "l": (x, y, "b"), "m": (x, y, "c")}, unprivileged="c")
    assert data.group_names == ("c", "a", "b")
    assert dict(data.roll.declared) == {0: 1, 1: 2, 2: 0}


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_table_larger_than_the_limit_is_refused_before_it_is_read(tmp_path, monkeypatch, name):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"who": ["a"] * 9, "size": [0.0] * 9, "y": [0, 1, 2] * 3}), tmp_path / "t.parquet")
    written(tmp_path / "t.csv", GOOD)
    monkeypatch.setattr("e2fl.data.table.INPUT_LIMIT", 20)
    with pytest.raises(DataError, match="the limit of a table"):
        table(path=str(tmp_path / name), client="who", label="y")


def test_half_a_parquet_file_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(DataError, match="not a whole Parquet file"):
        table(path=str(tmp_path / "t.parquet"), client="who", label="y")


def test_one_central_test_set_serves_all_clients(tmp_path):
    path = tmp_path / "t.csv"
    lines = [
        f"{who},{n},{n % 2},{'test' if who == 'server' else 'train'}" for who in ("a", "b", "server") for n in range(6)
    ]
    path.write_text("who,n,y,part\n" + "\n".join(lines) + "\n")
    data = table(path=str(path), client="who", label="y", split="part", pooled_test=True)
    assert [data.client_name(number) for number in data.roll.ids] == ["a", "b"]
    assert len(data.client(0).train) == len(data.client(0).test) == 6
    assert data.client(0).test is data.client(1).test
    with pytest.raises(DataError, match="client 'a' has rows to train with but none to test with"):
        table(path=str(path), client="who", label="y", split="part").roll  # noqa: B018
