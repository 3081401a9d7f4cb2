"""A finished run can be continued, with the same bits as one run of all rounds."""

from dataclasses import replace

import pytest

from e2fl.cli import main
from e2fl.errors import RunError
from e2fl.runs.runner import Watcher, run_experiment
from tests.test_runner import FINDING, StopAfter, contents

RANK = {"name": "e2fl", "clients_per_round": 4, "grouping": {"name": "rank_clustering", "groups": 2}}


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "e2fl", "clients_per_round": 4},
        FINDING,
        RANK,
        {"name": "ditto", "clients_per_round": 4},
        *({"name": name} for name in ("fedavg", "qffl", "afl", "ifca", "term", "fairfed", "frl")),
    ],
    ids=lambda section: f"{section['name']} {section.get('grouping', {}).get('name', '')}".strip(),
)
@pytest.mark.parametrize("first", [4, 5])
def test_continued_equals_uninterrupted(toy, tmp_path, algorithm, first):
    whole = replace(toy, algorithm=algorithm, rounds=9, keep_client_models=True)
    run_experiment(whole, out=tmp_path / "whole")
    run_experiment(replace(whole, rounds=first), out=tmp_path / "parts")
    assert run_experiment(whole, out=tmp_path / "parts", resume=True).summary["rounds"] == 9
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_continued_run_may_be_killed_at_any_moment(toy, tmp_path):
    whole = replace(toy, rounds=9, checkpoint_seconds=1000.0)
    run_experiment(whole, out=tmp_path / "whole")
    run_experiment(replace(whole, rounds=5), out=tmp_path / "parts")

    class Kill(Watcher):
        def begin(self, experiment, first, last):
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):  # the history is cut already, no checkpoint is written yet
        run_experiment(whole, out=tmp_path / "parts", resume=True, watcher=Kill())
    with pytest.raises(KeyboardInterrupt):
        run_experiment(whole, out=tmp_path / "parts", resume=True, watcher=StopAfter(7))
    begun = []

    class Begin(Watcher):
        def begin(self, experiment, first, last):
            begun.append((first, last))

    run_experiment(whole, out=tmp_path / "parts", resume=True, watcher=Begin())
    assert begun == [(7, 9)]
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_last_round_that_was_a_preparation_leaves_no_line(toy, tmp_path):
    """Nobody is there for the preparation before round 2, which is the last one at first."""
    whole = replace(
        toy,
        seed=197,
        rounds=4,
        evaluate_every=1,
        data=toy.data | {"clients": 4},
        participation={"name": "uniform", "away": 0.85},
        algorithm=RANK | {"clients_per_round": 2},
    )
    policy, population = whole.build_participation(), whole.build_data().population
    assert [len(policy.present(population, number, whole.seed)) for number in range(4)] == [0, 0, 2, 2]
    assert [line["round"] for line in run_experiment(whole, out=tmp_path / "whole").history] == [3, 4]
    run_experiment(replace(whole, rounds=2), out=tmp_path / "parts")
    run_experiment(whole, out=tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_an_unfinished_run_may_be_given_more_rounds_too(toy, tmp_path):
    whole = replace(toy, rounds=9)
    run_experiment(whole, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(toy, out=tmp_path / "parts", watcher=StopAfter(4))
    run_experiment(whole, out=tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("algorithm", "rounds", "words"),
    [
        ({"name": "local", "epochs": 1}, 9, "has nothing to add"),
        (RANK | {"final_full_vote": True}, 9, "depends on the total number of rounds"),
        ({"name": "e2fl"}, 3, "fewer"),
        ({"name": "ditto"}, 9, "--keep-client-models"),
    ],
)
def test_what_cannot_be_continued_says_why_and_stays_as_it_is(toy, tmp_path, algorithm, rounds, words):
    experiment = replace(toy, algorithm=algorithm)
    run_experiment(experiment, out=tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(RunError, match=words):
        run_experiment(replace(experiment, rounds=rounds), out=tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == before


def test_resume_takes_a_folder_and_more_rounds(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    run_experiment(replace(toy, rounds=9), out=tmp_path / "whole")
    assert main(["run", "toy.toml", "--out", "run"]) == 0
    command = (tmp_path / "run" / "command.txt").read_text()
    assert main(["resume", "run", "--set", "rounds=9"]) == 0
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert main(["run", "run/config.toml", "--out", "run", "--resume"]) == 0
    assert (tmp_path / "run" / "command.txt").read_text() == command == "e2fl run toy.toml --out run\n"
    assert main(["resume", "nowhere"]) == 2
    assert "holds no run and no comparison" in capsys.readouterr().err


def test_resume_continues_a_comparison(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    words = ["compare", "toy.toml", "--algorithms", "fedavg,e2fl", "--seeds", "0,1"]
    assert main([*words, "--out", "whole"]) == 0
    from e2fl.runs.progress import Progress

    advance = Progress.advance
    told = []

    def stop(self, number, measured):
        told.append(self.label)
        if "run 3 of 4" in self.label and number == 3:
            raise KeyboardInterrupt
        advance(self, number, measured)

    monkeypatch.setattr(Progress, "advance", stop)
    assert main([*words, "--out", "parts"]) == 130
    monkeypatch.setattr(Progress, "advance", advance)
    assert main(["resume", "parts"]) == 0
    assert told[0] == "run 1 of 4, fedavg, seed 0"
    for name in ("fedavg-seed0", "fedavg-seed1", "e2fl-seed0", "e2fl-seed1"):
        assert contents(tmp_path / "parts" / name) == contents(tmp_path / "whole" / name)
