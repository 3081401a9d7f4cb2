"""Tables as people have them: every usual form is read, all mistakes are named at once."""

import gzip

import numpy as np
import pandas as pd
import pytest

from e2fl_audit import AuditError, audit
from e2fl_audit.files import as_number
from e2fl_audit.reader import read_table
from e2fl_audit.settings import Settings


@pytest.fixture
def table(tmp_path):
    def write(text, name="scores.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return path

    return write


def read(path, **options):
    return read_table(path, Settings(**options))


def values(table, **options):
    return read(table, **options).cells["value"].tolist()


def test_a_row_for_each_client(table):
    text = "client,group,accuracy,n,loss\na,x,90,10,0.5\nb,x,80,30,0.7\nc,y,70,10,1\n"
    found = read(table(text))
    assert found.clients == ["a", "b", "c"]
    assert found.groupings[0].groups == ["x", "y"]
    assert found.cells["value"].tolist() == [0.9, 0.8, 0.7]
    assert found.cells["weight"].tolist() == [10, 30, 10]


@pytest.mark.parametrize(
    "header", ["y,y_hat,group", "y_true,y_pred,group", "Target,Predicted,Group ", "y,y-hat,GROUP"]
)
def test_usual_names_are_found(table, header):
    assert read(table(f"{header}\n1,1,a\n0,1,b\n")).groupings[0].groups == ["a", "b"]


def test_columns_can_be_named(table):
    path = table("hospital code,arm,ill,flag\nh1,a,yes,no\nh2,b,no,no\n")
    found = read(path, client="hospital code", groups=("arm",), y="ill", y_hat="flag")
    assert found.clients == ["h1", "h2"]
    assert found.labels[found.positive] == "yes"


@pytest.mark.parametrize(
    "options",
    [{"y": "y", "y_hat": "y"}, {"y": "p", "score": "p"}, {"groups": ("y",)}, {"groups": ("p",)}],
    ids=str,
)
def test_no_column_is_label_prediction_and_group_at_once(table, options):
    with pytest.raises(AuditError, match="is used twice"):
        read(table("client,y,p\na,1,1\nb,0,1\n"), **({"y_hat": "p"} | options))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_told_from_the_header(table, separator):
    rows = [("client", "group", "accuracy"), ("a", "x", "90"), ("b", "y", "80")]
    assert values(table("\n".join(separator.join(row) for row in rows))) == [0.9, 0.8]


def test_blank_lines_quotes_and_a_byte_order_mark_are_no_matter(table):
    found = read(table(b'\xef\xbb\xbfclient,accuracy\r\n"a, b",90\r\n\r\nb,80\r\n'))
    assert found.clients == ["a, b", "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_told_from_the_bytes(table, encoding):
    found = read(
        table("client,group,accuracy\na,Zürich – Süd,90\nb,Osaka ,80\n", encoding=encoding)
    )
    assert found.groupings[0].groups == ["Osaka", "Zürich – Süd"]


def test_decimal_commas(table):
    assert values(table("client;accuracy\na;90,5\nb;80,25\n")) == [0.905, 0.8025]
    assert np.isnan(as_number("1,234"))  # 1.234 or 1234?
    assert as_number("1,234", decimal_comma=True) == 1.234


def test_parquet_xlsx_csv_and_frames_give_the_same(tmp_path):
    columns = {"site": ["a", "b", "a"], "sex": ["f", None, "m"], "y": [True, False, True]}
    frame = pd.DataFrame(columns | {"y_hat": [1.0, 0, 0]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    frame.to_csv(tmp_path / "t.csv", index=False)
    for source in (frame, tmp_path / "t.parquet", tmp_path / "t.xlsx", tmp_path / "t.csv"):
        found = read(source)
        assert found.clients == ["a", "b"]
        assert found.groupings[0].groups == ["f", "m", "unknown"]
        cells = found.cells
        assert cells["count"][cells["truth"] == cells["predicted"]].sum() == 2


def test_fractions_are_told_from_percentages(table):
    path = table("client,accuracy\na,0.9\nb,1.0\n")
    assert values(path) == [0.9, 1.0]
    assert any("as fractions" in note for note in read(path).notes)


def test_probabilities_and_scores_become_predictions(table):
    path = table("y,p,group\n1,0.9,a\n0,0.4,a\n1,0.2,b\n")
    found = read(path, y_hat="p")
    assert any("0.5 or more" in note for note in found.notes)
    assert found.bins is not None
    strict = read(path, score="p", threshold=0.95)
    assert {strict.labels[code] for code in strict.cells["predicted"]} == {"0"}


def test_any_measure_of_clients_is_a_score(table):
    found = read(table("client,group,AUROC\na,x,0.9\nb,y,0.7\n"), score="auroc")
    assert found.title == "AUROC"
    assert found.higher_is_better
    errors = read(table("client,group,rmse\na,x,12\nb,y,9\n"), score="rmse")
    assert not errors.higher_is_better


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "is empty"),
        ("client,accuracy\n", {}, "no rows"),
        ("user,acuracy\na,1\n", {}, "did you mean 'acuracy'"),
        ("client,y\na,1\n", {}, "no column 'y_hat'"),
        ("client,accuracy,accuracy\na,1,2\n", {}, "two columns 'accuracy'"),
        ("client,accuracy\na,90\nb,\n", {}, "row 2 has nothing in column 'accuracy'"),
        ("client,accuracy\na,90\nb,ninety\n", {}, "row 2 has 'ninety' in column 'accuracy'"),
        ("client,accuracy\na,101\n", {}, "row 1 has '101' in column 'accuracy'"),
        ("client,accuracy,n\na,90,0\n", {}, "row 1 has '0' in column 'n'"),
        ("client,accuracy,n\na,90,1e308\n", {}, "at most 1e15"),
        ("client,accuracy\n,90\n", {}, "row 1 has nothing in column 'client'"),
        ("client,accuracy\na,90\nb,80,70\n", {}, "Expected 2 fields in line 3, saw 3"),
        ("client,accuracy\na,90\na,80\n", {}, "row 2 has the client and group of a row above"),
        ("client,accuracy\na,0.9\nb,85\n", {}, "mixes fractions and percentages"),
        ("client,accuracy\na,90 %\nb,85\n", {}, "row 1 has '90 %' in column 'accuracy'"),
        ("y,y_hat\nyes,1\nno,0\n", {}, "Use the same labels"),
        ("y,y_hat\n1,0.5\n0,37.5\n", {}, "pass --threshold"),
        ("y,y_hat\n1,\n0,1\n", {}, "leave such rows out with --drop-missing"),
        ("y,y_hat\nill,ill\nwell,ill\n", {"positive": "sick"}, "no label 'sick'"),
        ("y_hat,group\nred,a\nblue,b\n", {}, "name it with --positive"),
        ("y,y_hat\n1,1\n", {"groups": ("sexx",)}, "--group: scores.csv has no column 'sexx'"),
        ("label,target,y_hat\n1,1,1\n", {}, "choose one with --y"),
        ("y,y_hat,sex\n1,1,f\n", {"profile": "ll144"}, "no column 'race'"),
        (b"client,accuracy\n\x81\xff\x8d,90\n", {}, "not a readable table"),
        ("y,y_hat\n0.3,1\n0.7,0\n", {}, "not a label"),
        ("y,s\n1,a\n0,b\n", {"y_hat": "s", "threshold": 0.5}, "holds labels, not numbers"),
    ],
)
def test_mistakes_are_named_by_row_and_column(table, text, options, words):
    with pytest.raises(AuditError) as caught:
        read(table(text), **options)
    assert words in str(caught.value)


def test_all_mistakes_are_told_at_once(table):
    with pytest.raises(AuditError, match="4 mistakes") as caught:
        read(table("client,accuracy,n\na,x,1\n,90,0\nc,80,5\nd,nan,7\n"))
    for part in ("row 1 has 'x'", "row 2 has nothing", "row 2 has '0'", "row 4 has nothing"):
        assert part in str(caught.value)
    many = "client,accuracy\n" + "\n".join(f"c{place},?x" for place in range(500))
    with pytest.raises(AuditError, match="500 mistakes") as caught:
        read(table(many))
    assert len(str(caught.value).splitlines()) < 30


def test_rows_and_the_same_rows_counted_up_agree():
    rng = np.random.default_rng(2)
    client = rng.integers(0, 9, 500)
    frame = pd.DataFrame({"client": client, "y": rng.integers(0, 3, 500)})
    frame["y_hat"] = rng.integers(0, 3, 500)
    right = (frame.y == frame.y_hat).groupby(frame.client)
    counted = pd.DataFrame({"accuracy": 100 * right.mean(), "n": right.size()}).reset_index()
    one, two = (audit(each).spread.measures for each in (frame, counted))
    assert one == pytest.approx(two)


def test_what_is_not_a_table_is_one_clear_line(tmp_path):
    (tmp_path / "x.csv").write_bytes(gzip.compress(b"client,accuracy\na,90\n"))
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "x.xlsx").write_bytes(b"PK and no more")
    for name in ("x.csv", "x.parquet", "x.xlsx", "none.csv", "."):
        with pytest.raises(AuditError):
            read(tmp_path / name)
