"""Own data given in Python is split anew for each seed, as a configuration splits it."""

import numpy as np
import pandas as pd
import pytest

from e2fl.config.experiment import from_dict
from e2fl.data import build, from_arrays, from_partitioner, from_table, with_validation
from e2fl.data.partition import Iid
from e2fl.runs.runner import run_experiment
from tests.data.golden import digest, mixed

ROLES = {"client": "who", "label": "y", "group": "region"}


@pytest.fixture
def path(tmp_path):
    return mixed(tmp_path / "t.csv")


def section(path, **settings):
    return {"name": "table", "path": path, **ROLES, **settings}


def test_each_seed_of_a_table_in_python_has_the_split_of_the_configuration(path):
    for data in (from_table(path=path, **ROLES), from_table(pd.read_csv(path), **ROLES)):
        splits = [digest(data.for_seed(seed)) for seed in (0, 1, 2, 1)]
        assert splits == [digest(build(section(path), seed=seed)) for seed in (0, 1, 2, 1)]
        assert len(set(splits)) == 3


def test_a_partition_is_drawn_anew_too(path):
    settings = {"label": "y", "partition": {"name": "iid", "num_partitions": 3}}
    data = from_table(path=path, **settings)
    configured = build({"name": "table", "path": path, **settings}, seed=4)
    assert digest(data.for_seed(4)) == digest(configured) != digest(data)


def test_a_seed_of_its_own_keeps_one_split(path):
    data = from_table(path=path, **ROLES, seed=5)
    assert data.for_seed(1) is data
    assert digest(data) == digest(build(section(path, seed=5), seed=1))


def test_algorithms_that_are_compared_share_the_data_of_a_seed(path):
    data = from_table(path=path, **ROLES)
    assert data.for_seed(3) is data.for_seed(3)


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


def test_a_run_in_python_equals_the_run_of_the_configuration(path):
    values = {
        "rounds": 1,
        "seed": 1,
        "data": section(path),
        "model": {"name": "mlp", "hidden": [4]},
        "algorithm": {"name": "fedavg", "clients_per_round": 2},
    }
    configured = run_experiment(from_dict(values)).summary
    given = run_experiment(
        from_dict(values | {"data": {"name": "table"}}), data=from_table(path=path, **ROLES)
    ).summary
    assert given["clients"] == configured["clients"]
    assert given["data"] == configured["data"]
