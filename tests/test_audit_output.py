"""What an audit writes: a safe page that is whole without scripts, JSON, CSV without formulas, never over an input."""

import csv
import io
import json
import re
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import e2fl
from e2fl.auditing import output
from e2fl.auditing.dotplot import dot_plot, safe
from e2fl.cli import main
from e2fl.csv_text import csv_text, neutral
from e2fl.errors import ConfigError, StorageError

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


def people(n=400, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    columns = {"client": rng.integers(0, 20, n), "sex": rng.choice(["f", "m"], n), "y": y}
    return pd.DataFrame(columns | {"y_hat": np.where(rng.random(n) < 0.8, y, 1 - y)})


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "people.csv"
    people().to_csv(path, index=False)
    return path


def test_python_and_the_command_find_the_same(table, tmp_path, capsys):
    frame = pd.read_csv(table)
    assert main(["audit", str(table), "--json", str(tmp_path / "a.json")]) == 0
    ours = json.loads((tmp_path / "a.json").read_text())["tables"][0]["groupings"]
    theirs = e2fl.audit(frame, y_true="y", y_pred="y_hat", sensitive_features="sex", client="client").to_dict()
    assert ours == theirs["tables"][0]["groupings"]
    arrays = e2fl.audit(y_true=frame.y, y_pred=frame.y_hat, sensitive_features=frame[["sex"]], client=frame.client)
    assert arrays.to_dict()["tables"][0]["groupings"] == ours
    assert e2fl.audit(table).to_dict()["tables"][0]["groupings"] == ours
    assert isinstance(e2fl.audit(table), e2fl.Audit)


def test_the_order_of_rows_does_not_matter():
    frame = people()
    shuffled = frame.sample(frac=1, random_state=1)
    assert e2fl.audit(frame).rates.equals(e2fl.audit(shuffled).rates)


def test_frames_and_a_notebook_form():
    found = e2fl.audit(people())
    assert found.by_group.loc["sex"].index.tolist() == ["f", "m"]
    assert {"value", "low", "high", "ratio", "p_holm", "status"} <= set(found.rates.columns)
    assert len(found.clients) == 20
    assert "<table>" in found._repr_html_()
    assert "<script" not in found._repr_html_()


def test_arrays_of_different_length_are_refused():
    with pytest.raises(ConfigError, match="same number of rows"):
        e2fl.audit(y_true=[1, 0], y_pred=[1, 0, 1])
    with pytest.raises(ConfigError, match="pass a table"):
        e2fl.audit()


def test_the_record_has_date_digest_command_and_fields_to_sign(table, tmp_path):
    import hashlib

    assert main(["audit", str(table), "--auditor", "A. Example", "--system", "Triage 2"]) == 0
    page = (tmp_path / "people-audit.html").read_text()
    assert hashlib.sha256(table.read_bytes()).hexdigest() in page
    assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", page)
    assert "e2fl audit" in page
    for word in ("A. Example", "Triage 2", "Purpose", "Date and signature"):
        assert word in page


def test_an_input_is_never_overwritten(table, tmp_path, capsys):
    before = table.read_bytes()
    (tmp_path / "link.csv").symlink_to(table)
    for options in (
        ["--out", str(table)],
        ["--json", str(tmp_path / "link.csv")],
        ["--pdf", str(tmp_path / "." / "people.csv")],
    ):
        assert main(["audit", str(table), *options]) == 2
        assert "is the table itself" in capsys.readouterr().err
    assert main(["audit", str(table), "--out", str(tmp_path / "a"), "--json", str(tmp_path / "a")]) == 2
    assert table.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "people.csv"]


