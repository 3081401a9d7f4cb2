"""A search from the command line: chosen on validation rows, tested once, resumed exactly."""

import csv
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from e2fl.cli import main
from e2fl.config.experiment import load
from e2fl.errors import RunError
from e2fl.runs.progress import Progress
from e2fl.search.page import page
from e2fl.search.running import search
from e2fl.search.space import space_of

pytestmark = pytest.mark.usefixtures("no_plots")
FILES = ("trials.csv", "best.toml", "search.html")
GRID = ["--grid", "learner.score_rate=0.01,0.1", "--grid", "model.keep=0.3,0.5"]
SPACE = ["--space", "learner.score_rate=0.003..1:log", "--space", "algorithm.incumbents=0,1,2"]
TUNE = ["--algorithms", "e2fl,fedavg", *SPACE, "--space", "learner.learning_rate=0.003..1:log"]


@pytest.fixture
def config(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noisy = replace(toy, rounds=4, evaluate_every=1, data=toy.data | {"noise": 1.5})
    Path("toy.toml").write_text(noisy.to_toml())
    return "toy.toml"


def rows_of(folder):
    return list(csv.DictReader(Path(folder, "trials.csv").read_text().splitlines()))


def test_a_sweep_tries_every_point_and_tests_the_best_on_all_rows(config, capsys):
    assert main(["sweep", config, *GRID, "--seeds", "0,1", "--out", "s"]) == 0
    rows = rows_of("s")
    points = [(row["learner.score_rate"], row["model.keep"]) for row in rows]
    assert points == [("0.01", "0.3"), ("0.01", "0.5"), ("0.1", "0.3"), ("0.1", "0.5")]
    best = max(rows, key=lambda row: float(row["group/worst10"]))
    (chosen,) = [row for row in rows if row["chosen"]]
    assert chosen["group/worst10"] == best["group/worst10"]
    for row in rows:
        folders = [Path(f"s/e2fl-trial{row['trial']}/seed{seed}") for seed in (0, 1)]
        runs = [load(str(folder / "config.toml")) for folder in folders]
        assert [run.data["validation_share"] for run in runs] == [0.2, 0.2]
        assert runs[0].learner["score_rate"] == float(row["learner.score_rate"])
        summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
        validated = [summary["validation"]["group"]["worst10"] for summary in summaries]
        assert float(row["group/worst10"]) == pytest.approx(sum(validated) / 2)
    final = load("s/final/e2fl-seed1/config.toml")
    assert final.data.get("validation_share", 0) == 0
    assert final.model["keep"] == float(chosen["model.keep"])
    best_settings = load("s/best.toml").variant("e2fl")
    assert best_settings.model["keep"] == final.model["keep"]
    assert "was chosen" in capsys.readouterr().out
    html = Path("s/search.html").read_text()
    assert "<svg" in html
    assert "<script" not in html


def test_a_search_has_the_same_budget_for_each_algorithm(config, capsys):
    words = ["tune", config, *TUNE, "--trials", "3", "--out", "t"]
    assert main(words) == 0
    rows = rows_of("t")
    assert [row["algorithm"] for row in rows] == ["e2fl"] * 3 + ["fedavg"] * 3
    assert [row["learner.score_rate"] for row in rows[3:]] == ["", "", ""]
    assert float(rows[0]["learner.score_rate"]) == 0.1  # the experiment's own
    assert set(load("t/best.toml").variants) == {"e2fl", "fedavg"}
    assert "MiB sent" in capsys.readouterr().out
    assert Path("t/final/fedavg-seed0/summary.json").is_file()
    assert main(words) == 2
    assert main([*words[:-4], "--trials", "4", "--out", "t", "--resume"]) == 2
    assert "holds another search" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "stops"),
    [
        (["sweep", "toy.toml", *GRID], (1, 18)),
        (["tune", "toy.toml", *TUNE, "--trials", "3"], (9,)),
    ],
)
def test_a_search_that_was_stopped_ends_as_one_that_was_not(config, monkeypatch, words, stops):
    assert main([*words, "--out", "whole"]) == 0
    advance = Progress.advance
    for stop in stops:
        rounds, parts = itertools.count(1), Path(f"stopped-{stop}")

        def interrupted(self, number, measured, rounds=rounds, stop=stop):
            if next(rounds) == stop:
                raise KeyboardInterrupt
            advance(self, number, measured)

        with monkeypatch.context() as patch:
            patch.setattr(Progress, "advance", interrupted)
            assert main([*words, "--out", str(parts)]) == 130
        assert not (parts / "search.html").exists()
        assert main(["resume", str(parts)]) == 0
        for name in FILES:
            assert (parts / name).read_bytes() == Path("whole", name).read_bytes(), name


def test_a_trial_that_diverges_ends_no_search_and_is_not_chosen(config, capsys):
    words = ["sweep", config, "--algorithm", "fedavg", "--out"]
    assert main([*words, "s", "--grid", "learner.learning_rate=1e38,0.1"]) == 0
    assert [row["state"] for row in rows_of("s")] == ["diverged", "complete"]
    assert main([*words, "t", "--grid", "learner.learning_rate=1e38"]) == 1
    assert "no trial was completed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--grid", "learner.lr=0.1,0.2"], "learning_rate"),
        (["--grid", "model.keep=0.5,2"], "keep"),
        (["--grid", "model.keep=0.1..0.5"], "must be a number, not '0.1..0.5'"),
        (["--grid", "learner.epochs=1", "--pick", "group/worst"], "group/worst10"),
    ],
)
def test_mistakes_are_found_before_anything_runs(config, capsys, words, told):
    assert main(["sweep", config, *words, "--out", "s"]) == 2
    assert told in capsys.readouterr().err
    assert not Path("s").exists()


def test_names_on_the_page_are_escaped(toy, tmp_path):
    hostile = "<script>alert(1)</script>"
    base = replace(toy, name=hostile, rounds=1, algorithm=toy.algorithm | {"label": hostile})
    space = space_of(["learner.epochs=1"], "--grid")
    html = page(search({hostile: base}, space, [0], sampler="grid", out=tmp_path / "s"))
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def spread(y_true, outputs):
    """Serve as a user's own measure."""
    return float(np.ptp(outputs, axis=1).mean())


def test_own_measures_are_objectives(toy, tmp_path):
    base = replace(toy, rounds=1, measures=("tests.search.test_search:spread",))
    space = space_of(["learner.score_rate=0.01,0.5"], "--grid")
    options = {"sampler": "grid", "pick": "measures/spread/clients/mean"}
    result = search({"e2fl": base}, space, [0], **options, out=tmp_path / "s")
    column = result.table().frame[options["pick"]]
    assert result.tuned[0].chosen.number == 1 + int(column.argmax())
    assert result.final_table().frame[options["pick"]].notna().all()
    with pytest.raises(RunError, match="already exists"):  # a folder holds one search
        search({"e2fl": base}, space, [0], **options, out=tmp_path / "s")
