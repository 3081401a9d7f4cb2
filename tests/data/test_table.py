"""Users' own tables, well formed or not; on data that scikit-learn ships."""

import csv

import numpy as np
import pytest

from e2fl import assign
from e2fl.config.experiment import load
from e2fl.data import from_table as table
from e2fl.errors import ConfigError, DataError
from e2fl.runs.runner import run_experiment


def cancer(path):
    """The breast cancer table of scikit-learn, with made-up hospitals and regions beside its real columns."""
    datasets = pytest.importorskip("sklearn.datasets")
    found = datasets.load_breast_cancer()
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["hospital", "region", "finding", *found.feature_names])
        for row, (x, y) in enumerate(zip(found.data, found.target, strict=True)):
            hospital = row % 10
            out.writerow(
                [f"H{hospital}", "north" if hospital < 3 else "south", found.target_names[y], *x]
            )
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
    assert found.summary["clients"]["mean"] > 80
    assert {name: group["clients"] for name, group in found.summary["groups"].items()} == {
        "north": 3,
        "south": 7,
    }
    assert sorted({row["client"] for row in found.clients}) == [
        f"H{number}" for number in range(10)
    ]
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
    assert b.test.x == pytest.approx(
        np.array([[0, 0, (9 - 4) / np.sqrt(5)]])
    )  # green was not seen in training
    assert data.about()["values_unseen_in_training"] == 1


