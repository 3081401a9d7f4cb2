"""The files of a run: what they hold, that damage is one clear error, that no link is followed."""

import json
import math
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from e2fl import codec
from e2fl.cli import main
from e2fl.errors import RunError, StorageError
from e2fl.runs import store
from e2fl.runs.batch import Task, compare, run_all
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import Folder, read_run
from e2fl.runs.watcher import Watcher
from tests.runs.helpers import FILES, Noting, stopped
from tests.toys import toy_with


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    run_experiment(toy_with(rounds=4), out=folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    """A finished run that a test may damage."""
    return shutil.copytree(finished, tmp_path / "run")


def test_a_run_leaves_the_files_of_the_contract(finished):
    names = {path.name for path in finished.iterdir()}
    assert names >= {*FILES, "config.toml", "summary.json", "checkpoint", "data.json", "data.svg"}
    run = read_run(finished)
    assert run.summary.keys() >= {"algorithm", "dataset", "rounds", "seed", "version", "bytes"}
    assert run.summary["groups"]["G1"].keys() == {"clients", "accuracy", "loss"}
    # What is empty is left out.
    assert not {"unseen", "diverged", "failed", "validation"} & {*run.summary, *run.history[-1]}
    assert [line["round"] for line in run.history] == [2, 4]
    assert (run.label, run.seed, run.experiment.rounds) == ("e2fl", 0, 4)
    masks = load_file(finished / "model.safetensors")
    assert {name.split("/")[0] for name in masks} == {"global", "group0", "group1"}
    assert all(mask.dtype == np.bool_ for mask in masks.values())
    data = json.loads((finished / "data.json").read_text())
    assert (data["clients"], data["examples"]) == (8, {"train": 8 * 48, "test": 8 * 48})
    groups = [(group["name"], group["clients"], group["train"]) for group in data["groups"]]
    assert groups == [("G1", 4, 192), ("G2", 4, 192)]
    assert (finished / "data.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("name", ["history.jsonl", "clients.csv", "summary.json", "config.toml"])
def test_damage_is_one_clear_error_and_only_regular_files_are_read(folder, name, tmp_path):
    """Links lead elsewhere, pipes never end, large files fill the memory."""
    path = folder / name
    real = path.rename(tmp_path / "real")
    for garbage in (b"\xff\xfe \n", b"[1]\n", b"[" * 100_000 + b"\n", b"x = " + b"[" * 9999, b""):
        path.write_bytes(garbage)
        with pytest.raises(RunError, match=name.replace(".", r"\.")):
            read_run(folder)
    with path.open("wb") as file:
        file.truncate(20 * 2**30)  # a hole: it takes no space
    with pytest.raises(RunError):
        read_run(folder)
    path.unlink()
    for make in (lambda: path.symlink_to(real), lambda: os.mkfifo(path)):
        make()
        with pytest.raises(RunError):
            read_run(folder)
        path.unlink()


@pytest.mark.parametrize("name", ["data.svg", "data.json", "command.txt"])
def test_a_linked_file_does_not_get_into_the_page(folder, name, tmp_path):
    (tmp_path / "secret").write_text('{"clients": "<svg>my secret</svg>"}')
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "secret")
    page = tmp_path / "page.html"
    main(["report", str(folder), "--out", str(page)])
    assert not page.exists() or "my secret" not in page.read_text()


def test_a_run_is_not_continued_through_a_link(toy, tmp_path):
    """Files in another folder would be deleted."""
    folder = stopped(toy, tmp_path / "run", 3)
    (folder / "checkpoint").rename(tmp_path / "mine")
    (tmp_path / "mine" / "precious.partial").write_text("precious")
    (folder / "checkpoint").symlink_to(tmp_path / "mine")
    with pytest.raises(RunError, match="symbolic link"):
        run_experiment(toy, out=folder, resume=True)
    assert (tmp_path / "mine" / "precious.partial").exists()


def test_a_comparison_is_not_continued_in_a_linked_folder(toy, tmp_path):
    """`resume` wrote and deleted in the folder that the link names."""
    elsewhere = stopped(toy, tmp_path / "elsewhere", 3)
    before = sorted(path.name for path in elsewhere.rglob("*"))
    out = tmp_path / "compared"
    out.mkdir()
    (out / "e2fl-seed0").symlink_to(elsewhere)
    with pytest.raises(RunError, match="symbolic link"):
        compare({"e2fl": toy}, [0], out=out, resume=True)
    with pytest.raises(RunError, match="symbolic link"):
        run_all([Task(toy, out / "e2fl-seed0")]).finished()
    assert sorted(path.name for path in elsewhere.rglob("*")) == before


def test_a_file_of_arrays_that_is_none_is_not_read_whole(folder, monkeypatch):
    """20 GiB without a header, and with one that claims 20 GiB of weights."""
    reads = []
    monkeypatch.setattr("safetensors.torch.load", reads.append)
    path = folder / "model.safetensors"
    size = 20 * 2**30
    header = json.dumps({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    for start in (b"", len(header).to_bytes(8, "little") + header, b"\xff" * 8):
        path.write_bytes(start)
        os.truncate(path, len(start) + size)
        with pytest.raises((OSError, ValueError)):
            codec.load_tensors(path)
        os.truncate(path, 8 * 2**20)  # below the limit: the header tells
        with pytest.raises(ValueError, match="not a file of arrays"):
            codec.load_tensors(path)
    assert not reads


def test_the_rows_of_clients_come_back_and_no_name_is_a_formula(tmp_path):
    names = ["=HYPERLINK(1)", "@SUM(1)", "+1", "-1x", "'-1", "'=x", "''=x", "plain", "\tx", "a,b"]
    row = {"n": 1, "accuracy": 1.0, "loss": -0.5}
    rows = [{"client": name, "group": name, **row} for name in names]
    folder = Folder(tmp_path)
    folder.write_clients(rows)
    lines = (tmp_path / "clients.csv").read_text().splitlines()[1:]
    cells = [line.split(",")[0].strip('"') for line in lines]
    risky = [cell for cell in cells if cell.startswith(("=", "@", "+", "-", "\t"))]
    assert risky == ["+1"]  # a number
    assert folder.read("clients.csv", store.clients_of) == rows
    odd = {"client": "007", "group": "", "n": 1, "accuracy": 1 / 3, "loss": math.nan}
    folder.write_clients([odd, odd | {"client": "NA", "served_as": 1}])  # one has a group
    first, second = folder.read("clients.csv", store.clients_of)
    assert (first["client"], first["group"], first["served_as"]) == ("007", "", None)
    assert (second["client"], second["served_as"], second["accuracy"]) == ("NA", 1, 1 / 3)
    assert math.isnan(first["loss"])


def test_a_picture_that_a_killed_process_did_not_write_is_written_later(toy, tmp_path):
    """It was lost for good after data.json."""
    folder = stopped(toy, tmp_path / "run", 3)
    (folder / "data.svg").unlink()
    run_experiment(toy, out=folder, resume=True)
    assert (folder / "data.svg").is_file()


def test_data_that_cannot_be_counted_or_drawn_ends_no_run(toy, tmp_path, monkeypatch):
    def fail(data):
        raise ValueError("no names today")

    monkeypatch.setattr("e2fl.data.describe.summarise", fail)
    noting = Noting()
    run_experiment(replace(toy, rounds=1), out=tmp_path / "odd", watcher=noting)
    assert [warning.split(" is not")[0] for warning in noting.warnings] == ["data.svg"]
    assert not (tmp_path / "odd" / "data.json").exists()


def test_a_folder_removed_during_a_run_is_one_clear_error(toy, tmp_path):
    class RemoveFolder(Watcher):
        def advance(self, number, measured):
            if number == 3:
                shutil.rmtree(tmp_path / "run")

    with pytest.raises(StorageError, match="its folder was removed"):
        run_experiment(toy, out=tmp_path / "run", watcher=RemoveFolder())
    assert not (tmp_path / "run").exists()
