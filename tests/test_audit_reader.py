"""Tables as people have them: every usual form is read, every mistake is named by row and column, all at once."""

import contextlib
import gzip
import json
import os
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2fl.auditing.reader import read_table
from e2fl.auditing.table import Options
from e2fl.auditing.values import number
from e2fl.cli import main
from e2fl.errors import DataError
from e2fl.tables import files


@pytest.fixture
def table(tmp_path):
    def write(text, name="scores.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return path

    return write


def read(path, **options):
    return read_table(path, Options(**options))


def groups(found, grouping=0):
    return found.groupings[grouping].groups


def test_a_row_for_each_client(table):
    found = read(table("client,group,accuracy,n,loss\na,x,90,10,0.5\nb,x,80,30,0.7\nc,y,70,10,1\n"))
    assert found.clients == ["a", "b", "c"]
    assert groups(found) == ["x", "y"]
    assert found.data.value.tolist() == [0.9, 0.8, 0.7]
    assert found.data.weight.tolist() == [10, 30, 10]


def test_a_row_for_each_person_is_counted_in_cells(table):
    found = read(table("client,group,y,y_hat\na,x,1,1\na,x,1,1\na,y,1,0\nb,x,0,0\n"))
    assert found.rows == 4
    assert sorted(found.data.count.tolist()) == [1, 1, 2]
    assert sorted(found.data.labels) == ["0", "1"]
    assert found.data.labels[found.data.positive] == "1"


@pytest.mark.parametrize(
    "header",
    ["y,y_hat,group", "y_true,y_pred,group", "label,prediction,group", "Target,Predicted,Group ", "y,y-hat,GROUP"],
)
def test_usual_names_are_found(table, header):
    found = read(table(f"{header}\n1,1,a\n0,1,b\n"))
    assert groups(found) == ["a", "b"]


def test_columns_can_be_named(table):
    path = table("hospital code,arm,ill,flag\nh1,a,yes,no\nh2,b,no,no\n")
    found = read(path, client="hospital code", groups=("arm",), y="ill", y_hat="flag")
    assert found.clients == ["h1", "h2"]
    assert found.data.labels[found.data.positive] == "yes"


def test_no_client_column_is_needed(table):
    assert read(table("group,y,y_hat\na,1,1\nb,0,1\n")).clients is None
    assert read(table("group,accuracy\na,90\nb,80\n")).data.value.tolist() == [0.9, 0.8]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_told_from_the_header(table, delimiter):
    rows = [("client", "group", "accuracy"), ("a", "x", "90"), ("b", "y", "80")]
    assert read(table("\n".join(delimiter.join(row) for row in rows))).data.value.tolist() == [0.9, 0.8]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_encodings_are_told_from_the_bytes(table, encoding):
    found = read(
        table("client,group,accuracy\na,Zürich – Süd,90\nb,Ōsaka\x20,80\n".replace("Ō", "O"), encoding=encoding)
    )
    assert groups(found) == ["Osaka", "Zürich – Süd"]


def test_decimal_commas_and_percent_signs(table):
    assert read(table("client;accuracy\na;90,5\nb;80,25\n")).data.value.tolist() == [0.905, 0.8025]
    assert read(table('client,accuracy\na,"90,5 %"\nb,80 %\n')).data.value.tolist() == pytest.approx([0.905, 0.8])
    assert number("1.234,5") == number("1,234.5") == 1234.5
    assert np.isnan(number("1,234"))  # 1.234 or 1234?
    assert number("1,234", decimal_comma=True) == 1.234


def test_parquet_xlsx_and_frames_give_the_same(tmp_path):
    frame = pd.DataFrame(
        {"site": ["a", "b", "a"], "sex": ["f", None, "m"], "y": [True, False, True], "y_hat": [1.0, 0, 0]}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    frame.to_csv(tmp_path / "t.csv", index=False)
    for source in (frame, tmp_path / "t.parquet", tmp_path / "t.xlsx", tmp_path / "t.csv"):
        found = read(source)
        assert found.clients == ["a", "b"]
        assert groups(found) == ["f", "m", "unknown"]
        assert sorted(found.data.count.tolist()) == [1, 1, 1]
        right = found.data.truth == found.data.predicted
        assert found.data.count[right].sum() == 2


def test_a_byte_order_mark_blank_lines_and_quotes_are_no_matter(table):
    found = read(table(b'\xef\xbb\xbfclient,accuracy\r\n"a, b",90\r\n\r\nb,80\r\n'))
    assert found.clients == ["a, b", "b"]


def test_fractions_are_told_from_percentages(table):
    found = read(table("client,accuracy\na,0.9\nb,1.0\n"))
    assert found.data.value.tolist() == [0.9, 1.0]
    assert any("fractions" in note for note in found.notes)
    assert read(table("client,accuracy\na,0.9\nb,0.5\n"), unit="percent").data.value.tolist() == pytest.approx(
        [0.009, 0.005]
    )


def test_probabilities_and_scores_become_predictions(table):
    path = table("y,p,group\n1,0.9,a\n0,0.4,a\n1,0.2,b\n")
    found = read(path, y_hat="p")
    assert any("0.5 or more" in note for note in found.notes)
    assert found.data.calibration is not None
    strict = read(path, score="p", threshold=0.95)
    assert {strict.data.labels[code] for code in strict.data.predicted} == {"0"}


def test_any_measure_of_clients_is_a_score(table):
    found = read(table("client,group,AUROC\na,x,0.9\nb,y,0.7\n"), score="auroc")
    assert found.data.name == "AUROC"
    assert found.data.higher_is_better
    assert not read(table("client,group,rmse\na,x,12\nb,y,9\n"), score="rmse").data.higher_is_better


def test_groups_may_be_any_values_and_any_number(table):
    rows = "\n".join(f"{place % 2},{place % 3 == 0:d},{place % 700}" for place in range(2100))
    assert len(groups(read(table(f"y,y_hat,group\n{rows}")))) == 700


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "is empty"),
        ("client,accuracy\n", {}, "no rows"),
        ("user,acuracy\na,1\n", {}, "did you mean 'acuracy'"),
        ("client,y\na,1\n", {}, "no column 'y_hat'"),
        ("client,accuracy,accuracy\na,1,2\n", {}, "two columns 'accuracy'"),
        ("client,accuracy\na,90\nb,\n", {}, "row 2 has nothing in column 'accuracy'"),
        ("client,accuracy\na,inf\n", {}, "row 1 has 'inf' in column 'accuracy'"),
        ("client,accuracy\na,90\nb,ninety\n", {}, "row 2 has 'ninety' in column 'accuracy'"),
        ("client,accuracy\na,101\n", {}, "row 1 has 101 in column 'accuracy'; it must be 0 to 100"),
        ("client,accuracy\na,-1\nb,80\n", {}, "row 1 has -1"),
        ("client,accuracy,n\na,90,0\n", {}, "row 1 has '0' in column 'n'; it must be a number above 0"),
        ("client,accuracy,n\na,90,1e308\n", {}, "at most 1e15"),
        ("client,accuracy\n,90\n", {}, "row 1 has nothing in column 'client'"),
        ("client,accuracy\na,90\nb,80,70\n", {}, "row 2 has more values than the header, which has 2"),
        ("client,accuracy\na,90\na,80\n", {}, "rows 1 and 2 are both of client 'a'"),
        ("client,accuracy\na,0.9\nb,85\n", {}, "mixes fractions and percentages: row 1 has 0.9, row 2 has 85"),
        ("client,accuracy\na,90 %\nb,85\n", {}, "with and without a percent sign"),
        ("y,y_hat\nyes,1\nno,0\n", {}, "share no label"),
        ("y,y_hat\n1,0.5\n0,37.5\n", {}, "pass --threshold"),
        ("y,y_hat\n1,\n0,1\n", {}, "leave such rows out with --drop-missing"),
        ("y,y_hat\nill,ill\nwell,ill\n", {"positive": "sick"}, "no label 'sick'"),
        ("y_hat,group\nred,a\nblue,b\n", {}, "Name it with --positive"),
        ("y,y_hat\n1,1\n", {"groups": ("sexx",)}, "--group: scores.csv has no column 'sexx'"),
        ("label,target,y_hat\n1,1,1\n", {}, "choose one with --y"),
        ("y,y_hat,sex\n1,1,f\n", {"profile": "ll144"}, "no column 'race'"),
        (b"client,accuracy\n\x81\xff\x8d,90\n", {}, "neither UTF-8 nor Windows-1252"),
        (b"client,accuracy\n\x00\x00,90\n", {}, "NUL bytes"),
        ('client,accuracy\n"' + "x" * 200_000, {}, "not a table of separated values"),
        ("y,y_hat\n0.3,1\n0.7,0\n", {}, "not a label"),
    ],
)
def test_mistakes_are_named_by_row_and_column(table, text, options, words):
    with pytest.raises(DataError) as caught:
        read(table(text), **options)
    assert words in str(caught.value)


