"""The report of real runs: the page, its tables, its files, and what it does when things are missing."""

import csv
import html
import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import altair as alt
import pytest

from e2fl.config.experiment import with_seed
from e2fl.errors import ReportError, RunError
from e2fl.metrics import COLUMNS
from e2fl.report import report_runs, write_report
from e2fl.report.chart import data, whole_numbers
from e2fl.report.export import export
from e2fl.report.from_runs import read_runs, study_of
from e2fl.report.page import page, write
from e2fl.report.sections import clients, groups
from e2fl.report.sections.data import section as data_section
from e2fl.report.sections.outcome import (
    budget_sentence,
    budget_table,
    difference_table,
    main_table,
)
from e2fl.report.study import pareto
from e2fl.report.theme import LIGHT, ON_PAGE
from e2fl.runs.compare import compare, methods
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import read_run
from e2fl.templates import asset
from tests.report.studies import method, study


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
    compare(methods(toy, ["local", "fedavg", "e2fl"]), [0, 1], out=folder)
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
        summaries = [
            json.loads((runs / f"{name}-seed{seed}" / "summary.json").read_text())
            for seed in (0, 1)
        ]
        for path in COLUMNS["page"]:
            part, key = path.split("/")
            if key == "std":
                expected = sum(math.sqrt(summary[part]["variance"]) for summary in summaries) / 2
            else:
                expected = sum(summary[part][key] for summary in summaries) / 2
            assert cells["main", label, path] == pytest.approx(expected), (label, path)
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
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1))
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


def test_every_plot_has_words_a_still_picture_and_a_table_behind_it(made):
    text = (made / "report.html").read_text()
    plots = re.findall(
        r'<div class="plot" id="plot-([^"]*)" role="img" aria-label="([^"]*)">(.*?)</div>',
        text,
        re.S,
    )
    assert {key for key, _, _ in plots} >= {
        "distribution",
        "gains",
        "curve-mean-round",
        "curve-worst-sent",
        "curve-std-round",
        "tradeoff-mean",
        "tradeoff-sent",
    }
    specs = json.loads(re.search(r'id="plots">(.*?)</script>', text, re.S)[1])
    for key, words, still in plots:
        assert len(words) > 20
        assert specs[f"plot-{key}"]["description"] == html.unescape(
            words
        )  # Vega puts it on the page again
        assert still.startswith("<svg")
    ids = re.findall(r'<[^>]* id="([^"]*)"', text)
    assert len(set(ids)) == len(ids)
    for section in re.findall(r"<section .*?</section>", text, re.S):
        if 'class="plot"' in section or 'class="dots"' in section:
            assert "<summary>Show the data: " in section


def test_every_group_is_a_row_with_its_name_its_size_and_a_dot_for_each_method(runs, made):
    text = (made / "report.html").read_text()
    plot = re.search(r'id="plot-group-accuracy".*?</figcaption>', text, re.S)[0]
    summary = json.loads((runs / "e2fl-seed0" / "summary.json").read_text())
    rows = re.findall(r"<li class=.*?</li>", plot, re.S)
    assert len(rows) == len(summary["groups"]) + 2  # all clients, and the axis
    for name, group in summary["groups"].items():
        row = next(row for row in rows if f"<b>{name}</b>" in row)
        assert f"{group['clients']} clients" in row
        assert row.count('class="dot') == 4
    values = [float(value) for value in re.findall(r'data-value="([\d.]+)"', plot)]
    assert values[1:-1] == sorted(values[1:-1])  # lowest first
    assert 'data-order="size"' in text


