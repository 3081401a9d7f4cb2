"""Users' own arrays, .npz files and data sets of torch, well formed or not."""

import types
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import e2fl
from e2fl.data import DATASETS, from_arrays, from_partitioner, rows_of
from e2fl.data.partition import Iid
from e2fl.errors import DataError

npz = DATASETS["npz"]
X, Y = np.eye(8), np.arange(8) % 2


def names(data):
    return [data.client_name(number) for number in data.population.ids]


def test_clients_of_ragged_sizes_train_and_one_with_a_single_example_is_unseen():
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    data = from_arrays({"a": (x[:40], y[:40]), "b": (x[40:59], y[40:59]), "c": (x[59:], y[59:])})
    sizes = [(len(data.client(n).train), len(data.client(n).test)) for n in data.population.ids]
    assert sizes == [(32, 8), (15, 4)]
    assert (data.shape, data.classes, names(data)) == ((4,), 3, ["a", "b"])
    ((number, tiny),) = data.unseen().items()
    assert (data.client_name(number), len(tiny.train), len(tiny.test)) == ("c", 0, 1)
    settings = {"rounds": 1, "model": {"name": "mlp"}, "algorithm": {"name": "local", "epochs": 1}}
    assert e2fl.run(settings, data=data, progress=False).summary["rounds"] == 1


