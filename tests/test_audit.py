"""Tables that others made: both forms are read right, and every mistake is named by row and column."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl import metrics
from e2fl.audit.reader import BLOCK, read_scores
from e2fl.cli import main
from e2fl.errors import DataError


@pytest.fixture
def table(tmp_path):
    def write(text, name="scores.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_a_row_for_each_client(table):
    found = read_scores(table("client,group,accuracy,n,loss\na,x,90,10,0.5\nb,x,80,30,0.7\nc,y,70,10,1\n"))
    assert found.client_names == ["a", "b", "c"]
    assert found.group_names == ["x", "y"]
    assert found.accuracy.tolist() == [90, 80, 70]
    assert found.n.tolist() == [10, 30, 10]
    assert found.loss.tolist() == [0.5, 0.7, 1]


def test_a_row_for_each_example(table):
    rows = "client,group,y,y_hat\na,x,1,1\na,x,0,1\na,y,1,1\nb,x,2,2\n"
    found = read_scores(table(rows))
    pairs = [(found.client_names[c], found.group_names[g]) for c, g in zip(found.client, found.group, strict=True)]
    assert dict(zip(pairs, found.accuracy, strict=True)) == {("a", "x"): 50.0, ("a", "y"): 100.0, ("b", "x"): 100.0}
    assert found.n.tolist() == [2, 1, 1]
    assert found.protected is None  # labels are not no and yes


def test_columns_are_found_by_name_in_any_order_and_others_left_alone(table):
    found = read_scores(table("Accuracy; comment ;CLIENT\n90;fine, very;a\n80;;b\n"))
    assert found.accuracy.tolist() == [90, 80]
    assert found.group is None


def test_a_byte_order_mark_and_blank_lines_are_no_matter(table):
    found = read_scores(table(b"\xef\xbb\xbfclient,accuracy\r\na,90\r\n\r\nb,80\r\n"))
    assert found.client_names == ["a", "b"]


def test_fractions_are_read_as_percent_and_that_is_said(table):
    found = read_scores(table("client,accuracy\na,0.9\nb,1.0\n"))
    assert found.accuracy.tolist() == [90, 100]
    assert "fractions" in found.caution
    assert read_scores(table("client,accuracy\na,0.9\nb,1.1\n")).caution == ""


def test_two_groups_and_two_classes_give_equal_opportunity(table):
    rows = [("f", 1, 1), ("f", 1, 0), ("f", 0, 0), ("m", 1, 1), ("m", 1, 1), ("m", 0, 1)]
    text = "client,group,y,y_hat\n" + "".join(f"c{i},{g},{y},{h}\n" for i, (g, y, h) in enumerate(rows))
    found = read_scores(table(text))
    assert found.direction == "f minus m"
    assert found.protected["eod"] == pytest.approx(0.5 - 1.0)
    assert found.protected["spd"] == pytest.approx(1 / 3 - 1.0)
    other = read_scores(table(text), unprivileged="m")
    assert other.protected["eod"] == pytest.approx(0.5)
    with pytest.raises(DataError, match="no group 'k'"):
        read_scores(table(text), unprivileged="k")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("client,accuracy\n", "no rows"),
        ("user,accuracy\na,1\n", "no column 'client'"),
        ("client,acuracy\na,1\n", "did you mean 'acuracy'"),
        ("client,y\na,1\n", "no column 'y_hat'"),
        ("client,accuracy,accuracy\na,1,2\n", "two columns 'accuracy'"),
        ("client,accuracy\na,90\nb,\n", "row 2 (below the header) has '' in column 'accuracy'"),
        ("client,accuracy\na,90\nb,nan\n", "row 2 (below the header) has 'nan' in column 'accuracy'"),
        ("client,accuracy\na,inf\n", "row 1 (below the header) has 'inf' in column 'accuracy'"),
        ("client,accuracy\na,90\nb,ninety\n", "row 2 (below the header) has 'ninety' in column 'accuracy'"),
        ("client,accuracy\na,101\n", "from 0 to 100"),
        ("client,accuracy\na,-1\n", "from 0 to 100"),
        ("client,accuracy,n\na,90,0\n", "row 1 (below the header) has '0' in column 'n'; it must be a number above 0"),
        ("client,accuracy,loss\na,90,x\n", "column 'loss'"),
        ("client,group,accuracy\na,x,90\nb, ,80\n", "row 2 (below the header) has nothing in column 'group'"),
        ("client,accuracy\n,90\n", "nothing in column 'client'"),
        ("client,accuracy\na,90\nb,80,70\n", "row 2 (below the header) has 3 values, the header has 2"),
        ("client,accuracy\na,90\na,80\n", "rows 1 and 2 (below the header) are both of client 'a'"),
        ("client,group,accuracy\na,x,90\na,x,80\n", "in the same group"),
        (b"client,accuracy\n\xff,90\n", "not a text in UTF-8"),
        ('client,accuracy\n"' + "x" * 200_000, "not a table of comma-separated values"),
    ],
)
def test_mistakes_are_named_by_row_and_column(table, text, words):
    with pytest.raises(DataError) as caught:
        read_scores(table(text))
    assert words in str(caught.value)


def test_rows_are_counted_through_blocks(table):
    rows = [f"c{place},50" for place in range(BLOCK + 10)]
    rows[BLOCK + 4] = "late,none"
    with pytest.raises(DataError, match=f"row {BLOCK + 5} "):
        read_scores(table("client,accuracy\n" + "\n".join(rows)))


def test_a_missing_file_is_one_clear_line(capsys, tmp_path):
    assert main(["audit", str(tmp_path / "none.csv")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from("xyz"), st.integers(0, 1), st.integers(0, 1)),
        min_size=1,
        max_size=40,
    )
)
def test_both_forms_agree(tmp_path_factory, rows):
    """Examples, and the same counted up by a plain loop, measure the same."""
    folder = tmp_path_factory.mktemp("forms")
    counted = {}
    for client, group, y, y_hat in rows:
        n, right = counted.get((client, group), (0, 0))
        counted[client, group] = (n + 1, right + (y == y_hat))
    _write(folder / "rows.csv", [("client", "group", "y", "y_hat"), *rows])
    table = [(c, g, 100 * right / n, n) for (c, g), (n, right) in counted.items()]
    # A first client of 100 percent, so that nothing is taken for a fraction.
    _write(folder / "table.csv", [("client", "group", "accuracy", "n"), ("first", "x", 100, 1), *table])
    _write(folder / "rows.csv", [("client", "group", "y", "y_hat"), ("first", "x", 1, 1), *rows])
    first, second = (read_scores(folder / name) for name in ("rows.csv", "table.csv"))
    measured = [
        metrics.fairness(s.accuracy, np.array(s.group_names)[s.group], client=s.client, n=s.n) for s in (first, second)
    ]
    for part in ("user", "group"):
        assert measured[0][part] == pytest.approx(measured[1][part])
    assert measured[0]["groups"].keys() == measured[1]["groups"].keys()


def _write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
