"""How the columns of a table are read: as numbers, categories or missing; or refused, with line and column."""

import csv
import os
import time
import tracemalloc

import numpy as np
import pytest

from e2fl.data import from_table as table
from e2fl.data.tabular import reading
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
    reason = "column 'k' has 40 different strings, in 40 training rows.*Leave it out with features"
    with pytest.raises(DataError, match=reason):
        table(path=path, client="who", label="y")
    assert table(path=path, client="who", label="y", words=("k",)).shape == (40,)
    often = with_column(tmp_path / "u.csv", [f"town {row % 30}" for row in range(50)])
    assert table(path=often, client="who", label="y").shape[0] <= 30
    few = with_column(tmp_path / "v.csv", [f"town {row}" for row in range(20)])
    assert table(path=few, client="who", label="y").shape == (16,)


def test_columns_listed_as_words_must_be_learnt_from(tmp_path):
    path = with_column(tmp_path / "t.csv", ["1", "2"] * 5)
    with pytest.raises(ConfigError, match=r"data\.words has 'y', which is not an input column; known: k"):
        table(path=path, client="who", label="y", words=("y",))


def test_missing_marks_are_the_same_in_csv_and_parquet(tmp_path):
    marks = ["", "?", "NA", "n/a", "NaN", "null", "None", " ? ", None]
    columns = {f"k{place}": ["red", "blue", mark] for place, mark in enumerate(marks)}
    written(tmp_path / "t.csv", list(columns), zip(*columns.values(), strict=True))
    as_parquet(tmp_path / "t.parquet", **columns)
    for name in ("t.csv", "t.parquet"):  # one reading of each: a Parquet file is read by a process of its own
        sheet = reading.read(tmp_path / name, list(columns))
        for column in columns:
            assert reading.is_missing(sheet.feature(column)).tolist() == [False, False, True], (name, column)


@pytest.mark.parametrize("parquet", [False, True])
def test_a_missing_cell_is_refused_or_its_row_dropped(tmp_path, parquet):
    cells = ["red", "blue"] * 5 + ["?"]
    csv_file = with_column(tmp_path / "t.csv", cells)
    path = as_parquet(tmp_path / "t.parquet", **roles(len(cells)), k=cells) if parquet else csv_file
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
    sheet = reading.read(tmp_path / "t.parquet", ["who", "y", "word"])
    found = [sheet.texts(name) for name in cells]
    assert tracemalloc.get_traced_memory()[1] < 24 * count * len(cells)  # with an object for each it was far more
    tracemalloc.stop()
    assert len({id(word) for word in found[2]}) == 2
    parquet.write_table(arrow.table({"word": long}), tmp_path / "u.parquet")
    table_of_two = reading.read(tmp_path / "u.parquet", ["word"]).table
    assert table_of_two.nbytes < 30_000  # each text once


def test_what_parquet_needs_in_memory_is_estimated_before_it_is_read(tmp_path, monkeypatch):
    path = as_parquet(tmp_path / "t.parquet", **roles(5000), k=[1.5] * 5000, other=["x" * 500] * 5000)
    monkeypatch.setattr("e2fl.data.tabular.parquet.INPUT_LIMIT", 900_000)  # more than the file or its numbers have
    with pytest.raises(DataError, match=r"would take .* the limit of a table.*fewer columns with features"):
        table(path=path, client="who", label="y")
    assert len(table(path=path, client="who", label="y", features=("k",)).population) == 2


def test_columns_of_lists_are_refused(tmp_path):
    path = as_parquet(tmp_path / "t.parquet", **roles(4), k=[[1, 2]] * 4)
    with pytest.raises(DataError, match="column 'k' holds list"):
        table(path=path, client="who", label="y")


def test_a_table_that_does_not_fit_into_memory_says_so(tmp_path, monkeypatch):
    path = as_parquet(tmp_path / "t.parquet", **roles(8), k=list(range(8)))
    data = table(path=path, client="who", label="y")
    (tmp_path / "child.py").write_text("print('{\"memory\": true}')")
    monkeypatch.setattr("e2fl.data.tabular.parquet.CHILD", tmp_path / "child.py")
    for call in (lambda: table(path=path, client="who", label="y"), lambda: data.encode(path)):
        with pytest.raises(DataError, match="does not fit into memory; use fewer rows, or fewer columns"):
            call()


