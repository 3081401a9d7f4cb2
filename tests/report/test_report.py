"""The page of real runs: its numbers, its files, and what it does when things are missing."""

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

import pytest

from e2fl.errors import RunError
from e2fl.metrics import COLUMNS
from e2fl.report import page as pages
from e2fl.report import sections
from e2fl.report.from_runs import read_runs, study_of
from e2fl.report.page import export, page, write_report
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import read_run
from tests.report.studies import method, study


class Cells(HTMLParser):
    """The cells of all tables of a page that hold a number, with their row and column."""

    def __init__(self, text):
        super().__init__()
        self.table, self.row, self.heading, self.numbers, self.tags = "", "", False, {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append((tag, given))
        if tag == "table":
            self.table = given["id"].removeprefix("table-")
        self.heading = tag == "th" and given.get("scope") == "row"
        if tag == "td" and "data-value" in given:
            self.numbers[self.table, self.row, given["data-key"]] = float(given["data-value"])

    def handle_data(self, text):
        if self.heading:
            self.row, self.heading = text, False


def summaries_of(runs, name):
    paths = (runs / f"{name}-seed{seed}" / "summary.json" for seed in range(3))
    return [json.loads(path.read_text()) for path in paths]


def specs_of(text):
    return json.loads(re.search(r'id="plots">(.*?)</script>', text, re.S)[1])


@pytest.fixture(scope="module")
def text(made):
    return (made / "report.html").read_text()


def test_the_main_table_holds_the_means_of_the_summaries(runs, text):
    cells = Cells(text).numbers
    for name, label in {"local": "Local", "fedavg": "FedAvg", "e2fl": "E2FL"}.items():
        summaries = summaries_of(runs, name)
        for path in COLUMNS["page"]:
            part, key = path.split("/")
            values = [
                math.sqrt(s[part]["variance"]) if key == "std" else s[part][key] for s in summaries
            ]
            assert cells["main", label, path] == pytest.approx(sum(values) / 3), (label, path)
        for group in summaries[0]["groups"]:
            values = [s["groups"][group]["accuracy"] for s in summaries]
            assert cells["groups", group, f"{label}/accuracy"] == pytest.approx(sum(values) / 3)


def test_the_page_is_one_file_that_asks_for_nothing_and_explains_its_words(text):
    assert len(text.encode()) < 6_000_000
    tags = Cells(text).tags
    for tag, given in tags:
        assert tag not in ("iframe", "object", "embed", "base"), tag
        for name in ("src", "href", "action", "srcset", "poster"):
            assert (given.get(name) or "#").startswith(("#", "data:")), (tag, given)
        assert not [name for name in given if name.startswith("on")]
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1))
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert text.count("University of Washington") == 1  # what is inside keeps its notice
    for words in (
        "e2fl compare toy --algorithms local,fedavg,e2fl",
        "clients_per_round = 4",
        "e2fl.testing.toy:Toy",
        "python 3",
    ):
        assert words in text
    ids = [given["id"] for _, given in tags if "id" in given]
    assert len(set(ids)) == len(ids)
    links = {given["href"][1:] for tag, given in tags if given.get("href", "")[:1] == "#"}
    assert links <= set(ids)
    folded = set(re.findall(r'class="fold" id="fold-([^"]*)"', text))
    assert folded >= {"gains", "curves", "made", "definitions"}
    assert not folded & {"outcome", "groups", "clients"}


def test_every_plot_has_words_a_still_picture_and_a_table_behind_it(text):
    pattern = r'<div class="plot" id="plot-([^"]*)" role="img" aria-label="([^"]*)">(.*?)</div>'
    plots = {key: (words, still) for key, words, still in re.findall(pattern, text, re.S)}
    curves = {f"curve-{kind}-{way}" for kind in ("mean", "worst") for way in ("round", "sent")}
    dots = {"group-accuracy", "distribution", "gain-distribution", "influence"}
    assert set(plots) >= dots | curves
    for key, (words, still) in plots.items():
        assert specs_of(text)[f"plot-{key}"]["description"] == html.unescape(words)
        assert still.startswith("<svg")
    for section in re.findall(r"<section .*?</section>", text, re.S):
        if 'class="plot"' in section:
            assert "<summary>Show the data: " in section


