"""A run that is stopped, killed or continued ends as if it had never been; losses are refused.

`make soak` kills processes at every write.
"""

import shutil
from dataclasses import dataclass, replace

import pytest
import safetensors.torch

from e2fl.algorithms.fedavg import FedAvg
from e2fl.cli import main
from e2fl.config.experiment import from_dict
from e2fl.errors import RunError, StorageError
from e2fl.runs import checkpoint, measure
from e2fl.runs.runner import StoppedError, run_experiment
from e2fl.runs.store import Folder
from tests.runs.helpers import (
    DITTO,
    FINDING,
    RANK,
    Noting,
    contents,
    refused_and_unchanged,
    resumed_to_the_same_end,
    stopped,
)

pytestmark = pytest.mark.usefixtures("no_plots")
LOCAL = {"name": "local", "clients_per_round": 1, "epochs": 2}


@pytest.fixture
def rare(toy):
    """An experiment that writes no checkpoint unless it is stopped."""
    return replace(toy, checkpoint_seconds=1000.0)


@pytest.mark.parametrize(
    ("algorithm", "stop"),
    [
        ({"name": "fedavg"}, 1),
        ({"name": "e2fl", "clients_per_round": 4}, 2),
        (FINDING, 5),
        (RANK, 2),
        (LOCAL, 1),
        (DITTO, 4),
    ],
)
def test_interrupted_twice_and_resumed_equals_uninterrupted(rare, tmp_path, algorithm, stop):
    experiment = replace(rare, algorithm=algorithm)
    folder = stopped(experiment, tmp_path / "run", stop)
    stopped(experiment, folder, "begin", resume=True)
    noting = resumed_to_the_same_end(experiment, folder)
    assert noting.first == stop  # a watcher after the one that stopped it may not have seen it
    # Killed before its first checkpoint, it is repeated.
    resumed_to_the_same_end(experiment, stopped(experiment, tmp_path / "killed", 1, RuntimeError))


@pytest.mark.parametrize(
    ("owner", "name", "call", "late", "error"),
    [
        (measure, "evaluation", 2, False, KeyboardInterrupt),
        (Folder, "append_history", 2, False, KeyboardInterrupt),
        (Folder, "append_history", 2, True, KeyboardInterrupt),
        (Folder, "write_clients", 1, False, RuntimeError),  # as if killed: nothing is saved
        (Folder, "write_models", 1, True, RuntimeError),
    ],
)
def test_an_end_at_any_moment_costs_one_round_at_most(
    rare, tmp_path, monkeypatch, owner, name, call, late, error
):
    real, calls = getattr(owner, name), []

    def ends(*given):
        calls.append(given)
        due = len(calls) == call
        result = real(*given) if late or not due else None
        if due:
            raise error("killed")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, ends)
        with pytest.raises(error):
            run_experiment(rare, out=tmp_path / "run")
    kept = [6, 0] if owner is Folder and call == 1 else [3, 0]
    assert checkpoint.rounds(tmp_path / "run" / "checkpoint") == kept
    resumed_to_the_same_end(rare, tmp_path / "run")


@dataclass(frozen=True)
class Interrupted(FedAvg):
    """Stands for Ctrl-C in the middle of a round, after others have trained already."""

    at: int = 0

    def train(self, message, client, learner):
        if learner.round_number == self.at and client.id >= 5:
            raise KeyboardInterrupt
        client.memory["seen"] = message.params
        return super().train(message, client, learner)


def test_half_a_round_is_forgotten(rare, tmp_path, monkeypatch):
    section = {"name": "tests.runs.test_resume:Interrupted", "clients_per_round": 6, "at": 3}
    experiment = replace(rare, algorithm=section)
    folder = stopped(experiment, tmp_path / "run", None)
    real = Interrupted.train
    monkeypatch.setattr(Interrupted, "train", lambda self, *rest: real(replace(self, at=0), *rest))
    resumed_to_the_same_end(experiment, folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("checkpoint/round-0000004.safetensors", "is damaged"),
        ("history.jsonl", "does not match history.jsonl"),
    ],
)
def test_damage_sends_a_run_back_to_the_checkpoint_before(rare, tmp_path, name, words):
    """The newer checkpoint is dropped, also if the run is stopped again."""
    folder = stopped(rare, tmp_path / "run", 5)
    (folder / name).write_bytes(b"")
    noting = Noting()
    with pytest.raises(StoppedError):
        run_experiment(
            rare, out=folder, resume=True, watcher=noting, stop=lambda: noting.rounds == 1
        )
    assert noting.first == 1
    assert f"round-0000004 {words}" in noting.warnings[0]
    assert checkpoint.rounds(folder / "checkpoint") == [1, 0]
    resumed_to_the_same_end(rare, folder)