def test_groups_of_clients_are_declared_and_groups_of_rows_lie_inside():
    declared = from_arrays({"a": (X, Y, "north"), "b": (X, Y, "south")})
    assert dict(declared.population.declared) == {0: 0, 1: 1}
    assert declared.client(1).groups() == [1]
    assert declared.client(1).train.group is None
    tiny = (X[:2], Y[:2], ["south", "north"])
    clients = {"a": (X, Y, "north"), "b": (X, Y, "south"), "tiny": tiny}
    inside = from_arrays(clients, min_samples=4)
    assert dict(inside.population.declared) == {0: None, 1: None}  # for all clients alike
    assert inside.population.groups == 2
    ((_, tiny),) = inside.unseen().items()
    assert tiny.group is None
    assert sorted([*tiny.train.group, *tiny.test.group]) == [0, 1]


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
        ({}, "with one or more"),
        ({"a": np.eye(2)}, "must have rows"),
        ({"a": (np.eye(3), [0, 1])}, r"client 'a' .* not \(3, 3\), \(2,\)"),
        ({"a": (np.eye(3), [0, 1, 0]), "b": (np.eye(2), [0, 1])}, "of one shape"),
        ({"a": (np.eye(2), [0, 1], "g"), "b": (np.eye(2), [0, 1])}, "all or none have groups"),
        ({"a": (np.array([[1.0], [np.nan]]), [0, 1])}, "row 1, input 0 is missing"),
        ({"a": (np.eye(2), [0.5, 1])}, "row 0 has a label with decimals"),
        ({"a": (np.array([["x"], ["y"]]), [0, 1])}, "inputs must be numbers"),
        ({1: (X, Y), "1": (X, Y)}, "must be unique"),
        ({"a": ([[1, 2], [3]], [0, 1])}, "client 'a' has rows that are not all alike"),
        ({"a": ([[1, 2], [3, None]], [0, 1])}, "client 'a', row 1, input 1 is missing"),
        ({"a": (np.float32(1), [0, 1])}, r"client 'a' .* not \(\)"),
        ({"a": (torch.eye(4, dtype=torch.bfloat16), Y[:4])}, "client 'a'"),
        ({"a": (np.eye(2), ["u", None])}, "client 'a', row 1 has no label"),
        ({"a": (X, Y), "b": (X, [*Y[:7], np.nan])}, "client 'b', row 7 has no label"),
        ({"a": (np.eye(2), [0, 1], [None, "n"])}, "client 'a', row 0 has no group"),
        ({"a": (np.eye(2), [0, 1], [1, 2, 3])}, r"not .*\(3,\)"),
        ({"a": (X, Y), "b": (X[:0], [])}, r"client 'b' .* \(0,\)"),
        ({"a": (X, Y), " NaN ": (X, Y)}, "missing value"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(clients, reason):
    with pytest.raises(DataError, match=reason):
        from_arrays(clients)


def test_a_partitioner_divides_rows_and_errors_name_them():
    data = from_partitioner(np.eye(40), np.arange(40) % 2, Iid(4), group=np.arange(40) % 2)
    assert names(data) == ["0", "1", "2", "3"]
    assert data.population.groups == 2
    with pytest.raises(DataError, match="row 2 has no label"):
        from_partitioner(np.eye(4), ["u", "v", None, "u"], Iid(2))


def test_an_npz_of_ones_own(tmp_path):
    school = np.repeat(np.arange(3), 20)
    x, y, group = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2, school < 2
    np.savez(tmp_path / "d.npz", x=x, y=y, client=school, group=np.where(group, "small", "large"))
    data = npz(path=str(tmp_path / "d.npz"), unprivileged="small")
    assert names(data) == ["0", "1", "2"]
    assert data.group_names == ("small", "large")
    assert dict(data.population.declared) == {0: 0, 1: 0, 2: 1}
    (tmp_path / "d.npz").unlink()  # a run of many hours must not end without a summary
    assert data.about()["rows"] == 60
    assert len(data.about()["sha256"]) == 64
    np.savez(tmp_path / "b.npz", x=x, y=y, client=school.astype("S"), group=group.astype("S"))
    data = npz(path=str(tmp_path / "b.npz"))  # bytes are texts, as NumPy stores some columns
    assert names(data) == ["0", "1", "2"]
    assert data.group_names == ("False", "True")
    for arrays, reason in (
        ({"x": x, "y": y[:-1], "client": school}, "one label for each of 60 rows"),
        ({"x": 1, "y": y, "client": school}, "for each of 0 rows"),
        ({"x": x, "y": y, "client": np.where(school == 1, np.nan, school)}, "row 20 has no client"),
        ({"x": x, "y": y, "client": np.where(school == 1, " None ", "a")}, "row 20 has no client"),
    ):
        np.savez(tmp_path / "e.npz", **arrays)
        with pytest.raises(DataError, match=reason):
            npz(path=str(tmp_path / "e.npz"))


@pytest.mark.parametrize("kind", [object, "Int64", "Float64", "boolean"])
def test_tables_of_pandas_are_read_by_rows(kind):
    frame = pd.DataFrame(np.arange(100).reshape(10, 10) % 2, dtype=kind)
    data = from_arrays({"a": (frame, pd.Series([0, 1] * 5, dtype="Int64"))})
    assert data.partitioned.examples.x.tolist() == (np.arange(100).reshape(10, 10) % 2).tolist()
    frame.iloc[3, 2] = None if kind is object else pd.NA
    with pytest.raises(DataError, match="client 'a', row 3, input 2 is missing"):
        from_arrays({"a": (frame, [0, 1] * 5)})


def test_bytes_are_scaled_to_0_to_1():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (20, 1, 4, 4)).astype(np.uint8), np.arange(20) % 2
    data = from_arrays({"a": (x, y)})
    assert data.client(0).train.x.dtype == np.uint8  # in memory they stay bytes
    inputs = data.client(0).train.inputs().numpy()
    assert inputs.min() >= 0
    assert 0.9 < inputs.max() <= 1
    assert data.about()["input_scale"] == 1 / 255
    for bits in (x > 127, (x > 127).astype(np.uint8)):  # 0 and 1 are on unit scale already
        assert set(np.unique(from_arrays({"a": (bits, y)}).client(0).train.inputs())) == {0, 1}