def test_every_group_is_a_row_with_its_size_and_a_dot_for_each_method(runs, text):
    datasets = specs_of(text)["plot-group-accuracy"]["datasets"].values()
    rows = max(datasets, key=len)
    known = summaries_of(runs, "e2fl")[0]["groups"]
    names = [f"{name} ({group['clients']})" for name, group in known.items()]
    assert {row["name"] for row in rows} == {"All clients (8)", *names}
    assert len(rows) == 4 * (1 + len(known))
    subject = re.search(r"Lowest first, with (\w+);", text)[1]
    values = [row["value"] for row in rows if row["label"] == subject]
    assert sorted(values[1:]) == values[1:]


def test_every_table_and_plot_becomes_files(made):
    files = {path.name for path in (made / "files").iterdir()}
    tables = ("main", "differences", "groups", "distribution", "lowest", "gains", "curves")
    for table in tables:
        assert {f"{table}.csv", f"{table}.tex"} <= files
    for plot in ("group-accuracy", "distribution", "gain-distribution", "curve-mean-round"):
        svg, png, pdf = (made / "files" / f"{plot}.{kind}" for kind in ("svg", "png", "pdf"))
        assert "var(--" not in svg.read_text()  # a file has no style sheet
        assert png.read_bytes().startswith(b"\x89PNG")
        assert pdf.read_bytes().startswith(b"%PDF")
    everything = json.loads((made / "files" / "report.json").read_text())
    assert everything["verdict"]
    assert everything["tables"]["main"]["rows"][0]["method"] == "Local"
    rows = list(csv.DictReader((made / "files" / "main.csv").read_text().splitlines()))
    assert [row["method"] for row in rows] == ["Local", "FedAvg", "E2FL", "E2FL (GM)"]
    low, mean, high = (float(rows[2][f"clients/mean{end}"]) for end in ("_low", "", "_high"))
    assert low <= mean <= high


def test_the_best_cell_is_marked_ties_together_and_sending_nothing_is_no_merit():
    made = study(
        method("Local", {"x": 70, "y": 60}, alone=True),
        method("A", {"x": 90, "y": 80}),
        method("B", {"x": 95, "y": 80}),
    )
    table = sections.main_table(made)
    marked = {key: {row for row, own in table.bold if own == key} for _, key in table.bold}
    assert marked["group/mean"] == {2}
    assert marked["group/worst10"] == {1, 2}
    assert marked["group/variance"] == {0, 1}  # less is better
    assert marked["bytes/up_per_client_round"] == {1, 2}


def test_differences_are_judged():
    first = method("A", {"x": 90, "y": 80}, {"x": 91, "y": 81})
    second = method("B", {"x": 80, "y": 70}, {"x": 82, "y": 70})
    table = sections.difference_table(study(first, second, replace(first, label="C")))
    assert table.value(0, "clients/mean") == pytest.approx(10.0)
    assert (0, "clients/mean") in table.bold  # 10 and 10
    assert (0, "clients/std") not in table.bold  # 0 and -1
    assert (1, "clients/mean") not in table.bold  # equal


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(toy, tmp_path):
    for position, variant in enumerate((toy, replace(toy, rounds=2), replace(toy, seed=1))):
        run_experiment(variant, out=tmp_path / f"r{position}")
    runs = read_runs([tmp_path])[0]
    made = study_of([*runs, runs[0]])
    labels = {m.label: m.seeds for m in made.main}
    assert labels == {"E2FL [rounds=6]": (0, 1), "E2FL [rounds=2]": (0,)}
    for words in ("same number of rounds", "every seed", "given twice with seed 0"):
        assert any(words in warning for warning in made.warnings)


