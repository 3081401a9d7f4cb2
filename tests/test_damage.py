"""Damaged, truncated and deleted files of a run are noticed, and the last good checkpoint is used."""

import json
import shutil
from dataclasses import dataclass, replace

import numpy as np
import pytest
from safetensors import SafetensorError

from e2fl import assign
from e2fl.cli import main
from e2fl.config.experiment import from_dict
from e2fl.errors import ConfigError, RunError, StorageError
from e2fl.runs import data_files
from e2fl.runs import folder as folders
from e2fl.runs.folder import Folder
from e2fl.runs.runner import Watcher, read_run, run_experiment
from e2fl.testing.toy import Toy
from tests.test_runner import Noting, StopAfter, contents, refused_and_unchanged


@pytest.mark.parametrize("name", ["history.jsonl", "clients.csv", "model.safetensors", "summary.json", "manifest.json"])
def test_a_damaged_result_is_refused_by_name(toy, tmp_path, name):
    run_experiment(toy, out=tmp_path / "run")
    path = tmp_path / "run" / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    train = Toy().client(0).train
    for read in (read_run, lambda folder: assign(folder, train, group=0)):
        with pytest.raises(RunError, match=name.replace(".", r"\.")):
            read(tmp_path / "run")
    path.unlink()
    if name != "manifest.json":
        with pytest.raises(RunError, match=name.replace(".", r"\.")):
            read_run(tmp_path / "run")


def test_garbage_in_a_run_without_a_manifest_is_one_clear_error(toy, tmp_path):
    run_experiment(toy, out=tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    assert read_run(tmp_path / "run").summary["rounds"] == 6  # runs of earlier versions have none
    for name in ("history.jsonl", "clients.csv"):
        path = tmp_path / "run" / name
        before = path.read_bytes()
        for garbage in (b"\xff\xfe garbage\n", b"[1]\n", b"client,group\na,b\n", b'{"round": "x"}\n'):
            path.write_bytes(garbage)
            with pytest.raises(RunError, match=rf"{name} is damaged: it cannot be read"):
                read_run(tmp_path / "run")
        path.write_bytes(before)


@pytest.mark.parametrize("how", ["empty", "short", "garbage", "gone"])
def test_a_damaged_history_falls_back_to_a_good_checkpoint_or_is_refused(toy, tmp_path, how):
    run_experiment(toy, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(toy, out=tmp_path / "parts", watcher=StopAfter(5))
    path = tmp_path / "parts" / "history.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "short": lines[0], "garbage": lines[0] + b"\xff\n"}[how])
    watcher = Noting()
    if how in ("short", "garbage"):
        run_experiment(toy, out=tmp_path / "parts", resume=True, watcher=watcher)
        assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    else:
        refused_and_unchanged(toy, tmp_path / "parts", watcher)
    assert any("does not match history.jsonl" in note for note in watcher.notes)


DITTO = {"name": "ditto", "clients_per_round": 4}


def test_deleted_client_models_are_noticed(toy, tmp_path):
    experiment = replace(toy, algorithm=DITTO, checkpoint_seconds=1000.0)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=tmp_path / "parts", watcher=StopAfter(4))
    checkpoint = max((tmp_path / "parts" / "checkpoint").glob("round-*"))
    needed = json.loads((checkpoint / "checkpoint.json").read_text())["extra"]["memories"]
    (tmp_path / "parts" / "checkpoint" / "clients" / needed[0]).unlink()
    watcher = Noting()
    refused_and_unchanged(experiment, tmp_path / "parts", watcher)
    assert any("models that clients kept and that are gone" in note for note in watcher.notes)


def test_a_flipped_bit_in_a_client_model_is_refused(toy, tmp_path):
    experiment = replace(toy, algorithm=DITTO | {"clients_per_round": 8}, checkpoint_seconds=1000.0)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=tmp_path / "run", watcher=StopAfter(4))
    for victim in (tmp_path / "run" / "checkpoint" / "clients").iterdir():
        raw = bytearray(victim.read_bytes())
        raw[-5] ^= 1
        victim.write_bytes(raw)
    watcher = Noting()
    with pytest.raises(RunError, match="does not match its checksum"):
        run_experiment(experiment, out=tmp_path / "run", resume=True, watcher=watcher)


