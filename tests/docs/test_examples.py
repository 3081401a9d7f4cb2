"""The examples in the documentation run as they stand."""

import json
import os
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import e2fl
from e2fl.cli import main
from e2fl.rankings.votes import VOTES
from e2fl.runs.records import numbers_of
from e2fl.testing.toy import Toy
from tests.docs.pages import ROOT, blocks, defined_in, read

EXTENDING = "docs/extending.md"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}


@pytest.mark.parametrize(
    ("page", "name"),
    [(EXTENDING, "FedAvgM"), (EXTENDING, "SmoothedFedAvg")],
)
def test_an_algorithm_learns(page, name, toy, monkeypatch):
    monkeypatch.setitem(e2fl.ALGORITHMS, "mine", defined_in(page, name))
    run = e2fl.run(
        toy, data=Toy(groups=1), algorithm="mine", rounds=8, learner={"learning_rate": 0.02}
    )
    assert run.summary["clients"]["mean"] > 80


def test_a_model_can_be_trained(toy, monkeypatch):
    monkeypatch.setitem(e2fl.MODELS, "mine", defined_in(EXTENDING, "wide"))
    run = e2fl.run(toy, data=Toy(image=True), model={"name": "mine", "units": 32}, rounds=2)
    assert run.summary["rounds"] == 2


def test_a_recurrent_model_can_be_trained(toy, monkeypatch):
    monkeypatch.setitem(e2fl.MODELS, "mine", defined_in(EXTENDING, "Reader"))
    tokens = {
        client: (np.random.default_rng(client).integers(0, 9, (20, 16)), np.arange(20) % 2)
        for client in range(4)
    }
    run = e2fl.run(
        toy,
        data=e2fl.from_arrays(tokens),
        model={"name": "mine"},
        algorithm={"name": "fedavg", "clients_per_round": 2},
        rounds=2,
    )
    assert run.summary["rounds"] == 2


def test_a_grouping_finds_groups(toy, monkeypatch):
    monkeypatch.setitem(e2fl.GROUPINGS, "mine", defined_in(EXTENDING, "MostCorrect"))
    algorithm = {"name": "e2fl", "clients_per_round": 8, "grouping": {"name": "mine", "groups": 2}}
    run = e2fl.run(toy, data=Toy(), algorithm=algorithm, rounds=8)
    assert run.summary["inference"]["matched"] == 100


def test_a_line_of_the_history_has_the_keys_that_are_shown(toy):
    algorithm = {"name": "e2fl", "clients_per_round": 8}
    algorithm["grouping"] = {"name": "lowest_loss", "groups": 2}
    run = e2fl.run(toy, data=Toy(styles=True), algorithm=algorithm, rounds=1)
    (line,) = (json.loads(block) for block in blocks("docs/running.md", "json"))
    assert len(numbers_of(line)) > 15
    assert set(numbers_of(line)) <= {"round", *run.history}
    listed = read("docs/running.md").split("`summary.json` has")[1].split(", `unseen`")[0]
    named = set(re.findall(r"`(\w+)`", listed)) - {"declared", "found"}
    assert len(named) == 13
    assert named <= set(run.summary)


def test_a_vote_rule_elects(toy, monkeypatch):
    rule = defined_in(EXTENDING, "Median")
    monkeypatch.setitem(VOTES, "mine", rule)
    algorithm = {"name": "e2fl", "clients_per_round": 8, "vote": "mine"}
    run = e2fl.run(toy, algorithm=algorithm, rounds=2)
    assert run.summary["rounds"] == 2
    ranks = rule().elect([(np.array([0, 1, 2], dtype=np.int32), 3),
                                   (np.array([2, 1, 0], dtype=np.int32), 1)])  # fmt: skip
    assert ranks.tolist() == [0, 1, 2]


