"""One table: exact in CSV, escaped in LaTeX and HTML, readable in a terminal."""

import csv
import io
import json
import math

from e2fl.metrics import MEASURES
from e2fl.report.table import Column, Table, byte_unit

COLUMNS = (Column("a", "algorithm"), Column("b", "50 %", head="a_b"))


def table(*rows, columns=COLUMNS, **more):
    return Table("t", "two\nlines", columns, rows, **more)


def test_a_table_is_exact_in_csv_and_runs_nothing_in_a_spreadsheet():
    columns = (Column("a", "a"), Column("=1+1", "b"), Column("c", "c"), Column("d", "d", scale=0.5))
    names = ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\tx", "plain"]
    cells = {"=1+1": -1.5, "=1+1_low": -2.25, "=1+1_high": 1 / 3, "c": 7}
    text = table(*({"a": name, **cells} for name in names), columns=columns).csv()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["a", "'=1+1", "'=1+1_low", "'=1+1_high", "c", "d"]
    first = ["'=HYPERLINK(1)", "+1", "-1", "'@SUM(A1)", "'\tx", "plain"]
    assert [row[0] for row in rows[1:]] == first
    assert rows[1][1:] == ["-1.5", "-2.25", repr(1 / 3), "7", ""]  # numbers stay numbers


def test_bytes_have_a_unit_that_shows_them():
    assert byte_unit([3.0 * 2**20, 0.5 * 2**20]) == ("MiB", 2**20, 2)
    assert byte_unit([5000.0, None]) == ("KiB", 2**10, 2)
    assert byte_unit([640.0]) == ("bytes", 1.0, 0)
    columns = (Column("a", "a"), MEASURES["inference/bytes"])
    row = {"a": "x", "inference/bytes": 366825600.0}
    assert "366,825,600 " in table(row, columns=columns).latex()


def test_the_latex_table_is_a_float_with_a_label_and_everything_escaped():
    row = {"a": "x & y_z\\", "b": -1.5, "b_low": -2.25, "b_high": 0.25}
    text = table(row, bold={(0, "b")}).latex()
    for part in (
        r"\caption{two lines}",
        r"\label{tab:t}",
        r"x \& y\_z\textbackslash{} & \textbf{$-$1.50} ($-$2.2 to 0.2) \\",
        r"\multicolumn{1}{c}{A\_b}",
        r"\cmidrule(lr){2-2}",
        r"\begin{tabular}{lr}",
    ):
        assert part in text
    assert r"\begin{tabular}{ll}" in table({"a": "x", "b": "words"}).latex()


def test_plus_minus_is_a_cell_beside_and_a_long_head_does_not_run_into_the_next_one():
    made = table({"a": "x", "b": 1.234, "b/std": 0.5}, {"a": "y"}, note="± is it.")
    assert made.text().splitlines() == [
        "           a_b",
        "algorithm         50 %",
        "----------------------",
        "x          1.23 ± 0.50",
        "y                    –",
        "",
        "± is it.",
    ]
    assert r"1.23 \(\pm\) 0.50" in made.latex()
    assert made.csv().splitlines() == ["a,b,b/std", "x,1.234,0.5", "y,,"]
    columns = (Column("a", "a"), Column("b", "b", head="a long head"), Column("c", "c", head="c"))
    assert "a long head  c" in table({"a": "x", "b": 1.0, "c": 2.0}, columns=columns).text()


def test_what_chance_gives_stands_beside_a_value_and_below_a_text():
    made = table({"a": "<i>x", "b": 113.0, "b_chance": 141.2})
    assert "chance 141.2" in made.html()
    assert "<i>" not in made.html()
    assert "141.20" in made.text().split("What chance alone gives")[1]


def test_what_is_not_finite_is_missing():
    made = table({"a": "x", "b": 1.0, "b_high": math.inf}, {"a": "y", "b": math.nan})
    written = made.csv() + made.latex() + made.text() + json.dumps(made.json(), allow_nan=False)
    assert "inf" not in written
    assert "nan" not in written
