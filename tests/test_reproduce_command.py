"""The command `e2fl reproduce WHAT`: exit codes, what it shows, and what it says when there is nothing to show."""

import json
from pathlib import Path

import pytest

from e2fl.cli import main
from e2fl.config.completion import completed
from e2fl.config.experiment import load
from e2fl.reproduce import figures, studies
from e2fl.reproduce.collecting import place
from e2fl.reproduce.command import shown
from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.studies import Part, Study
from e2fl.runs.progress import Progress
from e2fl.simulation.simulator import SimulatedFederation
from tests.test_reproduce_own import run


@pytest.fixture
def reproduce(toy, tmp_path, monkeypatch):
    """The command, for studies of two methods and two seeds in place of Table 1, Figure 3 and the ballots."""
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "toy.toml"
    config.write_text(toy.to_toml())
    for name in ("table1", "figure3", "ballots"):
        made = Study(name, "A toy", str(config), (Part(("e2fl", "fedavg"), seeds=(0, 1)),))
        monkeypatch.setitem(studies.STUDIES, name, made)
    return lambda *words: main(["reproduce", *words, "--out", "out"])


def test_a_budget_that_ends_first_gives_3_and_the_same_command_finishes_with_0(reproduce, monkeypatch, capsys):
    now = [0.0]
    train = SimulatedFederation.train

    def slow(self, request):
        now[0] += 50.0
        return train(self, request)

    with monkeypatch.context() as patch:
        patch.setattr("e2fl.reproduce.running.time.monotonic", lambda: now[0])
        patch.setattr(SimulatedFederation, "train", slow)
        assert reproduce("table1", "--budget", "2", "--seeds", "0") == 3
    told = capsys.readouterr()
    assert "stopped at the budget; the same command resumes from here" in told.err
    assert "E2FL, groups known" in told.out  # a table of what has been evaluated so far
    assert reproduce("table1", "--seeds", "0") == 0
    told = capsys.readouterr().out
    assert "A toy: 2 runs, 0 of them finished" in told
    assert "e2fl: seeds 0, to round 6 (resumed: seed 0 from round 2)" in told
    assert "233 images per client" in told
    rows = [line.split("  ")[0] for line in told.splitlines() if " ours " in line]
    assert rows == ["FedAvg", "E2FL, groups known", "E2FL (GM)"]
    assert reproduce("table1", "--seeds", "0") == 0
    assert "A toy: 2 runs, 2 of them finished" in capsys.readouterr().out


def test_a_run_that_fails_gives_3_and_the_table_of_the_others(reproduce, capsys):
    assert reproduce("table1", "--seeds", "0") == 0
    (config,) = Path("out").rglob("e2fl/seed-0/config.toml")
    config.write_text(config.read_text().replace("learning_rate = 0.1", "learning_rate = 0.2"))
    capsys.readouterr()
    assert reproduce("table1", "--seeds", "0") == 3
    told = capsys.readouterr()
    assert "not run: e2fl, seed 0: " in told.err
    assert "FedAvg" in told.out


def ledger(folder, *changes):
    """Write the runs of Table 4 with these changes, by hand."""
    for alpha in (5000, 1):
        experiment = load("adult", [f"data.alpha={alpha}", *changes], algorithm="fedavg")
        config = completed(experiment)
        line = {"round": 20, "asked": 5, "user": {"mean": 80.0}, "protected": {"eod": -0.1, "di": -0.1}}
        target = folder / place(Entry(config.to_dict(), ()))
        target.mkdir(parents=True)
        (target / "config.toml").write_text(config.to_toml())
        (target / "history.jsonl").write_text(json.dumps(line) + "\n")


@pytest.mark.parametrize(("changes", "compared"), [((), 2), (("model.hidden=[8]",), 0)])
def test_runs_with_other_settings_are_not_compared_with_the_paper(tmp_path, monkeypatch, capsys, changes, compared):
    monkeypatch.chdir(tmp_path)
    ledger(tmp_path / "results", *changes)
    words = [word for change in changes for word in ("--set", change)]
    assert main(["reproduce", "table4", "--methods", "fedavg", "--seeds", "0", *words]) == 0
    told = capsys.readouterr().out
    assert "alpha 5000" in told
    assert "alpha 1" in told
    assert told.count("80.00") == 2
    assert told.count("difference") == compared


def test_a_figure_is_of_the_seed_that_was_asked_for(reproduce, monkeypatch, capsys):
    seeds = []
    monkeypatch.setattr(figures, "figure3", lambda entries, samples, seed=0: seeds.append(seed))
    assert reproduce("figure3", "--seeds", "1") == 0
    assert seeds == [1]
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "no figure: it needs two evaluated rounds; the runs are in out"
    assert "" not in told


def test_a_study_without_a_table_says_why_and_where_the_runs_are(reproduce, capsys):
    assert reproduce("ballots", "--seeds", "0", "--methods", "fedavg", "--set", "rounds=2") == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == (
        "no table: it is made for the study's own settings and rounds, and these runs have others; they are in out"
    )


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("ballots", run("e2fl_steady", rounds=20)),
        ("causes", run("e2fl", "data.samples_per_client=60", experiment="table1", rounds=50)),
        ("steady", run("e2fl_steady", "data.validation_share=0.2")),
    ],
)
def test_tables_without_a_row_are_not_shown(name, entry):
    assert shown(name, [entry]) == ""


def test_a_stop_says_that_the_same_command_resumes(reproduce, monkeypatch, capsys):
    def stop(self, number, measured):
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "advance", stop)
    assert reproduce("table1", "--seeds", "0") == 130
    assert capsys.readouterr().err.endswith("e2fl: stopped; the same command resumes from here\n")


def test_a_ledger_that_does_not_exist_is_refused_unless_it_is_the_default(reproduce, capsys):
    assert reproduce("table1", "--dry-run", "--ledger", "reslts") == 2
    assert "there is no ledger reslts: the folder does not exist; check --ledger" in capsys.readouterr().err
    assert reproduce("table1", "--dry-run") == 3