def test_the_settings_of_ballots_can_be_run(toy):
    sections = [tomllib.loads(block)["algorithm"] for block in blocks("docs/ballots.md", "toml")]
    assert [settings["ballot"]["name"] for settings in sections] == ["moves", "moves"]
    for settings in sections:
        run = e2fl.run(toy, algorithm=settings | {"clients_per_round": 4}, rounds=2)
        # Exact ballots of so small a network: 8.7 bits and a header.
        assert run.summary["bits"]["up_per_edge"] < 8


def test_a_ballot_comes_back():
    (code,) = blocks("docs/ballots.md", "python")
    edges = np.arange(12544 * 8, dtype=np.int32)
    space = {"broadcast": {"fc1.weight": edges}, "ranking": {"fc1.weight": np.roll(edges, 7)}}
    exec(compile(code, "docs/ballots.md", "exec"), space)
    assert sorted(space["again"]["fc1.weight"].tolist()) == edges.tolist()
    assert len(space["raw"]) < 12544


def test_the_functions_of_metrics_return_what_a_hand_computes():
    functions, own = blocks("docs/metrics.md", "python")
    space = {"__name__": "mine"}
    code = functions.replace("metrics.fair", "fair = metrics.fair").replace(
        "metrics.s", "signed = metrics.s"
    )
    exec(compile(code + own, "docs/metrics.md", "exec"), space)
    assert space["fair"]["group"]["gap"] == 25.75
    assert space["signed"] == pytest.approx({"eod": -0.5, "di": 2 / 3 - 0.8, "spd": -2 / 3})
    assert space["auc"](np.array([0, 1, 1]), np.array([[1, 0], [0, 1], [0, 2]])) == 1


def _output(script):
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_examples_of_own_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table, new_rows, arrays, datasets = blocks("docs/data.md", "python")
    _output(table)
    assert "9 clients" in _output(arrays)
    assert _output(datasets).split() == ["3", "clients", "4", "clients"]
    (config,) = blocks("docs/data.md", "toml")
    (tmp_path / "hospitals.toml").write_text(config)
    assert main(["run", "hospitals.toml", "--set", "rounds=2", "--out", "runs/hospitals"]) == 0
    assert "e2fl" in capsys.readouterr().out.lower()
    lines = (tmp_path / "cancer.csv").read_text().splitlines()[:4]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    assert _output(new_rows).count("'") == 6  # three labels
    label = lines[0].split(",").index("finding")
    cells = [line.split(",") for line in lines]
    unlabelled = [",".join(row[:label] + row[label + 1 :]) for row in cells]
    (tmp_path / "new.csv").write_text("\n".join(unlabelled) + "\n")
    assert _output(new_rows).count("'") == 6


@pytest.mark.slow
def test_the_python_of_running_runs_from_top_to_bottom(tmp_path):
    paths = []
    for position, block in enumerate(blocks("docs/running.md", "python")):
        paths.append(f"block{position}.py")
        (tmp_path / paths[-1]).write_text(block, encoding="utf-8")
    # Each is a script of its own.
    code = f"import runpy\nfor path in {paths}: runpy.run_path(path, run_name='__main__')"
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


TINY = (
    *("rounds=1", "data.clients=10", "data.samples_per_client=10", "data.test_images=10"),
    *("model.channels=[2,2]", "model.hidden=4", "learner.epochs=1"),
)


ANSWERS = [block.split()[1:] for block in blocks("docs/questions.md", "sh")]


def test_there_are_fifteen_questions_with_one_line_each():
    assert len(ANSWERS) == len(re.findall("^## ", read("docs/questions.md"), flags=re.M)) == 15
    assert all(block.startswith("e2fl ") for block in blocks("docs/questions.md", "sh"))
    assert all(block.count("\n") == 1 for block in blocks("docs/questions.md", "sh"))


@pytest.mark.parametrize(
    "words", [words for words in ANSWERS if words[0] in ("run", "compare") and "demo" in words]
)
def test_an_answer_runs(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = [word for change in TINY for word in ("--set", change)]
    assert main([*words, *small]) == 0