def test_nothing_partial_is_left_behind(tmp_path, monkeypatch):
    target = tmp_path / "page.html"
    target.write_text("old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StorageError, match="the disk is full; free some space"):
        output.write(target, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert target.read_text() == "old"


def test_a_place_that_cannot_be_written_is_one_clear_line(table, capsys):
    assert main(["audit", str(table), "--out", str(table / "x" / "page.html")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_an_interrupted_audit_does_not_advise_resume(table, monkeypatch, capsys):
    monkeypatch.setattr("e2fl.auditing.reader.read_table", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["audit", str(table)]) == 130
    said = capsys.readouterr().err
    assert "resume" not in said
    assert "nothing was written" in said


def test_an_audit_imports_neither_torch_nor_numba(table):
    code = (
        "import sys, e2fl; from e2fl.cli import main; "
        f"assert main(['audit', {str(table)!r}]) == 0; e2fl.audit({str(table)!r}).to_html(); "
        "print(sorted({'torch', 'numba', 'sklearn', 'scipy.stats'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_an_installation_without_torch_says_which_extra_to_install(tmp_path):
    """With torch and Numba hidden, an audit works and training says what it needs."""
    path = tmp_path / "people.csv"
    people().to_csv(path, index=False)
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numba'] = None; from e2fl.cli import main; "
        f"print(main(['audit', {str(path)!r}]), main(['run', 'demo']))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert shown.stdout.splitlines()[-1] == "0 2"
    assert "pip install 'e2fl[train]'" in shown.stderr


def test_500_rows_take_about_a_second_of_processor_time(table):
    code = (
        "import resource; from e2fl.cli import main; "
        f"main(['audit', {str(table)!r}]); u = resource.getrusage(resource.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert float(shown.stdout.splitlines()[-1]) < 2.5  # about 1 s on a busy machine


def test_foreign_names_are_harmless_in_the_page_the_notebook_and_the_plots(tmp_path):
    rows = [(f"{EVIL[n % 8]}{n}", EVIL[n % 8], n % 2, n % 3 == 0) for n in range(800)]
    path = tmp_path / "<b>evil.csv"
    pd.DataFrame(rows, columns=["client", "group", "y", "y_hat"]).to_csv(path, index=False)
    found = e2fl.audit(path)
    for text in (found.to_html(), found._repr_html_(), dot_plot(found.tables[0].results[0][0], standalone=True)):
        assert "<script>document" not in text
        assert "<img" not in text
        assert "<b>" not in text
        assert "\u202e" not in text
        assert "49" not in re.findall(r"\{\{.*?\}\}", text)
    assert found.to_html().count("<script") == 1
    assert safe("a\u202eb\x00") == "a\ufffdb\ufffd"


def test_the_page_allows_its_own_style_and_script_only(table, tmp_path):
    import base64
    import hashlib

    page = e2fl.audit(table).to_html()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert " style=" not in page


def test_every_group_is_named_in_the_static_plot_at_both_widths():
    rng = np.random.default_rng(0)
    names = [f"Group number {place}" for place in range(25)]
    frame = pd.DataFrame(
        {"group": rng.choice(names, 5000), "y": rng.integers(0, 2, 5000), "y_hat": rng.integers(0, 2, 5000)}
    )
    page = e2fl.audit(frame).to_html()
    for kind in ("wide", "narrow"):
        for plot in re.findall(rf'<svg class="dots {kind}".*?</svg>', page, re.S):
            for name in names:
                assert f"{name} (" in plot
    assert 'role="img" aria-label="Accuracy by group' in page


def test_spreadsheets_run_no_cell(tmp_path, table):
    assert neutral("=HYPERLINK(1)") == "'=HYPERLINK(1)"
    assert neutral("@SUM(A1)") == "'@SUM(A1)"
    assert [neutral(value) for value in ("-0.5", -0.5, "+1e3", "plain", 3)] == ["-0.5", -0.5, "+1e3", "plain", 3]
    assert csv_text([{"=a": "\t=1"}]).splitlines()[0] == "'=a"
    frame = people().assign(sex=lambda each: each.sex.map({"f": "=1+1", "m": "-cmd|' /C calc'!A0"}))
    frame.to_csv(table, index=False)
    assert main(["audit", str(table), "--export", str(tmp_path / "files")]) == 0
    for path in (tmp_path / "files").glob("*.csv"):
        for row in csv.reader(io.StringIO(path.read_text())):
            assert not any(re.match(r"[=@]|[+-](?![\d.])", cell) for cell in row)
    assert (tmp_path / "files" / "sex-accuracy.svg").exists()


def test_pdf_without_a_browser_says_what_to_do(table, monkeypatch, capsys):
    monkeypatch.setattr(output.shutil, "which", lambda _: None)
    assert main(["audit", str(table), "--pdf", str(table.with_suffix(".pdf"))]) == 2
    assert "open the page and print it" in capsys.readouterr().err


def test_options_that_do_not_fit_are_refused(table, capsys):
    for options, words in (
        (["--reference", "femal"], "no group 'femal'"),
        (["--group", "sexx"], "no column 'sexx'"),
        (["--resamples", "3"], "at least 50"),
        (["--threshold", "0.5", "--y-hat", "sex"], "holds labels, not numbers"),
    ):
        assert main(["audit", str(table), *options]) == 2
        assert words in capsys.readouterr().err
    assert not list(table.parent.glob("*.html"))


def test_a_terminated_audit_leaves_nothing(table):
    code = (
        "import signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from e2fl.auditing import result; from e2fl.cli import main\n"
        "result.overall = lambda *_: (print('started', flush=True), time.sleep(600))\n"
        f"sys.exit(main(['audit', {str(table)!r}]))"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as started:
        assert started.stdout.readline() == "started\n"
        started.send_signal(signal.SIGINT)
        said = started.communicate(timeout=600)[1]
    assert started.returncode == 130
    assert "nothing was written" in said
    assert "resume" not in said
    assert list(table.parent.iterdir()) == [table]


def test_an_export_never_overwrites_the_input(tmp_path, capsys):
    table = tmp_path / "clients.csv"
    table.write_text("client,group,accuracy\n" + "".join(f"c{n},{'ab'[n % 2]},0.{n + 10}\n" for n in range(20)))
    before = table.read_bytes()
    assert main(["audit", str(table), "--export", str(tmp_path)]) == 2
    assert "is the table itself" in capsys.readouterr().err
    assert table.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["clients.csv"]
