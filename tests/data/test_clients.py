"""Validation rows: split off each client's training rows, for any data set; all else stays."""

import numpy as np
import pytest

from e2fl.config.experiment import from_dict
from e2fl.data import build, from_arrays, from_table, with_validation
from e2fl.data.sets.fair_mnist_rotate import FairMNISTRotate
from e2fl.errors import ConfigError
from e2fl.testing.toy import Toy


def rows(examples):
    return {row.tobytes() for row in examples.x}


def own():
    sizes = {"big": 40, "small": 5, "two": 4, "late": 1}
    rng = np.random.default_rng(0)
    return from_arrays(
        {name: (rng.normal(size=(size, 3)), np.arange(size) % 2) for name, size in sizes.items()}
    )


@pytest.mark.parametrize("make", [own, Toy, lambda: FairMNISTRotate(source="bundled", clients=20)])
def test_validation_rows_are_training_rows_and_no_longer_trained_on(make):
    data, split = make(), with_validation(make(), 0.25, seed=3)
    for number in data.population.ids:
        before, after = data.client(number), split.client(number)
        assert before.validation is None
        assert len(after.validation) == max(1, round(0.25 * len(before.train)))
        assert len(after.train) + len(after.validation) == len(before.train)
        assert rows(after.train) | rows(after.validation) == rows(before.train)
        assert np.array_equal(after.test.x, before.test.x)
        assert after.group == before.group
        assert after.validation.scale == before.train.scale
        assert after.validation.shift == before.train.shift


def test_a_client_with_one_training_row_keeps_it_and_no_share_changes_nothing():
    data = with_validation(from_arrays({"a": (np.eye(2), [0, 1]), "b": (np.eye(2), [0, 1])}), 0.9)
    assert data.client(0).validation is None
    assert len(data.client(0).train) == 1
    assert with_validation(data, 0) is data


def test_everything_else_is_that_of_the_data(tmp_path):
    data = own()
    split = with_validation(data, 0.2)
    assert split.population is data.population
    assert (split.name, split.classes, split.shape) == (data.name, data.classes, data.shape)
    assert [split.client_name(n) for n in range(4)] == [data.client_name(n) for n in range(4)]
    assert split.train_sizes() == tuple(len(split.client(n).train) for n in split.population.ids)
    assert split.about() == data.about() | {"validation_share": 0.2}
    ((number, late),) = split.unseen().items()
    assert late.validation is None
    assert data.client_name(number) == "late"
    path = tmp_path / "t.csv"
    path.write_text("who,n,y\n" + "".join(f"{'ab'[n % 2]},{n},{n // 2 % 2}\n" for n in range(20)))
    table = from_table(path=str(path), client="who", label="y")
    assert np.array_equal(with_validation(table, 0.5).encode(path).x, table.partitioned.examples.x)
    with pytest.raises(AttributeError):
        split.nonsense  # noqa: B018


def test_validation_share_is_a_setting_of_every_data_set():
    section = {"name": "fair_mnist_rotate", "source": "bundled", "clients": 10}
    section["validation_share"] = 0.2
    values = {"seed": 4, "data": section, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg"}}
    plain = FairMNISTRotate(seed=4, source="bundled", clients=10)
    expected = with_validation(plain, 0.2, seed=4).client(1)
    found = from_dict(values).build.data().client(1)
    assert np.array_equal(found.validation.x, expected.validation.x)
    assert build(section | {"validation_share": 0}, seed=4).client(1).validation is None
    for bad in (-0.1, 1.0, "half"):
        with pytest.raises(ConfigError, match=r"data\.validation_share must be"):
            build(section | {"validation_share": bad}, seed=0)
