"""How the columns of a table are read: as numbers or categories, or refused with the line."""

import contextlib
import csv
import datetime
import decimal

import numpy as np
import pandas as pd
import pytest

from e2fl.data import from_table as table
from e2fl.data.sheet import is_missing, open_sheet
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
    return {
        "who": ["ab"[row % 2] for row in range(count)],
        "y": [row // 2 % 2 for row in range(count)],
    }


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
def test_a_column_of_mostly_numbers_or_dates_has_its_first_odd_line_named(
    tmp_path, cells, line, cell
):
    path = with_column(tmp_path / "t.csv", cells)
    with pytest.raises(
        DataError, match=rf"line {line} has '{cell}' in column 'k', where most are numbers or dates"
    ):
        table(path=path, client="who", label="y", missing="drop")
    as_words = table(path=path, client="who", label="y", missing="drop", words=("k",))
    assert as_words.about()["columns"] == {"k": "words"}
    path = as_parquet(tmp_path / "t.parquet", **roles(len(cells)), k=cells)
    with pytest.raises(
        DataError,
        match=rf"row {line - 1} has '{cell}' in column 'k', where most are numbers or dates",
    ):
        table(path=path, client="who", label="y", missing="drop")


@pytest.mark.parametrize(
    "cells", [["1", "x"] * 5, ["10-19", "20-29"] * 5, ["1.2.3", "1.2.4"] * 5, ["A1", "7"] * 5]
)
def test_words_with_digits_in_them_are_words(tmp_path, cells):
    data = table(path=with_column(tmp_path / "t.csv", cells), client="who", label="y")
    assert data.about()["columns"] == {"k": "words"}
    assert data.shape == (2,)


def test_the_kind_of_every_column_is_recorded(tmp_path):
    rows = [["ab"[row % 2], row, "xyz"[row % 3], row % 2 == 0, row // 2 % 2] for row in range(20)]
    data = table(
        path=written(tmp_path / "t.csv", ["who", "n", "c", "f", "y"], rows), client="who", label="y"
    )
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
    with pytest.raises(
        ConfigError, match=r"data\.words has 'y', which is not an input column; known: k"
    ):
        table(path=path, client="who", label="y", words=("y",))


def test_missing_marks_are_the_same_in_csv_and_parquet(tmp_path):
    marks = ["", "?", "NA", "n/a", "NaN", "null", "None", " ? ", None]
    columns = {f"k{place}": ["red", "blue", mark] for place, mark in enumerate(marks)}
    written(tmp_path / "t.csv", list(columns), zip(*columns.values(), strict=True))
    as_parquet(tmp_path / "t.parquet", **columns)
    for name in (
        "t.csv",
        "t.parquet",
    ):  # one reading of each: a Parquet file is read by a process of its own
        sheet = open_sheet(tmp_path / name)
        for column in columns:
            assert is_missing(sheet.feature(column)).tolist() == [False, False, True], (
                name,
                column,
            )


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


def test_columns_of_lists_are_refused(tmp_path):
    path = as_parquet(tmp_path / "t.parquet", **roles(4), k=[[1, 2]] * 4)
    with pytest.raises(DataError, match="column 'k' holds lists"):
        table(path=path, client="who", label="y")


def test_a_dataframe_is_a_table(tmp_path):
    frame = pd.DataFrame(
        {
            **roles(40),
            "n": np.arange(40.0),
            "c": ["x", "y"] * 20,
            "f": [True, False] * 20,
            "i": range(40),
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    left = table(path=str(tmp_path / "t.csv"), client="who", label="y")
    right = table(frame, client="who", label="y")
    assert np.array_equal(left.rows.x, right.rows.x)
    assert left.about()["encoding"] == right.about()["encoding"]
    assert np.array_equal(right.encode(frame).x, right.rows.x)
    frame["c"] = frame["c"].astype("category")
    assert table(frame, client="who", label="y").about()["encoding"] == left.about()["encoding"]
    frame["n"] = frame["n"].astype("Int64")
    frame.loc[3, "n"] = pd.NA
    with pytest.raises(DataError, match="the DataFrame: row 3 has nothing in column 'n'"):
        table(frame, client="who", label="y")
    frame["n"] = pd.Timestamp("2024-01-01")
    with pytest.raises(
        DataError,
        match="row 0 has '2024-01-01 00:00:00' in column 'n', where most are numbers or da",
    ):
        table(frame, client="who", label="y")
    with pytest.raises(ConfigError, match=r"either data\.path or, in Python, a DataFrame"):
        table(client="who", label="y")
    with pytest.raises(DataError, match="not a list"):
        table([1, 2], client="who", label="y")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_told_from_the_header(tmp_path, name, separator):
    rows = [["who", "k", "y"], *(["ab"[row % 2], row * 1.5, row // 2 % 2] for row in range(8))]
    (tmp_path / name).write_text("\n".join(separator.join(map(str, row)) for row in rows))
    found = table(path=str(tmp_path / name), client="who", label="y")
    expected = table(
        path=written(tmp_path / "expected.csv", rows[0], rows[1:]), client="who", label="y"
    )
    assert np.array_equal(found.rows.x, expected.rows.x)
    assert found.about()["encoding"] == expected.about()["encoding"]


def test_the_ending_decides_where_the_header_fits_two_separators(tmp_path):
    (tmp_path / "t.tsv").write_text(
        "who, or where\ty\tk\n" + "".join(f"{'ab'[n % 2]}\t{n // 2}\t1\n" for n in range(4))
    )
    assert (
        len(table(path=str(tmp_path / "t.tsv"), client="who, or where", label="y").population) == 2
    )
    with pytest.raises(ConfigError, match="no column 'who'"):
        table(path=str(tmp_path / "t.tsv"), client="who", label="y")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_told_from_the_bytes_and_a_guess_is_warned_of(tmp_path, encoding):
    rows = "".join(f"{['José', 'b'][n % 2]},{n},{n // 2 % 2}\n" for n in range(8))
    (tmp_path / "t.csv").write_bytes(("who,k,y\n" + rows).encode(encoding))
    guessed = pytest.warns(UserWarning, match="not UTF-8; it is read as Windows-1252")
    with guessed if encoding == "cp1252" else contextlib.nullcontext():
        data = table(path=str(tmp_path / "t.csv"), client="who", label="y")
    assert [data.client_name(number) for number in data.population.ids] == ["José", "b"]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (
            b"who,k,y\na,1,0\nJos\x81,2,1\n",
            "cannot be read",
        ),
        (
            b"who,k,y\na,1,0\nb,2,1\nJos\xc3\x8d\xc3",
            "cannot be read",
        ),
        (
            b'who,k,y\na,1,0\nb,2,"1\nb,2,3\n',
            "line 3: unexpected end",
        ),
        (b"who,k,y\na,1,0\nb,2,1,7\n", "line 3 has 4 fields, the header has 3"),
        (b"who,k,y\na,1,0\n\nb,2\n", "line 4 has 2 fields, the header has 3"),
        (b"", "t.csv is empty; its first row must name the columns"),
    ],
)
def test_a_file_that_is_no_csv_is_refused_with_the_reason(tmp_path, raw, reason):
    (tmp_path / "t.csv").write_bytes(raw)
    with pytest.raises(DataError, match=reason):
        table(path=str(tmp_path / "t.csv"), client="who", label="y")


def test_cells_that_are_empty_at_the_end_of_a_row_are_missing_values_not_short_rows(tmp_path):
    rows = "".join(f"{'ab'[n % 2]},{n // 2 % 2},{'' if n == 3 else n}\n" for n in range(8))
    (tmp_path / "t.csv").write_text("who,y,k\n" + rows)
    with pytest.raises(DataError, match="line 5 has nothing in column 'k'"):
        table(path=str(tmp_path / "t.csv"), client="who", label="y")
    assert (
        table(path=str(tmp_path / "t.csv"), client="who", label="y", missing="drop").about()[
            "rows_left_out"
        ]
        == 1
    )


def test_a_file_of_another_kind_is_refused_by_its_name(tmp_path):
    for name, reason in (
        ("t.json", "is not a .csv"),
        ("t.xls", "is not a .csv"),
    ):
        (tmp_path / name).write_text("who,k,y\na,1,0\n")
        with pytest.raises(DataError, match=reason):
            table(path=str(tmp_path / name), client="who", label="y")


def test_xlsx_gives_what_csv_gives(tmp_path):
    frame = pd.DataFrame(
        {**roles(20), "n": np.arange(20) / 4, "c": ["x", "y"] * 10, "f": [True, False] * 10}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    left, right = (
        table(path=str(tmp_path / name), client="who", label="y") for name in ("t.csv", "t.xlsx")
    )
    assert np.array_equal(left.rows.x, right.rows.x)
    assert left.about()["encoding"] == right.about()["encoding"]
    frame.loc[3, "c"] = None
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    with pytest.raises(DataError, match="row 4 has nothing in column 'c'"):
        table(path=str(tmp_path / "t.xlsx"), client="who", label="y")


def test_dates_and_decimals_of_parquet_are_read_as_they_are_written(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    days = arrow.array([datetime.date(2024, 1, 10)] * 8)
    with pytest.raises(
        DataError, match="row 1 has '2024-01-10' in column 'k', where most are numbers or dates"
    ):
        table(path=as_parquet(tmp_path / "t.parquet", **roles(8), k=days), client="who", label="y")
    amounts = arrow.array([decimal.Decimal("0.25") * n for n in range(8)])
    data = table(
        path=as_parquet(tmp_path / "t.parquet", **roles(8), k=amounts), client="who", label="y"
    )
    assert data.about()["columns"] == {"k": "numbers"}


def test_a_file_that_is_not_there_was_looked_for_somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"no file or folder t.csv in {tmp_path}"):
        table(path="t.csv", client="who", label="y")
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        table(path="t.csv", client="who", label="y")
