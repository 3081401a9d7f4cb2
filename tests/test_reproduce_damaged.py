"""Damaged or changed files of the ledger and of runs are refused, and nothing is written."""

import json

import pytest

from e2fl.config.experiment import from_dict
from e2fl.errors import RunError
from e2fl.reproduce.collecting import Origin, collect
from e2fl.reproduce.ledger import read_entry
from e2fl.runs.runner import run_experiment

ORIGIN = Origin("beef", {"instructions": "AVX2", "cores": 2})


@pytest.fixture
def runs(tmp_path):
    """A folder with one finished run, and the ledger made from it."""
    toy = from_dict(
        {
            "name": "toy",
            "rounds": 4,
            "evaluate_every": 1,
            "data": {"name": "e2fl.testing.toy:Toy", "clients": 4},
            "model": {"name": "mlp", "hidden": [4]},
            "learner": {"learning_rate": 0.1, "batch_size": 8, "epochs": 1},
            "algorithm": {"name": "e2fl", "clients_per_round": 2},
        }
    )
    run_experiment(toy, out=tmp_path / "runs" / "one")
    collect(tmp_path / "runs", tmp_path / "ledger", ORIGIN)
    return tmp_path


def entry_of(runs):
    (record,) = (runs / "ledger").rglob("record.json")
    return record.parent


def lines_of(path):
    return path.read_text().splitlines(keepends=True)


def test_an_entry_whose_history_was_cut_is_refused(runs):
    path = entry_of(runs) / "history.jsonl"
    path.write_text("".join(lines_of(path)[:2]))
    with pytest.raises(RunError, match="ends at round 2, and"):
        read_entry(entry_of(runs))
    path.unlink()
    with pytest.raises(RunError, match="ends at round 0"):
        read_entry(entry_of(runs))


@pytest.mark.parametrize(
    "change",
    [
        {"user": {"mean": "high"}},
        {"user": {}},
        {"user": None},
        {"group": {"mean": None}},
        {"group": [1.0]},
        {"bytes": 7},
        {"views": "none"},
        {"round": "4"},
    ],
    ids=str,
)
def test_a_line_with_figures_of_another_kind_is_refused(runs, change):
    path = entry_of(runs) / "history.jsonl"
    *kept, last = lines_of(path)
    path.write_text("".join(kept) + json.dumps(json.loads(last) | change) + "\n")
    with pytest.raises(RunError, match="is not the folder of a run"):
        read_entry(entry_of(runs))


def test_a_line_that_is_not_json_is_refused(runs):
    path = entry_of(runs) / "history.jsonl"
    path.write_text("".join(["garbage\n", *lines_of(path)]))
    with pytest.raises(RunError, match="is not the folder of a run"):
        read_entry(entry_of(runs))


def test_a_cell_that_is_too_long_is_refused(runs):
    (entry_of(runs) / "groups.csv").write_text(f"group\n{'x' * 200_000}\n")
    with pytest.raises(RunError, match="is not the folder of a run"):
        read_entry(entry_of(runs))


def test_a_finished_run_that_was_changed_is_not_collected(runs):
    path = runs / "runs" / "one" / "history.jsonl"
    path.write_text("".join(lines_of(path)[:2]))
    with pytest.raises(RunError, match="is damaged"):
        collect(runs / "runs", runs / "other", ORIGIN)
    assert not (runs / "other").exists()


def test_nothing_is_collected_if_one_run_cannot_be_read(runs):
    bad = runs / "runs" / "two"
    bad.mkdir()
    (bad / "config.toml").write_text("")
    with pytest.raises(RunError, match="runs/two"):
        collect(runs / "runs", runs / "other", ORIGIN)
    assert not (runs / "other").exists()
