"""Users' own data: arrays and .npz files, well formed or not; on data that scikit-learn ships."""

import math
import warnings

import numpy as np
import pytest
import torch

from e2fl.config.experiment import from_dict, load
from e2fl.data import DATASETS, from_arrays, from_partitioner, from_table
from e2fl.data.partition import Dirichlet, Iid
from e2fl.errors import ConfigError, DataError
from e2fl.runs.runner import run_experiment

npz = DATASETS["npz"]


def digits():
    """1,797 images of digits, 8 x 8, from scikit-learn, as if 9 schools had collected them."""
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_digits(return_X_y=True)
    return x.reshape(-1, 1, 8, 8) / 16, y, np.arange(len(y)) // 200


def test_clients_of_ragged_sizes_from_a_dictionary():
    x, y, school = digits()
    data = from_arrays(
        {f"school {s}": (x[school == s], y[school == s]) for s in range(9)}, test_share=0.25
    )
    sizes = [(len(data.client(n).train), len(data.client(n).test)) for n in data.population.ids]
    assert sizes == [(150, 50)] * 8 + [(148, 49)]
    assert data.shape == (1, 8, 8)
    assert data.classes == 10
    assert data.client_name(3) == "school 3"


def test_a_client_with_one_example_is_a_newcomer():
    data = from_arrays({"big": (np.eye(10), np.arange(10) % 2), "tiny": (np.eye(10)[:1], [1])})
    assert list(data.population.ids) == [0]
    ((number, tiny),) = data.unseen().items()
    assert (data.client_name(number), len(tiny.train), len(tiny.test)) == ("tiny", 0, 1)


def test_groups_of_clients_are_declared_and_groups_of_rows_lie_inside():
    x, y = np.eye(6), np.arange(6) % 2
    declared = from_arrays({"a": (x, y, "north"), "b": (x, y, "south")})
    assert dict(declared.population.declared) == {0: 0, 1: 1}
    assert declared.client(1).groups() == [1]
    assert declared.client(1).train.group is None
    inside = from_arrays({"a": (x, y, [0, 0, 0, 1, 1, 1]), "b": (x, y, np.ones(6, dtype=int))})
    assert dict(inside.population.declared) == {0: None, 1: None}
    assert inside.population.groups == 2


def test_a_newcomer_with_rows_of_two_groups_declares_none():
    x, y = np.eye(8), np.arange(8) % 2
    clients = {
        "a": (x, y, "north"),
        "b": (x, y, "south"),
        "tiny": (x[:2], y[:2], ["south", "north"]),
    }
    data = from_arrays(clients, min_samples=4)
    ((_, tiny),) = data.unseen().items()
    assert tiny.group is None
    assert sorted([*tiny.train.group, *tiny.test.group]) == [0, 1]
    assert dict(data.population.declared) == {
        0: None,
        1: None,
    }  # groups lie inside, for all clients alike
    assert data.client(1).groups() == [1]


def test_what_a_newcomer_is_tested_with_stays_for_testing():
    x, y = np.arange(12.0)[:, None], np.arange(12) % 2
    clients = {"a": (x[:6], y[:6]), "tiny": (x[:2], y[:2])}
    data = from_arrays(clients, test={"a": (x[6:], y[6:]), "tiny": (x[9:], y[9:])}, min_samples=6)
    ((_, tiny),) = data.unseen().items()
    assert tiny.train.x.ravel().tolist() == [0, 1]
    assert tiny.test.x.ravel().tolist() == [9, 10, 11]


def test_a_test_part_of_ones_own_is_kept():
    x, y = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
    data = from_arrays({"a": (x, y)}, test={"a": (2 * x, y)})
    assert np.array_equal(data.client(0).train.x, x)
    assert np.array_equal(data.client(0).test.x, 2 * x)
    with pytest.raises(DataError, match="client 'b' has training rows but no test rows"):
        from_arrays({"a": (x, y), "b": (x, y)}, test={"a": (x, y)}).population  # noqa: B018