def test_every_table_and_plot_becomes_files(made):
    files = {path.name for path in (made / "files").iterdir()}
    for table in (
        "main",
        "differences",
        "groups",
        "distribution",
        "lowest",
        "gains",
        "curves",
        "tradeoff",
    ):
        assert {f"{table}.csv", f"{table}.tex"} <= files
    for plot in ("group-accuracy", "distribution", "gains", "curve-mean-round", "tradeoff-mean"):
        svg = (made / "files" / f"{plot}.svg").read_text()
        assert svg.startswith("<svg")
        assert "var(--" not in svg  # a file has no style sheet
        assert (made / "files" / f"{plot}.png").read_bytes().startswith(b"\x89PNG")
    everything = json.loads((made / "files" / "report.json").read_text())
    assert everything["verdict"]
    assert everything["tables"]["main"]["rows"][0]["method"] == "Local"
    with (made / "files" / "main.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["Local", "FedAvg", "E2FL", "E2FL (GM)"]
    assert (
        float(rows[2]["clients/mean_low"])
        <= float(rows[2]["clients/mean"])
        <= float(rows[2]["clients/mean_high"])
    )
    assert len((made / "files" / "clients.csv").read_text().splitlines()) == 1 + 4 * 2 * 8


def test_ticks_of_rounds_are_whole_numbers():
    for last in (2, 12, 13, 100, 3000):
        axis = whole_numbers(alt.X, "at", "round", [10 if last > 10 else 1, last]).to_dict()["axis"]
        assert axis["values"] == sorted({int(value) for value in axis["values"]})
        assert 2 <= len(axis["values"]) <= 8


def test_files_and_the_page_have_the_same_colours():
    palettes = [
        tuple(re.findall(r"--c\d: (#[0-9a-f]{6});", line))
        for line in asset("e2fl.report", "style.css").splitlines()
    ]
    light, dark, printed = (palette for palette in palettes if palette)
    assert light == printed == LIGHT
    assert len(dark) == len(LIGHT)


def test_the_best_cell_is_marked_and_ties_are_marked_together():
    table = main_table(study(method("A", {"x": 90, "y": 80}), method("B", {"x": 95, "y": 80})))
    assert {row for row, key in table.bold if key == "group/mean"} == {1}
    assert {row for row, key in table.bold if key == "group/worst10"} == {0, 1}
    assert {row for row, key in table.bold if key == "group/variance"} == {0}  # less is better


def test_sending_nothing_is_no_merit():
    table = main_table(study(method("Local", {"x": 90}, alone=True), method("B", {"x": 95})))
    assert (0, "bytes/up_per_client_round") not in table.bold


def test_differences_are_judged():
    first = method("A", {"x": 90, "y": 80}, {"x": 91, "y": 81})
    second = method("B", {"x": 80, "y": 70}, {"x": 82, "y": 70})
    table = difference_table(study(first, second), first)
    assert table.value(0, "clients/mean") == pytest.approx(10.0)
    assert table.value(0, "clients/mean_judged") == "significant (95 %)"  # 10 and 10
    assert table.value(0, "clients/std_judged") == "may be chance"  # 0 and -1
    same = difference_table(study(first, replace(first, label="C")), first)
    assert same.value(0, "clients/mean_judged") == "equal"


def test_who_is_not_beaten_in_everything():
    alone = method(
        "Local", {"x": 70, "y": 70}, alone=True
    )  # sends nothing: cannot be beaten in bytes
    good = method("Good", {"x": 90, "y": 85})
    poor = method("Poor", {"x": 89, "y": 80})
    fronts = {front.method.label: front.beaten_by for front in pareto(study(alone, good, poor))}
    assert fronts == {"Local": (), "Good": (), "Poor": ("Good",)}


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(toy, tmp_path):
    for place, variant in enumerate((toy, replace(toy, rounds=2), with_seed(toy, 1))):
        run_experiment(variant, out=tmp_path / f"r{place}")
    made = study_of(read_runs([tmp_path])[0])
    labels = {m.label: m.seeds for m in made.main}
    assert labels == {"E2FL [rounds=6]": (0, 1), "E2FL [rounds=2]": (0,)}
    assert any("same number of rounds" in warning for warning in made.warnings)
    assert any("every seed" in warning for warning in made.warnings)


def test_a_run_given_twice_is_said_so(runs):
    one = read_run(runs / "e2fl-seed0")
    made = study_of([one, one])
    assert made.main[0].seeds == (0,)
    assert any("twice" in warning for warning in made.warnings)


def test_unfinished_runs_are_left_out_and_named(runs, tmp_path):
    shutil.copytree(runs / "e2fl-seed0", tmp_path / "done")
    shutil.copytree(runs / "e2fl-seed1", tmp_path / "half")
    for name in ("summary.json", "manifest.json"):
        (tmp_path / "half" / name).unlink(missing_ok=True)
    made = report_runs([tmp_path], tmp_path / "report.html")
    assert made.main[0].seeds == (0,)
    assert "half is not finished" in (tmp_path / "report.html").read_text()
    with pytest.raises(RunError, match="--resume"):
        report_runs([tmp_path / "half"], tmp_path / "no.html")
    with pytest.raises(RunError, match="holds no run"):
        report_runs([tmp_path / "nowhere"], tmp_path / "no.html")


def test_a_report_never_imports_what_a_run_names(runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "fedavg-seed0", tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink(missing_ok=True)  # of the files as they were
    for name in ("evil", "worse"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Thing: ...\n"
        )
    path = tmp_path / "run" / "config.toml"
    text = (
        path.read_text()
        .replace("e2fl.testing.toy:Toy", "evil:Thing")
        .replace('"fedavg"', '"worse:Thing"')
    )
    path.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    report_runs([tmp_path / "run"], tmp_path / "report.html")
    assert not (tmp_path / "ran").exists()
    assert "evil:Thing" in (tmp_path / "report.html").read_text()


DATA = {
    "clients": 3,
    "examples": {"train": 30, "test": 12},
    "labels": ["no", "yes"],
    "groups": [{"name": "<b>G1", "clients": 3, "train": 30, "test": 12, "labels": [10, 20]}],
}


def test_the_data_section_shows_what_the_run_stored(runs, tmp_path):
    shutil.copytree(runs / "fedavg-seed0", tmp_path / "run")
    for name in ("data.json", "data.svg", "manifest.json"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
    report_runs([tmp_path / "run"], tmp_path / "without.html")
    text = (tmp_path / "without.html").read_text()
    assert 'id="data"' not in text
    assert "no stored description of their data (data.json)" in text
    (tmp_path / "run" / "data.json").write_text(json.dumps(DATA))
    (tmp_path / "run" / "data.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>"
    )
    report_runs([tmp_path / "run"], tmp_path / "with.html")
    text = (tmp_path / "with.html").read_text()
    assert "3 clients. 30 train and 12 test examples." in text
    assert '<img class="picture" src="data:image/svg+xml;base64,' in text
    assert "<script>1" not in text
    cells = Cells(text).found
    assert cells["data", "<b>G1", "label_yes"] == 20


@pytest.mark.parametrize(
    "damaged", ["{", "[]", "{}", '{"groups": 3, "labels": 4}', '{"groups": [{"labels": 1}, 2]}']
)
def test_a_damaged_description_of_the_data_does_not_break_a_report(runs, tmp_path, damaged):
    shutil.copytree(runs / "fedavg-seed0", tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink(missing_ok=True)  # of the files as they were
    (tmp_path / "run" / "data.json").write_text(damaged)
    made = study_of(read_runs([tmp_path])[0])
    data_section(made, ON_PAGE)


def test_budgets_are_facts_and_differences_are_said():
    def budget(epochs):
        return {"client_trainings": 10, "client_epochs": epochs, "examples": 10 * epochs}

    local = method("Local", {"A": 80}, alone=True, budget=budget(2000.0))
    fedavg = method("FedAvg", {"A": 80}, budget=budget(1200.0))
    assert budget_sentence(study(local, fedavg)) == (
        "Budgets differ: Local trains 2,000 client epochs, FedAvg trains 1,200."
    )
    table = budget_table(study(local, fedavg))
    keys = ("client_trainings", "client_epochs", "examples")
    assert [table.value(1, f"budget/{key}") for key in keys] == [10.0, 1200.0, 12000.0]
    assert (
        budget_sentence(study(fedavg, replace(fedavg, label="B")))
        == "All methods train 1,200 client epochs."
    )
    assert "The budget of C was not recorded." in budget_sentence(
        study(local, fedavg, method("C", {"A": 80}))
    )
    assert budget_table(study(method("C", {"A": 80}))) is None
    assert "same budget" not in page(study(local, fedavg))


def times_asked(**groups):
    return {
        name: {"clients": n, "asked": n * each, "asked_per_client": each}
        for name, (n, each) in groups.items()
    }


def test_a_group_that_is_asked_more_often_is_visible():
    made = study(
        method("E2FL", {"A": 80, "B": 70}, participation=times_asked(A=(8, 1.0), B=(2, 3.0)))
    )
    table = groups.participation_table(made)
    rows = [[table.value(row, key) for key in ("group", "clients", "E2FL")] for row in range(2)]
    assert rows == [["A", 8, 1.0], ["B", 2, 3.0]]
    assert "clients of B were asked 3.0 times on average, clients of A 1.0 times" in table.note
    assert "How often clients were asked to train" in page(made)


def test_groups_that_methods_find_differently_are_shown_without_their_sizes():
    one = method("A", {"found 0": 80}, participation=times_asked(**{"found 0": (8, 1.0)}))
    two = method("B", {"found 0": 80}, participation=times_asked(**{"found 0": (5, 2.0)}))
    table = groups.participation_table(study(one, two, groups_found=True))
    assert [column.title for column in table.columns] == ["found group", "A", "B"]
    assert [table.value(0, key) for key in ("group", "A", "B")] == ["found 0", 1.0, 2.0]


def test_found_groups_are_labelled(runs, tmp_path):
    shutil.copytree(runs / "e2fl-seed0", tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink(missing_ok=True)  # of the files as they were
    path = tmp_path / "run" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"groups_are": "found"}))
    report_runs([tmp_path / "run"], tmp_path / "out.html", export_to=tmp_path / "files")
    text = (tmp_path / "out.html").read_text()
    for words in (
        "Worst found group",
        "Accuracy by found group",
        ">found groups</th>",
        'id="def-found"',
    ):
        assert words in text
    assert "Found group" in (tmp_path / "files" / "groups.tex").read_text()


def test_the_report_does_not_import_torch():
    code = "import sys, e2fl.report.export, e2fl.report.from_runs; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.split() == ["False"]


def test_what_is_not_finite_is_a_dash_on_the_page_and_the_verdict_says_why(tmp_path, toy):
    huge = replace(toy, algorithm={"name": "tests.runs.helpers:Huge", "clients_per_round": 4})
    runs = [
        run_experiment(with_seed(made, seed), out=tmp_path / made.label / str(seed))
        for made in (huge, toy)
        for seed in (0, 1)
    ]
    for given in (
        runs,
        [read_run(run.folder) for run in runs],
    ):  # as they are in memory, and as they are on disk
        write_report(study_of(given), tmp_path / "out.html")
        text = (tmp_path / "out.html").read_text()
        cells = Cells(text).found
        assert ("groups", "G1", "Huge/accuracy") in cells
        assert ("groups", "G1", "E2FL/loss") in cells
        assert ("groups", "G1", "Huge/loss") not in cells
        assert 'id="verdict">Huge diverged: the models of 8 clients' in text
        json.loads(
            re.search(r'id="plots">(.*?)</script>', text, re.S)[1], parse_constant=pytest.fail
        )
    report_runs([tmp_path], tmp_path / "again.html", export_to=tmp_path / "files")
    json.loads((tmp_path / "files" / "report.json").read_text(), parse_constant=pytest.fail)


def test_plots_accept_numbers_that_are_not_finite():
    rows = [{"label": "a", "low": -math.inf, "high": math.nan, "value": 1e300}]
    assert data(rows).to_dict()["values"] == [
        {"label": "a", "low": None, "high": None, "value": 1e300}
    ]


def test_foreign_names_are_escaped_everywhere(tmp_path):
    evil = "</script><script>alert(1)</script>"
    names = {f"{evil}{n}": [50.0 + n, 60.0] for n in range(3)}
    made = study(method(evil, names), method("<i>two", {name: [90.0, 91.0] for name in names}))
    made = replace(
        made,
        title=evil,
        warnings=(evil,),
        data={"groups": [{"name": evil}]},
        data_picture=evil.encode(),
    )
    write(made, tmp_path / "out.html")
    export(made, tmp_path / "files")
    text = (tmp_path / "out.html").read_text()
    assert evil not in text
    assert len(re.findall(r"<script[ >]", text)) == 3  # the data, the library, ours
    assert "beaten by &lt;i&gt;two" in text
    assert "<i>" not in text.split("<script", 1)[0]
    assert evil not in (tmp_path / "files" / "group-accuracy.svg").read_text()


def test_the_spread_of_losses_is_shown_where_it_is_recorded():
    spread = {"clients": {"mean": 0.5, "std": 0.25}, "group": {"mean": 0.75, "std": 0.125}}
    (table,) = clients.loss_table(study(method("E2FL", {"x": 80}, loss=spread)))
    assert [table.value(0, key) for key in COLUMNS["losses"]] == [0.5, 0.25, 0.75, 0.125]
    assert clients.loss_table(study(method("E2FL", {"x": 80}))) == ()


def test_the_clients_with_the_lowest_accuracy_are_named():
    made = study(
        method("FedAvg", {"x": [50, 60], "y": [70, 20]}),
        method("E2FL", {"x": [80, 60], "y": [70, 65]}),
    )
    table = clients.worst_table(made)
    keys = ("client", "group", "n", "FedAvg", "E2FL")
    assert [table.value(0, key) for key in keys] == ["c1", "x", 100_000, 60.0, 60.0]
    assert [table.value(1, key) for key in keys] == ["c3", "y", 100_000, 20.0, 65.0]


def test_every_link_to_a_definition_leads_somewhere(made):
    tags = Cells((made / "report.html").read_text()).tags
    anchors = {given["id"] for _, given in tags if "id" in given}
    links = {
        given["href"][1:] for tag, given in tags if tag == "a" and given["href"].startswith("#")
    }
    assert links <= anchors


def test_a_library_that_could_break_out_of_the_page_is_refused(monkeypatch, tmp_path):
    from e2fl.report import page

    page.bundle.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda snippet: "'</SCRIPT>'")
    with pytest.raises(ReportError):
        page.bundle()
    page.bundle.cache_clear()


def test_the_plotting_library_is_bundled_once_and_a_damaged_copy_is_made_again(
    monkeypatch, tmp_path
):
    from e2fl.report import page

    made = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        "vl_convert.javascript_bundle", lambda snippet: made.append(1) or "let vega = 'µ';"
    )

    def asked():
        page.bundle.cache_clear()
        assert page.bundle() == "let vega = 'µ';"
        return len(made)

    assert [asked(), asked()] == [1, 1]
    kept = next((tmp_path / "e2fl").iterdir())
    kept.write_text(kept.read_text() + "damaged")
    assert [asked(), asked()] == [2, 2]
    page.bundle.cache_clear()
