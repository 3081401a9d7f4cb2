"""Resuming a run after a change: it continues if the change has no effect, and is refused, unharmed, otherwise."""

import json
import shutil
from dataclasses import replace

import pytest

from e2fl.errors import RunError
from e2fl.files import sha256
from e2fl.runs import checkpoint
from e2fl.runs.folder import Folder
from e2fl.runs.resume import lineage
from e2fl.runs.runner import Watcher, run_experiment
from tests.test_more_rounds import RANK
from tests.test_runner import StopAfter, contents, refused_and_unchanged


class Begin(Watcher):
    """Notes the round that a run begins with."""

    def begin(self, experiment, first, last):
        self.first = first


class Kill(Watcher):
    """Stands for a killed process: nothing is saved any more."""

    def __init__(self, number):
        self.number = number

    def advance(self, number, measured):
        if number == self.number:
            raise RuntimeError("killed")


def killed(experiment, folder, number):
    with pytest.raises(RuntimeError, match="killed"):
        run_experiment(experiment, out=folder, watcher=Kill(number))
    return folder


def stopped(experiment, folder, number=5):
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=folder, watcher=StopAfter(number))
    return folder


def rewrite(folder, change):
    """Change the stored settings of every checkpoint, as another version would have written them."""
    for path in folder.glob("checkpoint/round-*/checkpoint.json"):
        body = json.loads(path.read_text())
        del body["sha256"]
        change(body["extra"])
        path.write_text(json.dumps(body | {"sha256": sha256(json.dumps(body).encode())}))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"variants": {"fedavg": {"rounds": 3}}}, {"variants": {"fedavg": {"rounds": 4}}}),
        ({"variants": {"fedavg": {"rounds": 3}}}, {"variants": {}}),
        ({"learner": {"momentum": 0}}, {"learner": {"momentum": 0.0}}),
        ({"model": {"name": "mlp", "hidden": [24]}}, {"model": {"name": "mlp", "hidden": (24,)}}),
    ],
)
def test_a_change_without_effect_on_the_rounds_does_not_matter(toy, tmp_path, before, after):
    folder = stopped(replace(toy, **before), tmp_path / "run")
    begin = Begin()
    run_experiment(replace(toy, **after), out=folder, resume=True, watcher=begin)
    assert begin.first == 5
    run_experiment(replace(toy, **after), out=tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


def test_large_seeds_are_told_apart(toy):
    assert lineage(replace(toy, seed=2**60)) != lineage(replace(toy, seed=2**60 + 1))


def test_checkpoints_that_hold_the_fingerprint_stay_usable(toy, tmp_path):
    folder = stopped(toy, tmp_path / "run")
    stored = Folder(folder).read_experiment()
    rewrite(folder, lambda extra: extra.update(experiment=replace(stored, rounds=1).fingerprint()))
    begin = Begin()
    run_experiment(toy, out=folder, resume=True, watcher=begin)
    assert begin.first == 5


def test_a_run_whose_checkpoints_are_of_another_version_keeps_its_history(toy, tmp_path):
    folder = stopped(toy, tmp_path / "run")
    rewrite(folder, lambda extra: extra.update(experiment="of a version with fewer settings"))
    refused_and_unchanged(toy, folder)


def test_a_run_whose_checkpoints_were_deleted_keeps_its_history(toy, tmp_path):
    folder = stopped(toy, tmp_path / "run")
    shutil.rmtree(folder / "checkpoint")
    refused_and_unchanged(toy, folder)


def test_a_damaged_checkpoint_does_not_send_a_run_back_to_its_start(toy, tmp_path):
    experiment = replace(toy, checkpoint_seconds=1000.0)
    folder = stopped(experiment, tmp_path / "run")
    assert checkpoint.rounds(folder / "checkpoint") == [4, 0]
    (folder / "checkpoint" / "round-0000004" / "state.safetensors").write_bytes(b"damaged")
    refused_and_unchanged(experiment, folder)


@pytest.mark.parametrize("algorithm", [{"name": "e2fl", "clients_per_round": 4}, RANK, {"name": "ditto"}])
@pytest.mark.parametrize("number", [1, 4, 6])
def test_a_run_killed_before_its_first_checkpoint_is_repeated(toy, tmp_path, algorithm, number):
    experiment = replace(toy, algorithm=algorithm, checkpoint_seconds=1000.0)
    folder = killed(experiment, tmp_path / "run", number)
    run_experiment(experiment, out=folder, resume=True)
    run_experiment(experiment, out=tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_run_killed_before_its_first_checkpoint_is_not_repeated_by_another_version(toy, tmp_path):
    experiment = replace(toy, checkpoint_seconds=1000.0)
    folder = killed(experiment, tmp_path / "run", 4)
    rewrite(folder, lambda extra: extra.update(experiment="of a version with fewer settings"))
    refused_and_unchanged(experiment, folder)
    (folder / "history.jsonl").write_text("")  # without any recorded round, nothing can be lost
    assert run_experiment(experiment, out=folder, resume=True).summary["rounds"] == 6


def test_a_run_killed_before_its_summary_is_repeated(toy, tmp_path, monkeypatch):
    experiment = replace(toy, checkpoint_seconds=1000.0)

    def fail(self, summary):
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write_summary", fail)
        with pytest.raises(RuntimeError, match="killed"):
            run_experiment(experiment, out=tmp_path / "run")
    assert checkpoint.rounds(tmp_path / "run" / "checkpoint") == [6, 0]
    run_experiment(experiment, out=tmp_path / "run", resume=True)
    run_experiment(experiment, out=tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_table_may_change_as_long_as_no_round_is_recorded(toy, tmp_path):
    table = tmp_path / "table.csv"
    rows = [f"{'ab'[n % 2]},{n % 2},{n},{n % 5}" for n in range(40)]
    table.write_text("\n".join(["client,label,one,two", *rows]))
    data = {"name": "table", "path": str(table), "client": "client", "label": "label"}
    experiment = replace(
        toy, data=data, algorithm={"name": "fedavg", "clients_per_round": 2}, checkpoint_seconds=1000.0
    )
    early, late = killed(experiment, tmp_path / "early", 1), killed(experiment, tmp_path / "late", 4)
    table.write_text(table.read_text() + "\na,1,7,7")
    assert run_experiment(experiment, out=early, resume=True).summary["rounds"] == 6
    before = (late / "history.jsonl").read_bytes()
    with pytest.raises(RunError, match="the file has changed since"):
        run_experiment(experiment, out=late, resume=True)
    assert (late / "history.jsonl").read_bytes() == before
