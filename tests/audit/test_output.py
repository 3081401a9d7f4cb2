"""What an audit writes: a safe page, whole without scripts, JSON, CSV; never over an input."""

import base64
import csv
import hashlib
import io
import json
import re
import signal
import subprocess
import sys

import pandas as pd
import pytest

import e2fl
from e2fl.cli import main
from e2fl_audit import AuditError, audit
from e2fl_audit.command import main as own_main
from e2fl_audit.files import write
from e2fl_audit.page import neutral
from e2fl_audit.wording import safe
from tests.audit.tables import people

EVIL = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</script><script>alert(1)</script>",
    "{{ 7 * 7 }}{% include 'x' %}",
    "a/b\\c\u202ed",
    "=HYPERLINK(1)",
    "@SUM(A1)",
    "x" * 300,
]


def evil_table():
    rows = [(f"{EVIL[n % 8]}{n}", EVIL[n % 8], n % 2, n % 3 == 0) for n in range(800)]
    return pd.DataFrame(rows, columns=["client", "group", "y", "y_hat"])


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "people.csv"
    people().to_csv(path, index=False)
    return path


def python(code):
    line = [sys.executable, "-c", code]
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=600)


def test_python_and_both_commands_find_the_same(table, tmp_path):
    frame = pd.read_csv(table)
    for run, words in ((main, ["audit"]), (own_main, [])):
        assert run([*words, str(table), "--json", str(tmp_path / "a.json")]) == 0
        ours = json.loads((tmp_path / "a.json").read_text())["rates"]
        assert ours == audit(frame).to_dict()["rates"]
    names = {"y_true": "y", "y_pred": "y_hat", "sensitive_features": "sex", "client": "client"}
    arrays = {role: frame[name] for role, name in names.items()}
    for found in (e2fl.audit(frame, **names), e2fl.audit(**arrays), e2fl.audit(table)):
        assert found.to_dict()["rates"] == ours
        assert isinstance(found, e2fl.Audit)


def test_frames_a_notebook_form_and_the_order_of_rows():
    found = audit(people())
    assert found.rates.equals(audit(people().sample(frac=1, random_state=1)).rates)
    assert found.by_group.loc["sex"].index.tolist() == ["f", "m"]
    assert {"value", "low", "high", "ratio", "p_holm", "status"} <= set(found.rates.columns)
    assert len(found.clients) == 20
    assert "<table" in found._repr_html_()
    assert "<script" not in found._repr_html_()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "pass a table"),
        ({"y_true": [1, 0], "y_pred": [1, 0, 1]}, "same number of rows"),
        ({"data": people(9), "y_pred": [1] * 9}, "name columns"),
        ({"data": people(9), "sensitive_features": people(9)["sex"]}, "name columns"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(given, words):
    with pytest.raises(AuditError, match=words):
        audit(**given)


def test_the_record_has_date_digest_command_and_fields_to_sign(table, tmp_path):
    assert main(["audit", str(table)]) == 0
    page = (tmp_path / "people-audit.html").read_text()
    assert hashlib.sha256(table.read_bytes()).hexdigest() in page
    assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", page)
    for word in ("e2fl audit", "System", "Purpose", "Date and signature"):
        assert word in page


def test_an_input_is_never_overwritten(table, tmp_path, capsys):
    before = table.read_bytes()
    (tmp_path / "link.csv").symlink_to(table)
    for option, path in (("--out", table), ("--json", tmp_path / "link.csv")):
        assert main(["audit", str(table), option, str(path)]) == 2
        assert "is the table itself" in capsys.readouterr().err
    same = str(tmp_path / "a")
    assert main(["audit", str(table), "--out", same, "--json", same]) == 2
    assert table.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "people.csv"]


def test_nothing_partial_is_left_behind(table, tmp_path, monkeypatch, capsys):
    assert main(["audit", str(table), "--out", str(table / "x" / "page.html")]) == 2
    assert "cannot write" in capsys.readouterr().err
    target = tmp_path / "page.html"
    target.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
    with pytest.raises(AuditError, match="No space"):
        write(target, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "people.csv"]
    assert target.read_text() == "old"


def test_an_audit_is_light(table):
    """It imports neither torch nor Numba nor e2fl."""
    code = (
        f"import sys; from e2fl_audit.command import main; main([{str(table)!r}]); "
        "print(sorted({'torch', 'numba', 'sklearn', 'scipy.stats', 'e2fl'} & set(sys.modules)))"
    )
    assert python(code).stdout.splitlines()[-1] == "[]"


def test_without_the_package_e2fl_says_what_to_install():
    code = (
        "import sys; sys.modules['e2fl_audit'] = None; from e2fl.cli import main\n"
        "print(main(['audit', 'x.csv', '--group', 'sex']))\n"
        "import e2fl\n"
        "try: e2fl.audit\n"
        "except ImportError as error: print(error)"
    )
    shown = python(code)
    assert "pip install 'e2fl[audit]'" in shown.stderr
    assert shown.stdout.splitlines()[0] == "2"
    assert "pip install 'e2fl[audit]'" in shown.stdout


def test_foreign_names_are_harmless_in_the_page_the_notebook_and_the_plots(tmp_path):
    path = tmp_path / "<b>evil.csv"
    evil_table().to_csv(path, index=False)
    found = audit(path)
    for text in (found.to_html(), found._repr_html_()):
        for words in ("<script>document", "<img", "<b>", "\u202e"):
            assert words not in text
    assert found.to_html().count("<script") == 1
    assert safe("a\u202eb\x00") == "a\ufffdb\ufffd"


def test_the_page_allows_its_own_style_and_script_only(table):
    page = audit(table).to_html()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    policy = policy.replace("&#39;", "'")
    for tag in ("style", "script"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert " style=" not in page


def test_spreadsheets_run_no_cell_of_the_tables_in_the_page():
    page = audit(people(groups=("=1+1", "-cmd|' /C calc'!A0"))).to_html()
    tables = [base64.b64decode(text) for text in re.findall(r"text/csv[^,]*,([^\"]+)", page)]
    assert len(tables) == 2
    for text in tables:
        for row in csv.reader(io.StringIO(text.decode())):
            assert not any(re.match(r"[=@]|[+-](?![\d.])", cell) for cell in row)
    numbers = ["-0.5", -0.5, "+1e3", "plain", 3]
    assert [neutral(value) for value in numbers] == numbers


def test_the_terminal_has_the_rates_by_group(table, capsys):
    assert own_main([str(table)]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if line.split()[:3] == ["sex", "n", "Accuracy"])
    assert {line.split()[0] for line in lines[lines.index(header) + 1 :][:2]} == {"f", "m"}


def test_an_interrupted_audit_leaves_nothing(table):
    code = (
        "import signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from e2fl_audit import api; from e2fl.cli import main\n"
        "api.overall = lambda *_: (print('started', flush=True), time.sleep(600))\n"
        f"sys.exit(main(['audit', {str(table)!r}]))"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as started:
        assert started.stdout.readline() == "started\n"
        started.send_signal(signal.SIGINT)
        said = started.communicate(timeout=600)[1]
    assert started.returncode == 130
    assert "nothing was written" in said
    assert list(table.parent.iterdir()) == [table]