NOISE = np.random.default_rng(0).random


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ({"a": (NOISE((50, 8)) * 255, np.arange(50) % 2)}, "root mean square"),
        ({"a": (NOISE((50, 8)) * 1e-4, np.arange(50) % 2)}, "root mean square"),
        ({"a": (np.zeros((50, 8)), np.arange(50) % 2)}, None),
        ({"a": (NOISE((20, 8, 8, 3)), np.arange(20) % 2)}, r"transpose\(0, 3, 1, 2\)"),
        ({"a": (NOISE((20, 3, 8, 8)), np.arange(20) % 2)}, None),
        ({"a": (NOISE((20, 1, 8, 8)), np.arange(20) % 2)}, None),
        ({"a 1": (X, Y), "a  1": (X, Y)}, "clients .* differ only in case"),
        ({"a": (X, ["ill", "Ill"] * 4)}, "labels 'Ill' and 'ill' differ only in case"),
        ({"a": (X, Y, "North"), "b": (X, Y, "north ")}, "groups .* differ only in case"),
        ({"a": (X, Y, "n"), "b": (NOISE((16, 8)), np.arange(16) % 2, ["n"] + ["s"] * 15)},
         "client 'b', row 0 of client 'b' is in group 'n'"),
        ({name: (X, Y, np.arange(8) % 3) for name in "abc"}, None),  # they plainly lie inside
    ],
)  # fmt: skip
def test_what_is_probably_a_mistake_is_warned_of(clients, message):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_arrays(clients)
    assert len(caught) == (message is not None)
    if message is not None:
        with pytest.warns(UserWarning, match=message):
            from_arrays(clients)


def test_rows_may_be_dictionaries_have_a_group_and_pictures():
    grouped = [(np.ones(2), row % 2, "north" if row < 5 else "south") for row in range(10)]
    assert from_arrays({"a": grouped, "b": grouped}).group_names == ("north", "south")
    wide = [{"pixels": [0.5, row], "digit": row % 3, "site": f"s{row}"} for row in range(3)]
    x, y, site = rows_of(wide)
    assert x.tolist() == [[0.5, row] for row in range(3)]
    assert (y.tolist(), site.tolist()) == ([0, 1, 2], ["s0", "s1", "s2"])
    colour = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    x, _ = rows_of([(Image.fromarray(colour), 0), (Image.fromarray(colour), 1)])
    assert (x[0] == colour.transpose(2, 0, 1)).all()
    x, _ = rows_of([(Image.fromarray(colour[..., 0]), 0)])
    assert x.shape == (1, 1, 2, 4)


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.ones(4), 0


@pytest.mark.parametrize(
    "dataset",
    [
        *(Endless(), DataLoader(TensorDataset(torch.eye(4))), [], [5], [(1, 2), (1, 2, 3)]),
        [(np.ones(2), 0), (np.ones(3), 0)],
        [{"a": 1, "b": 1, "c": 1, "label": 2}],
    ],
)
def test_a_data_set_that_cannot_be_read_says_what_it_needs(dataset):
    with pytest.raises(DataError, match=r"must have rows \(x, y\) or \(x, y, group\)"):
        rows_of(dataset)


def test_columns_of_several_levels_are_known_by_their_texts():
    names = pd.MultiIndex.from_tuples([("site", "name"), ("site", "age"), ("y", "")])
    frame = pd.DataFrame([("ab"[n % 2], n, n % 3 % 2) for n in range(20)], columns=names)
    data = e2fl.from_table(frame, client="('site', 'name')", label="('y', '')")
    assert data.about()["columns"] == {"('site', 'age')": "numbers"}


def test_a_table_may_be_anything_that_becomes_a_data_frame():
    frame = pd.DataFrame({"site": ["a", "b"] * 10, "x": range(20), "y": [0, 1, 1, 0] * 5})
    other = types.SimpleNamespace(to_pandas=lambda: frame, columns=["not used"])
    one, again = (e2fl.from_table(given, client="site", label="y") for given in (frame, other))
    assert one.about() == again.about()