@pytest.mark.parametrize(
    ("clients", "reason"),
    [
        ({}, "no clients"),
        (
            {"a": (np.eye(3), [0, 1])},
            r"client 'a' has inputs of shape \(3, 3\) for labels of shape \(2,\)",
        ),
        (
            {"a": (np.eye(3), [0, 1, 0]), "b": (np.eye(2), [0, 1])},
            "inputs of different shapes",
        ),
        ({"a": (np.eye(2), [0, 1], "g"), "b": (np.eye(2), [0, 1])}, "client 'b' has no group"),
        ({"a": (np.array([[1.0], [np.nan]]), [0, 1])}, "row 1, input 0 is missing"),
        ({"a": (np.eye(2), [0.5, 1])}, r"row 0 has the label 0\.5"),
        ({"a": (np.array([["x"], ["y"]]), [0, 1])}, "inputs must be numbers"),
        ({1: (np.eye(2), [0, 1]), "1": (np.eye(2), [0, 1])}, "2 clients are called '1'"),
        (
            {"a": ([[1, 2], [3]], [0, 1])},
            r"client 'a', row 1: inputs of shape \(1,\), other rows have \(2,\)",
        ),
        ({"a": ([[1, 2], [3, None]], [0, 1])}, "client 'a', row 1, input 1 is missing"),
        ({"a": ([[1, 2], [3, "x"]], [0, 1])}, "inputs must be numbers"),
        ({"a": (np.float32(1), [0, 1])}, "client 'a': inputs must be rows of numbers"),
        ({"a": (np.eye(2), [0, [1, 2]])}, "labels must be one for each row"),
        ({"a": (np.eye(2), ["u", None])}, "client 'a', row 1 has no label"),
        ({"a": (np.eye(2), ["u", float("nan")])}, "client 'a', row 1 has no label"),
        (
            {"a": (np.eye(2), np.array([np.nan, "u"], dtype=object))},
            "client 'a', row 0 has no label",
        ),
        (
            {"a": (np.eye(2), [0, 1], "n"), "b": (np.eye(2), [0, np.nan], "n")},
            "client 'b', row 1 has no label",
        ),
        ({"a": (np.eye(2), [0, 1], [None, "n"])}, "client 'a', row 0 has no group"),
        ({"a": (np.eye(2), [0, 1], np.array([1, np.nan]))}, "client 'a', row 1 has no group"),
        ({"a": (np.eye(2), [0, 1], math.nan)}, "row 0 has no group"),
        ({"a": (np.eye(2), [0, 1]), "b": (np.eye(2)[:0], [])}, "client 'b' has no rows"),
        (
            {"a": (np.eye(2), [0, 1]), "b": (np.full((2, 2), np.inf), [0, 1])},
            "client 'b', row 0, input 0 is missing",
        ),
        ({"a": np.eye(2)}, r"must be \(x, y\)"),
        ({"a": (np.eye(2), [0, 1], [1, 2, 3])}, "groups of shape"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(clients, reason):
    with pytest.raises(DataError, match=reason):
        from_arrays(clients)


def test_anybodys_partitioner_deals_out_arrays():
    x, y, _ = digits()
    data = from_partitioner(
        x, y, Dirichlet(num_partitions=6, partition_by="label", alpha=0.3, seed=3)
    )
    assert len(data.population) == 6
    mixes = [
        np.bincount(data.client(n).train.y, minlength=10).argmax() for n in data.population.ids
    ]
    assert len(set(mixes)) > 2


@pytest.mark.parametrize(
    ("x", "y", "group", "reason"),
    [
        (np.eye(3), [0, 1, 0, 1], None, r"inputs of shape \(3, 3\) for labels of shape \(4,\)"),
        (np.eye(4), [[0], [1], [0], [1]], None, r"labels of shape \(4, 1\)"),
        (np.eye(4), np.eye(4), None, r"labels of shape \(4, 4\)"),
        (np.eye(4), ["u", "v", None, "u"], None, "row 2 has no label"),
        (np.eye(4), [0, 1, 0, 1], [0, 1], r"groups of shape \(2,\)"),
        (np.eye(4), [0, 1, 0, 1], [0, 1, None, 1], "row 2 has no group"),
        ([[1, 2], [3, 4], [5], [6, 7]], [0, 1, 0, 1], None, "row 2: inputs of shape"),
        (np.diag([1, 1, 1, np.inf]), [0, 1, 0, 1], None, "row 3, input 3 is missing"),
    ],
)
def test_rows_that_do_not_fit_are_not_dealt_out(x, y, group, reason):
    with pytest.raises(DataError, match=reason):
        from_partitioner(x, y, Iid(2), group=group)


def test_an_npz_of_ones_own(tmp_path):
    x, y, school = digits()
    names = np.array([f"S{s}" for s in school])
    np.savez(
        tmp_path / "d.npz", x=x, y=y, client=names, group=np.where(school < 2, "small", "large")
    )
    data = npz(path=str(tmp_path / "d.npz"), unprivileged="small")
    assert data.client_name(8) == "S8"
    assert data.group_names == ("small", "large")
    assert dict(data.population.declared) == {n: 0 if n < 2 else 1 for n in range(9)}
    assert data.about()["rows"] == 1797
    np.savez(tmp_path / "e.npz", x=x, y=y[:-1], client=names)
    with pytest.raises(DataError, match="one label for each of 1797 rows"):
        npz(path=str(tmp_path / "e.npz")).population  # noqa: B018
    np.savez(tmp_path / "e.npz", x=1, y=y, client=names)
    with pytest.raises(DataError, match=r"e\.npz: there are no rows"):
        npz(path=str(tmp_path / "e.npz")).population  # noqa: B018
    np.savez(tmp_path / "f.npz", x=x, y=y, client=np.where(school == 1, np.nan, school))
    with pytest.raises(DataError, match="row 200 has no client"):
        npz(path=str(tmp_path / "f.npz")).population  # noqa: B018


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
    assert run_experiment(from_dict(experiment), data=data).summary["clients"]["mean"] > 75


def test_the_unprivileged_group_comes_first_and_the_others_keep_their_order():
    x, y = np.eye(4), np.arange(4) % 2
    data = from_arrays({"k": (x, y, "a"), "l": (x, y, "b"), "m": (x, y, "c")}, unprivileged="c")
    assert data.group_names == ("c", "a", "b")
    assert dict(data.population.declared) == {0: 1, 1: 2, 2: 0}


class Frame:
    """As pandas: its array is of objects, and it iterates over the names of its columns."""

    def __init__(self, rows):
        self.rows = rows

    def __array__(self, dtype=None, copy=None):
        return np.array(self.rows, dtype=object)

    def __iter__(self):
        return iter(range(len(self.rows[0])))


def test_a_table_of_objects_is_its_cells_not_the_names_of_its_columns():
    x, y = np.arange(40.0).reshape(10, 4), [0, 1] * 5
    found = from_arrays({"a": (Frame(x.tolist()), y)})
    assert found.shape == (4,)
    assert np.array_equal(found.rows.x, x)
    with pytest.raises(DataError, match="row 1: inputs must be numbers"):
        from_arrays({"a": (Frame([[1, 2], [3, "x"]]), [0, 1])})


@pytest.mark.parametrize("kind", [object, "Int64", "Float64", "boolean"])
def test_tables_of_pandas_are_read_by_rows(kind):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.arange(100).reshape(10, 10) % 2, dtype=kind)
    data = from_arrays({"a": (frame, pandas.Series([0, 1] * 5, dtype="Int64"))})
    assert data.rows.x.tolist() == (np.arange(100).reshape(10, 10) % 2).tolist()
    frame.iloc[3, 2] = None if kind is object else pandas.NA
    with pytest.raises(DataError, match="client 'a', row 3, input 2 is missing"):
        from_arrays({"a": (frame, [0, 1] * 5)})


@pytest.mark.parametrize("mark", ["", "nan", "NA", "?", " None "])
def test_missing_marks_are_no_labels_clients_or_groups_of_arrays(tmp_path, mark):
    x, y = np.eye(4), ["u", "v", "u", mark]
    with pytest.raises(DataError, match="client 'a', row 3 has no label"):
        from_arrays({"a": (x, y)})
    with pytest.raises(DataError, match="client 'a', row 3 has no group"):
        from_arrays({"a": (x, [0, 1, 0, 1], y)})
    with pytest.raises(DataError, match="which means a missing value"):
        from_arrays({"a": (x, [0, 1, 0, 1]), mark: (x, [0, 1, 0, 1])})
    with pytest.raises(DataError, match="row 3 has no label"):
        from_partitioner(x, y, Iid(2))
    whole = {
        "x": x,
        "y": np.arange(4) % 2,
        "client": np.array(["a", "a", "b", "b"]),
        "group": np.array(list("ghgh")),
    }
    for name, what in (("y", "label"), ("client", "client"), ("group", "group")):
        np.savez(tmp_path / "d.npz", **whole | {name: np.array(y)})
        with pytest.raises(DataError, match=f"row 3 has no {what}"):
            npz(path=str(tmp_path / "d.npz")).population  # noqa: B018


def test_bytes_of_an_npz_are_texts(tmp_path):
    client, part = np.array(["é".encode(), b"b"]).repeat(4), np.array([b"train", b"test"] * 4)
    y = np.array([b"no", b"no", b"yes", b"yes"] * 2)
    np.savez(tmp_path / "d.npz", x=np.eye(8), y=y, client=client, split=part, group=client)
    data = npz(path=str(tmp_path / "d.npz"), unprivileged="é")
    assert [data.client_name(number) for number in data.population.ids] == ["b", "é"]
    assert data.group_names == ("é", "b")
    assert data.about()["labels"] == ["no", "yes"]
    assert len(data.about()["sha256"]) == 64


def test_the_unprivileged_group_may_be_a_number():
    x, y = np.eye(4), np.arange(4) % 2
    data = from_arrays({"k": (x, y, 0), "l": (x, y, 1)}, unprivileged=1)
    assert data.group_names == ("1", "0")


def test_the_unprivileged_group_and_the_positive_label_may_be_numbers_in_a_configuration(tmp_path):
    x, y = np.eye(8), np.arange(8) % 2
    np.savez(tmp_path / "d.npz", x=x, y=y, client=y, group=y)
    rows = ["c,g,y,n", *(f"{'ab'[n % 2]},{n % 2},{n // 2 % 2},{n}" for n in range(16))]
    (tmp_path / "d.csv").write_text("\n".join(rows))
    sections = (
        {"name": "npz", "path": str(tmp_path / "d.npz")},
        {
            "name": "table",
            "path": str(tmp_path / "d.csv"),
            "client": "c",
            "group": "g",
            "label": "y",
        },
    )
    for section in sections:
        values = {"data": section, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg"}}
        (tmp_path / "d.toml").write_text(from_dict(values).to_toml())
        assert load(tmp_path / "d.toml", ["data.unprivileged=1"]).build_data().group_names == (
            "1",
            "0",
        )
    assert load(tmp_path / "d.toml", ["data.positive=0"]).build_data().about()["labels"] == [
        "1",
        "0",
    ]
    with pytest.raises(
        ConfigError, match=r"data\.positive must be a string or an integer, not \[1\]"
    ):
        load(tmp_path / "d.toml", ["data.positive=[1]"]).build_data()


def test_a_file_may_go_once_it_was_read(tmp_path):
    """A run of many hours must not end without a summary because a file was removed."""
    x, y = np.eye(8), np.arange(8) % 2
    np.savez(tmp_path / "d.npz", x=x, y=y, client=y)
    data = npz(path=str(tmp_path / "d.npz"))
    assert data.population.ids
    (tmp_path / "d.npz").unlink()
    assert len(data.about()["sha256"]) == 64


def test_a_list_of_clients_is_refused_and_tensors_with_gradients_are_read():
    x, y = np.eye(4), np.arange(4) % 2
    with pytest.raises(DataError, match=r"clients must be a dictionary of .* not a list"):
        from_arrays([(x, y)])
    with pytest.raises(DataError, match=r"test must be a dictionary of .* not a list"):
        from_arrays({"a": (x, y)}, test=[(x, y)])
    tensor = torch.eye(4, requires_grad=True)
    assert np.array_equal(from_arrays({"a": (tensor, torch.tensor(y))}).rows.x, np.eye(4))
    with pytest.raises(DataError, match="client 'a': inputs cannot be converted to an array"):
        from_arrays({"a": (torch.eye(4, dtype=torch.bfloat16), y)})


def test_bytes_are_scaled_to_0_to_1(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (20, 1, 4, 4)).astype(np.uint8), np.arange(20) % 2
    data = from_arrays({"a": (x, y)})
    assert data.client(0).train.x.dtype == np.uint8  # in memory and on disk they stay bytes
    inputs = data.client(0).train.inputs().numpy()
    assert inputs.min() >= 0
    assert 0.9 < inputs.max() <= 1
    assert data.about()["input_scale"] == 1 / 255
    np.savez(tmp_path / "d.npz", x=x, y=y, client=np.zeros(20, int))
    assert np.array_equal(npz(path=str(tmp_path / "d.npz")).client(0).train.inputs(), inputs)
    bits = from_arrays({"a": (x > 127, y)}), from_arrays({"a": ((x > 127).astype(np.uint8), y)})
    for found in bits:  # 0 and 1 are on unit scale already
        assert set(np.unique(found.client(0).train.inputs())) == {0, 1}
    assert np.array_equal(
        data.examples(x[:3], y[:3]).inputs(), x[:3].astype(np.float32) * np.float32(1 / 255)
    )
    assert data.examples(x[:3]).y.tolist() == [-1] * 3
    with pytest.raises(DataError, match="x must be uint8, as in the training rows"):
        data.examples(x / 255.0)
    with pytest.raises(DataError, match=r"rows of shape \(4, 4\)"):
        data.examples(x[:, 0])


@pytest.mark.parametrize(("factor", "warns"), [(255, True), (1, False), (1e-4, True), (0, False)])
def test_inputs_far_from_unit_scale_are_warned_of(factor, warns):
    x, y = np.random.default_rng(0).random((50, 8)) * factor, np.arange(50) % 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_arrays({"a": (x, y)})
    assert [("root mean square" in str(warning.message)) for warning in caught] == [True] * warns


@pytest.mark.parametrize("what", ["label", "group", "client"])
def test_names_that_differ_only_in_case_or_spaces_are_warned_of(what):
    x, y = (
        np.eye(4),
        np.array(["benign", "malignant", "Benign" if what == "label" else "benign", "malignant"]),
    )
    groups = ("North", "north ") if what == "group" else ("north", "south")
    second = "a  1" if what == "client" else "b"
    with pytest.warns(
        UserWarning, match=f"the arrays: {what}s '.*' and '.*' differ only in case or spaces"
    ):
        from_arrays({"a 1": (x, y, groups[0]), second: (x, y, groups[1])})


def regions(path, odd=True):
    """Four clients of two groups; one row of client c is in another."""
    lines = ["who,where,n,y"]
    lines += [
        f"{who},{'north' if who in 'ab' else 'south'},{n},{n % 2}"
        for who in "abcd"
        for n in range(20)
    ]
    if odd:
        lines[47] = "c,north,5,1"
    path.write_text("\n".join(lines) + "\n")
    return {"path": str(path), "client": "who", "label": "y", "group": "where"}


def test_one_row_in_another_group_is_named_and_a_setting_decides(tmp_path):
    settings = regions(tmp_path / "t.csv")
    message = r"line 48 of client 'c' is in group 'north', unlike most .* \(1 such rows, in 1 of 4 clients\)"
    with pytest.warns(UserWarning, match=message):
        data = from_table(**settings)
    assert set(data.population.declared.values()) == {None}
    with pytest.raises(
        DataError, match=r"line 48 of client 'c' .* all rows of a client must be of one group"
    ):
        from_table(**settings, groups="clients")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(from_table(**settings, groups="inside").population.declared.values()) == {None}
        settings = regions(tmp_path / "t.csv", odd=False)
        assert list(from_table(**settings).population.declared.values()) == [0, 0, 1, 1]
        assert list(from_table(**settings, groups="clients").population.declared.values()) == [
            0,
            0,
            1,
            1,
        ]
        inside = from_table(**settings, groups="inside")
        assert set(inside.population.declared.values()) == {None}
        assert inside.client(0).groups() == [0]
    with pytest.raises(
        ConfigError, match="groups must be one of auto, clients, inside; not 'rows'"
    ):
        from_table(**settings, groups="rows")


def test_groups_that_plainly_lie_inside_clients_are_not_warned_of():
    x, y = np.eye(20), np.arange(20) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = from_arrays({name: (x, y, np.arange(20) % 3) for name in "abc"})
        assert set(data.population.declared.values()) == {None}