def test_rejected_and_clipped_replies_are_counted_over_all_seeds(runs):
    given = [read_run(runs / f"e2fl-seed{seed}") for seed in (0, 1)]

    def told(*counts):
        lines = [run.history[-1] | {"faults": own} for run, own in zip(given, counts, strict=True)]
        pairs = zip(given, lines, strict=True)
        return study_of([replace(run, history=[line]) for run, line in pairs]).warnings

    rejected = "E2FL: 3 replies were rejected as faulty."
    assert rejected in told({"e2fl/a": 2}, {"e2fl/b": 1})
    clipped = told({"clipped": 20}, {})
    assert any("E2FL: 20 replies were used, but clipped" in warning for warning in clipped)
    assert not any("rejected" in warning for warning in clipped)


def test_unfinished_runs_are_left_out_and_named(runs, tmp_path):
    shutil.copytree(runs / "e2fl-seed0", tmp_path / "done")
    shutil.copytree(runs / "e2fl-seed1", tmp_path / "half")
    (tmp_path / "half" / "summary.json").unlink()
    made = study_of(*read_runs([tmp_path]))
    assert made.main[0].seeds == (0,)
    assert "half is not finished" in page(made)
    for folder, word in (("half", "--resume"), ("nowhere", "holds no run")):
        with pytest.raises(RunError, match=word):
            read_runs([tmp_path / folder])


