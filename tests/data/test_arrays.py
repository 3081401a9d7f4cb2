"""Users' own data: arrays and .npz files, well formed or not; on data that scikit-learn ships."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from e2fl.config.experiment import from_dict, load
from e2fl.data import DATASETS, from_arrays, from_partitioner
from e2fl.data.partition import Iid
from e2fl.errors import ConfigError, DataError
from e2fl.runs.runner import run_experiment

npz = DATASETS["npz"]
X, Y = np.eye(8), np.arange(8) % 2


@pytest.fixture(scope="module")
def digits():
    """1,797 images of digits, 8 x 8, from scikit-learn, as if 9 schools had collected them."""
    x, y = load_digits(return_X_y=True)
    return x.reshape(-1, 1, 8, 8) / 16, y, np.arange(len(y)) // 200


def test_clients_of_ragged_sizes_from_a_dictionary_train(digits):
    x, y, school = digits
    data = from_arrays(
        {f"school {s}": (x[school == s], y[school == s]) for s in range(9)}, test_share=0.25
    )
    sizes = [(len(data.client(n).train), len(data.client(n).test)) for n in data.population.ids]
    assert sizes == [(150, 50)] * 8 + [(148, 49)]
    assert (data.shape, data.classes, data.client_name(3)) == ((1, 8, 8), 10, "school 3")
    experiment = {
        "rounds": 6,
        "evaluate_every": 6,
        "data": {"name": "own"},
        "model": {"name": "lenet", "channels": [4, 8], "hidden": 16},
        "learner": {"learning_rate": 0.05},
        "algorithm": {"name": "fedavg", "clients_per_round": 5},
    }
    assert run_experiment(from_dict(experiment), data=data).summary["clients"]["mean"] > 75


def test_a_client_with_one_example_is_unseen():
    data = from_arrays({"big": (np.eye(10), np.arange(10) % 2), "tiny": (np.eye(10)[:1], [1])})
    assert list(data.population.ids) == [0]
    ((number, tiny),) = data.unseen().items()
    assert (data.client_name(number), len(tiny.train), len(tiny.test)) == ("tiny", 0, 1)


def test_groups_of_clients_are_declared_and_groups_of_rows_lie_inside():
    declared = from_arrays({"a": (X, Y, "north"), "b": (X, Y, "south")})
    assert dict(declared.population.declared) == {0: 0, 1: 1}
    assert declared.client(1).groups() == [1]
    assert declared.client(1).train.group is None
    inside = from_arrays({"a": (X, Y, [0, 0, 0, 0, 1, 1, 1, 1]), "b": (X, Y, np.ones(8, int))})
    assert dict(inside.population.declared) == {0: None, 1: None}
    assert inside.population.groups == 2


def test_an_unseen_client_with_rows_of_two_groups_declares_none():
    clients = {"a": (X, Y, "north"), "b": (X, Y, "south")}
    data = from_arrays({**clients, "tiny": (X[:2], Y[:2], ["south", "north"])}, min_samples=4)
    ((_, tiny),) = data.unseen().items()
    assert tiny.group is None
    assert sorted([*tiny.train.group, *tiny.test.group]) == [0, 1]
    assert dict(data.population.declared) == {0: None, 1: None}  # for all clients alike


def test_test_rows_that_are_given_stay_for_testing():
    x, y = np.arange(12.0)[:, None], np.arange(12) % 2
    clients = {"a": (x[:6], y[:6]), "tiny": (x[:2], y[:2])}
    data = from_arrays(clients, test={"a": (x[6:], y[6:]), "tiny": (x[9:], y[9:])}, min_samples=6)
    assert np.array_equal(data.client(0).train.x, x[:6])
    assert np.array_equal(data.client(0).test.x, x[6:])
    ((_, tiny),) = data.unseen().items()
    assert tiny.train.x.ravel().tolist() == [0, 1]
    assert tiny.test.x.ravel().tolist() == [9, 10, 11]
    with pytest.raises(DataError, match="client 'b' has training rows but no test rows"):
        from_arrays({"a": (x, y), "b": (x, y)}, test={"a": (x, y)})


@pytest.mark.parametrize(
    ("clients", "reason"),
    [
        ([(X, Y)], "dictionary"),
        ({}, "no clients"),
        ({"a": np.eye(2)}, r"must be \(x, y\)"),
        ({"a": (np.eye(3), [0, 1])}, r"client 'a' .* shape \(3, 3\) .* shape \(2,\)"),
        ({"a": (np.eye(3), [0, 1, 0]), "b": (np.eye(2), [0, 1])}, "inputs of one shape"),
        ({"a": (np.eye(2), [0, 1], "g"), "b": (np.eye(2), [0, 1])}, "'b' .* neither a group"),
        ({"a": (np.array([[1.0], [np.nan]]), [0, 1])}, "row 1, input 0 is missing"),
        ({"a": (np.eye(2), [0.5, 1])}, r"row 0 has the label 0\.5"),
        ({"a": (np.array([["x"], ["y"]]), [0, 1])}, "inputs must be numbers"),
        ({1: (X, Y), "1": (X, Y)}, "unique as strings"),
        ({"a": ([[1, 2], [3]], [0, 1])}, "client 'a': inputs must be numbers, as many"),
        ({"a": ([[1, 2], [3, None]], [0, 1])}, "client 'a', row 1, input 1 is missing"),
        ({"a": (np.float32(1), [0, 1])}, r"client 'a' has inputs of shape \(\)"),
        ({"a": (torch.eye(4, dtype=torch.bfloat16), Y[:4])}, "client 'a': inputs"),
        ({"a": (np.eye(2), [0, [1, 2]])}, "labels must be one for each row"),
        ({"a": (np.eye(2), ["u", None])}, "client 'a', row 1 has no label"),
        ({"a": (X, Y, "n"), "b": (X, [*Y[:7], np.nan], "n")}, "client 'b', row 7 has no label"),
        ({"a": (np.eye(2), [0, 1], [None, "n"])}, "client 'a', row 0 has no group"),
        ({"a": (np.eye(2), [0, 1], [1, 2, 3])}, "groups of shape"),
        ({"a": (X, Y), "b": (X[:0], [])}, r"client 'b' .* shape \(0,\)"),
        ({"a": (X, Y), "b": (np.full((2, 8), np.inf), [0, 1])}, "client 'b', row 0, input 0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(clients, reason):
    with pytest.raises(DataError, match=reason):
        from_arrays(clients)


@pytest.mark.parametrize(
    ("x", "y", "group", "reason"),
    [
        (np.eye(3), [0, 1, 0, 1], None, r"inputs of shape \(3, 3\) for labels of shape \(4,\)"),
        (np.eye(4), np.eye(4), None, r"labels of shape \(4, 4\)"),
        (np.eye(4), ["u", "v", None, "u"], None, "row 2 has no label"),
        (np.eye(4), [0, 1, 0, 1], [0, 1], r"groups of shape \(2,\)"),
        (np.eye(4), [0, 1, 0, 1], [0, 1, None, 1], "row 2 has no group"),
        (np.diag([1, 1, 1, np.inf]), [0, 1, 0, 1], None, "row 3, input 3 is missing"),
    ],
)
def test_rows_that_do_not_fit_are_not_dealt_out(x, y, group, reason):
    with pytest.raises(DataError, match=reason):
        from_partitioner(x, y, Iid(2), group=group)


def test_an_npz_of_ones_own(tmp_path, digits):
    x, y, school = digits
    names = np.array([f"S{s}" for s in school])
    group = np.where(school < 2, "small", "large")
    np.savez(tmp_path / "d.npz", x=x, y=y, client=names, group=group)
    data = npz(path=str(tmp_path / "d.npz"), unprivileged="small")
    assert data.client_name(8) == "S8"
    assert data.group_names == ("small", "large")
    assert dict(data.population.declared) == {n: 0 if n < 2 else 1 for n in range(9)}
    (tmp_path / "d.npz").unlink()  # a run of many hours must not end without a summary
    assert data.about()["rows"] == 1797
    assert len(data.about()["sha256"]) == 64
    for arrays, reason in (
        ({"x": x, "y": y[:-1], "client": names}, "one label for each of 1797 rows"),
        ({"x": 1, "y": y, "client": names}, "for each of 0 rows"),
        ({"x": x, "y": y, "client": np.where(school == 1, np.nan, school)}, "row 200 has no cl"),
    ):
        np.savez(tmp_path / "e.npz", **arrays)
        with pytest.raises(DataError, match=reason):
            npz(path=str(tmp_path / "e.npz"))


def test_bytes_of_an_npz_are_texts(tmp_path):
    client, part = np.array(["é".encode(), b"b"]).repeat(4), np.array([b"train", b"test"] * 4)
    y = np.array([b"no", b"no", b"yes", b"yes"] * 2)
    np.savez(tmp_path / "d.npz", x=X, y=y, client=client, split=part, group=client)
    data = npz(path=str(tmp_path / "d.npz"), unprivileged="é")
    assert [data.client_name(number) for number in data.population.ids] == ["b", "é"]
    assert data.group_names == ("é", "b")
    assert data.about()["labels"] == ["no", "yes"]


def test_the_unprivileged_group_comes_first_and_the_others_keep_their_order(tmp_path):
    data = from_arrays({"k": (X, Y, "a"), "l": (X, Y, "b"), "m": (X, Y, "c")}, unprivileged="c")
    assert data.group_names == ("c", "a", "b")
    assert dict(data.population.declared) == {0: 1, 1: 2, 2: 0}
    np.savez(tmp_path / "d.npz", x=X, y=Y, client=Y, group=Y)
    section = {"name": "npz", "path": "d.npz"}
    values = {"data": section, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg"}}
    (tmp_path / "d.toml").write_text(from_dict(values).to_toml())
    named = load(tmp_path / "d.toml", ["data.unprivileged=1"]).build_data()  # by a number
    assert named.group_names == ("1", "0")
    with pytest.raises(ConfigError, match=r"data\.unprivileged must be a string or an integer"):
        load(tmp_path / "d.toml", ["data.unprivileged=[1]"]).build_data()


@pytest.mark.parametrize("kind", [object, "Int64", "Float64", "boolean"])
def test_tables_of_pandas_are_read_by_rows(kind):
    frame = pd.DataFrame(np.arange(100).reshape(10, 10) % 2, dtype=kind)
    data = from_arrays({"a": (frame, pd.Series([0, 1] * 5, dtype="Int64"))})
    assert data.partitioned.examples.x.tolist() == (np.arange(100).reshape(10, 10) % 2).tolist()
    frame.iloc[3, 2] = None if kind is object else pd.NA
    with pytest.raises(DataError, match="client 'a', row 3, input 2 is missing"):
        from_arrays({"a": (frame, [0, 1] * 5)})


def test_tensors_with_gradients_are_read():
    tensor = torch.eye(8, requires_grad=True)
    data = from_arrays({"a": (tensor, torch.tensor(Y))})
    assert np.array_equal(data.partitioned.examples.x, X)


@pytest.mark.parametrize("mark", ["", "nan", " None "])
def test_missing_marks_are_no_labels_clients_or_groups_of_arrays(tmp_path, mark):
    x, y, marked = np.eye(4), [0, 1, 0, 1], ["u", "v", "u", mark]
    with pytest.raises(DataError, match="client 'a', row 3 has no label"):
        from_arrays({"a": (x, marked)})
    with pytest.raises(DataError, match="missing value"):
        from_arrays({"a": (x, y), mark: (x, y)})
    whole = {"x": x, "y": y, "client": list("aabb"), "group": list("ghgh")}
    for name, what in (("y", "label"), ("client", "client"), ("group", "group")):
        np.savez(tmp_path / "d.npz", **whole | {name: np.array(marked)})
        with pytest.raises(DataError, match=f"row 3 has no {what}"):
            npz(path=str(tmp_path / "d.npz"))


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
    for bits in (x > 127, (x > 127).astype(np.uint8)):  # 0 and 1 are on unit scale already
        assert set(np.unique(from_arrays({"a": (bits, y)}).client(0).train.inputs())) == {0, 1}


@pytest.mark.parametrize(("factor", "warns"), [(255, True), (1, False), (1e-4, True), (0, False)])
def test_inputs_far_from_unit_scale_are_warned_of(factor, warns):
    x, y = np.random.default_rng(0).random((50, 8)) * factor, np.arange(50) % 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_arrays({"a": (x, y)})
    assert [("root mean square" in str(warning.message)) for warning in caught] == [True] * warns


@pytest.mark.parametrize("what", ["label", "group", "client"])
def test_names_that_differ_only_in_case_or_spaces_are_warned_of(what):
    y = np.array(["well", "ill", "Well" if what == "label" else "well", "ill"])
    groups = ("North", "north ") if what == "group" else ("north", "south")
    second = "a  1" if what == "client" else "b"
    with pytest.warns(UserWarning, match=f"the arrays: {what}s '.*' and '.*' differ only in case"):
        from_arrays({"a 1": (np.eye(4), y, groups[0]), second: (np.eye(4), y, groups[1])})


def test_one_row_in_another_group_is_named_and_groups_then_lie_inside():
    clients = {name: (X, Y, "north" if name in "ab" else "south") for name in "abcd"}
    assert list(from_arrays(clients).population.declared.values()) == [0, 0, 1, 1]
    clients["c"] = (X, Y, ["south"] * 5 + ["north"] + ["south"] * 2)
    message = r"client 'c', row 5 of client 'c' is in group 'north'.*1 such rows, in 1 of 4 clients"
    with pytest.warns(UserWarning, match=message):
        assert set(from_arrays(clients).population.declared.values()) == {None}
    with warnings.catch_warnings():  # groups that plainly lie inside clients
        warnings.simplefilter("error")
        mixed = from_arrays({name: (X, Y, np.arange(8) % 3) for name in "abc"})
    assert set(mixed.population.declared.values()) == {None}