def test_a_crash_of_the_parquet_reader_is_an_error_and_not_the_end(tmp_path, monkeypatch):
    path = as_parquet(tmp_path / "t.parquet", **roles(8), k=list(range(8)))
    (tmp_path / "child.py").write_text("import os; os.abort()")
    monkeypatch.setattr("e2fl.data.tabular.parquet.CHILD", tmp_path / "child.py")
    with pytest.raises(DataError, match=r"t\.parquet is not a complete Parquet file: its reader crashed"):
        table(path=path, client="who", label="y")


@pytest.mark.slow
def test_a_parquet_file_is_read_or_refused_whatever_is_damaged(tmp_path):
    path = tmp_path / "t.parquet"
    as_parquet(path, **roles(100), k=["red", "blue"] * 50, n=list(range(100)))
    good, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(16):
        raw = bytearray(good)
        for place in rng.integers(0, len(raw), 3):
            raw[place] = rng.integers(0, 256)
        path.write_bytes(raw)
        try:
            table(path=str(path), client="who", label="y", missing="fill")
        except (DataError, ConfigError):
            refused += 1
    assert refused > 6


def test_texts_of_parquet_that_are_not_in_utf8_are_refused(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cells = arrow.array([b"\xe9" * 2, b"ab"] * 8).view(arrow.binary()).cast(arrow.binary())
    texts = arrow.StringArray.from_buffers(len(cells), *cells.buffers()[1:])
    parquet.write_table(arrow.table({**roles(16), "k": texts}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet is not a complete Parquet file: .*UTF-?8"):
        table(path=str(tmp_path / "t.parquet"), client="who", label="y")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_pipes_and_devices_are_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="is a pipe, socket or device, not a file"):
        table(path=str(tmp_path / name), client="who", label="y")
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(DataError, match="is a pipe, socket or device, not a file"):
        table(path=str(tmp_path / name), client="who", label="y")


@pytest.mark.parametrize("head", [b"", b"who,k,y\n"])
def test_a_file_without_line_breaks_takes_little_memory(tmp_path, monkeypatch, head):
    monkeypatch.setattr(reading, "LINE_LIMIT", 2**20)
    with (tmp_path / "t.csv").open("wb") as file:
        file.write(head)
        file.truncate(6 * 2**30)  # sparse: it takes no room on the disk
    tracemalloc.start()
    with pytest.raises(DataError, match="has a line of more than 1048576 characters"):
        table(path=str(tmp_path / "t.csv"), client="who", label="y")
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()


def test_a_table_of_very_many_columns_is_read_in_linear_time(tmp_path):
    width = 30_000
    rows = [["ab"[row % 2], row // 2 % 2, *([row] * width)] for row in range(8)]
    path = written(tmp_path / "t.csv", ["who", "y", *(f"k{column}" for column in range(width))], rows)
    start = time.process_time()
    assert table(path=path, client="who", label="y").shape == (width,)
    assert time.process_time() - start < 10  # 22 s when each name was compared with each
    twice = written(tmp_path / "u.csv", ["who", "y", *(f"k{column}" for column in range(100_000)), "k5"], [])
    start = time.process_time()
    with pytest.raises(DataError, match="has two columns 'k5'"):
        table(path=twice, client="who", label="y")
    assert time.process_time() - start < 5


def test_a_dataframe_is_a_table(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {**roles(40), "n": np.arange(40.0), "c": ["x", "y"] * 20, "f": [True, False] * 20, "i": range(40)}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    left = table(path=str(tmp_path / "t.csv"), client="who", label="y")
    right = table(frame, client="who", label="y")
    assert np.array_equal(left.table.x, right.table.x)
    assert left.about()["encoding"] == right.about()["encoding"]
    assert np.array_equal(right.encode(frame).x, right.table.x)
    frame["c"] = frame["c"].astype("category")
    assert table(frame, client="who", label="y").about()["encoding"] == left.about()["encoding"]
    frame["n"] = frame["n"].astype("Int64")
    frame.loc[3, "n"] = pandas.NA
    with pytest.raises(DataError, match="the DataFrame: row 3 has nothing in column 'n'"):
        table(frame, client="who", label="y")
    frame["n"] = pandas.Timestamp("2024-01-01")
    with pytest.raises(DataError, match="the DataFrame: column 'n' holds datetime"):
        table(frame, client="who", label="y")
    with pytest.raises(ConfigError, match=r"either data\.path or, in Python, a DataFrame"):
        table(client="who", label="y")
    with pytest.raises(DataError, match="not a list"):
        table([1, 2], client="who", label="y")


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
    with pytest.raises(DataError, match="is a folder, not a file"):
        table(path="t.csv", client="who", label="y")