def test_a_report_never_imports_what_a_run_names_nor_torch(runs, tmp_path):
    shutil.copytree(runs / "fedavg-seed0", tmp_path / "run")
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    path = tmp_path / "run" / "config.toml"
    text = path.read_text()
    for old, new in (("e2fl.testing.toy:Toy", "Thing"), ("fedavg", "Other"), ("mlp", "Network")):
        text = text.replace(f'"{old}"', f'"evil:{new}"')
    path.write_text(text)
    code = """
import sys
from e2fl.cli import main
import e2fl.report.live
sys.path.insert(0, ".")
assert main(["report", "run", "--out", "page.html", "--export", "files"]) == 0
assert not {"torch", "numba", "evil"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=300)
    assert (tmp_path / "files" / "report.json").is_file()
    assert "evil:Thing" in (tmp_path / "page.html").read_text()


DATA = {
    "clients": 3,
    "examples": {"train": 30, "test": 12},
    "labels": ["no", "yes"],
    "groups": [{"name": "<b>G1", "clients": 3, "train": 30, "test": 12, "labels": [10, 20]}],
}


def test_the_data_section_shows_what_the_run_stored(runs, tmp_path):
    shutil.copytree(runs / "fedavg-seed0", tmp_path / "run")
    for name in ("data.json", "data.svg"):
        (tmp_path / "run" / name).unlink()
    text = page(study_of([read_run(tmp_path / "run")]))
    assert 'id="data"' not in text
    assert "no stored description of their data (data.json)" in text
    (tmp_path / "run" / "data.json").write_text(json.dumps(DATA))
    (tmp_path / "run" / "data.svg").write_text("<svg><script>1</script></svg>")
    text = page(study_of([read_run(tmp_path / "run")]))
    assert "3 clients, 30 train examples, 12 test examples." in text
    assert '<img class="picture" src="data:image/svg+xml;base64,' in text
    assert "<script>1" not in text
    assert Cells(text).numbers["data", "<b>G1", "train"] == 30
    (tmp_path / "run" / "data.json").write_text("{")
    with pytest.raises(RunError, match="damaged"):
        study_of([read_run(tmp_path / "run")])


def test_budgets_are_facts_and_differences_are_said():
    def budget(epochs):
        return {"client_trainings": 10, "client_epochs": epochs, "examples": 10 * epochs}

    local = method("Local", {"A": 80}, alone=True, budget=budget(2000.0))
    fedavg = method("FedAvg", {"A": 80}, budget=budget(1200.0))
    differ = "Budgets differ: Local trains 2,000 client epochs, FedAvg trains 1,200."
    assert differ in sections.outcome(study(local, fedavg)).intro
    same = sections.outcome(study(fedavg, replace(fedavg, label="B"))).intro
    assert "All methods train 1,200 client epochs." in same


def test_the_table_of_groups_says_how_often_they_are_asked_and_found_groups_are_labelled(runs):
    asked = {name: {"asked_per_client": times} for name, times in {"A": 1.0, "B": 3.0}.items()}
    made = method("E2FL", {"A": 80, "B": 70}, participation=asked)
    assert sections.group_table(study(made)).value(1, "E2FL/asked_per_client") == 3.0
    run = read_run(runs / "e2fl-seed0")
    text = page(study_of([replace(run, summary=run.summary | {"groups_are": "found"})]))
    heads = ("Worst found group", "Accuracy by found group", ">found groups</th>", "def-found")
    for words in (*heads, "No group was declared"):
        assert words in text


def test_what_is_not_finite_is_a_dash_on_the_page_and_the_verdict_says_why(tmp_path, toy):
    huge = replace(toy, algorithm={"name": "tests.runs.helpers:Huge", "clients_per_round": 4})
    runs = [run_experiment(one, out=tmp_path / one.label) for one in (huge, toy)]
    for given in (runs, [read_run(run.folder) for run in runs]):  # in memory, and on disk
        write_report(study_of(given), tmp_path / "out.html", export_to=tmp_path / "files")
        text = (tmp_path / "out.html").read_text()
        cells = Cells(text).numbers
        assert ("groups", "G1", "Huge/accuracy") in cells
        assert ("groups", "G1", "E2FL/loss") in cells
        assert ("groups", "G1", "Huge/loss") not in cells
        assert 'id="verdict">Huge diverged: the models of 8 clients' in text
        plots = re.search(r'id="plots">(.*?)</script>', text, re.S)[1]
        for written in (plots, (tmp_path / "files" / "report.json").read_text()):
            json.loads(written, parse_constant=pytest.fail)


def test_foreign_names_are_escaped_everywhere(tmp_path):
    evil = "</script><script>alert(1)</script>"
    names = {f"{evil}{n}": [50.0 + n, 60.0] for n in range(3)}
    made = study(
        method(evil, names),
        method("constructor", {name: [90.0, 91.0] for name in names}),
        warnings=(evil,),
        data={"groups": [{"name": evil}]},
    )
    text = page(replace(made, title=evil))
    assert evil not in text
    assert len(re.findall(r"<script[ >]", text)) == 3  # the data, the library, ours
    export(made, sections.sections(made), tmp_path)
    assert evil not in (tmp_path / "group-accuracy.svg").read_text()


def test_the_clients_with_the_lowest_accuracy_are_named():
    made = study(
        method("FedAvg", {"x": [50, 60], "y": [70, 20]}),
        method("E2FL", {"x": [80, 60], "y": [70, 65]}),
    )
    table = sections.lowest_table(made)
    keys = ("client", "group", "n", "FedAvg", "E2FL")
    assert [table.value(0, key) for key in keys] == ["c1", "x", 100_000, 60.0, 60.0]
    assert [table.value(1, key) for key in keys] == ["c3", "y", 100_000, 20.0, 65.0]


def test_the_plotting_library_is_bundled_once_and_cannot_break_out(monkeypatch, tmp_path):
    made = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        "vl_convert.javascript_bundle", lambda snippet: made.append(1) or "'µ</script>'"
    )
    for _ in range(2):
        pages.bundle.cache_clear()
        assert pages.bundle() == r"'µ<\/script>'"
    assert len(made) == 1
    pages.bundle.cache_clear()
