"""The arena: methods that are tuned alike, tested with several seeds, and shown side by side."""

import re
import sys
from dataclasses import replace

import pytest

from e2fl.runs.store import Folder
from paper import arena
from paper.board import Entry, ahead, board, merged, read_entries, write_entries

SMALL = [
    "rounds=1",
    "data.clients=10",
    "data.samples_per_client=20",
    "data.test_images=20",
    "model.channels=[2,2]",
    "model.hidden=4",
    "learner.epochs=1",
]
MINE = """
from dataclasses import dataclass
from e2fl.algorithms.fedavg import FedAvg
from e2fl.errors import ConfigError

@dataclass(frozen=True)
class Mine(FedAvg):
    tilt: float = 1.0

@dataclass(frozen=True)
class Failing(FedAvg):
    def start(self, model, population, seed):
        raise ConfigError("it cannot start")
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    spec = arena.DECLARED["demo"]
    monkeypatch.setitem(spec, "changes", [*spec["changes"], *SMALL])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as `python -m` does
    (tmp_path / "my.py").write_text(MINE)
    sys.modules.pop("my", None)
    return tmp_path / "runs" / "arena" / "demo"


def test_every_method_gets_the_same_trials_and_is_tested_with_every_seed(small, capsys):
    """A method that fails does not stop the others."""
    call = ["demo", "--methods", "my.py:Mine,my.py:Failing", "--trials", "2", "--seeds", "0,1"]
    assert arena.main(call) == 0
    for name in ("local", "my*Mine"):
        (own,) = small.glob(name)
        trials = [Folder(path) for path in sorted(own.glob("*-trial*/seed0"))]
        tested = [Folder(path).read_experiment() for path in sorted(own.glob("final/*-seed*"))]
        assert (len(trials), len(tested)) == (2, 2)
        assert all(trial.read_experiment().data["validation_share"] > 0 for trial in trials)
        assert not any(one.data.get("validation_share") for one in tested)
        assert tested[0].learner == tested[1].learner
        assert {one.participation["name"] for one in tested} == {"by_group"}
    said, complained = capsys.readouterr()
    assert "my:Failing is left out: it cannot start" in complained
    assert "| Mine |" in said
    assert re.search(r"rate 0\.\d+, tilt \d", said)
    assert (small / "report.html").is_file()
    assert arena.main(call) == 0  # everything is read
    assert capsys.readouterr().out == said


def test_a_yardstick_without_its_data_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    assert arena.main(["rotated_mnist", "--out", str(tmp_path)]) == 3
    assert "mnist" in capsys.readouterr().err


@pytest.mark.parametrize("yardstick", arena.DECLARED)
def test_every_method_of_the_arena_exists(yardstick):
    methods = set(arena.methods_on(yardstick, ()))
    assert methods >= set(arena.METHODS) - set(arena.DECLARED[yardstick].get("without", ()))


def entry(method, worst, **more):
    figures = {"group/worst10": worst, "group/variance": [4.0] * 3, "seconds": [9.6]}
    values = {"label": method.upper(), "trials": 4, "chosen": {"algorithm.q": 0.5}}
    made = Entry("demo", method, **values, seeds=[0, 1, 2], figures=figures, chance={}, origin={})
    return replace(made, **more)


def test_the_table_is_sorted_and_says_what_chance_gives_and_what_was_chosen():
    entries = [entry("a", [1.0, 2.0, 3.0]), entry("b", [5.0] * 3, chance={"group/variance": 0.44})]
    made = board(entries)
    assert [row[0] for row in made.rows] == ["B", "A"]
    assert made.titles == ["method", "worst", "variance", "seconds", "chosen"]
    assert "(chance 0.4)" in made.rows[0][2]
    assert made.rows[0][3:] == ["10", "q 0.5"]


def test_what_is_ahead_is_said_in_words_and_apart_from_chance():
    ours = entry("e2fl_steady", [80.0, 81.0, 82.0])
    clear, doubtful = entry("a", [84.0, 85.1, 86.0]), entry("b", [70.0, 95.0, 90.0])
    (sentence,) = ahead([ours, clear, doubtful, entry("c", [1.0] * 3)])
    assert sentence == (
        "**Worst group**: better than E2FL_STEADY: A (+4.0); "
        "ahead of it, which may be chance: B (+4.0)."
    )
    (nobody,) = ahead([ours, entry("c", [1.0] * 3)])
    assert "no other method is ahead of E2FL_STEADY" in nobody


def test_entries_are_stored_and_the_last_of_a_method_counts(tmp_path):
    old, new = entry("a", [1.0] * 3), entry("a", [2.0] * 3)
    path = tmp_path / "arena.jsonl"
    write_entries(merged([old, entry("b", [3.0] * 3)], [new]), path)
    assert read_entries(path) == [new, entry("b", [3.0] * 3)]
