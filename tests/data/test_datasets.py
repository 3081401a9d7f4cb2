"""Data sets of torch and Hugging Face, and frames with to_pandas."""

import types

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
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


class Listed(Dataset):
    """Any rows, as a torch data set; with dictionaries, as Hugging Face returns them."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, position):
        return self.rows[position]


def tensors(rows=30, seed=0):
    random = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.rand(rows, 4, generator=random), torch.arange(rows) % 2)


def test_torch_data_sets_by_client_equal_their_arrays_and_train():
    datasets = {
        "a": tensors(seed=1),
        "b": Subset(tensors(40, seed=2), range(5, 35)),
        "c": ConcatDataset([tensors()] * 2),
    }
    pairs = {
        name: tuple(torch.stack(parts) for parts in zip(*dataset, strict=True))
        for name, dataset in datasets.items()
    }
    given, arrays = e2fl.from_arrays(datasets), e2fl.from_arrays(pairs)
    for client_id in given.population.ids:
        one, other = given.client(client_id), arrays.client(client_id)
        assert given.client_name(client_id) == arrays.client_name(client_id)
        assert (one.train.x == other.train.x).all()
        assert (one.test.y == other.test.y).all()
    settings = {
        "rounds": 2,
        "model": {"name": "mlp", "hidden": [8]},
        "algorithm": {"name": "fedavg", "clients_per_round": 2},
    }
    assert e2fl.run(settings, data=given, progress=False).summary["rounds"] == 2


def test_rows_with_a_group_and_rows_of_dictionaries():
    grouped = Listed([(np.ones(2), row % 2, "north" if row < 5 else "south") for row in range(10)])
    data = e2fl.from_arrays({"a": grouped, "b": grouped})
    assert data.group_names == ("north", "south")
    x, y = rows_of(
        Listed([{"image": np.full((1, 2, 2), row, np.uint8), "label": row % 2} for row in range(4)])
    )
    assert (x.shape, x.dtype, y.tolist()) == ((4, 1, 2, 2), np.uint8, [0, 1] * 2)
    wide = [{"pixels": [0.5, row], "digit": row % 3, "site": f"s{row}"} for row in range(3)]
    x, y, site = rows_of(Listed(wide))
    assert x.tolist() == [[0.5, row] for row in range(3)]
    assert site.tolist() == ["s0", "s1", "s2"]


def test_pictures_become_channels_first():
    colour = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    x, _ = rows_of(Listed([(Image.fromarray(colour), 0), (Image.fromarray(colour), 1)]))
    assert (x[0] == colour.transpose(2, 0, 1)).all()
    x, _ = rows_of(Listed([(Image.fromarray(colour[..., 0]), 0)]))
    assert x.shape == (1, 1, 2, 4)


def test_a_partitioner_splits_the_rows_of_a_data_set():
    x, y = rows_of(tensors(40))
    assert len(e2fl.from_partitioner(x, y, Iid(num_partitions=4)).population) == 4


class Endless(IterableDataset):
    def __iter__(self):
        yield from tensors()


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Endless(), "an Endless is not a data set"),
        (DataLoader(tensors()), "a DataLoader is not a data set"),
        (Listed([]), "no rows"),
        (Listed([5]), "row 0 is an int; it must be"),
        (Listed([(1, 2), (1, 2, 3)]), "same parts"),
        (Listed([(np.ones(2), 0), (np.ones(3), 0)]), "same .* shapes"),
        (Listed([{"a": 1, "b": 1, "c": 1, "label": 2}]), "a dict of a, b, c, label; .*select_col"),
    ],
)
def test_a_data_set_that_cannot_be_read_says_why(dataset, words):
    with pytest.raises(DataError, match=words):
        rows_of(dataset)


def test_a_table_may_be_anything_that_becomes_a_data_frame():
    frame = pd.DataFrame({"site": ["a", "b"] * 10, "x": range(20), "y": [0, 1, 1, 0] * 5})
    other = types.SimpleNamespace(to_pandas=lambda: frame, columns=["not used"])
    one, again = (e2fl.from_table(given, client="site", label="y") for given in (frame, other))
    assert one.about() == again.about()
    assert (one.client(0).train.x == again.client(0).train.x).all()


def test_a_data_set_of_hugging_face_is_read():
    make = pytest.importorskip("datasets").Dataset.from_dict
    columns = {"x": [[0.1 * row, 1.0] for row in range(20)], "label": [0, 1] * 10}
    data = e2fl.from_arrays({"a": make(columns), "b": make(columns)})
    assert len(data.population) == 2
    flat = make({"site": ["a", "b"] * 10, "x": list(range(20)), "y": [0, 1, 1, 0] * 5})
    assert len(e2fl.from_table(flat, client="site", label="y").population) == 2
