"""How the columns of a table are read: as numbers or categories, or refused with the line."""

import contextlib
import datetime
import decimal

import numpy as np
import pandas as pd
import pytest

from e2fl.data import from_table as table
from e2fl.data.sheet import missing_in, open_sheet
from e2fl.errors import ConfigError, DataError
from tests.data.golden import written

ROLES = {"client": "who", "label": "y"}


def frame(cells):
    """A table of two clients with one feature."""
    rows = range(len(cells))
    return pd.DataFrame(
        {"who": ["ab"[r % 2] for r in rows], "k": cells, "y": [r // 2 % 2 for r in rows]}
    )


def as_csv(path, cells):
    given = frame(cells)
    return written(path, list(given), given.values.tolist())


@pytest.mark.parametrize(
    ("cells", "row", "cell"),
    [
        ([str(row) for row in range(9)] + ["1o"], 9, "1o"),
        ([f"{row},5" for row in range(10)], 0, "0,5"),
        ([f"1.234,{row}" for row in range(10)], 0, "1.234,0"),
        ([f"2024-01-{row + 10}" for row in range(10)], 0, "2024-01-10"),
        (["2024-01-10T12:00"] * 10, 0, "2024-01-10T12:00"),
        (["3.10.2024"] * 10, 0, "3.10.2024"),
        (["12%", "15.5 %"] * 5, 0, "12%"),
        (["1"] * 6 + ["", "x"] * 2, 7, "x"),  # what is missing does not count
        ([datetime.date(2024, 1, 10)] * 8, 0, "2024-01-10"),
        ([pd.Timestamp("2024-01-10")] * 8, 0, "2024-01-10 00:00:00"),
    ],
)
def test_a_column_of_mostly_numbers_or_dates_has_its_first_odd_row_named(
    tmp_path, cells, row, cell
):
    reason = f"has '{cell}' in column 'k', where most are numbers or dates"
    frame(cells).to_parquet(tmp_path / "t.parquet")
    given = {
        f"line {row + 2}": as_csv(tmp_path / "t.csv", cells),
        f"row {row + 1}": tmp_path / "t.parquet",
        f"row {row}": frame(cells),
    }
    if isinstance(cells[0], pd.Timestamp):
        del given[f"line {row + 2}"]
    for name, source in given.items():
        with pytest.raises(DataError, match=f"{name} {reason}"):
            table(source, **ROLES, missing="drop")
        as_words = table(source, **ROLES, missing="drop", words=("k",))
        assert as_words.about()["columns"] == {"k": "words"}


@pytest.mark.parametrize(
    ("cells", "kind", "inputs"),
    [
        (["1", "x"] * 5, "words", 2),
        (["10-19", "20-29"] * 5, "words", 2),
        (["1.2.3", "1.2.4"] * 5, "words", 2),
        (["A1", "7"] * 5, "words", 2),
        ([True, False] * 5, "words", 2),
        (["1", "2.5"] * 5, "numbers", 1),
        ([decimal.Decimal("0.25") * n for n in range(8)], "numbers", 1),
    ],
)
def test_the_kind_of_every_column_is_recorded(cells, kind, inputs):
    data = table(frame(cells), **ROLES)
    assert data.about()["columns"] == {"k": kind}
    assert data.shape == (inputs,)


def test_a_column_where_nearly_every_word_differs_is_refused():
    names = [f"patient {row}" for row in range(50)]
    with pytest.raises(DataError, match=r"'k' has 40 different strings.*row 0 has 'patient 0'"):
        table(frame(names), **ROLES)
    assert table(frame(names), **ROLES, words=("k",)).shape == (40,)
    assert table(frame([f"town {row % 30}" for row in range(50)]), **ROLES).shape[0] <= 30
    assert table(frame([f"town {row}" for row in range(20)]), **ROLES).shape == (16,)


def test_missing_marks_are_the_same_in_csv_and_parquet(tmp_path):
    marks = ["", "?", "NA", "n/a", "NaN", "null", "None", " ? ", None]
    columns = {f"k{position}": ["red", "blue", mark] for position, mark in enumerate(marks)}
    written(tmp_path / "t.csv", list(columns), zip(*columns.values(), strict=True))
    pd.DataFrame(columns).to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        sheet = open_sheet(tmp_path / name)
        for column in columns:
            assert missing_in(sheet.feature(column)).tolist() == [False, False, True], column


@pytest.mark.parametrize("form", ["csv", "parquet", "xlsx", "category", "Int64"])
def test_every_form_of_a_table_gives_the_same(tmp_path, form):
    given = frame(np.arange(20) / 4).assign(c=["x", "y"] * 10, f=[True, False] * 10, i=range(20))
    expected = table(given, **ROLES)
    source = given
    if form in ("category", "Int64"):
        name = "c" if form == "category" else "i"
        source = given.assign(**{name: given[name].astype(form)})
    else:
        source = tmp_path / f"t.{form}"
        write = {"csv": given.to_csv, "parquet": given.to_parquet, "xlsx": given.to_excel}[form]
        write(source, index=False)
    data = table(source, **ROLES)
    assert np.array_equal(data.x, expected.x)
    assert data.about()["encoding"] == expected.about()["encoding"]
    assert np.array_equal(data.encode(source).x, data.x)


@pytest.mark.parametrize("form", ["csv", "parquet", "xlsx", "frame"])
def test_a_missing_cell_is_refused_or_its_row_dropped(tmp_path, form):
    given, source = frame(["red", "blue"] * 5 + ["?"]), tmp_path / f"t.{form}"
    if form == "frame":
        source = given
    else:
        write = {"csv": given.to_csv, "parquet": given.to_parquet, "xlsx": given.to_excel}[form]
        write(source, index=False)
    named = {"csv": "line 12", "frame": "row 10"}.get(form, "row 11")
    for settings in (ROLES, {"client": "k", "label": "y", "features": ("who",)}):
        with pytest.raises(DataError, match=f"{named} has nothing in column 'k'"):
            table(source, **settings)
    assert table(source, **ROLES, missing="drop").about()["rows_left_out"] == 1


def test_columns_of_lists_and_things_that_are_no_table_are_refused():
    with pytest.raises(DataError, match="column 'k' holds lists"):
        table(frame([[1, 2]] * 4), **ROLES)
    with pytest.raises(ConfigError, match=r"either data\.path or, in Python, a DataFrame"):
        table(**ROLES)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_told_from_the_header(tmp_path, name, separator):
    given = frame(np.arange(8) * 1.5)
    given.to_csv(tmp_path / name, sep=separator, index=False)
    found, expected = table(tmp_path / name, **ROLES), table(given, **ROLES)
    assert np.array_equal(found.x, expected.x)


def test_the_ending_decides_where_the_header_fits_two_separators(tmp_path):
    rows = "".join(f"{'ab'[n % 2]}\t{n // 2}\t1\n" for n in range(4))
    (tmp_path / "t.tsv").write_text("who, or where\ty\tk\n" + rows)
    data = table(tmp_path / "t.tsv", client="who, or where", label="y")
    assert len(data.population) == 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_told_from_the_bytes_and_a_guess_is_warned_of(tmp_path, encoding):
    rows = "".join(f"{['José', 'b'][n % 2]},{n},{n // 2 % 2}\n" for n in range(8))
    (tmp_path / "t.csv").write_bytes(("who,k,y\n" + rows).encode(encoding))
    guessed = pytest.warns(UserWarning, match="not UTF-8; it is read as Windows-1252")
    with guessed if encoding == "cp1252" else contextlib.nullcontext():
        data = table(tmp_path / "t.csv", **ROLES)
    assert [data.client_name(number) for number in data.population.ids] == ["José", "b"]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"who,k,y\na,1,0\nJos\x81,2,1\n", "cannot be read"),
        (b'who,k,y\na,1,0\nb,2,"1\nb,2,3\n', "cannot be read: .*EOF inside string"),
        (b"who,k,y\na,1,0\nb,2,1,7\n", "3 fields in line 3, saw 4"),
        (b"who,k,y\na,1,0\n\nb,2\n", "line 4 has nothing in column 'y'"),
        (b'who,k,y\n"a\na",1,0\n"a\na",2,1\nb,0\nb,3,1\n', "line 6 has nothing in column 'y'"),
        (b"who,k,y\na,1,0\n\na,2,1\nb,,0\nb,3,1\n", "line 5 has nothing in column 'k'"),
        (b'who,k,y\n"a\na",1,0\n"a\na",2,1\nb,,0\n', "line 6 has nothing in column 'k'"),
        (b'who,k,y\n"a\na",1,0\n"a\na",2,0.5\n', r"line 4 has the label 0\.5"),
        (b"who,k,y\na,1,0\na,inf,1\na,3,1\n", "line 3 has 'inf' in column 'k'"),
        (b"who,k,k\na,1,0\n", "two columns 'k'"),
        (b"who,,y\na,1,0\n", "names every column"),
        (b"who,k,y\n", "has no rows"),
        (b"", "cannot be read: No columns"),
    ],
)
def test_a_file_that_is_no_table_is_refused_with_the_line_that_an_editor_shows(
    tmp_path, raw, reason
):
    (tmp_path / "t.csv").write_bytes(raw)
    with pytest.raises(DataError, match=reason):
        table(tmp_path / "t.csv", **ROLES)


def test_other_files_and_absent_ones_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text("who,k,y\na,1,0\n")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nonsense PAR1")
    (tmp_path / "t.csv").mkdir()
    for name, reason in (
        ("t.json", "is not a .csv"),
        ("t.parquet", "cannot be read"),
        ("t.csv", "t.csv cannot be read: it is a folder"),
        ("absent.csv", f"no file or folder absent.csv in {tmp_path}"),
    ):
        with pytest.raises(DataError, match=reason):
            table(name, **ROLES)
