"""The report of real runs: the page, its tables, its files, and what it does when things are missing."""

import csv
import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from e2fl.config.experiment import with_seed
from e2fl.errors import ReportError, RunError
from e2fl.report import report, report_runs
from e2fl.report.chart import frame
from e2fl.report.contents import difference_table, main_table
from e2fl.report.definitions import DEFINITIONS
from e2fl.report.from_runs import read_runs, study_of
from e2fl.report.study import MEASURES, pareto
from e2fl.report.table import Cell, Column, Table
from e2fl.report.theme import ON_PAGE
from e2fl.runs.compare import compare, contenders
from e2fl.runs.runner import read_run, run_experiment
from tests.conftest import ROOT
from tests.studies import contender, study

pytest.importorskip("vl_convert", reason="the page needs the extra 'report'")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A comparison of three algorithms with two seeds, on disk."""
    from e2fl.config.experiment import from_dict

    toy = from_dict(
        {
            "name": "toy",
            "rounds": 4,
            "evaluate_every": 2,
            "data": {"name": "e2fl.testing.toy:Toy"},
            "model": {"name": "mlp", "hidden": [24]},
            "learner": {"learning_rate": 0.1, "batch_size": 8, "epochs": 2},
            "algorithm": {"name": "e2fl", "clients_per_round": 4},
        }
    )
    folder = tmp_path_factory.mktemp("runs") / "all"
    compare(contenders(toy, ["local", "fedavg", "e2fl"]), [0, 1], out=folder)
    (folder / "command.txt").write_text("e2fl compare toy --algorithms local,fedavg,e2fl\n")
    return folder


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory):
    """The page and the files of that comparison."""
    out = tmp_path_factory.mktemp("page")
    report_runs([runs], out / "report.html", export_to=out / "files")
    return out


class Cells(HTMLParser):
    """The cells of all tables of a page that hold a number, with the row and column they stand in."""

    def __init__(self, text):
        super().__init__()
        self.table, self.row, self.heading, self.found, self.tags = "", "", False, {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append((tag, given))
        if tag == "table":
            self.table = given["id"].removeprefix("table-")
        self.heading = tag == "th" and given.get("scope") == "row"
        if tag == "td" and "data-value" in given:
            self.found[self.table, self.row, given["data-key"]] = float(given["data-value"])

    def handle_data(self, text):
        if self.heading:
            self.row, self.heading = text, False


def test_the_main_table_holds_the_means_of_the_summaries(runs, made):
    cells = Cells((made / "report.html").read_text()).found
    names = {"local": "Local", "fedavg": "FedAvg", "e2fl": "E2FL"}
    for name, label in names.items():
        summaries = [json.loads((runs / f"{name}-seed{seed}" / "summary.json").read_text()) for seed in (0, 1)]
        for measure in MEASURES:
            part, key = measure.key.split("/")
            expected = sum(summary[part][key] for summary in summaries) / 2 * measure.scale
            assert cells["main", label, measure.key] == pytest.approx(expected), (label, measure.key)
        for group in summaries[0]["groups"]:
            expected = sum(summary["groups"][group]["accuracy"] for summary in summaries) / 2
            assert cells["groups", group, f"{label}/accuracy"] == pytest.approx(expected)


def test_the_page_is_one_file_that_asks_for_nothing(made):
    text = (made / "report.html").read_text()
    assert len(text.encode()) < 6_000_000
    for tag, given in Cells(text).tags:
        assert tag not in ("iframe", "object", "embed", "base"), tag
        for name in ("src", "href", "action", "srcset", "poster"):
            address = given.get(name) or "#"
            assert address.startswith(("#", "data:")), (tag, address)
        assert not [name for name in given if name.startswith("on")]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert text.count("University of Washington") == 1  # what is inside keeps its notice


def test_the_page_says_how_to_repeat_it(made):
    text = (made / "report.html").read_text()
    assert "e2fl compare toy --algorithms local,fedavg,e2fl" in text
    assert "clients_per_round = 4" in text
    assert "e2fl.testing.toy:Toy" in text
    assert "python 3" in text


def test_every_plot_has_words_and_a_table_behind_it(made):
    text = (made / "report.html").read_text()
    plots = re.findall(r'<div class="plot" id="plot-([^"]*)" role="img" aria-label="([^"]*)"', text)
    assert {key for key, _ in plots} >= {
        "group-accuracy",
        "group-loss",
        "distribution",
        "gains",
        "curve-mean-round",
        "curve-worst-mib",
        "curve-variance-round",
        "tradeoff-mean",
        "tradeoff-mib",
        "sizes",
        "labels",
    }
    assert all(len(alt) > 20 for _, alt in plots)
    for section in re.findall(r"<section .*?</section>", text, re.S):
        if 'class="plot"' in section:
            assert '<details class="behind"' in section


def test_every_table_and_plot_becomes_files(made):
    files = {path.name for path in (made / "files").iterdir()}
    for table in ("main", "differences", "groups", "distribution", "gains", "curves", "tradeoff", "sizes"):
        assert {f"{table}.csv", f"{table}.tex"} <= files
    for plot in ("group-accuracy", "distribution", "gains", "curve-mean-round", "tradeoff-mean"):
        svg = (made / "files" / f"{plot}.svg").read_text()
        assert svg.startswith("<svg")
        assert "var(--" not in svg  # a file has no style sheet
        assert (made / "files" / f"{plot}.png").read_bytes().startswith(b"\x89PNG")
    everything = json.loads((made / "files" / "report.json").read_text())
    assert everything["verdict"]
    assert everything["tables"]["main"]["rows"][0]["algorithm"] == "Local"
    with (made / "files" / "main.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["algorithm"] for row in rows] == ["Local", "FedAvg", "E2FL", "E2FL (GM)"]
    assert float(rows[2]["user/mean_ci95"]) >= 0
    assert len((made / "files" / "clients.csv").read_text().splitlines()) == 1 + 4 * 2 * 8


def test_the_latex_table_is_booktabs_with_everything_escaped():
    columns = (Column("a", "algorithm"), Column("b", "50 %", head="a_b"))
    table = Table("t", "two\nlines", columns, ((Cell("x & y_z\\"), Cell(-1.5, 0.25, best=True)),))
    text = table.latex()
    assert text.splitlines()[0] == "% two lines"
    assert r"\toprule" in text
    assert r"x \& y\_z\textbackslash{} & \textbf{$-$1.50} $\pm$ 0.25 \\" in text
    assert r"\multicolumn{1}{c}{a\_b}" in text
    assert text.count("&") - text.count(r"\&") == 3  # one in each of three rows


def test_the_best_cell_is_marked_and_ties_are_marked_together():
    table = main_table(study(contender("A", {"x": 90, "y": 80}), contender("B", {"x": 95, "y": 80})))
    marks = {column.key: [row[place].best for row in table.rows] for place, column in enumerate(table.columns)}
    assert marks["group/mean"] == [False, True]
    assert marks["group/worst10"] == [True, True]
    assert marks["group/variance"] == [True, False]  # less is better


def test_sending_nothing_is_no_merit():
    table = main_table(study(contender("Local", {"x": 90}, alone=True), contender("B", {"x": 95})))
    place = [column.key for column in table.columns].index("bytes/up_per_client_round")
    assert not table.rows[0][place].best


def test_differences_are_judged():
    first = contender("A", {"x": 90, "y": 80}, {"x": 91, "y": 81})
    second = contender("B", {"x": 80, "y": 70}, {"x": 82, "y": 70})
    table = difference_table(study(first, second), first)
    keys = [column.key for column in table.columns]
    assert table.rows[0][keys.index("user/mean")].value == pytest.approx(10.0)
    assert table.rows[0][keys.index("user/mean_noise")].value == "beyond noise"  # 10 and 10
    assert table.rows[0][keys.index("user/variance_noise")].value == "within noise"  # 0 and -11
    assert difference_table(study(first, replace(first, label="C")), first).rows[0][2].value == "equal"


def test_who_is_not_beaten_in_everything():
    alone = contender("Local", {"x": 70, "y": 70}, alone=True)  # sends nothing: cannot be beaten in bytes
    good = contender("Good", {"x": 90, "y": 85})
    poor = contender("Poor", {"x": 89, "y": 80})
    fronts = {front.contender.label: front.beaten_by for front in pareto(study(alone, good, poor))}
    assert fronts == {"Local": (), "Good": (), "Poor": ("Good",)}


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(toy, tmp_path):
    for place, variant in enumerate((toy, replace(toy, rounds=2), with_seed(toy, 1))):
        run_experiment(variant, out=tmp_path / f"r{place}")
    made = study_of(read_runs([tmp_path])[0])
    labels = {c.label: c.seeds for c in made.main}
    assert labels == {"E2FL [rounds=6]": (0, 1), "E2FL [rounds=2]": (0,)}
    assert any("same number of rounds" in caution for caution in made.cautions)
    assert any("every seed" in caution for caution in made.cautions)


def test_a_run_given_twice_is_said_so(runs):
    one = read_run(runs / "e2fl-seed0")
    made = study_of([one, one])
    assert made.main[0].seeds == (0,)
    assert any("twice" in caution for caution in made.cautions)


def test_unfinished_runs_are_left_out_and_named(runs, tmp_path):
    shutil.copytree(runs / "e2fl-seed0", tmp_path / "done")
    shutil.copytree(runs / "e2fl-seed1", tmp_path / "half")
    (tmp_path / "half" / "summary.json").unlink()
    made = report_runs([tmp_path], tmp_path / "report.html")
    assert made.main[0].seeds == (0,)
    assert "half is not finished" in (tmp_path / "report.html").read_text()
    with pytest.raises(RunError, match="--resume"):
        report_runs([tmp_path / "half"], tmp_path / "no.html")
    with pytest.raises(RunError, match="holds no run"):
        report_runs([tmp_path / "nowhere"], tmp_path / "no.html")


def test_missing_data_does_not_break_a_report(runs, tmp_path):
    shutil.copytree(runs / "fedavg-seed0", tmp_path / "run")
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().replace("e2fl.testing.toy:Toy", "gone.away:Data"))
    report_runs([tmp_path / "run"], tmp_path / "report.html")
    assert "No picture of the data could be drawn" in (tmp_path / "report.html").read_text()


def test_without_the_plotting_library_a_run_goes_on_and_says_how_to_get_it(toy, tmp_path):
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    code = (
        "import sys; sys.modules['vl_convert'] = None; from e2fl.cli import main; "
        "sys.exit(main(['run', 'toy.toml', '--out', 'out']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "pip install 'e2fl[report]'" in done.stderr
    assert (tmp_path / "out" / "summary.json").is_file()
    assert not (tmp_path / "out" / "report.html").exists()


def test_what_is_no_finite_number_is_a_dash_on_the_page_and_the_verdict_says_why(tmp_path, toy):
    huge = replace(toy, algorithm={"name": "tests.test_runner:Huge", "clients_per_round": 4})
    runs = [
        run_experiment(with_seed(made, seed), out=tmp_path / made.label / str(seed))
        for made in (huge, toy)
        for seed in (0, 1)
    ]
    for given in (runs, [read_run(run.folder) for run in runs]):  # as they are in memory, and as they are on disk
        report(given, tmp_path / "out.html")
        text = (tmp_path / "out.html").read_text()
        cells = Cells(text).found
        assert ("groups", "G1", "Huge/accuracy") in cells
        assert ("groups", "G1", "E2FL/loss") in cells
        assert ("groups", "G1", "Huge/loss") not in cells
        assert 'id="verdict">Huge diverged: the models of 8 clients' in text
        plots = json.loads(re.search(r'id="plots">(.*?)</script>', text, re.S)[1], parse_constant=pytest.fail)
        assert {row["label"] for row in plots["plot-group-loss"]["data"]["values"]} == {"E2FL", "E2FL (GM)"}
    report_runs([tmp_path], tmp_path / "again.html", export_to=tmp_path / "files")
    json.loads((tmp_path / "files" / "report.json").read_text(), parse_constant=pytest.fail)


def test_plots_and_tables_bear_numbers_that_are_none():
    rows = [{"label": "a", "low": -math.inf, "high": math.nan, "value": 1e300}]
    assert frame(ON_PAGE, 100, [], rows)["data"]["values"] == [
        {"label": "a", "low": None, "high": None, "value": 1e300}
    ]
    table = Table("t", "t", (Column("a", "a"), Column("b", "b")), ((Cell("x"), Cell(1.0, math.inf)),))
    assert "inf" not in table.html() + table.latex() + json.dumps(table.json())


def test_every_definition_is_in_the_handbook():
    text = (ROOT / "docs" / "metrics.md").read_text()
    for title, _ in DEFINITIONS.values():
        assert f"## {title}" in text, title


def test_every_link_to_a_definition_leads_somewhere(made):
    tags = Cells((made / "report.html").read_text()).tags
    anchors = {given["id"] for _, given in tags if "id" in given}
    links = {given["href"][1:] for tag, given in tags if tag == "a" and given["href"].startswith("#")}
    assert links <= anchors


def test_a_library_that_could_break_out_of_the_page_is_refused(monkeypatch):
    import vl_convert

    from e2fl.report import html as page

    page.script.cache_clear()
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: "'</SCRIPT>'")
    with pytest.raises(ReportError):
        page.script()
    page.script.cache_clear()