def test_all_mistakes_are_told_at_once(table):
    with pytest.raises(DataError) as caught:
        read(table("client,accuracy,n\na,x,1\n,90,0\nc,80,5\nd,nan,7\n"))
    words = str(caught.value)
    for part in (
        "row 1 has 'x'",
        "row 2 has nothing in column 'client'",
        "row 2 has '0' in column 'n'",
        "row 4 has nothing",
    ):
        assert part in words
    assert "4 mistakes" in words
    many = "client,accuracy\n" + "\n".join(f"c{place},?x" for place in range(500))
    with pytest.raises(DataError, match="500 mistakes") as caught:
        read(table(many))
    assert len(str(caught.value).splitlines()) < 30


def test_rows_are_counted_through_blocks(table, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_ROWS", 50)
    rows = [f"c{place},50" for place in range(120)]
    rows[104] = "late,none at all"
    with pytest.raises(DataError, match="row 105 has 'none at all'"):
        read(table("client,accuracy\n" + "\n".join(rows)))
    rows[104] = "late,50"
    assert len(read(table("client,accuracy\n" + "\n".join(rows))).clients) == 120


def test_rows_without_a_label_can_be_left_out(table):
    found = read(table("y,y_hat,group\n1,1,a\n,1,a\n0,NA,b\n0,0,b\n"), drop_missing=True)
    assert found.rows == 2
    assert any("2 of 4 rows" in note for note in found.notes)


def test_only_regular_files_of_bounded_size_are_read(tmp_path, monkeypatch, table):
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", "/dev/zero", tmp_path):
        with pytest.raises(DataError, match=", not a file; name a file"):
            read(path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read(tmp_path / "none.csv")
    sparse = tmp_path / "sparse.csv"
    with sparse.open("wb") as file:
        file.write(b"client,accuracy\n")
        file.truncate(6 * 2**30)
    begun = time.process_time()
    with pytest.raises(DataError, match="NUL bytes"):
        read(sparse)
    assert time.process_time() - begun < 2
    monkeypatch.setattr(files, "MAX_LINE", 2**16)
    with pytest.raises(DataError, match="line of more than"):
        read(table("client,accuracy\n" + "9" * 2**21))
    monkeypatch.setattr(files, "MAX_BYTES", 10)
    with pytest.raises(DataError, match="the limit of a table is"):
        read(table("client,accuracy\na,90\n"))


def test_a_header_of_100_000_columns_takes_a_moment(table):
    names = ",".join(f"column{place}" for place in range(100_000))
    begun = time.process_time()
    found = read(table(f"client,accuracy,{names}\na,90{',1' * 100_000}\nb,80{',2' * 100_000}\n"))
    assert found.data.value.tolist() == [0.9, 0.8]
    assert time.process_time() - begun < 10


def test_damaged_parquet_and_xlsx_files_are_one_clear_line(tmp_path):
    frame = pd.DataFrame({"group": ["a", "b"] * 50, "y": [1, 0] * 50, "y_hat": [1, 1] * 50})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    rng = np.random.default_rng(0)
    for name, times in (("t.parquet", 12), ("t.xlsx", 60)):  # a process reads Parquet; tests of own tables do it, too
        whole = (tmp_path / name).read_bytes()
        for _ in range(times):
            damaged = bytearray(whole)
            for place in rng.integers(0, len(whole), 3):
                damaged[place] = rng.integers(0, 256)
            (tmp_path / f"bad-{name}").write_bytes(bytes(damaged[: rng.integers(len(whole) // 2, len(whole) + 1)]))
            with contextlib.suppress(DataError):  # anything else is a crash
                read(tmp_path / f"bad-{name}")
    (tmp_path / "x.csv").write_bytes(gzip.compress(b"client,accuracy\na,90\n"))
    with pytest.raises(DataError):
        read(tmp_path / "x.csv")


def test_a_crash_of_the_parquet_reader_is_one_clear_line(tmp_path, monkeypatch):
    pd.DataFrame({"group": ["a", "b"], "y": [1, 0], "y_hat": [1, 1]}).to_parquet(tmp_path / "t.parquet")
    (tmp_path / "child.py").write_text("import os; os.abort()")
    monkeypatch.setattr("e2fl.tables.parquet.CHILD", tmp_path / "child.py")
    with pytest.raises(DataError, match=r"t\.parquet is not a complete Parquet file: its reader crashed"):
        read(tmp_path / "t.parquet")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300) | st.text(alphabet='abcy_hat,;\n"%.0123456789 client=', max_size=300).map(str.encode))
def test_any_bytes_are_read_or_refused(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(b"client,group,y,y_hat\n" + raw)
    try:
        found = read(path)
    except DataError:
        return
    assert found.data.count.sum() == found.rows


def test_a_client_and_group_given_twice_as_rows_or_counts_agree(tmp_path):
    """A table of rows, and the same counted up by pandas, have the same accuracy."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {"client": rng.integers(0, 9, 500), "y": rng.integers(0, 3, 500), "y_hat": rng.integers(0, 3, 500)}
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    right = (frame.y == frame.y_hat).groupby(frame.client)
    pd.DataFrame({"accuracy": 100 * right.mean(), "n": right.size()}).reset_index().to_csv(
        tmp_path / "c.csv", index=False
    )
    for name in ("rows", "c"):
        assert main(["audit", str(tmp_path / f"{name}.csv"), "--json", str(tmp_path / f"{name}.json")]) == 0
    one, two = (
        json.loads((tmp_path / f"{name}.json").read_text())["tables"][0]["client_spread"] for name in ("rows", "c")
    )
    assert one["measures"] == pytest.approx(two["measures"])