@pytest.mark.parametrize("name", ["0000004", "model"])
def test_a_full_disk_loses_nothing_that_was_saved(toy, tmp_path, monkeypatch, name):
    real = safetensors.torch.save_file

    def full(tensors, path, **more):
        if name in path.name:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        real(tensors, path, **more)

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        with pytest.raises(StorageError, match="the disk is full; free some space"):
            run_experiment(toy, out=tmp_path / "run")
    assert not list(tmp_path.rglob("*.partial"))
    resumed_to_the_same_end(toy, tmp_path / "run")


def test_partial_files_are_gone_when_a_resumed_run_is_done(toy, tmp_path):
    folder = stopped(toy, tmp_path / "run", 3)
    assert checkpoint.rounds(folder / "checkpoint") == [2, 1]  # older ones are gone
    (folder / "checkpoint" / ".round-0000004.safetensors.partial").write_text("{")
    (folder / ".summary.json.partial").write_text("{")
    with (folder / "history.jsonl").open("a") as file:
        file.write('{"round": 6, "cl')  # half a line of a process that was killed
    resumed_to_the_same_end(toy, folder)
    assert not list(folder.rglob("*.partial"))
    assert checkpoint.rounds(folder / "checkpoint") == [6]


@pytest.mark.parametrize(
    ("change", "every", "words"),
    [
        ("algorithm", 2, "another kind"),
        ("seed", 2, "another experiment"),
        ("damaged", 2, "is damaged"),
        ("damaged", 100, "is damaged"),  # nothing was evaluated yet
        ("deleted", 2, "checkpoints are gone"),
        ("rounds", 100, "cannot be continued to round 3"),
    ],
)
def test_a_run_that_cannot_be_resumed_keeps_what_it_has(rare, tmp_path, change, every, words):
    rare = replace(rare, evaluate_every=every)
    folder = stopped(rare, tmp_path / "run", 5)
    if change == "damaged":
        for path in (folder / "checkpoint").iterdir():
            path.write_bytes(b"damaged")
    elif change == "rounds":
        rare = replace(rare, rounds=3)
    else:
        shutil.rmtree(folder / "checkpoint")
    if change in ("algorithm", "seed"):
        other = replace(rare, seed=5) if change == "seed" else rare.variant("fedavg")
        foreign = stopped(other, tmp_path / "foreign", 5) / "checkpoint"
        shutil.copytree(foreign, folder / "checkpoint")
    assert words in refused_and_unchanged(rare, folder)


def test_deleted_and_damaged_client_models_are_noticed(rare, tmp_path):
    experiment = replace(rare, algorithm=DITTO | {"clients_per_round": 8})
    folder = stopped(experiment, tmp_path / "run", 4)
    copy = shutil.copytree(folder, tmp_path / "copy")
    for path in (folder / "checkpoint" / "clients").iterdir():
        raw = bytearray(path.read_bytes())
        raw[-5] ^= 1
        path.write_bytes(raw)
    with pytest.raises(RunError, match="checksum"):
        run_experiment(experiment, out=folder, resume=True)
    shutil.rmtree(copy / "checkpoint" / "clients")
    noting = resumed_to_the_same_end(experiment, copy)
    assert "models that clients kept" in noting.warnings[0]


def test_a_change_without_effect_on_results_does_not_matter(toy, tmp_path):
    before = {"variants": {"fedavg": {"rounds": 3}}, "learner": {"momentum": 0}, "threads": 1}
    after = {"learner": {"momentum": 0.0}, "threads": 2, "name": "other"}
    after["model"] = {"name": "mlp", "hidden": (24,)}
    folder = stopped(replace(toy, **before), tmp_path / "run", 5)
    assert resumed_to_the_same_end(replace(toy, **after), folder).first == 5


def test_a_run_does_not_go_on_with_a_table_that_has_changed(rare, tmp_path):
    table = tmp_path / "table.csv"
    rows = [f"{'ab'[n % 2]},{n % 2},{n},{n % 5}" for n in range(40)]
    table.write_text("\n".join(["client,label,one,two", *rows]))
    data = {"name": "table", "path": str(table), "client": "client", "label": "label"}
    algorithm = {"name": "fedavg", "clients_per_round": 2}
    experiment = replace(rare, data=data, algorithm=algorithm)
    early, late = (
        stopped(experiment, tmp_path / str(number), number, RuntimeError) for number in (1, 4)
    )
    table.write_text(table.read_text() + "\na,1,7,7")
    assert run_experiment(experiment, out=early, resume=True).summary["rounds"] == 6
    assert "data file has changed since" in refused_and_unchanged(experiment, late)


# More rounds for a finished run.


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "e2fl", "clients_per_round": 4},
        FINDING,
        RANK,
        DITTO,
        {"name": "fedavg"},
    ],
)
def test_continued_equals_uninterrupted(toy, tmp_path, algorithm):
    first = 4 if algorithm["name"] in ("fedavg", "ditto") else 5  # evaluated, or for being the last
    whole = replace(toy, algorithm=algorithm, rounds=9, keep_client_models=True)
    run_experiment(replace(whole, rounds=first), out=tmp_path / "run")
    resumed_to_the_same_end(whole, tmp_path / "run")


