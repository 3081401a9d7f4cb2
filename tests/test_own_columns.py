"""What the columns of anybody's table are taken for: numbers, words, nothing; or refused, with line and column."""

import csv
import tracemalloc

import numpy as np
import pytest

from e2fl.data import from_table as table
from e2fl.data.tabular import columns
from e2fl.errors import ConfigError, DataError


def written(path, header, rows):
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(header)
        out.writerows(rows)
    return str(path)


def with_column(path, cells, name="k"):
    """A table of two clients with one feature."""
    rows = [["ab"[row % 2], cell, row // 2 % 2] for row, cell in enumerate(cells)]
    return written(path, ["who", name, "y"], rows)


def as_parquet(path, **columns):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path)
    return str(path)


def roles(count):
    return {"who": ["ab"[row % 2] for row in range(count)], "y": [row // 2 % 2 for row in range(count)]}


@pytest.mark.parametrize(
    ("cells", "line", "cell"),
    [
        ([str(row) for row in range(9)] + ["1o"], 11, "1o"),
        ([f"{row},5" for row in range(10)], 2, "0,5"),
        ([f"{row % 2},5" for row in range(10)], 2, "0,5"),
        ([f"1.234,{row}" for row in range(10)], 2, "1.234,0"),
        ([f"2024-01-{row + 10}" for row in range(10)], 2, "2024-01-10"),
        (["2024-01-10T12:00"] * 10, 2, "2024-01-10T12:00"),
        (["3.10.2024"] * 10, 2, "3.10.2024"),
        (["12%", "15.5 %"] * 5, 2, "12%"),
        (["1"] * 6 + ["", "x"] * 2, 9, "x"),  # what is missing does not count
    ],
)
def test_a_column_of_mostly_numbers_or_dates_has_its_first_odd_line_named(tmp_path, cells, line, cell):
    path = with_column(tmp_path / "t.csv", cells)
    with pytest.raises(DataError, match=rf"line {line} has '{cell}' in column 'k', where most are numbers or dates"):
        table(path=path, client="who", label="y", missing="drop")
    as_words = table(path=path, client="who", label="y", missing="drop", words=("k",))
    assert as_words.about()["columns"] == {"k": "words"}
    path = as_parquet(tmp_path / "t.parquet", **roles(len(cells)), k=cells)
    with pytest.raises(DataError, match=rf"row {line - 1} has '{cell}' in column 'k', where most are numbers or dates"):
        table(path=path, client="who", label="y", missing="drop")


@pytest.mark.parametrize("cells", [["1", "x"] * 5, ["10-19", "20-29"] * 5, ["1.2.3", "1.2.4"] * 5, ["A1", "7"] * 5])
def test_words_with_digits_in_them_are_words(tmp_path, cells):
    data = table(path=with_column(tmp_path / "t.csv", cells), client="who", label="y")
    assert data.about()["columns"] == {"k": "words"}
    assert data.shape == (2,)


def test_the_kind_of_every_column_is_recorded(tmp_path):
    rows = [["ab"[row % 2], row, "xyz"[row % 3], row % 2 == 0, row // 2 % 2] for row in range(20)]
    data = table(path=written(tmp_path / "t.csv", ["who", "n", "c", "f", "y"], rows), client="who", label="y")
    assert data.about()["columns"] == {"n": "numbers", "c": "words", "f": "words"}


def test_a_column_where_nearly_every_word_differs_is_refused(tmp_path):
    path = with_column(tmp_path / "t.csv", [f"patient {row}" for row in range(50)])
    reason = "column 'k' has 40 different words, in 40 rows to train with.*Leave it out with features"
    with pytest.raises(DataError, match=reason):
        table(path=path, client="who", label="y")
    assert table(path=path, client="who", label="y", words=("k",)).shape == (40,)
    often = with_column(tmp_path / "u.csv", [f"town {row % 30}" for row in range(50)])
    assert table(path=often, client="who", label="y").shape[0] <= 30
    few = with_column(tmp_path / "v.csv", [f"town {row}" for row in range(20)])
    assert table(path=few, client="who", label="y").shape == (16,)


def test_columns_listed_as_words_must_be_learnt_from(tmp_path):
    path = with_column(tmp_path / "t.csv", ["1", "2"] * 5)
    with pytest.raises(ConfigError, match=r"data\.words has 'y', which is not learnt from; known: k"):
        table(path=path, client="who", label="y", words=("y",))


@pytest.mark.parametrize("mark", ["", "?", "NA", "n/a", "NaN", "null", "None", " ? "])
def test_missing_marks_are_the_same_in_csv_and_parquet(tmp_path, mark):
    cells = ["red", "blue"] * 5 + [mark]
    paths = [
        with_column(tmp_path / "t.csv", cells),
        as_parquet(tmp_path / "t.parquet", **roles(len(cells)), k=cells),
        as_parquet(tmp_path / "u.parquet", **roles(len(cells)), k=[*cells[:-1], None]),
    ]
    for path in paths:
        with pytest.raises(DataError, match=r"(line 12|row 11) has nothing in column 'k'"):
            table(path=path, client="who", label="y")
        assert table(path=path, client="who", label="y", missing="drop").about()["rows_left_out"] == 1
        with pytest.raises(DataError, match=r"(line 12|row 11) has nothing in column 'k'"):
            table(path=path, client="k", label="y", features=("who",))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"features": ("k", "y")}, "column 'y' is both label and a feature"),
        ({"client": "y", "features": ("k",)}, "column 'y' is both label and client"),
        ({"group": "y"}, "column 'y' is both label and group"),
        ({"split": "y"}, "column 'y' is both label and split"),
        ({"split": "who"}, "column 'who' is both split and client"),
        ({"features": ("k", "k")}, r"data\.features has 'k' twice"),
    ],
)
def test_a_column_with_two_uses_that_exclude_each_other_is_refused(tmp_path, settings, reason):
    path = with_column(tmp_path / "t.csv", range(10))
    with pytest.raises(ConfigError, match=reason):
        table(**{"path": path, "client": "who", "label": "y"} | settings)


def test_clients_may_be_the_groups_and_be_learnt_from(tmp_path):
    path = with_column(tmp_path / "t.csv", range(10))
    data = table(path=path, client="who", label="y", group="who", features=("k", "who"))
    assert data.group_names == ("a", "b")
    assert data.shape == (3,)


def test_a_small_parquet_file_of_very_many_rows_takes_few_bytes_a_cell(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    count = 300_000
    long = arrow.array(["a" * 10_000, "b" * 10_000]).take(arrow.array(np.arange(50) % 2))
    cells = {
        "who": np.arange(count) % 3,
        "y": np.arange(count) % 2,
        "word": np.array(["some word", "another"])[np.arange(count) % 2],
    }
    parquet.write_table(arrow.table(cells), tmp_path / "t.parquet")
    tracemalloc.start()
    sheet = columns.read(tmp_path / "t.parquet", ["who", "y", "word"])
    found = [sheet.words(name) for name in cells]
    assert tracemalloc.get_traced_memory()[1] < 24 * count * len(cells)  # with an object for each it was far more
    tracemalloc.stop()
    assert len({id(word) for word in found[2]}) == 2
    parquet.write_table(arrow.table({"word": long}), tmp_path / "u.parquet")
    table_of_two = columns.read(tmp_path / "u.parquet", ["word"]).table
    assert table_of_two.nbytes < 30_000  # each text once


def test_what_parquet_needs_in_memory_is_estimated_before_it_is_read(tmp_path, monkeypatch):
    path = as_parquet(tmp_path / "t.parquet", **roles(5000), k=[1.5] * 5000, other=["x" * 500] * 5000)
    monkeypatch.setattr("e2fl.data.tabular.columns.INPUT_LIMIT", 900_000)  # more than the file or its numbers have
    with pytest.raises(DataError, match=r"would take .* the limit of a table.*fewer columns with features"):
        table(path=path, client="who", label="y")
    assert len(table(path=path, client="who", label="y", features=("k",)).population) == 2


def test_columns_of_lists_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = as_parquet(tmp_path / "t.parquet", **roles(4), k=[[1, 2]] * 4)
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet.ParquetFile, "read", lambda *_, **__: pytest.fail("was read"))
    with pytest.raises(DataError, match="column 'k' holds list"):
        table(path=path, client="who", label="y")


def test_a_table_that_does_not_fit_into_memory_says_so(tmp_path, monkeypatch):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = as_parquet(tmp_path / "t.parquet", **roles(8), k=list(range(8)))
    data = table(path=path, client="who", label="y")

    def fail(*_, **__):
        raise arrow.ArrowMemoryError("malloc of size 8 failed")

    monkeypatch.setattr(parquet.ParquetFile, "read", fail)
    for call in (lambda: table(path=path, client="who", label="y"), lambda: data.encode(path)):
        with pytest.raises(DataError, match="does not fit into memory; take fewer rows, or fewer columns"):
            call()


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        ("t.txt", b"who;k;y\na;1;0\n", "separated by commas, but the first line has semicolons"),
        ("t.txt", b"who\tk\ty\na\t1\t0\n", "separated by commas, but the first line has tabs"),
        ("t.csv", b"who|k|y\na|1|0\n", "separated by commas, but the first line has bars"),
        ("t.tsv", b"who,k,y\na,1,0\n", "separated by tabs, but the first line has commas"),
        ("t.csv", b"who,k,y\na,1,0\nJos\xe9,2,1\n", "line 3 is not in UTF-8"),
        ("t.csv", "who,k,y\na,1,0\n".encode("utf-16"), "line 1 is not in UTF-8"),
        ("t.csv", b'who,k,y\na,1,0\nb,2,"1\nb,2,3\n', "line 3 is not CSV"),
    ],
)
def test_a_file_that_is_no_csv_is_refused_with_the_reason(tmp_path, name, raw, reason):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError, match=reason):
        table(path=str(tmp_path / name), client="who", label="y")


def test_a_file_that_is_not_there_was_looked_for_somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"no file or folder t.csv in {tmp_path}"):
        table(path="t.csv", client="who", label="y")
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        table(path="t.csv", client="who", label="y")
