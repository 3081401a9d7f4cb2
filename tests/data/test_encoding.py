"""New rows, encoded as the table of the run would have encoded them, or refused."""

import json

import numpy as np
import pandas as pd
import pytest

from e2fl import assign
from e2fl.config.experiment import from_dict
from e2fl.data import Encoding
from e2fl.data import from_table as table
from e2fl.errors import DataError
from e2fl.runs.runner import run_experiment

ROLES = {"client": "who", "label": "y"}


def frame(count=40, **columns):
    """Two clients; a flag that is the label, a number."""
    rows = range(count)
    given = {
        "who": ["ab"[r % 2] for r in rows],
        "sex": ["fm"[r // 2 % 2] for r in rows],
        "flag": [r // 3 % 2 == 1 for r in rows],
        "n": [r % 7 for r in rows],
        "y": [r // 3 % 2 == 1 for r in rows],
    }
    return pd.DataFrame(given | columns)


@pytest.mark.parametrize("missing", ["refuse", "drop", "fill"])
def test_rows_that_lack_something_are_refused_by_name_not_left_out(missing):
    data = table(frame(), **ROLES, features=("sex", "n"), missing=missing)
    good = {"sex": "f", "n": 1, "y": True}
    changes = ({}, {"n": None}, {}, {"sex": "?"}, {"y": ""}, {"n": pd.NA})
    reason = "row 4 has nothing in column 'y'; "
    if missing != "fill":
        reason = "row 3 has nothing in column 'sex'.*: sex 1, n 2, y 1"
    with pytest.raises(DataError, match=reason):
        data.encode([good | change for change in changes])
    assert len(data.encode([good] * 3)) == 3


def test_new_rows_that_do_not_fit_the_table_are_told_or_refused(tmp_path):
    rows = frame(code=[["1", "x"][row // 4 % 2] for row in range(40)])
    data = table(rows.drop(columns="flag"), **ROLES, group="sex")
    good = {"sex": "m", "n": 3, "code": 1, "y": True}
    with pytest.warns(UserWarning, match="1 cells .* 'code' .* such as 'new' in row 1"):
        found = data.encode([good, good | {"code": "new"}])
    assert found.x[:, 1:].tolist() == [[1, 0], [0, 0]]  # a word that looks like a number; unseen
    assert found.y.tolist() == found.group.tolist() == [1, 1]
    pd.DataFrame([good]).to_parquet(tmp_path / "new.parquet")
    assert np.array_equal(data.encode(tmp_path / "new.parquet").x, found.x[:1])
    for new, reason in [
        ([], "no rows"),
        ([{"sex": "m", "code": 1, "y": True}], "no column 'n'"),
        ([good, good | {"n": None}], "row 1 has nothing in column 'n'"),
        ([good, good | {"n": "big"}], "row 1 has 'big' in column 'n'"),
        ([good, good | {"y": 2}], "row 1 has the label '2'"),
        ([good | {"sex": "d"}], "row 0 has the group 'd'"),
    ]:
        with pytest.raises(DataError, match=reason):
            data.encode(new)


def experiment(path, algorithm, **data):
    section = {"name": "table", "path": str(path), **ROLES, "group": "sex"}
    return from_dict(
        {
            "rounds": 2,
            "evaluate_every": 2,
            "data": section | data,
            "model": {"name": "mlp", "hidden": [4]},
            "algorithm": {"clients_per_round": 2} | algorithm,
        }
    )


@pytest.fixture
def path(tmp_path):
    """A table whose clients declare their group."""
    frame(sex=["f", "m"] * 20).to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


@pytest.mark.parametrize(
    ("algorithm", "looks"),
    [
        ({"name": "fedavg"}, False),
        ({"name": "e2fl", "grouping": {"name": "one_shot", "groups": 2}}, False),
        ({"name": "e2fl", "grouping": {"name": "lowest_loss", "groups": 2}}, True),
        ({"name": "ditto"}, True),
    ],
)
def test_rows_without_labels_get_a_model_unless_the_algorithm_looks_at_labels(
    path, algorithm, looks
):
    made = experiment(path, algorithm)
    run = path.parent / "run"
    run_experiment(made, out=run)
    data = made.build.data()
    labelled = data.encode([{"flag": True, "n": 3, "y": True}] * 3)
    new = data.encode([{"flag": True, "n": 3}] * 3)
    if looks:
        with pytest.raises(DataError, match="the training rows have no labels"):
            assign(run, new, group=1)
    else:
        found, same = assign(run, new, group=1), assign(run, labelled, group=1)
        assert found.group == same.group
        assert all(np.array_equal(found.params[name], same.params[name]) for name in same.params)
        assert found.score is None
    with pytest.raises(DataError, match="test row 1 has the label -1"):
        assign(run, labelled, test=new, group=1)


def test_rows_of_another_encoding_than_that_of_the_run_are_noticed(path):
    made = experiment(path, {"name": "fedavg"})
    run = path.parent / "run"
    assert len(run_experiment(made, out=run).summary["data"]["sha256"]) == 64
    new = [{"flag": True, "n": 3, "y": True}] * 2
    right = made.build.data().encode(new)
    assert assign(run, right).score is None
    for change in (
        {"features": ["n", "flag"]},
        {"seed": 5, "test_share": 0.5},
        {"positive": "False"},
    ):
        wrong = experiment(path, {"name": "fedavg"}, **change).build.data().encode(new)
        for given in (wrong, wrong.take(np.array([0]))):
            with pytest.raises(DataError, match="training rows were encoded by a table that"):
                assign(run, given)
    rows = pd.read_csv(path)
    rows.loc[0, "n"] = 1000
    rows.to_csv(path, index=False)
    with pytest.raises(DataError, match="test rows were encoded by a table that is not"):
        assign(run, right, test=made.build.data().encode(new))


@pytest.mark.parametrize(
    "settings", [{}, {"group": "sex"}, {"missing": "fill", "positive": "False"}]
)
def test_an_encoding_is_plain_data_that_needs_no_table(settings):
    data = table(frame(), **ROLES, **settings)
    again = Encoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    assert again == data.encoding
    left, right = again.encode(frame()), data.encode(frame())
    assert np.array_equal(left.x, data.partitioned.examples.x)
    assert np.array_equal(left.y, data.partitioned.examples.y)
    assert (left.group is None) == (right.group is None)
    assert again.digest == data.about()["encoding"]
    with pytest.raises(DataError, match="not the encoding of a table"):
        Encoding.from_json({"columns": 3})