def test_a_continued_run_may_be_killed_at_any_moment(rare, tmp_path):
    whole = replace(rare, rounds=9)
    run_experiment(replace(whole, rounds=5), out=tmp_path / "run")
    # The history is cut, nothing is saved yet.
    stopped(whole, tmp_path / "run", "begin", RuntimeError, resume=True)
    stopped(whole, tmp_path / "run", 7, resume=True)
    assert resumed_to_the_same_end(whole, tmp_path / "run").first == 7


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
    policy, population = whole.build.participation(), whole.build.data().population
    present = [len(policy.present(population, number, whole.seed)) for number in range(4)]
    assert present == [0, 0, 2, 2]
    run_experiment(replace(whole, rounds=2), out=tmp_path / "run")
    resumed_to_the_same_end(whole, tmp_path / "run")
    assert [line["round"] for line in Folder(tmp_path / "run").read_history()] == [3, 4]


@pytest.mark.parametrize(
    ("algorithm", "rounds", "words"),
    [
        ({"name": "local", "epochs": 1}, 9, "cannot be continued"),
        ({"name": "e2fl"}, 3, "cannot be continued"),
        ({"name": "ditto"}, 9, "--keep-client-models"),
    ],
)
def test_what_cannot_be_continued_says_why_and_stays(toy, tmp_path, algorithm, rounds, words):
    experiment = replace(toy, algorithm=algorithm)
    run_experiment(experiment, out=tmp_path / "run")
    assert words in refused_and_unchanged(replace(experiment, rounds=rounds), tmp_path / "run")


def test_a_folder_is_never_silently_replaced(toy, tmp_path):
    run = run_experiment(toy, out=tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(RunError, match="--resume"):
        run_experiment(toy, out=tmp_path / "run")
    again = run_experiment(toy, out=tmp_path / "run", resume=True)  # a finished run is read
    assert (again.summary, again.clients) == (run.summary, run.clients)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="already exists"):
        run_experiment(toy, out=tmp_path / "other")
    with pytest.raises(RunError, match="not the folder of a run"):
        run_experiment(toy, out=tmp_path / "other", resume=True)
    with pytest.raises(RunError, match="seed was 0 and is 1"):
        run_experiment(replace(toy, seed=1), out=tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == before


def test_two_processes_never_work_in_one_folder(toy, tmp_path):
    with Folder(tmp_path / "run").claimed(), pytest.raises(RunError, match="another process"):
        run_experiment(toy, out=tmp_path / "run")
    assert run_experiment(toy, out=tmp_path / "run").summary["rounds"] == 6


# The command.


def test_resume_takes_a_folder_and_more_rounds(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    run_experiment(replace(toy, rounds=9), out=tmp_path / "whole")
    assert main(["run", "toy.toml", "--out", "run"]) == 0
    assert main(["resume", "run", "--set", "rounds=9"]) == 0
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert (tmp_path / "run" / "command.txt").read_text() == "e2fl run toy.toml --out run\n"
    assert "e2fl run toy.toml --out run" in (tmp_path / "run" / "report.html").read_text()
    assert main(["resume", "nowhere"]) == 2
    assert "holds no run and no comparison" in capsys.readouterr().err


def test_resume_imports_code_that_a_folder_names_only_if_it_is_trusted(
    toy, tmp_path, monkeypatch, capsys
):
    """Neither config.toml nor command.txt is trusted without a word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_resume.py").write_text(
        "open('imported', 'w').close()\nfrom e2fl.algorithms.fedavg import FedAvg as Mine\n"
    )
    sections = [
        {section: {"name": f"evil_resume:{name}"}}
        for section in ("algorithm", "model", "data", "participation", "attack")
        for name in ("Mine", "", "\N{LATIN SMALL LETTER E WITH ACUTE}")
    ]
    sections += [{"algorithm": {"name": "e2fl", "grouping": {"name": "evil_resume:Mine"}}}]
    for position, section in enumerate([*sections, {"measures": ["evil_resume:Mine"]}]):
        (tmp_path / f"run{position}").mkdir()
        values = toy.to_dict() | {"rounds": 1} | section
        (tmp_path / f"run{position}" / "config.toml").write_text(from_dict(values).to_toml())
    (tmp_path / "toy.toml").write_text(replace(toy, rounds=1).to_toml())
    (tmp_path / "both").mkdir()
    words = "e2fl compare toy.toml --algorithms fedavg,evil_resume:Mine --out both"
    (tmp_path / "both" / "command.txt").write_text(words)
    for folder in ("both", *(f"run{position}" for position in range(len(sections) + 1))):
        assert main(["resume", folder]) == 2
        told = capsys.readouterr().err
        assert "pass --trust" in told or "another configuration" in told
        assert "is imported" not in told
        assert not (tmp_path / "imported").exists()
    assert main(["resume", "both", "--trust"]) == 0
    assert (tmp_path / "imported").exists()
    assert (tmp_path / "both" / "evil_resume.Mine-seed0" / "summary.json").is_file()
