"""New rows, encoded as the table of the run would have encoded them, or refused."""

import csv
import json

import numpy as np
import pytest

from e2fl import assign
from e2fl.config.experiment import from_dict
from e2fl.data import Encoding
from e2fl.data import from_table as table
from e2fl.errors import DataError
from e2fl.runs.runner import run_experiment


def written(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["who", "sex", "flag", "n", "y"], *rows])
    return str(path)


def cells(count=40):
    """Two clients; a flag that is the label, a number."""
    return [
        ["ab"[r % 2], "fm"[r // 2 % 2], r // 3 % 2 == 1, r % 7, r // 3 % 2 == 1]
        for r in range(count)
    ]


def as_parquet(path, rows):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = ["who", "sex", "flag", "n", "y"]
    parquet.write_table(
        arrow.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path
    )
    return str(path)


@pytest.mark.filterwarnings("error", "ignore:.*copy of it")
@pytest.mark.parametrize("trained", ["csv", "lower", "parquet"])
def test_true_and_false_are_the_same_words_wherever_they_come_from(tmp_path, trained):
    rows = cells()
    lower = [
        [str(cell).lower() if isinstance(cell, bool) else cell for cell in row] for row in rows
    ]
    paths = {
        "csv": written(tmp_path / "t.csv", rows),
        "lower": written(tmp_path / "u.csv", lower),
        "parquet": as_parquet(tmp_path / "t.parquet", rows),
    }
    data = table(path=paths[trained], client="who", label="y", features=("flag", "n"))
    assert data.about()["labels"] == ["False", "True"]
    assert data.about()["columns"] == {"flag": "words", "n": "numbers"}
    lists = [
        [{"flag": kind(row[2]), "n": row[3], "y": kind(row[4])} for row in rows]
        for kind in (bool, np.bool_, str)
    ]
    for new in (*paths.values(), *lists):
        found = data.encode(new)
        assert np.array_equal(found.x, data.rows.x)
        assert np.array_equal(found.y, data.rows.y)


@pytest.mark.filterwarnings("error", "ignore:.*copy of it")
def test_true_is_1_in_a_column_of_numbers(tmp_path):
    rows = [[who, sex, int(flag), n, y] for who, sex, flag, n, y in cells()]
    data = table(
        path=written(tmp_path / "t.csv", rows), client="who", label="y", features=("flag",)
    )
    assert data.about()["columns"] == {"flag": "numbers"}
    found = data.encode([{"flag": True}, {"flag": "false"}, {"flag": 1}, {"flag": 0.0}]).x[:, 0]
    assert found[0] == found[2] != found[1] == found[3]
    as_flags = as_parquet(tmp_path / "new.parquet", cells())
    assert np.array_equal(data.encode(as_flags).x, data.rows.x)


def test_words_that_were_not_seen_in_training_are_told(tmp_path):
    data = table(path=written(tmp_path / "t.csv", cells()), client="who", label="y")
    rows = [{"sex": sex, "flag": True, "n": 1} for sex in ("f", "F", "m", "M")]
    with pytest.warns(
        UserWarning, match="the rows: 2 cells of column 'sex' .* such as 'F' in row 1; known: f, m"
    ):
        found = data.encode(rows)
    assert found.x[:, :2].tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize("missing", ["refuse", "drop", "fill"])
def test_rows_that_lack_something_are_refused_by_name_not_left_out(tmp_path, missing):
    path = written(tmp_path / "t.csv", cells())
    data = table(path=path, client="who", label="y", features=("sex", "n"), missing=missing)
    good = {"sex": "f", "n": 1, "y": True}
    bad = [
        good,
        good | {"n": None},
        good,
        good | {"sex": "?"},
        good | {"y": ""},
        good | {"n": "NA"},
    ]
    reason = "row 4 has nothing in column 'y'; "
    if missing != "fill":
        first = "row 1 has nothing in column 'n', row 3 has nothing in column 'sex', row 4 has nothing in column 'y'"
        reason = rf"{first} \(and 1 more\); fill it in, or leave such rows out"
    with pytest.raises(DataError, match=reason):
        data.encode(bad)
    assert len(data.encode([good] * 3)) == 3


def test_what_pandas_has_for_nothing_is_nothing(tmp_path):
    pandas = pytest.importorskip("pandas")
    data = table(
        path=written(tmp_path / "t.csv", cells()), client="who", label="y", features=("n",)
    )
    with pytest.raises(DataError, match="row 0 has nothing in column 'n'"):
        data.encode([{"n": pandas.NA}])


def experiment(path, algorithm):
    return from_dict(
        {
            "rounds": 2,
            "evaluate_every": 2,
            "data": {"name": "table", "path": path, "client": "who", "label": "y", "group": "sex"},
            "model": {"name": "mlp", "hidden": [4]},
            "algorithm": {"clients_per_round": 2} | algorithm,
        }
    )


LABELS_LOOKED_AT = [
    ({"name": "fedavg"}, False),
    ({"name": "e2fl"}, False),
    ({"name": "e2fl", "grouping": {"name": "one_shot", "groups": 2}}, False),
    ({"name": "e2fl", "grouping": {"name": "lowest_loss", "groups": 2}}, True),
    ({"name": "e2fl", "grouping": {"name": "rank_clustering", "groups": 2}}, True),
    ({"name": "ifca"}, True),
    ({"name": "ditto"}, True),
    ({"name": "local"}, True),
]


@pytest.mark.parametrize(("algorithm", "looks"), LABELS_LOOKED_AT)
def test_rows_without_labels_get_a_model_unless_the_algorithm_looks_at_labels(
    tmp_path, algorithm, looks
):
    rows = [["ab"[row % 2], "fm"[row % 2], *cell[2:]] for row, cell in enumerate(cells())]
    made = experiment(written(tmp_path / "t.csv", rows), algorithm)
    run_experiment(made, out=tmp_path / "run")
    data = made.build_data()
    labelled = data.encode([{"flag": True, "n": 3, "y": True}] * 3)
    new = data.encode([{"flag": True, "n": 3}] * 3)
    if looks:
        with pytest.raises(
            DataError, match="the training rows have no labels, but this run's algorithm needs them"
        ):
            assign(tmp_path / "run", new, group=1)
    else:
        found, same = (
            assign(tmp_path / "run", new, group=1),
            assign(tmp_path / "run", labelled, group=1),
        )
        assert found.group == same.group
        assert all(np.array_equal(found.params[name], same.params[name]) for name in same.params)
        assert found.score is None
    with pytest.raises(DataError, match="test row 0 has the label -1"):
        assign(tmp_path / "run", labelled, test=new, group=1)


def test_a_table_that_has_changed_since_the_run_is_noticed(tmp_path):
    rows = [["ab"[row % 2], "fm"[row % 2], *cell[2:]] for row, cell in enumerate(cells())]
    made = experiment(written(tmp_path / "t.csv", rows), {"name": "fedavg"})
    found = run_experiment(made, out=tmp_path / "run").summary["data"]
    assert len(found["sha256"]) == 64
    new = [{"flag": True, "n": 3, "y": True}]
    right = made.build_data().encode(new)
    assert assign(tmp_path / "run", right).score is None
    rows[0][3] = 1000
    written(tmp_path / "t.csv", rows)
    wrong = made.build_data().encode(new)
    with pytest.raises(
        DataError, match=r"training rows were encoded by a table .* \(another encoding\)"
    ):
        assign(tmp_path / "run", wrong)
    with pytest.raises(DataError, match="test rows were encoded by a table"):
        assign(tmp_path / "run", right, test=wrong)
    rows[0][3] = 0
    written(tmp_path / "t.csv", rows)
    turned = from_dict(made.to_dict() | {"data": made.data | {"positive": "False"}}).build_data()
    with pytest.raises(DataError, match=r"\(another encoding\)"):
        assign(tmp_path / "run", turned.encode(new))


def test_inputs_in_another_order_or_on_another_scale_are_noticed(tmp_path):
    made = experiment(written(tmp_path / "t.csv", cells()), {"name": "fedavg"})
    data = made.data | {"features": ["flag", "n"]}
    run_experiment(from_dict(made.to_dict() | {"data": data}), out=tmp_path / "run")
    new = [{"flag": True, "n": 3, "y": True}] * 2
    assign(tmp_path / "run", from_dict(made.to_dict() | {"data": data}).build_data().encode(new))
    for other in ({"features": ["n", "flag"]}, {"seed": 5, "test_share": 0.5}):
        rows = from_dict(made.to_dict() | {"data": data | other}).build_data().encode(new)
        for given in (rows, rows.take(np.array([0]))):
            with pytest.raises(DataError, match=r"\(another encoding\)"):
                assign(tmp_path / "run", given)


def test_an_encoding_is_plain_data_that_needs_no_table(tmp_path):
    path = written(tmp_path / "t.csv", cells())
    for settings in ({}, {"group": "sex"}, {"missing": "fill", "positive": "False"}):
        data = table(path=path, client="who", label="y", **settings)
        stored = json.loads(json.dumps(data.encoding.to_json()))
        again = Encoding.from_json(stored)
        assert again == data.encoding
        left, right = again.encode(path), data.encode(path)
        assert np.array_equal(left.x, data.rows.x)
        assert np.array_equal(left.y, data.rows.y)
        assert (left.group is None) == (right.group is None)
        assert again.digest == data.about()["encoding"]
    with pytest.raises(DataError, match="not the encoding of a table"):
        Encoding.from_json({"columns": 3})
