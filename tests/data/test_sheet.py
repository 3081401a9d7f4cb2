"""How the columns of a table are read: as numbers or categories, or refused with the row."""

import contextlib
import datetime
import decimal

import numpy as np
import pandas as pd
import pytest

from e2fl.data import from_table as table
from e2fl.data.sheet import missing_in, open_sheet
from e2fl.errors import ConfigError, DataError

ROLES = {"client": "who", "label": "y"}


def frame(cells):
    """A table of two clients with one feature."""
    rows = range(len(cells))
    return pd.DataFrame(
        {"who": ["ab"[r % 2] for r in rows], "k": cells, "y": [r // 2 % 2 for r in rows]}
    )


def stored(given, path):
    """The table in the form that the ending of the path names."""
    write = {"csv": given.to_csv, "parquet": given.to_parquet, "xlsx": given.to_excel}
    write[path.suffix[1:]](path, index=False)
    return path


@pytest.mark.parametrize(
    ("cells", "row", "cell"),
    [
        ([str(row) for row in range(9)] + ["1o"], 9, "1o"),
        ([f"1.234,{row}" for row in range(10)], 0, "1.234,0"),
        (["2024-01-10T12:00"] * 10, 0, "2024-01-10T12:00"),
        (["3.10.2024"] * 10, 0, "3.10.2024"),
        (["12%", "15.5 %"] * 5, 0, "12%"),
        (["1"] * 6 + ["", "x"] * 2, 7, "x"),  # what is missing does not count
        ([datetime.date(2024, 1, 10)] * 8, 0, "2024-01-10"),
        ([pd.Timestamp("2024-01-10")] * 8, 0, "2024-01-10"),
    ],
)
def test_a_column_of_mostly_numbers_or_dates_has_its_first_odd_row_named(
    tmp_path, cells, row, cell
):
    reason = f"has '{cell}' in column 'k', which is read as numbers"
    # In a CSV the header is row 1, as a spreadsheet shows it.
    for source, name in ((stored(frame(cells), tmp_path / "t.csv"), row + 2), (frame(cells), row)):
        with pytest.raises(DataError, match=f"row {name} {reason}"):
            table(source, **ROLES, missing="drop")
        as_words = table(source, **ROLES, missing="drop", words=("k",))
        assert as_words.about()["columns"] == {"k": "words"}


@pytest.mark.parametrize(
    ("cells", "kind", "inputs"),
    [
        (["1", "x"] * 5, "words", 2),
        (["10-19", "20-29"] * 5, "words", 2),
        (["1.2.3", "1.2.4"] * 5, "words", 2),
        ([True, False] * 5, "words", 2),
        (["1", "2.5"] * 5, "numbers", 1),
        ([decimal.Decimal("0.25") * n for n in range(8)], "numbers", 1),
        ([f"town {row}" for row in range(20)], "words", 16),  # few are categories
    ],
)
def test_the_kind_of_every_column_is_recorded(cells, kind, inputs):
    data = table(frame(cells), **ROLES)
    assert data.about()["columns"] == {"k": kind}
    assert data.shape == (inputs,)


def test_a_column_where_nearly_every_word_differs_is_refused():
    names = [f"patient {row}" for row in range(50)]
    with pytest.raises(DataError, match=r"'k' has 40 different strings.*'patient 0' in row 0"):
        table(frame(names), **ROLES)
    assert table(frame(names), **ROLES, words=("k",)).shape == (40,)


def test_missing_marks_are_the_same_in_csv_and_parquet(tmp_path):
    marks = ["", "?", "NA", "n/a", "NaN", "null", "None", " ? ", None]
    columns = {f"k{position}": ["red", "blue", mark] for position, mark in enumerate(marks)}
    for name in ("t.csv", "t.parquet"):
        sheet = open_sheet(stored(pd.DataFrame(columns), tmp_path / name))
        for column in columns:
            assert missing_in(sheet.cells(column)).tolist() == [False, False, True], column


@pytest.mark.parametrize(
    ("name", "separator"), [("t.csv", ","), ("t.csv", ";"), ("t.tsv", "\t"), ("t.txt", "|")]
)
def test_separators_are_told_from_the_header(tmp_path, name, separator):
    given = frame(np.arange(8) * 1.5).rename(columns={"who": f'"who,{separator} or where"'})
    given.to_csv(tmp_path / name, sep=separator, index=False)
    found = open_sheet(tmp_path / name)
    assert found.header == list(given)
    assert np.array_equal(found.cells("k"), given["k"])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_told_from_the_bytes_and_a_guess_is_warned_of(tmp_path, encoding):
    rows = "".join(f"{['José', 'b'][n % 2]},{n},{n // 2 % 2}\n" for n in range(8))
    (tmp_path / "t.csv").write_bytes(("who,k,y\n" + rows).encode(encoding))
    guessed = pytest.warns(UserWarning, match="not UTF-8; it is read as Windows-1252")
    with guessed if encoding == "cp1252" else contextlib.nullcontext():
        data = table(tmp_path / "t.csv", **ROLES)
    assert [data.client_name(number) for number in data.population.ids] == ["José", "b"]


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        ("t.csv", b"who,k,y\na,1,0\nJos\x81,2,1\n", "cannot be read"),
        ("t.csv", b'who,k,y\na,1,0\nb,2,"1\nb,2,3\n', "cannot be read: .*EOF inside string"),
        ("t.csv", b"who,k,y\na,1,0\nb,2,1,7\n", "3 fields in line 3, saw 4"),
        ("t.csv", b"who,k,y\na,1,0\n\nb,2\n", "row 4 has nothing in column 'y'"),
        ("t.csv", b"who,k,y\na,1,0\n\na,2,1\nb,,0\nb,3,1\n", "row 5 has nothing in column 'k'"),
        ("t.csv", b"who,k,y\na,1,0\na,inf,1\na,3,1\n", "row 3 has 'inf' in column 'k'"),
        ("t.csv", b"who,k,k\na,1,0\n", "every column, each once"),
        ("t.csv", b"who,k,y\n", "has no rows"),
        ("t.csv", b"", "cannot be read: No columns"),
        ("t.json", b"who,k,y\na,1,0\n", "is not a .csv"),
        ("t.parquet", b"PAR1 nonsense PAR1", "cannot be read"),
        (".", None, "is not a .csv"),
        ("absent.csv", None, r"no file or folder absent\.csv in "),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, name, raw, reason):
    if raw is not None:
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError, match=reason):
        table(tmp_path / name, **ROLES)


def test_a_table_needs_a_path_or_a_frame():
    with pytest.raises(ConfigError, match=r"either data\.path or, in Python, a DataFrame"):
        table(**ROLES)
