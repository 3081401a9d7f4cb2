"""Runs: what they leave, that threads change nothing, and that a killed run can be resumed to the same result."""

import json
import math
import multiprocessing
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from e2fl.algorithms.fedavg import FedAvg, Update
from e2fl.cli import main
from e2fl.config.experiment import from_dict
from e2fl.errors import ConfigError, RunError, StorageError
from e2fl.runs import checkpoint, runner
from e2fl.runs.folder import Folder
from e2fl.runs.measure import divergence_warnings
from e2fl.runs.runner import Watcher, read_run, run_experiment
from e2fl.simulation import simulator

FILES = ("history.jsonl", "clients.csv", "model.safetensors")


def contents(folder):
    """Everything a run left that must not depend on how it came to pass."""
    found = {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"]
    return found | {"summary": summary}


def test_a_run_leaves_the_files_of_the_contract(toy, tmp_path):
    run = run_experiment(toy, out=tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {*FILES, "config.toml", "summary.json", "checkpoint"}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary.keys() >= {"algorithm", "dataset", "rounds", "seed", "version", "user", "group", "groups", "bytes"}
    assert summary["seconds"].keys() == {"total", "per_round"}
    assert summary["groups"]["G1"].keys() == {"clients", "accuracy", "loss"}
    assert [json.loads(line)["round"] for line in (tmp_path / "run" / "history.jsonl").open()] == [2, 4, 6]
    header = (tmp_path / "run" / "clients.csv").read_text().splitlines()[0]
    assert header.startswith("client,group,n,accuracy,loss")
    masks = load_file(tmp_path / "run" / "model.safetensors")
    assert {name.split("/")[0] for name in masks} == {"global", "group0", "group1"}
    assert all(mask.dtype == np.bool_ for mask in masks.values())
    assert run.summary["user"]["mean"] == summary["user"]["mean"]


def test_the_seconds_of_each_evaluated_round_are_kept_apart_from_the_history(toy, tmp_path):
    class Interrupt(Watcher):
        def advance(self, number, measured):
            if number == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(toy, out=tmp_path / "run", watcher=Interrupt())
    before = Folder(tmp_path / "run").read_times()
    assert list(before) == [2, 4]
    run = run_experiment(toy, out=tmp_path / "run", resume=True)
    assert list(run.times) == [2, 4, 6]
    assert {number: run.times[number] for number in before} == before
    assert run.times == read_run(tmp_path / "run").times
    assert sum(run.times.values()) == pytest.approx(run.summary["seconds"]["total"], abs=0.005)
    assert "seconds" not in (tmp_path / "run" / "history.jsonl").read_text()


def test_damaged_times_are_refused(toy, tmp_path):
    run_experiment(toy, out=tmp_path / "run")
    (tmp_path / "run" / "times.jsonl").write_text("nonsense\n")
    with pytest.raises(RunError, match=r"times\.jsonl is damaged"):
        read_run(tmp_path / "run")


def test_summary_agrees_with_the_clients_it_summarises(toy):
    run = run_experiment(toy)
    accuracies = [row["accuracy"] for row in run.clients]
    assert run.summary["user"]["mean"] == pytest.approx(np.mean(accuracies))
    assert run.summary["user"]["variance"] == pytest.approx(np.var(accuracies))
    of_g1 = [row["accuracy"] for row in run.clients if row["group"] == "G1"]
    assert run.summary["groups"]["G1"] == {
        "clients": 4,
        "accuracy": pytest.approx(np.mean(of_g1)),
        "loss": pytest.approx(np.mean([row["loss"] for row in run.clients if row["group"] == "G1"])),
    }


def test_bytes_are_those_of_the_messages_sent(toy):
    run = run_experiment(toy)
    ranking = (16 * 24 * 9 + 7) // 8 + (24 * 3 * 7 + 7) // 8
    sent = run.summary["bytes"]
    assert ranking < sent["down_per_client_round"] <= ranking + 64
    assert ranking < sent["up_per_client_round"] <= ranking + 64
    assert sent["up_total"] == 6 * 4 * sent["up_per_client_round"]


@pytest.mark.parametrize("name", ["local", "fedavg", "frl", "e2fl"])
def test_threads_never_change_a_result(toy, tmp_path, name, monkeypatch):
    left = []
    for threads, brief in ((1, 0.0), (2, 0.0), (5, 0.0), (2, math.inf)):
        monkeypatch.setattr(simulator, "BRIEF", brief)  # all in threads, or all but the first round in none
        run_experiment(replace(toy.variant(name), threads=threads), out=tmp_path / f"{threads} {brief}")
        left.append(contents(tmp_path / f"{threads} {brief}"))
    assert left[0] == left[1] == left[2] == left[3]


def test_two_processes_never_work_in_one_folder(toy, tmp_path):
    folder = Folder(tmp_path / "run")
    with folder.claimed(), pytest.raises(RunError, match="another process is using"):
        run_experiment(toy, out=tmp_path / "run")
    run_experiment(toy, out=tmp_path / "run")
    assert folder.finished()


def test_a_default_number_of_clients_a_round_is_no_demand(toy):
    few = from_dict(
        toy.to_dict() | {"data": {"name": "e2fl.testing.toy:Toy", "clients": 4}, "algorithm": {"name": "afl"}}
    )
    assert run_experiment(few).summary["user"]["mean"] > 0
    with pytest.raises(ConfigError, match="only 4 clients"):
        run_experiment(replace(few, algorithm={"name": "afl", "clients_per_round": 5}))


def test_a_folder_is_never_silently_replaced(toy, tmp_path):
    run_experiment(toy, out=tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(RunError, match="--resume"):
        run_experiment(toy, out=tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="already exists"):
        run_experiment(toy, out=tmp_path / "other")
    with pytest.raises(RunError, match="not the folder of a run"):
        run_experiment(toy, out=tmp_path / "other", resume=True)
    with pytest.raises(RunError, match="seed was 0 and is 1"):
        run_experiment(replace(toy, seed=1), out=tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == before


def test_resuming_a_finished_run_just_reads_it(toy, tmp_path):
    run = run_experiment(toy, out=tmp_path / "run")
    again = run_experiment(toy, out=tmp_path / "run", resume=True)
    assert again.summary == run.summary
    assert again.clients == run.clients


def test_more_clients_a_round_than_clients_is_refused(toy):
    with pytest.raises(ConfigError, match="only 8 clients"):
        run_experiment(from_dict(toy.to_dict() | {"algorithm": {"name": "e2fl", "clients_per_round": 9}}))


def test_a_mistake_that_the_algorithm_finds_leaves_no_folder(toy, tmp_path):
    wrong = replace(toy, algorithm={"name": "ifca", "clients_per_round": 4, "groups": 9})
    with pytest.raises(ConfigError, match="only 8 clients"):
        run_experiment(wrong, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class StopAfter(Watcher):
    """Stands for Ctrl-C in a certain round."""

    def __init__(self, number):
        self.number = number

    def advance(self, number, measured):
        if number == self.number:
            raise KeyboardInterrupt


FINDING = {"name": "e2fl", "clients_per_round": 4, "grouping": {"name": "lowest_loss", "groups": 2}}


@pytest.mark.parametrize("name", ["local", "fedavg", "e2fl", "finding groups"])
@pytest.mark.parametrize("stop", [1, 2, 5])
def test_interrupted_and_resumed_equals_uninterrupted(toy, tmp_path, name, stop):
    special = {"local": {"name": "local", "clients_per_round": 1, "epochs": 2}, "finding groups": FINDING}
    experiment = replace(toy, algorithm=special[name]) if name in special else toy.variant(name)
    experiment = replace(experiment, checkpoint_seconds=1000.0)
    run_experiment(experiment, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=tmp_path / "parts", watcher=StopAfter(stop))
    run_experiment(experiment, out=tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_run_does_not_go_on_with_a_table_that_has_changed(toy, tmp_path):
    table = tmp_path / "table.csv"
    rows = [f"{'ab'[n % 2]},{n % 2},{n},{n % 5}" for n in range(40)]
    table.write_text("\n".join(["client,label,one,two", *rows]))
    data = {"name": "table", "path": str(table), "client": "client", "label": "label"}
    experiment = replace(toy.variant("fedavg"), data=data, algorithm={"name": "fedavg", "clients_per_round": 2})
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=tmp_path / "run", watcher=StopAfter(3))
    before = (tmp_path / "run" / "history.jsonl").read_bytes()
    whole = table.read_text()
    table.write_text(whole + "\na,1,7,7")
    with pytest.raises(RunError, match="the file has changed since"):
        run_experiment(experiment, out=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "history.jsonl").read_bytes() == before
    table.write_text(whole)
    assert run_experiment(experiment, out=tmp_path / "run", resume=True).summary["rounds"] == experiment.rounds


@dataclass(frozen=True)
class Interrupted(FedAvg):
    """Stands for Ctrl-C in the middle of a round, after others have trained already."""

    at: int = 0

    def train(self, message, client, learner):
        if learner.round_number == self.at and client.id >= 5:
            raise KeyboardInterrupt
        client.memory["seen"] = message.params
        return super().train(message, client, learner)


def test_what_half_a_round_did_is_forgotten(toy, tmp_path, monkeypatch):
    section = {"name": "tests.test_runner:Interrupted", "clients_per_round": 6, "at": 3}
    experiment = from_dict(toy.to_dict() | {"algorithm": section, "checkpoint_seconds": 1000.0})
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=tmp_path / "parts")
    real = Interrupted.train
    monkeypatch.setattr(Interrupted, "train", lambda self, *rest: real(replace(self, at=0), *rest))
    run_experiment(experiment, out=tmp_path / "parts", resume=True)
    run_experiment(experiment, out=tmp_path / "whole")
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "fedavg", "e2fl"])
def test_a_run_killed_again_and_again_ends_as_if_never_killed(toy, tmp_path, name):
    experiment = from_dict(
        toy.variant(name).to_dict()
        | {
            "rounds": 30,
            "data": {"name": "e2fl.testing.toy:Toy", "examples": 400, "clients": 40},
            "algorithm": {"name": name, "clients_per_round": 4} | ({"epochs": 8} if name == "local" else {}),
        }
    )
    (tmp_path / "toy.toml").write_text(experiment.to_toml())
    run_experiment(experiment, out=tmp_path / "whole")
    killed = 0
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["e2fl.cli", "e2fl.api", "e2fl.testing.toy"])  # torch is imported once
    command = ["run", str(tmp_path / "toy.toml"), "--out", str(tmp_path / "parts"), "--resume"]
    for attempt in range(8):
        process = processes.Process(target=_command, args=(command,))
        process.start()
        if attempt < 5:
            _wait_for_progress(tmp_path / "parts", process)
            time.sleep(0.02 * attempt)
            process.kill()
        process.join(600)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        killed += 1
    assert killed >= 2
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def _command(words):
    sys.exit(main(words))


def _wait_for_progress(folder, process):
    """Until the process has written a checkpoint that was not there before, or ended."""
    before = set((folder / "checkpoint").glob("round-???????"))
    deadline = time.monotonic() + 600
    while process.is_alive() and not set((folder / "checkpoint").glob("round-???????")) - before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Noting(Watcher):
    def __init__(self):
        self.notes = []

    def warn(self, message):
        self.notes.append(message)


def test_a_torn_checkpoint_is_told_and_the_one_before_is_used(toy, tmp_path):
    run_experiment(toy, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(toy, out=tmp_path / "parts", watcher=StopAfter(5))
    newest = max((tmp_path / "parts" / "checkpoint").glob("round-*"))
    arrays = newest / "state.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-3])
    watcher = Noting()
    run_experiment(toy, out=tmp_path / "parts", resume=True, watcher=watcher)
    assert any("damaged" in note for note in watcher.notes)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def refused_and_unchanged(experiment, folder, watcher=None):
    """Resuming fails, and every file stays as it was."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"cannot be resumed: .* start a new run in another folder"):
        run_experiment(experiment, out=folder, resume=True, watcher=watcher)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_foreign_checkpoint_is_told_and_nothing_is_erased(toy, tmp_path):
    for experiment, name in ((toy.variant("fedavg"), "foreign"), (toy, "parts")):
        with pytest.raises(KeyboardInterrupt):
            run_experiment(experiment, out=tmp_path / name, watcher=StopAfter(3))
    shutil.rmtree(tmp_path / "parts" / "checkpoint")
    shutil.copytree(tmp_path / "foreign" / "checkpoint", tmp_path / "parts" / "checkpoint")
    watcher = Noting()
    refused_and_unchanged(toy, tmp_path / "parts", watcher)
    assert any("of another kind" in note for note in watcher.notes)


def test_a_checkpoint_of_another_seed_is_not_taken(toy, tmp_path):
    for seed, name in ((5, "foreign"), (0, "parts")):
        with pytest.raises(KeyboardInterrupt):
            run_experiment(replace(toy, seed=seed), out=tmp_path / name, watcher=StopAfter(3))
    shutil.rmtree(tmp_path / "parts" / "checkpoint")
    shutil.copytree(tmp_path / "foreign" / "checkpoint", tmp_path / "parts" / "checkpoint")
    watcher = Noting()
    refused_and_unchanged(toy, tmp_path / "parts", watcher)
    assert any("to another experiment" in note for note in watcher.notes)


def test_an_interruption_while_a_round_is_recorded_costs_no_line(toy, tmp_path, monkeypatch):
    run_experiment(toy, out=tmp_path / "whole")
    real = runner.evaluation

    def interrupted(done, *rest):
        if done.number == 4:
            raise KeyboardInterrupt
        return real(done, *rest)

    monkeypatch.setattr(runner, "evaluation", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(toy, out=tmp_path / "parts")
    monkeypatch.setattr(runner, "evaluation", real)
    run_experiment(toy, out=tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_folder_with_half_a_file_only_can_be_started_in(toy, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.toml.partial").write_text("na")
    assert run_experiment(toy, out=tmp_path / "run").summary["rounds"] == 6


def test_half_a_line_of_history_is_dropped(toy, tmp_path):
    run_experiment(toy, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(toy, out=tmp_path / "parts", watcher=StopAfter(4))
    with (tmp_path / "parts" / "history.jsonl").open("a") as file:
        file.write('{"round": 6, "us')
    run_experiment(toy, out=tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_full_disk_loses_nothing_that_was_saved(toy, tmp_path, monkeypatch):
    real = checkpoint.save_file

    def full(tensors, path):
        if "0000004" in str(path):
            raise OSError(28, "No space left on device")
        real(tensors, path)

    run_experiment(toy, out=tmp_path / "whole")
    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(StorageError, match="the disk is full; free some space"):
        run_experiment(toy, out=tmp_path / "parts")
    monkeypatch.setattr(checkpoint, "save_file", real)
    run_experiment(toy, out=tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert os.listdir(tmp_path / "parts" / "checkpoint")


def test_clients_that_say_different_things_all_have_their_row(tmp_path):
    rows = [{"client": "0", "group": "", "n": 1, "accuracy": 1.0, "loss": 0.5}]
    rows.append(rows[0] | {"client": "1", "served_as": 1})
    folder = Folder(tmp_path / "run")
    (tmp_path / "run").mkdir()
    folder.write_clients(rows)
    assert [row["served_as"] for row in folder.read_clients()] == [None, 1]


@dataclass(frozen=True)
class Huge(FedAvg):
    """FedAvg whose weights are numbers, but so large that what the model gives is none."""

    def train(self, message, client, learner):
        return Update({name: torch.full_like(weight, 1e30) for name, weight in message.params.items()}, 1)


class Listening(Watcher):
    def __init__(self):
        self.heard = []

    def warn(self, message):
        self.heard.append(message)


def test_models_that_give_no_numbers_are_counted_and_told_of_once(toy, tmp_path):
    experiment = replace(toy, algorithm={"name": "tests.test_runner:Huge", "clients_per_round": 4})
    watcher = Listening()
    done = run_experiment(experiment, out=tmp_path / "run", watcher=watcher)
    assert [line["diverged"] for line in done.history] == [8, 8, 8]
    assert done.summary["diverged"] == 8
    (said,) = watcher.heard
    assert said.startswith("round 2: the models of 8 clients give outputs that are not finite")
    assert "lower learner.learning_rate" in said
    again = read_run(tmp_path / "run")
    assert {group["loss"] for group in again.summary["groups"].values()} == {None}
    assert all(math.isnan(row["loss"]) for row in again.clients)
    assert "diverged" not in run_experiment(toy).summary


def test_views_that_give_no_numbers_are_told_of_apart():
    measured = {"views": {"global": {"diverged": 1}}}
    (said,) = divergence_warnings(measured)
    assert said.startswith("the models of 1 client (view global) give")
    assert len(divergence_warnings(measured | {"diverged": 2})) == 2
    assert divergence_warnings({"user": {}}) == []