def test_the_encoding_comes_from_the_rows_that_are_trained_on(tmp_path):
    rows = [["who", "size", "colour", "y"]]
    rows += [["ab"[row % 2], row * row, f"colour {row}", (row // 2) % 2] for row in range(40)]
    data = table(path=written(tmp_path / "t.csv", rows), client="who", label="y", words=("colour",))
    sizes = np.concatenate([data.client(number).train.x[:, 0] for number in (0, 1)])
    assert sizes.mean() == pytest.approx(0, abs=1e-6)
    assert sizes.std() == pytest.approx(1, abs=1e-6)
    words = np.concatenate([data.client(number).train.x[:, 1:] for number in (0, 1)])
    assert words.sum(axis=0).tolist() == [1] * 32
    assert data.about()["values_unseen_in_training"] == 8
    assert not np.concatenate([data.client(number).test.x[:, 1:] for number in (0, 1)]).any()


def test_a_column_that_is_constant_in_training_is_not_blown_up(tmp_path):
    rows = [["who", "k", "y", "part"]] + [
        ["ab"[row % 2], 0.1, (row // 2) % 2, "train"] for row in range(14)
    ]
    rows += [["a", 0.2, 0, "test"], ["b", 0.1, 1, "test"]]
    data = table(path=written(tmp_path / "t.csv", rows), client="who", label="y", split="part")
    assert data.client(0).test.x[0, 0] == pytest.approx(0.1)
    assert data.client(1).test.x[0, 0] == pytest.approx(0)


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
        out.writerows(zip(*columns.values(), strict=True))
    left, right = (
        table(path=str(tmp_path / name), client="who", label="y") for name in ("t.parquet", "t.csv")
    )
    for number in (0, 1):
        assert np.array_equal(left.client(number).train.x, right.client(number).train.x)
        assert np.array_equal(left.client(number).test.y, right.client(number).test.y)


BIG = 12345678901234567  # and the next are the same float64


def test_names_and_labels_are_kept_as_they_are_written(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ids = [BIG + row % 2 for row in range(20)]
    labels = [(row // 2) % 2 * 8 + 2 for row in range(20)]
    written(
        tmp_path / "t.csv",
        [["who", "k", "y"], *([who, row, labels[row]] for row, who in enumerate(ids))],
    )
    parquet.write_table(arrow.table({"who": ids, "k": ids, "y": labels}), tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        data = table(path=str(tmp_path / name), client="who", label="y", features=("k",))
        assert [data.client_name(number) for number in data.population.ids] == [
            str(BIG),
            str(BIG + 1),
        ]
        assert data.about()["labels"] == ["2", "10"]  # as numbers, not as words
    assert (
        len(
            table(
                path=str(tmp_path / "t.parquet"), client="k", label="who", features=("y",)
            ).about()["labels"]
        )
        == 2
    )
    rows = [["who", "k", "y", "g"]] + [
        [["7", "007"][row % 2], row, row % 3, f"{row % 2}.0"] for row in range(20)
    ]
    data = table(path=written(tmp_path / "u.csv", rows), client="who", label="y", group="g")
    assert [data.client_name(number) for number in data.population.ids] == ["007", "7"]
    assert data.group_names == ("0", "1")


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
    return [
        [value if (r, c) == (row, column) else cell for c, cell in enumerate(line)]
        for r, line in enumerate(GOOD)
    ]


@pytest.mark.parametrize(
    ("rows", "settings", "reason"),
    [
        (changed(3, 1, ""), {}, "line 4 has nothing in column 'size'"),
        (changed(2, 2, "?"), {}, "line 3 has nothing in column 'colour'"),
        (changed(4, 3, ""), {"missing": "fill"}, "line 5 has nothing in column 'y'"),
        (changed(2, 3, "0.5"), {}, r"line 3 has 0\.5 in column 'y'; labels are classes"),
        (changed(2, 1, "inf"), {}, "line 3 is not finite in column 'size'"),
        (changed(0, 2, "size"), {}, "two columns 'size'"),
        (changed(0, 2, ""), {}, "names every column"),
        ([*GOOD, ["b", "3"]], {}, "line 6 has 2 fields, the header has 4"),
        (GOOD[:1], {}, "has no rows"),
        (GOOD, {"label": "z"}, "no column 'z'"),
        (GOOD, {"client": "whom"}, "did you mean 'who'"),
        (GOOD, {"missing": "guess"}, "refuse, drop or fill"),
        (GOOD, {"split": "colour"}, "line 2 has the split 'red'; use train or test"),
        (GOOD, {"unprivileged": "x"}, "there are no groups"),
        (GOOD, {"group": "colour", "unprivileged": "x"}, "no group 'x'; known: blue, red"),
        (GOOD, {"partition": {"name": "iid", "num_partitions": 2}}, "either client"),
        (changed(1, 3, "1")[:3], {}, "1 different labels"),
    ],
)
def test_what_a_table_cannot_mean_is_refused_with_line_and_column(tmp_path, rows, settings, reason):
    path = written(tmp_path / "t.csv", rows)
    with pytest.raises((DataError, ConfigError), match=reason):
        table(**{"path": path, "client": "who", "label": "y", **settings}).population  # noqa: B018


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,1,0\n\na,2,1\nb,,0\nb,3,1\n", "line 5 has nothing in column 'k'"),
        ("a,1,0\n\na,2,1\nb,0\nb,3,1\n", "line 5 has 2 fields"),
        ('"a\na",1,0\n"a\na",2,1\nb,,0\nb,3,1\n', "line 6 has nothing in column 'k'"),
        ('"a\na",1,0\n"a\na",2,1\nb,0\nb,3,1\n', "line 6 has 2 fields"),
        ('"a\na",1,0\n"a\na",2,0.5\n', r"line 4 has 0\.5 in column 'y'"),
    ],
)
def test_lines_are_numbered_as_an_editor_does(tmp_path, text, reason):
    (tmp_path / "t.csv").write_text("who,k,y\n" + text)
    with pytest.raises(DataError, match=reason):
        table(path=str(tmp_path / "t.csv"), client="who", label="y")


def test_the_favourable_label_is_class_1(tmp_path):
    rows = [["who", "size", "y"]] + [
        ["ab"[row % 2], row, ["good", "poor"][row // 2 % 2]] for row in range(20)
    ]
    path = written(tmp_path / "t.csv", rows)
    plain, turned = (
        table(path=path, client="who", label="y", positive=word) for word in (None, "good")
    )
    assert plain.about()["labels"] == ["good", "poor"]
    assert turned.about()["labels"] == ["poor", "good"]
    assert np.array_equal(turned.client(0).train.y, 1 - plain.client(0).train.y)
    assert np.array_equal(turned.client(0).train.x, plain.client(0).train.x)
    assert table(path=path, client="who", label="y", positive="poor").about()["labels"] == [
        "good",
        "poor",
    ]
    for label, feature, word in (("y", "size", "fine"), ("size", "y", "3")):
        with pytest.raises(ConfigError, match=f"must be one of two labels, not '{word}' of"):
            table(path=path, client="who", positive=word, features=(feature,), label=label)


@pytest.mark.parametrize(
    ("train", "test", "reason"),
    [
        (1e308, 0, "column 'size' has numbers too large"),
        (1, 1e300, "line 9, input 0 is missing or not finite"),
    ],
)
def test_numbers_too_large_to_learn_from_are_refused(tmp_path, train, test, reason):
    rows = [["who", "size", "y", "part"]] + [
        ["a", row % 2 * train, row // 2 % 2, "train"] for row in range(7)
    ]
    rows += [["a", test, 1, "test"]]
    with pytest.raises(DataError, match=reason):
        table(path=written(tmp_path / "t.csv", rows), client="who", label="y", split="part")


def test_missing_values_can_be_dropped_or_filled(tmp_path):
    path = written(tmp_path / "t.csv", changed(3, 1, "NA"))
    dropped = table(path=path, client="who", label="y", missing="drop")
    assert dropped.about()["rows_left_out"] == 1
    filled = table(
        path=path, client="who", label="y", missing="fill", features=("size",), pooled_test=True
    )
    assert filled.rows.x[2, 0] == 0  # the mean


def test_an_identifier_among_the_features_is_pointed_out(tmp_path):
    rows = [["who", "id", "y"]] + [[row % 5, f"patient {row}", row % 2] for row in range(1500)]
    with pytest.raises(
        DataError,
        match=r"column 'id' has 1200 different strings.*line 2 has 'patient 0'.*Leave it out",
    ):
        table(path=written(tmp_path / "t.csv", rows), client="who", label="y")


def test_groups_inside_clients_are_known_by_their_rows(tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"{w},{s},{n},{(n + (s == 'f')) % 2}" for w in "ab" for s in "fm" for n in range(10)]
    path.write_text("who,sex,n,y\n" + "\n".join(lines) + "\n")
    data = table(
        path=str(path), client="who", label="y", group="sex", unprivileged="m", pooled_test=True
    )
    assert data.group_names == ("m", "f")
    assert set(data.population.declared.values()) == {None}
    assert data.population.groups == 2
    assert data.client(0).groups() == [0, 1]
    assert data.client(0).test is data.client(1).test
    assert data.shape == (1,)  # sex is a group, not a feature


def test_a_table_without_clients_is_dealt_out(tmp_path):
    rows = [["size", "y"]] + [[row, row % 3] for row in range(300)]
    path = written(tmp_path / "t.csv", rows)
    partition = {"name": "dirichlet", "num_partitions": 5, "partition_by": "label", "alpha": 0.5}
    data = table(path=path, label="y", partition=partition)
    assert len(data.population) == 5
    assert sum(len(data.client(n).train) + len(data.client(n).test) for n in range(5)) == 300
    with pytest.raises(ConfigError, match=r"data\.partition has no setting 'beta'"):
        table(path=path, label="y", partition={"name": "iid", "num_partitions": 5, "beta": 1})
    with pytest.raises(ConfigError, match="no partition 'idd'; did you mean 'iid'"):
        table(path=path, label="y", partition={"name": "idd"})
    with pytest.raises(ConfigError, match="not a class or function"):
        table(path=path, label="y", partition={"name": "os:getcwd"})


def hospitals(path, **changes):
    """Rows of three hospitals, the smallest with two rows."""
    rows = [["hospital", "row", "size", "y"]]
    rows += [
        ["CAB"[0 if row < 2 else 1 + row % 2], "uvw"[row % 3], row, row % 4 // 2]
        for row in range(42)
    ]
    return table(path=written(path, rows), label="y", **changes)


def test_a_natural_partition_goes_by_any_column_as_clients_do(tmp_path):
    left = hospitals(
        tmp_path / "t.csv", partition={"name": "natural_id", "partition_by": "hospital"}
    )
    right = hospitals(tmp_path / "t.csv", client="hospital")
    assert [left.client_name(number) for number in left.population.ids] == ["A", "B", "C"]
    assert left.shape == right.shape  # whose a row is, is nothing to learn from
    for number in left.population.ids:
        assert np.array_equal(left.client(number).train.x, right.client(number).train.x)


def test_every_label_may_be_a_client_of_its_own(tmp_path):
    data = hospitals(tmp_path / "t.csv", partition={"name": "natural_id", "partition_by": "label"})
    assert [set(data.client(number).train.y.tolist()) for number in data.population.ids] == [
        {0},
        {1},
    ]
    assert (
        data.shape
        == hospitals(tmp_path / "t.csv", partition={"name": "iid", "num_partitions": 2}).shape
    )


def test_rows_that_a_partition_leaves_out_are_counted(tmp_path):
    partition = {"name": "natural_id", "partition_by": "hospital", "min_partition_size": 3}
    data = hospitals(tmp_path / "t.csv", partition=partition)
    assert [data.client_name(number) for number in data.population.ids] == ["A", "B"]
    assert data.about()["rows"] == 40
    assert data.about()["rows_left_out"] == 2
    assert data.unseen() == {}


@pytest.mark.parametrize("by", ["row", "group"])
def test_a_group_column_called_row_is_what_it_says(tmp_path, by):
    partition = {"name": "by_group", "num_partitions": 3, "partition_by": by}
    data = hospitals(tmp_path / "t.csv", group="row", partition=partition)
    assert [
        data.group_name(data.population.declared[number]) for number in data.population.ids
    ] == ["u", "v", "w"]


def test_a_dirichlet_partition_goes_by_a_column_that_is_learnt_from_too(tmp_path):
    partition = {"name": "dirichlet", "num_partitions": 2, "partition_by": "hospital", "alpha": 0.1}
    data = hospitals(tmp_path / "t.csv", partition=partition | {"min_partition_size": 4})
    assert data.shape == (7,)  # three hospitals, three letters, a size
    assert data.about()["rows_left_out"] == 0


def test_a_column_to_partition_by_that_is_not_there_is_named(tmp_path):
    with pytest.raises(
        ConfigError, match=r"no column 'hospitl' to partition by; did you mean 'hospital'"
    ):
        hospitals(tmp_path / "t.csv", partition={"name": "natural_id", "partition_by": "hospitl"})
    with pytest.raises(ConfigError, match=r"no column 'group' to partition by"):
        hospitals(tmp_path / "t.csv", partition={"name": "natural_id", "partition_by": "group"})


def test_half_a_parquet_file_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(DataError, match="cannot be read"):
        table(path=str(tmp_path / "t.parquet"), client="who", label="y")


def test_one_central_test_set_serves_all_clients(tmp_path):
    path = tmp_path / "t.csv"
    lines = [
        f"{who},{n},{n % 2},{'test' if who == 'server' else 'train'}"
        for who in ("a", "b", "server")
        for n in range(6)
    ]
    path.write_text("who,n,y,part\n" + "\n".join(lines) + "\n")
    data = table(path=str(path), client="who", label="y", split="part", pooled_test=True)
    assert [data.client_name(number) for number in data.population.ids] == ["a", "b"]
    assert len(data.client(0).train) == len(data.client(0).test) == 6
    assert data.client(0).test is data.client(1).test
    with pytest.raises(DataError, match="client 'a' has training rows but no test rows"):
        table(path=str(path), client="who", label="y", split="part").population  # noqa: B018


def test_new_rows_become_what_the_table_would_have_made_of_them(tmp_path):
    path = cancer(tmp_path / "cancer.csv")
    config = tmp_path / "hospitals.toml"
    config.write_text(CONFIG.replace("PATH", str(path)))
    run_experiment(load(config), out=tmp_path / "run")
    data = load(config).build_data()
    with path.open() as file:
        lines = list(csv.DictReader(file))
    for new in (path, str(path), lines):
        again = data.encode(new)
        assert np.array_equal(again.x, data.rows.x)
        assert np.array_equal(again.y, data.rows.y)
        assert again.group is None  # clients declare theirs
    found = assign(tmp_path / "run", data.encode(lines[:60]), test=data.encode(lines[60:]), group=1)
    assert found.score.accuracy > 80
    unlabelled = [
        {name: value for name, value in line.items() if name != "finding"} for line in lines[:3]
    ]
    assert data.encode(unlabelled).y.tolist() == [-1] * 3


def test_new_rows_that_do_not_fit_the_table_are_refused(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [["who", "sex", "size", "code", "y"]]
    rows += [
        ["ab"[row % 2], "fm"[row // 2 % 2], row, ["1", "x"][row // 4 % 2], row // 3 % 2]
        for row in range(40)
    ]
    data = table(path=written(tmp_path / "t.csv", rows), client="who", label="y", group="sex")
    good = {"sex": "m", "size": 3, "code": 1, "y": 1.0}
    with pytest.warns(
        UserWarning,
        match="1 cells of column 'code' are categories .* such as 'new' in row 1; known: 1, x",
    ):
        found = data.encode([good, good | {"code": "new"}])
    assert found.x[:, 1:].tolist() == [
        [1, 0],
        [0, 0],
    ]  # a word, though it looks like a number; and one never seen
    assert found.y.tolist() == found.group.tolist() == [1, 1]
    parquet.write_table(arrow.Table.from_pylist([good]), tmp_path / "new.parquet")
    assert np.array_equal(data.encode(tmp_path / "new.parquet").x, found.x[:1])
    for new, reason in [
        ([], "no new rows"),
        ([{"sex": "m", "code": 1, "y": 1}], "no column 'size'"),
        ([good, good | {"size": None}], "row 1 has nothing in column 'size'"),
        ([good, good | {"size": "big"}], "row 1 has 'big' in column 'size' of numbers"),
        ([good, good | {"y": 2}], "row 1 has the label '2'"),
        ([good | {"sex": "d"}], "row 0 has the group 'd'"),
    ]:
        with pytest.raises(DataError, match=reason):
            data.encode(new)
