"""Data sets of torch and Hugging Face, frames with to_pandas, and progress in notebooks."""

import sys
import types
from io import StringIO

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
)

import e2fl
from e2fl.data import rows_of
from e2fl.data.partition import Iid
from e2fl.errors import DataError
from e2fl.runs.progress import NotebookProgress


class Listed(Dataset):
    """Any rows, as a torch data set; with dictionaries, as Hugging Face returns them."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number]


def tensors(rows=30, seed=0):
    random = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.rand(rows, 4, generator=random), torch.arange(rows) % 2)


def test_torch_data_sets_by_client_equal_their_arrays():
    datasets = {
        "a": tensors(seed=1),
        "b": Subset(tensors(40, seed=2), range(5, 35)),
        "c": ConcatDataset([tensors()] * 2),
    }
    given = e2fl.from_arrays(datasets)
    pairs = {
        name: tuple(
            np.stack([np.asarray(part) for part in parts]) for parts in zip(*dataset, strict=True)
        )
        for name, dataset in datasets.items()
    }
    arrays = e2fl.from_arrays(pairs)
    for client in given.population.ids:
        assert given.client_name(client) == arrays.client_name(client)
        for part in ("train", "test"):
            one, other = (getattr(data.client(client), part) for data in (given, arrays))
            assert (one.x == other.x).all()
            assert (one.y == other.y).all()


def test_rows_with_a_group_and_rows_of_dictionaries():
    grouped = Listed([(np.ones(2), row % 2, "north" if row < 5 else "south") for row in range(10)])
    data = e2fl.from_arrays({"a": grouped, "b": grouped})
    assert data.group_names == ("north", "south")
    named = Listed(
        [{"image": np.full((1, 2, 2), row, np.uint8), "label": row % 2} for row in range(10)]
    )
    x, y = rows_of(named)
    assert (x.shape, x.dtype, y.tolist()) == ((10, 1, 2, 2), np.uint8, [0, 1] * 5)
    wide = Listed(
        [
            {"pixels": [0.5, row], "digit": row % 3, "writer": "w", "site": f"s{row % 2}"}
            for row in range(6)
        ]
    )
    x, y, site = rows_of(wide, inputs="pixels", label="digit", group="site")
    assert x.tolist() == [[0.5, row] for row in range(6)]
    assert site.tolist() == ["s0", "s1"] * 3


def test_pictures_become_channels_first():
    image = pytest.importorskip("PIL.Image")
    colour = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    x, _ = rows_of(Listed([(image.fromarray(colour), 0), (image.fromarray(colour), 1)]))
    assert x.shape == (2, 3, 2, 4)
    assert (x[0] == colour.transpose(2, 0, 1)).all()
    x, _ = rows_of(Listed([(image.fromarray(colour[..., 0]), 0)]))
    assert x.shape == (1, 1, 2, 4)


def test_a_partitioner_splits_the_rows_of_a_data_set():
    x, y = rows_of(tensors(40))
    data = e2fl.from_partitioner(x, y, Iid(num_partitions=4))
    assert len(data.population) == 4


class Endless(IterableDataset):
    def __iter__(self):
        yield from tensors()


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Endless(), "an Endless is not a data set with rows by number"),
        (DataLoader(tensors()), "a DataLoader is not a data set .* pass its dataset"),
        (Listed([]), "has no rows"),
        (Listed([5]), "row 0 is an int; it must be"),
        (Listed([(1, 2), (1, 2, 3)]), "row 1 has inputs"),
        (
            Listed([(np.ones(2), 0), (np.ones(3), 0)]),
            r"row 1 .* shape \(3,\), row 0 .* \(2,\).*transform",
        ),
        (
            Listed([{"image": 1, "digit": 2}]),
            r"the columns are image, digit: name one with .*inputs='\.\.\.'",
        ),
        (Listed([{"a": 1, "b": 1, "label": 2}]), r"name one with rows_of\(dataset, inputs="),
    ],
)
def test_a_data_set_that_cannot_be_read_says_why(dataset, words):
    with pytest.raises(DataError, match=words):
        rows_of(dataset)


def test_a_run_trains_on_torch_data_sets():
    settings = {
        "name": "torch",
        "rounds": 2,
        "model": {"name": "mlp", "hidden": [8]},
        "algorithm": {"name": "fedavg", "clients_per_round": 2},
    }
    data = e2fl.from_arrays({name: tensors(seed=name) for name in range(3)})
    assert e2fl.run(settings, data=data, progress=False).summary["rounds"] == 2


def test_a_table_may_be_anything_that_becomes_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"site": ["a", "b"] * 10, "x": range(20), "y": [0, 1, 1, 0] * 5})
    other = types.SimpleNamespace(to_pandas=lambda: frame, columns=["not used"])
    one, again = (e2fl.from_table(given, client="site", label="y") for given in (frame, other))
    assert one.about() == again.about()
    assert (one.client(0).train.x == again.client(0).train.x).all()


def test_a_data_set_of_hugging_face_is_read():
    datasets = pytest.importorskip("datasets")
    columns = {
        "x": [[0.1 * row, 1.0] for row in range(20)],
        "label": [row % 2 for row in range(20)],
    }
    data = e2fl.from_arrays(
        {"a": datasets.Dataset.from_dict(columns), "b": datasets.Dataset.from_dict(columns)}
    )
    assert len(data.population) == 2
    flat = datasets.Dataset.from_dict(
        {"site": ["a", "b"] * 10, "x": list(range(20)), "y": [0, 1, 1, 0] * 5}
    )
    assert len(e2fl.from_table(flat, client="site", label="y").population) == 2


def test_a_notebook_gets_the_bar_of_tqdm_auto(monkeypatch, toy):
    """A notebook is a kernel whose output is no terminal."""
    made = []

    class Bar:
        def __init__(self, **settings):
            made.append(settings)
            self.updates = 0

        def update(self, by):
            self.updates += by

        def set_postfix_str(self, text):
            made.append(text)

        def close(self):
            made.append(self.updates)

    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
    e2fl.run(toy, watcher=NotebookProgress(StringIO()))
    assert made[0]["total"] == 6
    assert made[-1] == 6
    assert any("clients" in str(text) for text in made[1:-1])
