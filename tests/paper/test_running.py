"""Missing runs: stopped at the budget, continued, failures named, clients trained once."""

import json

import pytest

from e2fl.cli import main
from e2fl.learning import Learner
from e2fl.runs.runner import run_experiment
from paper.collecting import Origin, read_runs
from paper.ledger import read_ledger
from paper.recipes import planned_runs
from paper.running import Pace, Runner, estimate, folder_of, resumable
from paper.studies import Missing, missing
from tests.paper.conftest import TINY

ORIGIN = Origin("c0ffee", {"instructions": "AVX2", "cores": 4})


def runner(wanted, out, told=None, **more):
    experiments = {run.identity: experiment for run, experiment in wanted}
    tell = (lambda text: None) if told is None else told.append
    return Runner(out, experiments, ORIGIN, **{"budget": None, "tell": tell} | more)


def todo(wanted, runs=()):
    return missing([run for run, _ in wanted], runs)


def tiny(methods=("fedavg",), seeds=(0,), changes=()):
    return planned_runs("table1", [*TINY, *changes], seeds, methods)


def test_a_run_is_stored_with_its_origin_and_is_not_repeated(tmp_path):
    wanted = tiny()
    assert runner(wanted, tmp_path).run(todo(wanted))
    (run,) = read_runs(tmp_path)
    assert (run.reached, run.finished, run.origin["machine"]) == (3, True, ORIGIN.machine)
    assert run.origin["engine"] == 1
    assert todo(wanted, [run]) == []


def test_the_budget_stops_and_the_same_command_continues(tmp_path):
    wanted, told = tiny(seeds=(0, 1)), []
    assert not runner(wanted, tmp_path, told, budget=0).run(todo(wanted))
    assert "budget" in told[-1]
    assert runner(wanted, tmp_path).run(resumable(todo(wanted), tmp_path))
    alone = tmp_path / "alone"
    run_experiment(wanted[0][1], out=alone)
    stored = folder_of(wanted[0][0], tmp_path)
    assert (stored / "history.jsonl").read_bytes() == (alone / "history.jsonl").read_bytes()


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path):
    wanted, told = tiny(("local", "fedavg")), []
    plans = {run.method: run for run, _ in wanted}
    folder = folder_of(plans["local"], tmp_path)
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("nonsense")
    assert not runner(wanted, tmp_path, told).run(todo(wanted))
    assert sum("not run: local" in text for text in told) == 1
    (run,) = read_runs(folder_of(plans["fedavg"], tmp_path))
    assert run.finished


@pytest.mark.parametrize(
    ("other", "word"), [({"machine": {"instructions": "X"}}, "machine"), ({"engine": 0}, "engine")]
)
def test_a_run_begun_elsewhere_is_not_continued(tmp_path, other, word):
    wanted, told = tiny(changes=["rounds=6"]), []
    assert runner(tiny(), tmp_path).run(todo(tiny()))
    path = folder_of(tiny()[0][0], tmp_path) / "origin.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | other))
    assert not runner(wanted, tmp_path, told).run(todo(wanted))
    assert any("another" in text and word in text for text in told)


def test_more_rounds_continue_a_run_and_fewer_have_a_folder_of_their_own(tmp_path):
    assert runner(tiny(), tmp_path).run(todo(tiny()))
    more, fewer = tiny(changes=["rounds=5"]), tiny(changes=["rounds=2"])
    assert folder_of(more[0][0], tmp_path) == folder_of(tiny()[0][0], tmp_path)
    assert folder_of(fewer[0][0], tmp_path).name.endswith("-rounds-2")
    assert runner(more, tmp_path).run(todo(more))
    assert read_runs(tmp_path)[0].reached == 5


def test_clients_are_trained_once_per_seed_for_all_ways_to_cluster(tmp_path, monkeypatch):
    trained = []
    fit_scores = Learner.fit_scores

    def counted(self, *args, **settings):
        if self.round_number == 0:
            trained.append(self.client_id)
        return fit_scores(self, *args, **settings)

    monkeypatch.setattr(Learner, "fit_scores", counted)
    changes = [
        "data.source=bundled",
        "data.clients=12",
        "data.samples_per_client=8",
        "model.channels=[2, 2]",
        "model.hidden=4",
        "algorithm.clients_per_round=4",
    ]
    wanted = planned_runs("table5", changes, [0, 1], ["conv1", "conv1_random"])
    assert len(wanted) == 4
    assert runner(wanted, tmp_path / "out").run(todo(wanted))
    assert len(trained) == 24
    alone = tmp_path / "alone"
    run_experiment(wanted[-1][1], out=alone)
    stored = folder_of(wanted[-1][0], tmp_path / "out")
    for name in ("history.jsonl", "clients.csv"):
        assert (stored / name).read_bytes() == (alone / name).read_bytes()


def test_the_estimate_counts_rounds_and_preparations():
    (run, _), *_ = tiny()
    text = estimate([Missing(run, 1), Missing(run, 0)], {run.label: Pace(10.0, 3, 60.0)})
    assert "preparation of 60 s for 1 runs, 5 rounds of 10.00 s" in text


@pytest.fixture
def words(tmp_path):
    settings = [word for change in TINY for word in ("--set", change)]
    (tmp_path / "ledger").mkdir()
    places = ["--out", str(tmp_path / "out"), "--ledger", str(tmp_path / "ledger")]
    chosen = ["--seeds", "0", "--methods", "fedavg"]
    return ["reproduce", "table1", *chosen, *settings, *places]


def test_the_command_lists_runs_runs_them_and_collects(tmp_path, words, capsys):
    assert main([*words, "--dry-run"]) == 3
    assert "fedavg: seeds 0, to round 3" in capsys.readouterr().out
    assert main([*words, "--budget", "0"]) == 3
    assert main(words) == 0
    assert "data.clients=10" in capsys.readouterr().out  # the setting above the table
    collect = ["reproduce", "--collect", str(tmp_path / "out"), *words[-2:]]
    assert main([*collect, "--commit", "abc"]) == 0
    assert "1 runs new or changed" in capsys.readouterr().out
    (run,) = read_ledger(tmp_path / "ledger")
    assert (run.method, run.reached) == ("fedavg", 3)
    assert main(collect) == 0
    assert "0 runs new or changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "nothing to do"),
        (["table1", "--budget", "nan"], "budget"),
        (["table1", "--seeds", ""], "seeds"),
        (["table1", "--methods", ","], "methods"),
        (["table1", "--ledger", "nowhere"], "nowhere"),
        (["--collect", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_explained(arguments, word, capsys):
    assert main(["reproduce", *arguments]) == 2
    assert word in capsys.readouterr().err