def test_partial_files_are_gone_when_a_resumed_run_is_done(toy, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_experiment(toy, out=tmp_path / "run", watcher=StopAfter(3))
    checkpoints = tmp_path / "run" / "checkpoint"
    (checkpoints / "round-0000005.partial").mkdir()
    (checkpoints / ".round-0000004.partial").mkdir()
    (tmp_path / "run" / ".summary.json.partial").write_text("{")
    run_experiment(toy, out=tmp_path / "run", resume=True)
    assert not [path for path in (tmp_path / "run").rglob("*") if path.name.endswith(".partial")]
    assert [path.name for path in checkpoints.iterdir()] == ["round-0000006"]


def test_client_models_are_dropped_when_a_run_is_done_unless_kept(toy, tmp_path):
    experiment = replace(toy, algorithm=DITTO, rounds=2)
    dropped = run_experiment(experiment, out=tmp_path / "dropped")
    kept = run_experiment(replace(experiment, keep_client_models=True), out=tmp_path / "kept")
    assert (dropped.summary["client_models"], kept.summary["client_models"]) == ("dropped", "kept")
    assert not (tmp_path / "dropped" / "checkpoint" / "clients").exists()
    assert list((tmp_path / "kept" / "checkpoint" / "clients").iterdir())
    assert run_experiment(toy, out=tmp_path / "none").summary["client_models"] == "none"


class RemoveFolder(Watcher):
    def __init__(self, path):
        self.path = path

    def advance(self, number, measured):
        if number == 3:
            shutil.rmtree(self.path)


def test_a_folder_removed_during_a_run_is_one_clear_error(toy, tmp_path):
    with pytest.raises(StorageError, match="was removed while the run used it; start the run again"):
        run_experiment(toy, out=tmp_path / "run", watcher=RemoveFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "error", [SafetensorError("I/O error: No space left on device (os error 28)"), OSError(28, "x")]
)
def test_a_disk_that_fills_at_the_end_loses_nothing(toy, tmp_path, monkeypatch, error, capsys):
    run_experiment(toy, out=tmp_path / "whole")
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    monkeypatch.chdir(tmp_path)

    def full(tensors, path):
        path.write_bytes(b"half")
        raise error

    real = folders.save_file
    monkeypatch.setattr(folders, "save_file", full)
    assert main(["run", "toy.toml", "--out", "parts"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "e2fl: cannot write parts/model.safetensors: the disk is full; free some space"
    assert not list((tmp_path / "parts").glob(".*.partial"))
    monkeypatch.setattr(folders, "save_file", real)
    run_experiment(toy, out=tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_model_too_large_for_memory_is_one_clear_error(toy):
    huge = from_dict(toy.to_dict() | {"model": {"name": "mlp", "hidden": [10**7, 10**7]}})
    with pytest.raises(ConfigError, match="model 'mlp' is too large for the memory of this machine"):
        run_experiment(huge)


def test_names_that_look_like_formulas_are_neutral_in_the_table_and_come_back(tmp_path):
    names = ["=HYPERLINK(1)", "@SUM(1)", "+1", "-1x", "'-1", "'=x", "''=x", "'quoted", "plain", "\tx"]
    rows = [{"client": name, "group": name, "n": 1, "accuracy": 1.0, "loss": -0.5} for name in names]
    folder = Folder(tmp_path)
    folder.write_clients(rows)
    cells = [line.split(",")[0].strip('"') for line in (tmp_path / "clients.csv").read_text().splitlines()[1:]]
    assert [cell for cell in cells if cell.startswith(("=", "@", "+", "-", "\t"))] == ["+1"]  # a number
    assert folder.read_clients() == rows


@dataclass(frozen=True)
class NoGroups(Toy):
    """Toy's groups, which no client declares."""

    def client(self, number):
        return replace(super().client(number), group=None)

    @property
    def population(self):
        return replace(super().population, declared=dict.fromkeys(range(self.clients)), groups=0)


def test_group_measures_are_over_found_groups_where_none_are_declared(toy):
    section = {"name": "e2fl", "clients_per_round": 8, "grouping": {"name": "rank_clustering", "groups": 2}}
    run = run_experiment(replace(toy, algorithm=section, data={"name": "tests.test_damage:NoGroups", "styles": True}))
    summary = run.summary
    assert (summary["groups_are"], summary["membership"]) == ("found", "found")
    assert list(summary["groups"]) == ["found 0", "found 1"]
    for number, name in enumerate(summary["groups"]):
        own = [row["accuracy"] for row in run.clients if row["served_as"] == number]
        assert summary["groups"][name]["clients"] == len(own)
        assert summary["groups"][name]["accuracy"] == pytest.approx(np.mean(own))
    assert summary["group"]["mean"] == pytest.approx(np.mean([g["accuracy"] for g in summary["groups"].values()]))
    assert run.history[-1]["groups_are"] == "found"
    declared = run_experiment(toy)
    assert (declared.summary["groups_are"], declared.summary["membership"]) == ("declared", "declared")
    assert "groups_are" not in declared.history[-1]
    assert run_experiment(toy.variant("fedavg")).summary["membership"] is None


def test_the_deviation_of_the_loss_is_that_of_the_clients_and_of_the_groups(toy):
    run = run_experiment(toy)
    losses = [row["loss"] for row in run.clients]
    groups = [group["loss"] for group in run.summary["groups"].values()]
    assert run.summary["loss"]["user"] == {"mean": pytest.approx(np.mean(losses)), "std": pytest.approx(np.std(losses))}
    assert run.summary["loss"]["group"]["std"] == pytest.approx(np.std(groups))
    assert run.summary["views"]["global"]["loss"]["user"]["std"] > 0


def test_the_budget_is_counted(toy):
    budget = run_experiment(toy).summary["budget"]
    assert budget == {"client_trainings": 24, "client_epochs": 48.0, "examples": 24 * 2 * 48}
    local = run_experiment(replace(toy, algorithm={"name": "local", "epochs": 5})).summary["budget"]
    assert local == {"client_trainings": 8, "client_epochs": 40.0, "examples": 8 * 5 * 48}
    ditto = run_experiment(replace(toy, algorithm=DITTO)).summary["budget"]
    assert ditto["client_epochs"] == 96.0  # it trains two models


def test_local_says_that_it_does_not_follow_rounds(toy):
    watcher = Noting()
    run_experiment(replace(toy, algorithm={"name": "local", "clients_per_round": 4, "epochs": 1}), watcher=watcher)
    assert any("trains alone and only once, so there are 2 rounds, not 6" in note for note in watcher.notes)


def test_a_run_stores_what_its_data_looks_like(toy, tmp_path):
    run_experiment(toy, out=tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "data.json").read_text())
    assert stored["clients"] == 8
    assert stored["examples"] == {"train": 8 * 48, "test": 8 * 48}
    assert stored["labels"] == ["0", "1", "2"]
    assert [(group["name"], group["clients"], group["train"]) for group in stored["groups"]] == [
        ("G1", 4, 192),
        ("G2", 4, 192),
    ]
    assert [sum(group["labels"]) for group in stored["groups"]] == [192, 192]
    assert (tmp_path / "run" / "data.svg").read_text().startswith("<svg")


def test_data_that_cannot_be_counted_or_drawn_ends_no_run(toy, tmp_path, monkeypatch):
    def fail(data):
        raise ValueError("no names today")

    monkeypatch.setattr(data_files, "describe", fail)
    monkeypatch.setattr(data_files, "summarise", fail)
    watcher = Noting()
    assert run_experiment(replace(toy, rounds=1), out=tmp_path / "odd", watcher=watcher).summary["rounds"] == 1
    assert "data.json is not written: ValueError: no names today" in watcher.notes
    assert "data.svg is not written: ValueError: no names today" in watcher.notes
    assert not (tmp_path / "odd" / "data.json").exists()


def test_groups_inside_clients_are_counted_by_rows(toy, tmp_path):
    run_experiment(replace(toy, data={"name": "e2fl.testing.toy:Toy", "inside": True}, rounds=1), out=tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "data.json").read_text())
    assert sum(group["train"] for group in stored["groups"]) == 8 * 48
    assert sum(group["test"] for group in stored["groups"]) == 8 * 48
    assert {group["clients"] for group in stored["groups"]} == {8}
